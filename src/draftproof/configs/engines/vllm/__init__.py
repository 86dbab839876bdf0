"""vLLM: `vllm serve` command lines and `--speculative-config`, as of 0.33.0.

Loaded by `configs.registry`. `facts` and `arguments` are data, `reading` and `config_reading` parse, `writing` renders.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.engines.base import Reader
from draftproof.configs.engines.dialect import Dialect
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.vllm import facts, reading, words, writing
from draftproof.configs.engines.vllm.history import EVERYTHING
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import Deployment, Value


class VllmDialect(Dialect):
    engine, title = "vllm", "vLLM"
    read_version, known_versions, source = facts.READ_VERSION, EVERYTHING, facts.SOURCE
    writer = writing.VllmWriter

    def gather(self, place: Place, found: Gathering, read: Reader | None) -> None:
        """A command line, a JSON list of arguments, a speculation object, or `LLM(…)` arguments as a JSON object."""
        reading.gather(place, found, read)

    def acting(self, deployment: Deployment) -> Iterator[tuple[str, Value, str]]:
        """None where the checkpoint decides."""
        yield from _AROUND
        speculation = deployment.speculation
        found: dict[str, tuple[Value, str]] = {}
        if speculation.method == "none":
            return
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
        if speculation.method in (*words.DRAWN, "mlp_speculator"):
            found["draft_sampling"] = ("greedy", "drafts are the drafter's best tokens")
        found["verification"] = ("standard", "rejection sampling")
        tokens = "the schedule's tokens" if speculation.schedule else "K tokens"
        found["adaptive"] = (False, f"{tokens} in every round")
        yield from ((f"speculation.{name}", value, reason) for name, (value, reason) in found.items())


_AROUND: tuple[tuple[str, Value, str], ...] = (
    ("enforce_eager", False, "graphs are captured"),
    ("prefix_caching", True, "on for models that generate"),
    ("lora", False, "off without --enable-lora"),
)
_SUFFIX: dict[str, Value] = {
    "max_tree_depth": 24,
    "max_cached_requests": 10_000,
    "max_spec_factor": 1.0,
    "min_token_prob": 0.1,
}

dialect = VllmDialect()
