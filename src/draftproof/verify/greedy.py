"""Greedy choice. Called by the engine to make the target's own token per row when `temperature == 0`."""

from __future__ import annotations

from torch import Tensor


def choose(scores: Tensor) -> Tensor:
    """The best token of each row, int64 [num_rows]; among equal scores the lowest id (as torch.argmax
    promises).

    scores  float [num_rows, vocab], logits or probabilities after all sampling parameters
    """
    assert scores.dim() == 2, scores.shape
    return scores.argmax(dim=-1)
