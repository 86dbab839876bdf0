"""Log probabilities of emitted tokens. Called by the engine, once per token of a request that asks for them.

Knows nothing of sampling: it is given the model's logits of the token's row ("raw") or what
`SamplingState.process` made of them ("processed").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """One emitted token's log probability (natural logarithm) and the most likely alternatives.

    rank  1 for the most likely token: 1 + the number of tokens that are strictly more likely
    top   (token id, log probability), most likely first, the lower id first among equals; may hold the token
          itself; fewer entries than asked for where fewer tokens are possible at all
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


def token_logprobs(
    row: Tensor,  # [vocab] logits, float
    token_id: int,
    num_top: int,
) -> TokenLogprobs:
    """Log probabilities in float64 from one row of logits, with `num_top` alternatives (0: none)."""
    assert row.dim() == 1
    assert num_top >= 0
    # A fresh vector per row: the bits do not depend on the row's neighbours.
    logprobs = torch.log_softmax(row.to(torch.float64, copy=True), dim=0).numpy()
    own = float(logprobs[token_id])
    assert math.isfinite(own), "a token without probability was emitted"
    top: list[tuple[int, float]] = []
    if num_top:
        num_top = min(num_top, logprobs.shape[0])
        threshold = np.partition(logprobs, -num_top)[-num_top]
        candidates = np.flatnonzero((logprobs >= threshold) & (logprobs > -np.inf))
        order = np.argsort(-logprobs[candidates], kind="stable")[:num_top]
        top = [(int(token), float(logprobs[token])) for token in candidates[order]]
    return TokenLogprobs(token_id, own, 1 + int(np.count_nonzero(logprobs > own)), tuple(top))
