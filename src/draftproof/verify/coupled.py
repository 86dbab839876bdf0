"""The target's own sample under keyed noise: plain sampling, and the token that coupled verification
compares.

Called by the engine for the rows of sampled requests under `Rule.MATCH`. Because the token of an output
position depends on p, the seed and the position alone, a draft can change when it is computed but never
what it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from draftproof.ops.noise import Purpose, draw, stream
from draftproof.verify.types import NoiseKey


def sample(probs: Tensor, keys: Sequence[NoiseKey]) -> Tensor:
    """One token per row, int64 [num_rows]: argmax over x of log p(x) + gumbel(seed, position, x).

    probs  float64 [num_rows, vocab], after all sampling parameters; p(x) = 0 is never chosen
    keys   one per row; `position` is the output position that the row's logits predict

    For a point-mass draft, accepting while it equals this token accepts with probability p(draft), exactly as
    often as rejection sampling (Leviathan et al. 2023, algorithm 1, with q one-hot).
    """
    assert probs.shape[0] == len(keys), (probs.shape, len(keys))
    return draw(probs, [stream(key.seed, key.position, Purpose.TARGET) for key in keys])[:, 0]
