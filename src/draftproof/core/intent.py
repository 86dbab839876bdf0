"""What the user wants of speculation: a tagged union, parsed once at the edge, frozen afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verification = Literal["auto", "rejection", "block", "coupled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSpeculation:
    method: Literal["none"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class NGram:
    """Prompt look-up (Saxena): the longest n-gram in [min, max] that occurred before, its continuation drafted."""

    method: Literal["ngram"] = "ngram"
    num_speculative_tokens: int = 8
    prompt_lookup_min: int = 2
    prompt_lookup_max: int = 5
    verification: Verification = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suffix:
    """Suffix decoding (Oliaro et al.): this request's own text and a bounded pool of earlier outputs."""

    method: Literal["suffix"] = "suffix"
    num_speculative_tokens: int = 16
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 1000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    verification: Verification = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Predicted outputs: the user's expected text, realigned after an edit."""

    method: Literal["predicted"] = "predicted"
    num_speculative_tokens: int = 16
    verification: Verification = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """The first proposer that has a draft."""

    proposers: tuple[NGram | Suffix | Predicted, ...]
    method: Literal["cascade"] = "cascade"
    verification: Verification = "auto"

    @property
    def num_speculative_tokens(self) -> int:
        return max(part.num_speculative_tokens for part in self.proposers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """predicted if given, then suffix, then n-gram; `num_speculative_tokens` is an upper bound."""

    method: Literal["auto"] = "auto"
    num_speculative_tokens: int = 16
    verification: Verification = "auto"


SpeculationIntent = NoSpeculation | NGram | Suffix | Predicted | Cascade | Auto
