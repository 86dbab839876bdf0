"""Writes a deployment for vLLM: `vllm serve …` where a target is named, else its arguments or the speculation object.

Called by the dialect. Every setting of the deployment gets one note; what vLLM needs and nobody says is impossible.
"""

from __future__ import annotations

import json
from typing import Any

from draftproof.configs.engines.account import changeable, shown
from draftproof.configs.engines.base import Artifact
from draftproof.configs.engines.dialect import Writer
from draftproof.configs.engines.vllm import facts, options, words
from draftproof.configs.engines.vllm.history import has, told
from draftproof.configs.reading.shell import write_command
from draftproof.configs.speculation import BatchRange

_SPECULATION = "speculation."


class VllmWriter(Writer):
    """`config` becomes the speculation object, `words` the flags."""

    maps_vocabularies = True

    def write(self) -> tuple[Artifact, ...]:
        if self._method():
            self._drafter()
            self._depth()
            self._schedule()
            self._verification()
            self._keys()
            self._tree()
            self._missing()
        self._flags()
        self._extras()
        return (self._artifact(),)

    def _artifact(self) -> Artifact:
        environment = dict(self.account.said.get("extras.vllm.env", {}))
        target = self.account.said.get("target")
        launched = self.account.said.get("extras.vllm.launcher")
        speculation = [json.dumps(self.config)] if self.config else []
        if target is None and not self.words and not environment and not launched and speculation:
            return Artifact(name="speculative-config", text=speculation[0])
        flags = [*self.words, *(["--speculative-config", *speculation] if speculation else [])]
        rest = list(self.deployment.rest) if self.own else []
        launcher = launched if isinstance(launched, tuple) else ("vllm", "serve")
        flagged = len(launcher) > 2 or (target is not None and target.startswith("-"))
        named = [] if target is None else [f"--model={target}"] if flagged else [target]
        program = [*map(str, launcher), *named]
        return Artifact(name="command", text=write_command([*program, *flags, *rest], environment.items()))

    def _said(self, name: str) -> Any:
        return self.account.value(_SPECULATION + name)

    def _put(
        self, name: str, key: str, value: Any, reason: str = "the same meaning", exact: bool = True
    ) -> None:
        """Writes a key of the speculation object with its note, unless this version does not have it."""
        path = _SPECULATION + name
        presence = facts.KEY_HISTORY.get(key)
        if presence is not None and has(presence, self.version) is False:
            self.account.dropped(
                path, f"vLLM {self.version} does not have {key} ({told(presence)})", facts.HISTORY
            )
            return
        self.config[key] = value
        after = f"{key}: {shown(value)}"
        if exact:
            self.account.kept(path, after, reason)
        else:
            self.account.converted(path, after, reason, facts.SOURCE)

    def _method(self) -> bool:
        """False where there is nothing to write about speculation."""
        account, path = self.account, "speculation.method"
        method = account.said[path]
        own = self._own("method")
        further: dict[str, Any] = {}
        if method == "none":
            account.kept(path, "no --speculative-config", "vLLM does not speculate unless it is told to")
            return False
        if own is not None:
            word = own
        elif method in words.METHODS:
            word, further = words.METHODS[method]
        else:
            account.impossible(path, words.WHY_NOT.get(method, f"vLLM has no method {method}"), facts.SOURCE)
            return False
        presence = facts.METHOD_HISTORY.get(word)
        if presence is not None and has(presence, self.version) is False:
            account.impossible(
                path, f"vLLM {self.version} does not have {word}: {told(presence)}", facts.HISTORY
            )
            return False
        self.config = {"method": word, **further}
        after = ", ".join(f"{key}: {shown(value)}" for key, value in self.config.items())
        if word == method or own is not None:
            account.kept(path, after, "needs arctic-inference" if word == "suffix" else "the same meaning")
        else:
            account.converted(path, after, "vLLM's words for it", facts.SOURCE)
        if own is not None:
            account.kept("speculation.extras.vllm.method", f"method: {own}")
        return True

    def _own(self, key: str) -> Any:
        return self.account.said.get(f"speculation.extras.vllm.{key}")

    def _drafter(self) -> None:
        account, method = self.account, self.account.said["speculation.method"]
        if not account.is_said("speculation.drafter"):
            return
        if method in ("ngram", "suffix"):
            for path in ("speculation.drafter", *account.under("speculation.drafter")):
                account.dropped(path, f"method {method} has no drafter")
            return
        fault = self._path_word(str(account.said["speculation.drafter"]))
        if fault is None:
            self.config["model"] = account.said["speculation.drafter"]
            self.name("speculation.drafter", f"model: {self.config['model']}")
        else:
            account.impossible("speculation.drafter", fault, facts.SOURCE)
        if "speculation.drafter.revision" in account.said:
            self._put("drafter.revision", "revision", account.said["speculation.drafter.revision"])
        if "speculation.drafter.quantization" in account.said:
            self._quantization(
                "speculation.drafter.quantization",
                lambda value: self._put("drafter.quantization", "quantization", value),
            )

    def _path_word(self, model: str) -> str | None:
        """vLLM lets a word in the drafter's path override the method: why that is in the way here, or None."""
        method = self.config["method"]
        if method in facts.KEEPS_ITS_NAME or method == "custom_class":
            return None
        meant = next((meant for word, meant in facts.PATH_WORDS if word in model.lower()), method)
        if meant == method:
            return None
        return (
            f"vLLM takes a drafter with this path for {meant}, whatever the method says: rename the directory, "
            f"or use the method {meant}"
        )

    def _quantization(self, path: str, write: Any) -> None:
        """A word of vLLM's own goes back; another engine's word names another thing."""
        if self.own:
            write(self.account.said[path])
        else:
            self.account.dropped(
                path,
                f"a word of {self.deployment.engine}'s; vLLM reads the format from the checkpoint unless it is told",
            )

    def _depth(self) -> None:
        depth = self._said("depth")
        schedule = self._said("schedule") or ()
        if depth is not None and depth > facts.MAX_DEPTH and self._runs_on_v1():
            self.account.impossible(
                "speculation.depth",
                f"model runner V1, which has {self.method}, takes at most {facts.MAX_DEPTH}",
                facts.SOURCE,
            )
        elif depth is not None and depth < 1:
            self.account.impossible(
                "speculation.depth", "num_speculative_tokens must be above 0", facts.SOURCE
            )
        elif depth is not None:
            self._put("depth", "num_speculative_tokens", depth)
        elif not self.own:
            self._derived_depth(schedule)

    def _runs_on_v1(self) -> bool:
        """Whether model runner V2 does not have what is written."""
        return self.method in facts.ONLY_V1 or bool(self._said("different_vocabulary"))

    def _derived_depth(self, schedule: tuple[BatchRange, ...]) -> None:
        """K where another engine's configuration says it in another way."""
        levels = self._said("tree.depth")
        largest = max((part.depth for part in schedule), default=0)
        depth, reason = (
            (levels, f"the levels of the tree as a chain: {words.CHAINS_ONLY}")
            if levels is not None
            else (largest, "vLLM needs it: the largest K of the schedule")
        )
        if depth and not (depth > facts.MAX_DEPTH and self._runs_on_v1()):
            self._put("depth", "num_speculative_tokens", depth, reason, exact=False)

    def _schedule(self) -> None:
        schedule: tuple[BatchRange, ...] = self._said("schedule") or ()
        if not schedule:
            return
        open_end = max(self._most_requests() or words.OPEN_END, schedule[-1].low)
        self._put(
            "schedule",
            "num_speculative_tokens_per_batch_size",
            [[part.low, part.high or open_end, part.depth] for part in schedule],
            "both ends inclusive; above the last range vLLM carries on with its K",
            exact=False,
        )

    def _most_requests(self) -> int | None:
        found = self.account.value("max_num_seqs")
        return found if isinstance(found, int) else None

    def _verification(self) -> None:
        rule = self.account.said.get("speculation.verification")
        if rule is None:
            return
        own = self._own("rejection_sample_method")
        path = "speculation.verification"
        if rule == "lossy" and own is not None:
            self._put("verification", "rejection_sample_method", own)
            self.account.kept(
                "speculation.extras.vllm.rejection_sample_method", f"rejection_sample_method: {own}"
            )
        elif rule in ("standard", "block"):
            presence = facts.RULE_HISTORY[rule]
            if has(presence, self.version) is False:
                self.account.dropped(
                    path, f"vLLM {self.version} has no rule {rule}: {told(presence)}", facts.HISTORY
                )
                return
            self._put(
                "verification",
                "rejection_sample_method",
                rule,
                "runner V2 only: V1 verifies as standard and does not say so"
                if rule == "block"
                else "the same meaning",
            )
        else:
            self.account.dropped(path, words.OTHER_RULES[rule], facts.SOURCE)

    def _keys(self) -> None:
        """Settings that go into one key each, as they are."""
        account, method = self.account, self.account.said["speculation.method"]
        done = {"method", "model", "revision", "quantization", "num_speculative_tokens", "rejection_sample_method",
                "num_speculative_tokens_per_batch_size"}  # fmt: skip
        for key in facts.KEYS.values():
            if key.path is None or key.name in done:
                continue
            value = self._said(key.path)
            path = _SPECULATION + key.path
            if value is None or account.is_noted(path):
                continue
            if key.path in words.FOR_METHODS and method not in words.FOR_METHODS[key.path]:
                account.dropped(path, f"method {method} of vLLM does not look at it")
            elif key.path == "draft_sampling" and method not in words.DRAWN and not account.is_said(path):
                continue
            elif key.path == "draft_sampling" and method not in words.DRAWN:
                account.dropped(path, f"method {method} drafts one token with certainty: nothing is drawn")
            elif key.path == "different_vocabulary" and value and method != "draft_model":
                account.impossible(
                    path, "vLLM takes another vocabulary with method draft_model only", facts.SOURCE
                )
            elif (
                key.path == "draft_sampling"
                and value == "probabilistic"
                and self._said("different_vocabulary")
            ):
                account.impossible(
                    path,
                    "where the vocabularies differ, vLLM refuses to draw: greedy drafts only",
                    facts.SOURCE,
                )
            elif key.path == "lookup.min_ngram" and value > (self._said("lookup.max_ngram") or value):
                account.impossible(
                    path, "vLLM refuses prompt_lookup_min above prompt_lookup_max", facts.SOURCE
                )
            elif key.path == "draft_kv_dtype" and not self.own and value not in words.KV_WORDS:
                account.dropped(path, f"vLLM's caches are {', '.join(sorted(words.KV_WORDS))}", facts.SOURCE)
            else:
                self._put(key.path, key.name, value)
        adaptive = self._said("adaptive")
        if adaptive is False and account.is_said("speculation.adaptive"):
            account.kept(
                "speculation.adaptive",
                "the schedule"
                if account.is_said("speculation.schedule")
                else "a fixed num_speculative_tokens",
                "vLLM does not tune K by what it measures",
            )
        elif adaptive is True:
            account.dropped(
                "speculation.adaptive",
                "vLLM does not tune K: it stays fixed, or follows a schedule by batch size",
                facts.SOURCE,
            )

    def _tree(self) -> None:
        for path in self.account.under("speculation.tree"):
            self.account.dropped(
                path, f"{words.CHAINS_ONLY}: fewer candidates per position are tried", facts.HISTORY
            )

    def _missing(self) -> None:
        """What vLLM refuses to start without."""
        account, method = self.account, self.account.said["speculation.method"]
        needs_model = self.config["method"] in words.NEED_A_DRAFTER
        if needs_model and not account.is_said("speculation.drafter"):
            account.impossible(
                "speculation.drafter", f"vLLM needs the drafter's name with method {method}", facts.SOURCE
            )
        if "num_speculative_tokens" in self.config or account.is_noted("speculation.depth"):
            return
        if method == "suffix" or (method in ("mtp", "dspark") and account.is_said("speculation.drafter")):
            return
        account.impossible(
            "speculation.depth",
            f"vLLM needs num_speculative_tokens with method {method}, and nothing says it",
            facts.SOURCE,
        )

    def _flags(self) -> None:
        account = self.account
        for flag, (path, _) in options.FIELDS.items():
            value = account.value(path)
            if value is None or account.is_noted(path):
                continue
            if path == "target":
                self.name(path, str(value))
            elif path == "memory_fraction" and not 0 < value <= 1:
                account.impossible(
                    path, "vLLM refuses a fraction that is not above 0 and at most 1", facts.SOURCE
                )
            elif path == "target.quantization":
                self._quantization(
                    path, lambda word, flag=flag: self._flag("target.quantization", flag, word)
                )
            elif path == "memory_fraction" and not self.own:
                account.dropped(
                    path,
                    f"{self.deployment.engine} means another fraction than vLLM, whose --gpu-memory-utilization holds "
                    "weights, caches and room to compute: plan it anew",
                )
            elif path == "kv_dtype" and not self.own and value not in words.KV_WORDS:
                account.dropped(path, f"vLLM's caches are {', '.join(sorted(words.KV_WORDS))}", facts.SOURCE)
            elif path == "dtype" and value not in words.DTYPES:
                account.dropped(path, f"vLLM computes in {', '.join(sorted(words.DTYPES))}", facts.SOURCE)
            else:
                self._flag(path, flag, value)
        if account.is_said("graph_max_batch"):
            reason = "--max-cudagraph-capture-size counts the rows of a batch, not requests: set it anew"
            account.dropped("graph_max_batch", reason)
        for path, name in options.SWITCHES.items():
            value = account.value(path)
            if value is not None:
                flag = f"--{name}" if value else f"--no-{name}"
                self.words.append(flag)
                account.kept(path, flag)

    def _flag(self, path: str, flag: str, value: Any) -> None:
        self.words += [f"{flag}={value}"] if str(value).startswith("-") else [flag, str(value)]
        self.account.kept(path, f"{flag} {value}")

    def _extras(self) -> None:
        account = self.account
        for path in account.under("speculation.extras"):
            key = path.removeprefix("speculation.extras.vllm.")
            if account.is_noted(path) or key == path:
                continue
            if key in facts.REMOVED_KEYS:
                reason = facts.REMOVED_KEYS[key].reason
                account.dropped(path, f"vLLM {self.version} does not have it: {reason}", facts.HISTORY)
            elif key not in facts.KEYS or not self.config:
                account.dropped(path, "vLLM has no such key" if self.config else words.NOTHING_DRAFTED)
            else:
                self._put(f"extras.vllm.{key}", key, changeable(account.said[path]))
        if "extras.vllm.env" in account.said:
            variables = dict(account.said["extras.vllm.env"])
            account.kept("extras.vllm.env", " ".join(f"{name}={value}" for name, value in variables.items()))
        if isinstance(account.said.get("extras.vllm.launcher"), tuple):
            account.kept("extras.vllm.launcher", " ".join(account.said["extras.vllm.launcher"]))
        if account.said.get("extras.vllm.max_model_len") == "auto":
            self._flag("extras.vllm.max_model_len", "--max-model-len", "auto")
        if self.own and self.deployment.rest:
            account.kept("rest", " ".join(self.deployment.rest), "carried along unread")
