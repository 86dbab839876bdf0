"""How one engine is set up: sizes and limits, checked once, frozen afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from draftproof.core.errors import DraftproofError
from draftproof.core.intent import NoSpeculation, SpeculationIntent
from draftproof.core.objective import Objective, Slo

OnUnfit = Literal["refuse", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Limits of an engine.

    max_num_seqs       requests that run at the same time; more wait in order of arrival
    max_model_len      tokens of prompt and output together; None: the model's context length
    max_num_rows       rows of one forward pass: one per decoding request first; prompts that wait are sure of a
                       quarter, drafts take what they want of the rest, and prompts fill what is left
    prefill_chunk      most prompt rows that one pass takes from one request
    memory             bytes that the whole process may hold: weights of target and drafters, caches, room to
                       compute in, libraries; None: no limit, see cache_bytes
    cache_bytes        bytes for keys and values of target and drafters, whatever the rest takes, for those who
                       count for themselves; None: what `memory` leaves, or a quarter of the machine's memory
    speculation        what requests get that do not name their own
    on_unfit           when a request's method cannot work: an error, or plain decoding, which is said
    objective          what depth is chosen for: mean time per token over requests, or tokens per second of the batch
    slo                its `tpot_s` instead: most tokens per second among requests that keep that time per token
    prefix_caching     keep computed prefixes for later requests of the same scope while memory allows
    max_pools          distinct speculation configurations whose state (suffix pools) is kept
    """

    max_num_seqs: int = 16
    max_model_len: int | None = None
    max_num_rows: int = 512
    prefill_chunk: int = 256
    memory: int | None = None
    cache_bytes: int | None = None
    speculation: SpeculationIntent = field(default_factory=NoSpeculation)
    on_unfit: OnUnfit = "refuse"
    objective: Objective = "latency"
    slo: Slo | None = None
    prefix_caching: bool = True
    max_pools: int = 8

    def __post_init__(self) -> None:
        self._one_of("on_unfit", get_args(OnUnfit))
        self._one_of("objective", get_args(Objective))
        self._one_of("prefix_caching", (True, False))
        self._is_a("speculation", SpeculationIntent, "what parse_intent returns")
        self._is_a("slo", Slo | None, "what parse_slo returns, or None")
        limits = {"max_num_seqs": 4096, "max_num_rows": 65536, "prefill_chunk": 65536, "max_pools": 65536}
        for name, most in limits.items():
            self._in_range(name, getattr(self, name), 1, most)
        if self.max_model_len is not None:
            self._in_range("max_model_len", self.max_model_len, 2, 2**31)
        for name in ("memory", "cache_bytes"):
            if getattr(self, name) is not None:
                self._in_range(name, getattr(self, name), 1, 2**50, "bytes; 4 GiB are 4 * 2**30")
        if self.memory is not None and self.cache_bytes is not None:
            raise DraftproofError(
                "DP001",
                "cache_bytes",
                f"{self.cache_bytes} beside memory {self.memory}",
                "one of memory and cache_bytes",
                "Leave cache_bytes out: the cache gets what memory leaves.",
            )
        # Every running request takes a row of each pass, and a prompt must be able to get on beside them.
        why = f"two rows or more for each of the {self.max_num_seqs} requests of max_num_seqs"
        self._in_range("max_num_rows", self.max_num_rows, 2 * self.max_num_seqs, 65536, why)

    def _one_of(self, name: str, choices: tuple[object, ...]) -> None:
        value = getattr(self, name)
        if value not in choices or type(value) is not type(choices[0]):
            expected = f"one of {', '.join(map(str, choices))}"
            raise DraftproofError("DP001", name, repr(value), expected, f"Set {name} to one of these.")

    def _is_a(self, name: str, kind: Any, expected: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, kind):
            raise DraftproofError("DP001", name, f"a {type(value).__name__}", expected, "Pass that instead.")

    @staticmethod
    def _in_range(name: str, value: object, low: int, high: int, more: str = "") -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise DraftproofError(
                "DP001",
                name,
                repr(value),
                f"an integer from {low} to {high}" + (f" ({more})" if more else ""),
                f"Set {name} within that range.",
            )
