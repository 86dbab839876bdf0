"""The neutral description → SGLang's command, with a note for each setting.

Called by the dialect. What SGLang would refuse or silently replace is not rendered.
"""

from __future__ import annotations

from typing import Any

from draftproof.configs.engines.base import Artifact
from draftproof.configs.engines.dialect import Writer
from draftproof.configs.engines.sglang import flags
from draftproof.configs.engines.sglang.adaptive import write_own, write_slots
from draftproof.configs.engines.sglang.command import LAUNCHER
from draftproof.configs.engines.sglang.defaults import ALGORITHMS
from draftproof.configs.reading.shell import write_command

ADAPTIVE_FILE = "adaptive.json"
_NEAREST = {
    "suffix": "NGRAM, a trie over the outputs of all requests, is the nearest: method ngram",
    "p_eagle": "its EAGLE3 drafts one token after the other",
}
_EXTRAS = "speculation.extras.sglang."


class SGLangWriter(Writer):
    def write(self) -> tuple[Artifact, ...]:
        self.files: list[Artifact] = []
        self.has_tree = bool(self.account.under("speculation.tree"))
        self._launcher()
        self._direct("target", "target.revision", "target.quantization", "dtype", "kv_dtype", "max_model_len")
        self._direct("max_num_seqs", "tensor_parallel", "pipeline_parallel", "data_parallel", "block_size")
        self._direct("graph_max_batch")
        self._around()
        self._algorithm()
        self._rest()
        environment = (self.account.value("extras.sglang.env") or {}).items()
        return (
            Artifact(name="command", text=write_command(self.words or LAUNCHER, environment) + "\n"),
            *self.files,
        )

    def _flag(self, *words: object) -> str:
        """Appends words; returns them as a note shows them."""
        texts = [f"{word:g}" if isinstance(word, float) else str(word) for word in words]
        if texts[-1].startswith("-") and len(texts) == 2:  # a value that looks like a flag
            texts = [f"{texts[0]}={texts[1]}"]
        self.words += texts
        return " ".join(texts)

    def _launcher(self) -> None:
        path = "extras.sglang.launcher"
        own = self.account.value(path)
        launcher = LAUNCHER if own is None else own
        if own is None and not self.account.is_said("target"):
            launcher = ()
        self.words += launcher
        if own is not None:
            self.account.kept(path, " ".join(own) or "flags alone")
        env = "extras.sglang.env"
        if self.account.is_said(env):
            shown = " ".join(f"{name}={value}" for name, value in self.account.value(env).items())
            self.account.kept(env, shown)

    def _direct(self, *paths: str) -> None:
        for path in paths:
            value, option = self.account.value(path), flags.DIRECT[path]
            if value is None:
                continue
            if option.choices and value not in option.choices:
                self.account.dropped(
                    path, f"{option.name} takes one of: {', '.join(option.choices)}", flags.SOURCE
                )
            elif option.kind == "flag":
                if value:
                    self.account.kept(path, self._flag(option.name))
                else:
                    self.account.kept(path, "off by default")
            elif path in ("target", "speculation.drafter"):
                self.name(path, self._flag(option.name, value))
            else:
                self.account.kept(path, self._flag(option.name, value))

    def _around(self) -> None:
        account = self.account
        if account.is_said("memory_fraction"):
            if self.own:
                self._direct("memory_fraction")
            else:
                account.dropped(
                    "memory_fraction",
                    "--mem-fraction-static covers weights and cache pool alone, other engines' fractions "
                    "something else; plan it anew",
                    flags.SOURCE,
                )
        if account.is_said("prefix_caching"):
            off = account.value("prefix_caching") is False
            account.kept("prefix_caching", self._flag(flags.NO_RADIX_CACHE.name) if off else "on by default")
        if account.value("enforce_eager"):
            words = (flags.GRAPH_DECODE.name, "disabled", flags.GRAPH_PREFILL.name, "disabled")
            account.converted("enforce_eager", self._flag(*words), "no graphs, for decoding and for prefill")
        elif account.is_said("enforce_eager"):
            account.kept("enforce_eager", "graphs by default")
        if account.value("lora") and self.own and "--lora-paths" in self.deployment.rest:
            account.kept("lora", "--lora-paths")
        else:
            self._direct("lora")

    def _algorithm(self) -> None:
        account, path = self.account, "speculation.method"
        own_name = account.value(f"{_EXTRAS}speculative-algorithm")
        if self.method == "none":
            account.kept(path, "no --speculative-algorithm")
            self._own_keys()
            return
        name = own_name or ALGORITHMS.get(self.method)
        if name is None:
            near = _NEAREST.get(self.method)
            account.impossible(
                path, "SGLang has no such method" + (f"; {near}" if near else ""), flags.SOURCE
            )
            return
        if self.method in ("draft_model", "dflash", "eagle") and not account.is_said("speculation.drafter"):
            account.impossible(path, f"{name} needs a drafter", flags.SOURCE)
            return
        account.kept(path, self._flag(flags.ALGORITHM.name, name))
        if own_name is not None:
            account.kept(f"{_EXTRAS}speculative-algorithm", name)
        self._direct(
            "speculation.drafter", "speculation.drafter.revision", "speculation.drafter.quantization"
        )
        self._direct("speculation.draft_kv_dtype")
        if self.method in flags.EAGLE_FAMILY:
            self._chain_or_tree()
        elif self.method == "ngram":
            self._ngram()
        elif self.method in ("dflash", "dspark"):
            self._window(flags.DFLASH_BLOCK if self.method == "dflash" else flags.DSPARK_BLOCK)
        self._schedule()
        self._adaptive()
        self._verification()
        self._own_keys()

    def _chain_or_tree(self) -> None:
        account = self.account
        paths = ("speculation.tree.depth", "speculation.tree.branching", "speculation.tree.num_nodes")
        tree = self.deployment.speculation.tree
        if tree is not None and self.has_tree:
            if None in (tree.depth, tree.branching, tree.num_nodes):
                said = [path for path in paths if account.is_said(path)]
                account.impossible(
                    said[0], "SGLang takes steps, top-k and draft tokens together, or none", flags.SOURCE
                )
                return
            assert tree.num_nodes is not None
            if tree.branching == 1:
                account.impossible(
                    paths[1],
                    "with top-k 1 SGLang drafts a chain; say a depth instead of a tree",
                    flags.SOURCE,
                )
                return
            account.kept(paths[0], self._flag(flags.STEPS.name, tree.depth))
            account.kept(paths[1], self._flag(flags.TOPK.name, tree.branching))
            account.converted(
                paths[2],
                self._flag(flags.TOKENS.name, tree.num_nodes + 1),
                "SGLang counts the root, too",
                flags.SOURCE,
            )
            return
        depth = account.value("speculation.depth")
        if depth is None:
            self._unknown_depth()
            return
        if self._is_outside_schedule(depth):
            return
        words = (flags.STEPS.name, depth, flags.TOPK.name, 1, flags.TOKENS.name, depth + 1)
        account.converted(
            "speculation.depth",
            self._flag(*words),
            "a chain of K drafts is K steps and a window of K+1",
            flags.SOURCE,
        )

    def _unknown_depth(self) -> None:
        """Nothing said is nothing written, unless the source engine would have chosen by the checkpoint."""
        if not self.own and self.deployment.engine and self.account.is_implied("speculation.depth"):
            self.account.impossible(
                "speculation.depth", "say the depth: SGLang would choose another one by itself"
            )

    def _is_outside_schedule(self, depth: int) -> bool:
        schedule = self.deployment.speculation.schedule
        if schedule and self.method in flags.SCHEDULED and depth not in {part.depth for part in schedule}:
            self.account.dropped(
                "speculation.depth",
                "the schedule decides, and SGLang refuses steps that no slot names",
                flags.SOURCE,
            )
            return True
        return False

    def _ngram(self) -> None:
        account = self.account
        depth = account.value("speculation.depth")
        if depth is not None:
            words = (flags.BREADTH.name, 1, flags.TOKENS.name, depth + 1)
            account.converted(
                "speculation.depth",
                self._flag(*words),
                "breadth 1 drafts a chain; the width counts the root",
                flags.SOURCE,
            )
        else:
            branching, nodes = (
                account.value("speculation.tree.branching"),
                account.value("speculation.tree.num_nodes"),
            )
            if branching == 1 and nodes is not None:
                account.impossible(
                    "speculation.tree.branching", "breadth 1 is a chain; say a depth instead of a tree"
                )
                return
            if branching is not None:
                account.kept("speculation.tree.branching", self._flag(flags.BREADTH.name, branching))
            if nodes is not None:
                account.converted(
                    "speculation.tree.num_nodes",
                    self._flag(flags.TOKENS.name, nodes + 1),
                    "SGLang counts the root, too",
                    flags.SOURCE,
                )
        self._direct("speculation.lookup.max_tree_depth")
        for path in ("speculation.lookup.min_ngram", "speculation.lookup.max_ngram"):
            if account.value(path) is not None:
                account.dropped(
                    path, "the length of a match is bounded by the trie's depth alone", flags.SOURCE
                )

    def _window(self, block: Any) -> None:
        depth = self.account.value("speculation.depth")
        if depth is None:
            self._unknown_depth()
        elif self.method == "dflash":
            self.account.converted(
                "speculation.depth",
                self._flag(block.name, depth + 1),
                "DFLASH's block counts the root",
                flags.SOURCE,
            )
        else:
            self.account.kept("speculation.depth", self._flag(block.name, depth), "γ is K; the window is K+1")

    def _schedule(self) -> None:
        schedule, path = self.deployment.speculation.schedule, "speculation.schedule"
        if not schedule:
            return
        if self.method not in flags.SCHEDULED or self.has_tree:
            self.account.impossible(
                path,
                "adaptive slots, the only schedule there is, exist for EAGLE, EAGLE3 and NEXTN chains",
                flags.SOURCE,
            )
            return
        self.files.append(Artifact(name=ADAPTIVE_FILE, text=write_slots(schedule)))
        self.account.converted(
            path,
            self._flag(flags.ADAPTIVE.name, flags.ADAPTIVE_CONFIG.name, ADAPTIVE_FILE),
            "a slot's key is the lowest batch size that it serves, its one candidate the depth; SGLang looks it up by "
            "the size of the captured graph, which may be larger than the batch",
            flags.SOURCE,
        )

    def _adaptive(self) -> None:
        account, path = self.account, "speculation.adaptive"
        value = account.value(path)
        own_config = account.value(f"{_EXTRAS}adaptive-config")
        if not account.is_said(path):
            return
        if value is False:
            account.kept(path, "off by default")
        elif self.method not in flags.SCHEDULED or self.has_tree:
            account.dropped(
                path, "adaptive steps exist for EAGLE, EAGLE3 and NEXTN chains alone", flags.SOURCE
            )
        elif self.deployment.speculation.schedule:
            account.dropped(
                path, "a slot of the schedule has one depth, so nothing adapts within it", flags.SOURCE
            )
        elif (
            own_config is None
            and (depth := account.value("speculation.depth")) is not None
            and (
                depth not in flags.DEFAULT_CANDIDATES
                and not account.is_said(f"{_EXTRAS}speculative-adaptive-config")
            )
        ):
            account.dropped(
                path,
                f"its built-in candidates are {flags.DEFAULT_CANDIDATES}; it would refuse {depth} steps",
                flags.SOURCE,
            )
        else:
            account.kept(path, self._flag(flags.ADAPTIVE.name))
            if own_config is not None:
                self.files.append(Artifact(name=ADAPTIVE_FILE, text=write_own(own_config)))
                account.kept(
                    f"{_EXTRAS}adaptive-config", self._flag(flags.ADAPTIVE_CONFIG.name, ADAPTIVE_FILE)
                )

    def _verification(self) -> None:
        account, path = self.account, "speculation.verification"
        rule = account.value(path) if account.is_said(path) else None
        thresholds = any(account.is_said(f"{_EXTRAS}{option.name[2:]}") for option in _THRESHOLDS)
        if rule == "standard":
            account.kept(path, "by default")
        elif rule == "block" and self._is_sampled_chain():
            account.kept(path, self._flag(flags.BLOCK.name))
        elif rule == "lossy" and thresholds:
            account.kept(path, "by the acceptance thresholds")
        elif rule is not None:
            account.dropped(path, _WHY_NOT[rule], flags.SOURCE)
        path = "speculation.draft_sampling"
        if not account.is_said(path):
            return
        value = account.value(path)
        sampled_anyway = self.method in ("dflash", "dspark")
        if (value == "probabilistic") == sampled_anyway:
            account.kept(path, "by default")
        elif (
            value == "probabilistic"
            and self.method in flags.SCHEDULED
            and self._is_sampled_chain()
            and not thresholds
        ):
            account.kept(
                path,
                self._flag(flags.REJECTION.name),
                "with heads that draft all of the target's tokens alone",
            )
        else:
            account.dropped(path, "the method has one way of drafting", flags.SOURCE)

    def _is_sampled_chain(self) -> bool:
        """Rejection and block verification: one chain, said or adaptive, of a method that gives distributions."""
        speculation = self.deployment.speculation
        chain = not self.has_tree and (
            speculation.levels is not None or bool(speculation.adaptive or speculation.schedule)
        )
        return (self.method in flags.SCHEDULED and chain) or self.method in ("dflash", "dspark")

    def _own_keys(self) -> None:
        for path in self.account.under("speculation.extras.sglang") + self.account.under("extras.sglang"):
            key = path.partition("sglang.")[2]
            option = flags.TABLE.get(f"--{key}")
            if option is None or self.account.is_noted(path):
                continue
            value = self.account.value(path)
            if option.kind == "flag":
                self.account.kept(path, self._flag(option.name) if value else "off by default")
            elif option.kind == "list":
                self.account.kept(path, self._flag(option.name, *value))
            else:
                self.account.kept(path, self._flag(option.name, value))

    def _rest(self) -> None:
        if self.own and self.account.is_said("rest"):
            self.account.kept("rest", self._flag(*self.deployment.rest))


_THRESHOLDS = (flags.THRESHOLD_SINGLE, flags.THRESHOLD_ACC)
_WHY_NOT = {
    "block": "block verification exists for EAGLE, EAGLE3, NEXTN chains of said depth, DFLASH and DSPARK",
    "exact_match": "SGLang verifies by rejection, which for greedy drafts accepts exactly as often",
    "coupled": "SGLang verifies by rejection, with noise of its own",
    "lossy": "what is lossy in one engine is another thing in the next: set the thresholds yourself",
}
