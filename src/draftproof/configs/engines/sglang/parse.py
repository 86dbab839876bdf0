"""SGLang's flags → the neutral description, with what SGLang itself corrects, ignores or refuses.

Called by the dialect. What depends on the checkpoints is said as not known, never guessed.
"""

from __future__ import annotations

from draftproof.configs.engines.base import Reader, read_or_why
from draftproof.configs.engines.flag_file import take_file
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.sglang import flags
from draftproof.configs.engines.sglang.adaptive import read_slots
from draftproof.configs.engines.sglang.command import after_launcher, read_flags, whole_number
from draftproof.configs.engines.told import take_start
from draftproof.configs.reading.jsontext import read_json
from draftproof.configs.reading.options import Given, Option, Options
from draftproof.configs.reading.refusal import Place


def gather(place: Place, found: Gathering, read: Reader | None) -> None:
    """Raises DP111 with line and column."""
    arguments = after_launcher(place, take_start(place, found), found)
    arguments, file = take_file(place, arguments, read, _truth, found)
    options = read_flags(place, arguments, found)
    if file is not None:
        theirs = read_flags(file.place, file.words, found)
        options.given = theirs.given | options.given
        options.rest = [*theirs.rest, *options.rest]
        for given in theirs.overridden:
            found.remark(
                "ignored", given.option.name, "given again later, and the last one counts",
                found=f"{given.written} {given.value}",
            )  # fmt: skip
    _environment(found)
    for given in options.overridden:
        found.remark(
            "ignored", given.option.name, "given again later, and the last one counts",
            found=f"{given.written} {given.value}", position=given.position,
        )  # fmt: skip
    _Flags(options, found, read).gather()
    found.say("rest", tuple(word.text for word in options.rest))


def _truth(flag: str, is_true: bool) -> list[str]:
    """A false switch is nothing."""
    return [flag] if is_true else []


def _environment(found: Gathering) -> None:
    kept = {}
    for name, value in found.settings.pop("extras.sglang.env", {}).items():
        if name == "SGLANG_ENABLE_SPEC_V2":
            found.remark(
                "ignored",
                name,
                "the second version of the worker is the only one now",
                found=f"{name}={value}",
            )
        else:
            kept[name] = value
    if kept:
        found.own("env", kept, around=True)


class _Flags:
    """The known flags of one command, turned into settings."""

    def __init__(self, options: Options, found: Gathering, read: Reader | None) -> None:
        self.given, self.found, self.read = options.given, found, read
        self.rest = [word.text for word in options.rest]

    def gather(self) -> None:
        for path, option in flags.DIRECT.items():
            given = self.given.get(option.name)
            if given is not None:
                value = whole_number(given) if path == "max_model_len" else given.value
                self.found.say(path, flags.SAME_DTYPE.get(str(value), value) if path == "dtype" else value)
        if "--lora-paths" in self.rest:
            self.found.say("lora", True)
        for option in flags.OWN:
            if option.name in self.given:
                self.found.own(option.name.removeprefix("--"), self.given[option.name].value)
        self._around()
        method = self._method()
        if method is None:
            self._all_ignored()
            return
        self.found.say("speculation.method", method)
        if method in flags.EAGLE_FAMILY:
            self._chain_or_tree(method)
        elif method == "ngram":
            self._ngram()
        elif method == "dflash":
            self._window(flags.DFLASH_BLOCK, root=True)
        elif method == "dspark":
            self._window(flags.DSPARK_BLOCK, root=False)
        else:
            self._keep_own(flags.STEPS, flags.TOPK, flags.TOKENS)
        self._draft_window(method)
        self._adaptive(method)
        self._verification(method)

    def _value(self, option: Option) -> int | None:
        given = self.given.get(option.name)
        return None if given is None else int(given.value)  # type: ignore[arg-type]  # integer options only

    def _remark(self, effect: str, given: Given, reason: str, today: str | None = None) -> None:
        self.found.remark(
            effect, given.option.name, reason,  # type: ignore[arg-type]  # one of the effects, written out below
            found=f"{given.written} {given.value}", today=today, position=given.position,
        )  # fmt: skip

    def _around(self) -> None:
        """Flags of the deployment whose meaning is another word than the neutral one."""
        if flags.NO_RADIX_CACHE.name in self.given:
            self.found.say("prefix_caching", False)
        backends = [self.given.get(option.name) for option in (flags.GRAPH_DECODE, flags.GRAPH_PREFILL)]
        if flags.NO_GRAPHS.name in self.given:
            self._remark(
                "deprecated", self.given[flags.NO_GRAPHS.name], "still works, with a warning",
                "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled",
            )  # fmt: skip
            self.found.say("enforce_eager", True)
        elif all(given is not None and given.value == "disabled" for given in backends):
            self.found.say("enforce_eager", True)
        else:
            for given in backends:
                if given is not None:
                    self.found.own(given.option.name.removeprefix("--"), given.value, around=True)
        if "--enable-dp-attention" in self.rest:
            self.found.remark(
                "deprecated", "--enable-dp-attention", "still works, with a warning, until the end of 2026",
                found="--enable-dp-attention", today="--attn-dp-size N",
            )  # fmt: skip

    def _method(self) -> str | None:
        given = self.given.get(flags.ALGORITHM.name)
        if given is None:
            return None
        name = str(given.value).upper()
        if name not in flags.METHODS:
            raise given.place.refused(
                str(given.value), "one of " + ", ".join(flags.METHODS),
                "Name a built-in algorithm; what an algorithm of a plugin does is not known here.",
            )  # fmt: skip
        if name in ("UNO", "FROZEN_KV_MTP"):
            self.found.own("speculative-algorithm", name)
        drafter = flags.DIRECT["speculation.drafter"].name in self.given
        if name == "EAGLE" and not drafter:
            self._remark(
                "inferred", given, "without a draft path it is the target's own multi-token prediction head"
            )
            return "mtp"
        if name == "DFLASH" and not drafter:
            self._remark("refused", given, "it needs --speculative-draft-model-path")
        if name == "STANDALONE" and not drafter:
            self._remark(
                "rewritten", given,
                "without a draft path the target is loaded again as its own drafter, which costs as much as it gives",
                "--speculative-draft-model-path DRAFTER",
            )  # fmt: skip
        if name == "EAGLE" and drafter:
            self._remark(
                "unsettled", given,
                "EAGLE is taken at its word: SGLang does not change to EAGLE3 for an EAGLE-3 head, which then accepts "
                "nothing; read the head's architecture",
            )  # fmt: skip
        return flags.METHODS[name]

    def _all_ignored(self) -> None:
        """No algorithm: SGLang reads the other flags and does not speculate."""
        for given in self.given.values():
            if given.option.name.startswith("--speculative-"):
                self._remark("ignored", given, "without --speculative-algorithm nothing is speculated")
        for path in [path for path in self.found.settings if path.startswith("speculation.")]:
            value = self.found.settings.pop(path)
            if not path.startswith("speculation.extras."):
                option = flags.DIRECT[path]
                self.found.own(option.name.removeprefix("--"), value)
            else:
                self.found.settings[path] = value
        self._keep_own(*(option for option in flags.CONVERTED if option.name.startswith("--speculative-")))

    def _keep_own(self, *options: Option) -> None:
        for option in options:
            if option.name in self.given:
                self.found.own(option.name.removeprefix("--"), self.given[option.name].value)

    def _chain_or_tree(self, method: str) -> None:
        steps, topk, tokens = self._value(flags.STEPS), self._value(flags.TOPK), self._value(flags.TOKENS)
        if steps is None:
            for option in (flags.TOPK, flags.TOKENS):
                if option.name in self.given and flags.ADAPTIVE.name not in self.given:
                    self._remark(
                        "refused",
                        self.given[option.name],
                        "without --speculative-num-steps none of the three may be given",
                    )
            self._keep_own(flags.TOPK, flags.TOKENS)
            return
        if topk is None and flags.ADAPTIVE.name not in self.given:
            self._remark(
                "refused", self.given[flags.STEPS.name],
                "with the steps given, --speculative-eagle-topk and --speculative-num-draft-tokens must be given too",
            )  # fmt: skip
        if topk is None or topk == 1:
            self.found.say("speculation.depth", steps)
            if tokens is not None and tokens != steps + 1:
                self._remark(
                    "rewritten", self.given[flags.TOKENS.name], "a chain verifies its steps and the root",
                    f"--speculative-num-draft-tokens {steps + 1}",
                )  # fmt: skip
            return
        self.found.say("speculation.tree.depth", steps)
        self.found.say("speculation.tree.branching", topk)
        self.found.say("speculation.tree.num_nodes", None if tokens is None else tokens - 1)
        if "--disable-overlap-schedule" not in self.rest:
            self._remark(
                "unsettled", self.given[flags.TOPK.name],
                "the documents say that the overlap scheduler takes top-k 1 only and refuses more; the code of "
                f"{flags.VERSION} has no such check and holds tree code. Top-k 1 is the safe setting",
            )  # fmt: skip

    def _ngram(self) -> None:
        """A trie of n-grams: breadth 1 drafts a chain. SGLang's width counts the root, too."""
        tokens, breadth = self._value(flags.TOKENS), self._value(flags.BREADTH)
        if breadth == 1 and tokens is not None:
            self.found.say("speculation.depth", tokens - 1)
        else:
            self.found.say("speculation.tree.branching", breadth)
            self.found.say("speculation.tree.num_nodes", None if tokens is None else tokens - 1)
        if flags.TOPK.name in self.given:
            self._remark(
                "rewritten",
                self.given[flags.TOPK.name],
                "NGRAM takes its breadth for it",
                f"{flags.BREADTH.name} {breadth or 10}",
            )
        self._keep_own(flags.STEPS)

    def _window(self, block: Option, root: bool) -> None:
        """DFLASH's block counts the root, DSPARK's does not; --speculative-num-draft-tokens always does."""
        size, tokens = self._value(block), self._value(flags.TOKENS)
        depth = size - root if size is not None else tokens - 1 if tokens is not None else None
        if size is not None and tokens is not None and tokens - 1 != depth:
            self._remark(
                "refused", self.given[flags.TOKENS.name], f"it must be the same window as {block.name} {size}"
            )
        self.found.say("speculation.depth", depth)
        for option in (flags.STEPS, flags.TOPK):
            if option.name in self.given and self._value(option) != 1:
                self._remark(
                    "rewritten",
                    self.given[option.name],
                    "a block has one step and no branches",
                    f"{option.name} 1",
                )

    def _draft_window(self, method: str) -> None:
        window, sink = self.given.get(flags.DRAFT_WINDOW.name), self.given.get(flags.DRAFT_SINK.name)
        if sink is not None and window is None:
            self._remark("refused", sink, f"it asks for {flags.DRAFT_WINDOW.name}")
        if window is not None and method not in (*flags.SCHEDULED, "dflash"):
            self._remark("ignored", window, "EAGLE, EAGLE3, NEXTN and DFLASH alone look at it")

    def _adaptive(self, method: str) -> None:
        flag, config = self.given.get(flags.ADAPTIVE.name), self.given.get(flags.ADAPTIVE_CONFIG.name)
        if flag is None:
            if config is not None:
                self._remark("ignored", config, "without --speculative-adaptive it is not read")
                self._keep_own(flags.ADAPTIVE_CONFIG)
            return
        tree = "speculation.tree.branching" in self.found.settings
        if method not in flags.SCHEDULED or tree:
            self._remark(
                "ignored", flag,
                "adaptive steps exist for EAGLE, EAGLE3 and NEXTN with top-k 1; SGLang warns and keeps the fixed steps",
            )  # fmt: skip
            self._keep_own(flags.ADAPTIVE, flags.ADAPTIVE_CONFIG)
            return
        schedule = self._slots(config) if config is not None else ()
        if schedule:
            self.found.say("speculation.schedule", schedule)
        else:
            self.found.say("speculation.adaptive", True)

    def _slots(self, config: Given) -> tuple[object, ...]:
        name = str(config.value)
        text, why = read_or_why(self.read, name)
        if text is None:
            self._remark("unread", config, f"{why}; it holds the candidate steps")
            self._keep_own(flags.ADAPTIVE_CONFIG)
            return ()
        schedule, more = read_slots(read_json(Place("sglang", text, name=name)))
        if more is not None:
            self.found.own("adaptive-config", more)
        return schedule

    def _verification(self, method: str) -> None:
        single, acc = self.given.get(flags.THRESHOLD_SINGLE.name), self.given.get(flags.THRESHOLD_ACC.name)
        lossy = [given for given in (single, acc) if given is not None and given.value != 1.0]
        if flags.BLOCK.name in self.given:
            self.found.say("speculation.verification", "block")
            if method in flags.EAGLE_FAMILY and flags.REJECTION.name not in self.given:
                self._remark(
                    "inferred",
                    self.given[flags.BLOCK.name],
                    "block verification switches rejection sampling on",
                )
        if lossy:
            self.found.say("speculation.verification", "lossy")
        self._keep_own(flags.THRESHOLD_SINGLE, flags.THRESHOLD_ACC)
        if flags.REJECTION.name in self.given:
            self.found.say("speculation.draft_sampling", "probabilistic")
            if lossy:
                self._remark("refused", lossy[0], "rejection sampling takes thresholds of 1.0 alone")
            if method not in flags.SCHEDULED:
                self._remark(
                    "refused", self.given[flags.REJECTION.name], "it exists for EAGLE, EAGLE3 and NEXTN alone"
                )
