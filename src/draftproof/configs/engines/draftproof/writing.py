"""Writes a deployment for this product's own engine: the speculation object, and the command where a model is named.

Called by the dialect. Ranges and keys are those of `core.intent`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from draftproof.configs.engines.account import shown
from draftproof.configs.engines.base import Artifact
from draftproof.configs.engines.dialect import Writer
from draftproof.configs.engines.draftproof import words
from draftproof.configs.reading.shell import write_command
from draftproof.configs.speculation import Speculation
from draftproof.core import intent
from draftproof.core.spellings import MODEL_METHODS

_OF_THE_WHOLE = frozenset(("verification", "adaptive"))
"""Keys that a cascade names once, beside its parts."""
_UNSAID = {
    "tree": "draftproof's drafters draft chains",
    "schedule": "the depth is decided by measured time for every batch, not by a table",
    "min_depth": "short drafts are used as they are",
    "min_confidence": "a draft ends where its expected gain does, not at a set probability",
    "different_vocabulary": "vocabularies are compared and mapped by themselves",
    "draft_tensor_parallel": "a drafter runs where the target runs",
    "draft_kv_dtype": "a drafter's cache has the target's dtype",
    "draft_max_model_len": "a drafter's context is as long as its model allows",
}
_RULES_DROPPED = {
    "exact_match": "left to `auto`: a draft is accepted while it is what the target samples wherever the draft or the "
    "request allows it, and by rejection sampling elsewhere",
    "lossy": "rules that accept what the target would not have produced are not offered",
}


class DraftproofWriter(Writer):
    why_not_here = _UNSAID
    maps_vocabularies = True

    def write(self) -> tuple[Artifact, ...]:
        account = self.account
        config = self.object()
        flags = self._flags()
        text = json.dumps(config)
        target = account.said.get("target")
        environment = account.value("extras.draftproof.env") or {}
        if environment:
            account.kept("extras.draftproof.env", "in front of the command")
        if target is None and not flags and not environment and self._command() == words.COMMAND:
            return (Artifact(name="speculative-config", text=text),)
        line = [
            "draftproof",
            self._command(),
            *([] if target is None else [target]),
            *flags,
            words.CONFIG.name,
            text,
        ]
        asks = (
            target is not None
            and self._command() == "generate"
            and not {"--prompt", "--prompt-file"} & set(flags)
        )
        return (
            Artifact(
                name="command", text=write_command([*line, *(["-"] if asks else [])], environment.items())
            ),
        )

    def object(self, in_cascade: bool = False) -> dict[str, Any]:
        """The speculation object; `in_cascade`: as a part, without what a cascade names once."""
        account = self.account
        method = account.said["speculation.method"]
        kind = intent.METHODS.get(method)
        if kind is None or (in_cascade and method not in intent.PART_METHODS):
            account.impossible("speculation.method", _why_not(method, in_cascade), words.SOURCE)
            return {}
        account.kept("speculation.method", f"method: {method}")
        config: dict[str, Any] = {"method": method}
        own = {item.name for item in fields(kind)} - (_OF_THE_WHOLE if in_cascade else set())
        for key, path in words.PATHS.items():
            if key in own and key != "method":
                self._key(config, key, words.PREFIX + path)
        if "num_speculative_tokens" in own and "num_speculative_tokens" not in config:
            self._derived_depth(config)
        if method == "cascade":
            self._parts(config)
        elif kind is intent.DraftModel and not account.is_said("speculation.drafter"):
            account.impossible("speculation.drafter", "a draft model needs its name", words.SOURCE)
        return config

    def _key(self, config: dict[str, Any], key: str, path: str) -> None:
        account, value = self.account, self.account.value(path)
        if value is None:
            return
        fault = self._fault(key, value)
        if fault is not None:
            account.impossible(path, fault, words.SOURCE)
        elif key == "verification" and value in _RULES_DROPPED:
            account.dropped(path, _RULES_DROPPED[value], words.SOURCE)
        elif key == "verification":
            config[key] = words.RULES_BACK[value]
            account.kept(path, f"{key}: {config[key]}")
        elif key == "draft_weights" and config["method"] == "auto" and "model" not in config:
            account.dropped(path, "look-up has no weights, and no drafter is named", words.SOURCE)
        elif key in intent.CHOICES and value not in intent.CHOICES[key]:
            account.dropped(path, f"{key} is one of {', '.join(intent.CHOICES[key])}", words.SOURCE)
        elif key == "model":
            config[key] = value
            self._named(path, value, f"{key}: {value}")
        else:
            config[key] = value
            account.kept(path, f"{key}: {shown(value)}")

    def _fault(self, key: str, value: Any) -> str | None:
        """Why a value is out of its key's range, or None."""
        low, high = intent.INT_RANGES.get(key) or intent.FLOAT_RANGES.get(key) or (None, None)
        if low is not None and high is not None and not low <= value <= high:
            return f"{key} goes from {low:g} to {high:g}"
        if key == "model" and not (len(value) <= intent.MAX_MODEL_CHARS and value.isprintable()):
            return "a model's name consists of printable characters"
        most = self.account.value("speculation.lookup.max_ngram")
        if key == "prompt_lookup_min" and most is not None and value > most:
            return "prompt_lookup_min may not exceed prompt_lookup_max"
        return None

    def _derived_depth(self, config: dict[str, Any]) -> None:
        """K where another engine's configuration says it in another way."""
        if self.own:
            return
        levels = self.account.value("speculation.tree.depth")
        schedule = self.account.value("speculation.schedule") or ()
        depth = levels or max((part.depth for part in schedule), default=0)
        low, high = intent.INT_RANGES["num_speculative_tokens"]
        if low <= depth <= high:
            config["num_speculative_tokens"] = depth
            reason = (
                "the levels of the tree as a chain"
                if levels
                else "the largest K of the schedule, as an upper bound"
            )
            self.account.converted(
                "speculation.depth", f"num_speculative_tokens: {depth}", reason, words.SOURCE
            )

    def _parts(self, config: dict[str, Any]) -> None:
        account, path = self.account, "speculation.parts"
        parts: Sequence[Speculation] = account.value(path) or ()
        if not 1 <= len(parts) <= intent.MAX_CASCADE_PARTS:
            account.impossible(path, f"a cascade has 1 to {intent.MAX_CASCADE_PARTS} parts", words.SOURCE)
            return
        written: list[dict[str, Any]] = []
        changes: list[str] = []
        for number, part in enumerate(parts, 1):
            alone = self.alone(part)
            written.append(alone.object(in_cascade=True))
            changes += alone.changes(number)
            if alone.account.has_impossible:
                account.impossible(path, "; ".join(changes), words.SOURCE)
                return
        config["proposers"] = written
        after = f"proposers: {json.dumps(written)}"
        if changes and not self.own:
            account.converted(path, after, "; ".join(changes), words.SOURCE)
        else:
            account.kept(path, after)

    def _command(self) -> str:
        return str(self.account.said.get("extras.draftproof.launcher", words.COMMAND))

    def _target(self, target: str) -> None:
        if target.startswith("-"):
            self.account.impossible(
                "target", "a model's name that begins with a dash is taken for an option", words.SOURCE
            )
        else:
            self._named("target", target, target)

    def _named(self, path: str, name: str, after: str) -> None:
        """Another engine's hub id stays as it is, with what has to be done."""
        owner, slash, rest = name.partition("/")
        is_hub_id = (
            slash and owner not in ("", ".", "..", "~") and "/" not in rest and not name.endswith(".gguf")
        )
        if is_hub_id and not self.own:
            reason = "draftproof loads a directory, a GGUF file or a name of `models list`: download it first"
            self.account.converted(path, after, reason, words.SOURCE)
        else:
            self.account.kept(path, after)

    def _flags(self) -> list[str]:
        account, command = self.account, self._command()
        found: list[str] = []
        if "extras.draftproof.launcher" in account.said:
            account.kept("extras.draftproof.launcher", command)
        if account.is_said("target"):
            self._target(str(account.said["target"]))
        for flag, (path, option) in words.FLAGS.items():
            value = account.value(path)
            if value is None:
                continue
            if command == "generate" and path in words.NOT_OF_GENERATE:
                account.dropped(path, "`draftproof generate` answers one request with the model's context")
            elif option.choices and value not in option.choices:
                account.dropped(path, f"{flag} is one of {', '.join(option.choices)}", words.SOURCE)
            else:
                found += [flag, str(value)]
                account.kept(path, f"{flag} {value}")
        if self.own and self.deployment.rest:
            found += self.deployment.rest
            account.kept("rest", " ".join(self.deployment.rest), "carried along unread")
        return found


def _why_not(method: str, in_cascade: bool) -> str:
    if in_cascade:
        return f"the parts of a cascade are {', '.join(intent.PART_METHODS)}"
    known = {
        **MODEL_METHODS,
        "early_exit": "drafting by leaving the target early",
        "custom": "code of the user's own",
    }
    return f"draftproof does not draft with {known.get(method, method)} in this version"
