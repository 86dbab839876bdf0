"""Sampling parameters of one request; the names are those of the OpenAI API and of vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the target's tokens are chosen and when a request ends. `temperature == 0` is greedy.

    Raises DraftproofError DP201 for a value out of range, DP202 for parameters that contradict each other.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: frozenset[int] | None = None
    bad_token_ids: frozenset[int] = frozenset()
    bad_token_sequences: tuple[tuple[int, ...], ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    logprobs: int | None = None
    """None: none; n >= 0: the chosen token's and those of the n most likely alternatives."""
    logprobs_mode: Literal["raw", "processed"] = "raw"
    """raw: log softmax of the model's logits; processed: after all parameters, as sampled from."""

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0
