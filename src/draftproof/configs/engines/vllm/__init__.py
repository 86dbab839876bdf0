"""vLLM: `vllm serve` command lines and `--speculative-config`, as of 0.33.0.

Loaded by `configs.registry`. `facts` and `arguments` are data, `reading` and `config_reading` parse, `writing` renders.
"""

from __future__ import annotations

from draftproof.configs.engines.account import differing_defaults
from draftproof.configs.engines.base import Default, Dialect, Parsed, Reader, Rendered, check_version
from draftproof.configs.engines.vllm import reading, writing
from draftproof.configs.engines.vllm.facts import READ_VERSION, SOURCE
from draftproof.configs.engines.vllm.history import EVERYTHING
from draftproof.configs.speculation import Deployment, Value

_DRAWS = (
    "draft_model",
    "pard",
    "eagle",
    "eagle3",
    "p_eagle",
    "mtp",
    "medusa",
    "mlp_speculator",
    "dflash",
    "dspark",
)


class VllmDialect:
    engine = "vllm"
    title = "vLLM"
    read_version = READ_VERSION

    def parse(self, text: str, version: str | None = None, read: Reader | None = None) -> Parsed:
        """A command line, a JSON list of arguments, a speculation object, or `LLM(…)` arguments as a JSON object."""
        return reading.parse(text, check_version(self, version, EVERYTHING), version, read)

    def render(self, deployment: Deployment, version: str | None = None) -> Rendered:
        return writing.render(
            deployment, check_version(self, version, EVERYTHING), differing_defaults(deployment, self)
        )

    def defaults(self, deployment: Deployment, version: str | None = None) -> tuple[Default, ...]:
        """What vLLM fills in. None where the checkpoint decides."""
        check_version(self, version, EVERYTHING)
        speculation = deployment.speculation
        found: dict[str, tuple[Value, str]] = {}
        if speculation.method == "none":
            return _AROUND
        if speculation.method == "ngram":
            lookup = speculation.lookup
            least, most = (lookup.min_ngram, lookup.max_ngram) if lookup else (None, None)
            reason = (
                "5 to 5 where none is given"
                if least is most is None
                else "the one that is missing copies the other"
            )
            found["lookup.min_ngram"] = (most if most is not None else 5, reason)
            found["lookup.max_ngram"] = (least if least is not None else 5, reason)
        elif speculation.method == "suffix":
            tree_depth = (speculation.lookup and speculation.lookup.max_tree_depth) or 24
            found["depth"] = (tree_depth, "suffix: as suffix_decoding_max_tree_depth")
            for name, value in _SUFFIX.items():
                found[f"lookup.{name}"] = (value, "suffix decoding")
        elif speculation.method in ("mtp", "dspark") and not speculation.schedule:
            found["depth"] = (None, "from the drafter's config.json")
        if speculation.method in _DRAWS:
            found["draft_sampling"] = ("greedy", "drafts are the drafter's best tokens")
        found["verification"] = ("standard", "rejection sampling")
        if not speculation.schedule:
            found["adaptive"] = (False, "K tokens in every round")
        drafting = tuple(
            Default(setting=f"speculation.{name}", value=value, reason=reason, source=SOURCE)
            for name, (value, reason) in found.items()
        )
        return (*_AROUND, *drafting)


_AROUND = (
    Default(setting="enforce_eager", value=False, reason="graphs are captured", source=SOURCE),
    Default(setting="prefix_caching", value=True, reason="on for models that generate", source=SOURCE),
    Default(setting="lora", value=False, reason="off without --enable-lora", source=SOURCE),
)
_SUFFIX: dict[str, Value] = {
    "max_tree_depth": 24,
    "max_cached_requests": 10_000,
    "max_spec_factor": 1.0,
    "min_token_prob": 0.1,
}

dialect: Dialect = VllmDialect()
