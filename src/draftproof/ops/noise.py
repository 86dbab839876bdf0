"""Counter-based noise: every random number of a request is a pure function of what it is for.

Used by `verify` (the target's own samples, acceptance tests, corrections) and by drafters that draw from q.
It knows no models, no requests and no state: the same key gives the same bits in any batch, on any row, in
any process. A *stream* is one key, hashed; within a stream, numbers are told apart by a token id or a small
index.

Which key for which purpose (why: `docs/exactness.md`, "Noise"):

    TARGET   stream(seed, output position, TARGET)                  index: token id
    RECOVER  stream(seed, output position, RECOVER)                 index: token id
    ACCEPT   stream(seed, round's first position, ACCEPT, depth)    index: place among siblings
    DRAFT    stream(seed, round's first position, DRAFT, row)       index: token id; row: the parent's row

What one round looked at and then threw away (drafts and acceptance tests behind the last accepted token) must
not be read again by the next round, so ACCEPT and DRAFT name the round; each round emits at least one token,
hence its first output position is new. TARGET and RECOVER decide a token that is emitted once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

_WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
# Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators": SplitMix64 with Stafford's mix
# 13.
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
_NUM_BITS = 52
_ULP = 2.0**-53
# -log(u) >= 1 - u holds exactly; the slack covers the rounding of the logarithm and of the divisions.
_SLACK = 1.0 + 1e-12
_TILE = 32768
# So few ids are hashed faster one by one than by two dozen tensor operations.
_FEW = 32


class Purpose(IntEnum):
    """What a stream of noise decides. Two purposes never share a number."""

    TARGET = 1
    """The target's own sample (plain decoding and coupled verification)."""
    ACCEPT = 2
    """Whether a drafted token is accepted."""
    RECOVER = 3
    """The correction after a rejection, or the bonus token, of rejection and block verification."""
    DRAFT = 4
    """What a drafter draws from q, unless it draws with TARGET noise on purpose (coupled)."""


def stream(seed: int, position: int, purpose: Purpose, draw: int = 0) -> int:
    """Hashes a key to 64 bits (an unsigned Python integer). `seed` counts modulo 2**64 and may be
    negative."""
    state = 0
    for part in (seed, purpose, position, draw):
        state = _mix((state + (part + 1) * _STEP) & _WORD)
    return state


def uniform(stream: int, index: int = 0) -> float:
    """One uniform number in the open interval (0, 1): an odd multiple of 2**-53, so never 0 and never 1."""
    bits = _mix((stream + (index + 1) * _STEP) & _WORD) >> (64 - _NUM_BITS)
    return (2 * bits + 1) * _ULP


def uniforms(streams: Sequence[int], ids: Tensor) -> Tensor:
    """`uniform(streams[row], ids[k])` as float64 [num_rows, num_ids]; ids: int64 [num_ids], not negative."""
    assert ids.dtype == torch.int64, ids.dtype
    assert ids.dim() == 1, ids.shape
    result = torch.empty((len(streams), ids.shape[0]), dtype=torch.float64, device=ids.device)
    for row, row_stream in enumerate(streams):
        torch.sub(1.0, _complements(row_stream, ids), out=result[row])  # exact: both are multiples of 2**-53
    return result


def gumbel(stream: int, index: int = 0) -> float:
    """Gumbel noise -log(-log u) of `uniform(stream, index)`, from the C library's logarithm."""
    return -math.log(-math.log(uniform(stream, index)))


def draw(weights: Tensor, streams: Sequence[int], num_draws: int = 1, ids: Tensor | None = None) -> Tensor:
    """Draws tokens from each row, the first `num_draws` without replacement, in draw order.

    weights  float64 [num_rows, vocab], not negative, need not be normalised; weight 0 is never drawn
    streams  one per row
    ids      int64 [vocab]: the tokens that columns stand for, ascending; None: 0, 1, 2, …
    returns  int64 [num_rows, num_draws]

    Token x of a row gets log w(x) + gumbel(stream, x); the largest values win (Gumbel-max, and for several
    draws the Gumbel top-k of Kool et al. 2019, which is sampling without replacement). Ties go to the
    lowest id. The result does not depend on the other rows, on where a token stands in memory, nor on
    vectorised logarithms, whose bits may: those are never used (see `_winners`). Each row needs `num_draws`
    tokens of positive weight.
    """
    assert weights.dim() == 2, weights.shape
    assert weights.dtype == torch.float64, weights.dtype
    assert weights.shape[0] == len(streams), (weights.shape, len(streams))
    assert num_draws >= 1
    winners: list[list[int]] = []
    for row, row_stream in zip(weights, streams, strict=True):
        row_ids = ids
        if 4 * int(row.count_nonzero()) < row.shape[0]:  # after top-k or top-p: hash the support alone
            support = row.nonzero().squeeze(1)
            row = row[support]
            row_ids = support if ids is None else ids[support]
        winners.append(_winners(row, row_ids, row_stream, num_draws))
        assert len(winners[-1]) == num_draws, "fewer tokens of positive weight than draws"
    return torch.tensor(winners, dtype=torch.int64, device=weights.device).view(len(streams), num_draws)


def _winners(weights: Tensor, ids: Tensor | None, stream: int, num_draws: int) -> list[int]:
    """The `num_draws` ids (None: 0, 1, 2, …) with the smallest -log(u) / w, ascending.

    That is the order of log w + gumbel, descending. Because -log(u) >= 1 - u, the cheap bound (1 - u) / w
    leaves few ids that can still win (the least of -log(u) / w has mean 1 for normalised weights, so about
    as many as are drawn). Only those get a logarithm, one by one. Tiles keep the scratch memory in the
    processor's cache and small enough for the allocator to reuse: fresh pages would cost more than the
    hash.
    """
    best: list[tuple[float, int]] = []  # (-log(u) / w, id), ascending
    if weights.shape[0] <= _FEW:
        few_ids = torch.arange(weights.shape[0]) if ids is None else ids
        return [token for _, token in _merge(best, weights, few_ids, stream, num_draws)]
    for start in range(0, weights.shape[0], _TILE):
        tile = weights[start : start + _TILE]
        stop = start + tile.shape[0]
        tile_ids = torch.arange(start, stop, device=tile.device) if ids is None else ids[start:stop]
        bounds = _complements(stream, tile_ids).div_(tile)  # [num_tile_ids]; inf where the weight is 0
        if len(best) < num_draws:  # as a rule only in the first tile: any few small bounds give a first limit
            least = bounds.topk(min(num_draws, stop - start), largest=False).indices
            best = _merge(best, tile[least], tile_ids[least], stream, num_draws)
        limit = best[-1][0] * _SLACK if len(best) == num_draws else sys.float_info.max
        if float(bounds.min()) > limit:
            continue
        rivals = (bounds <= limit).nonzero().squeeze(1)
        best = _merge(best, tile[rivals], tile_ids[rivals], stream, num_draws)
    return [token for _, token in best]


def _merge(
    best: list[tuple[float, int]], weights: Tensor, ids: Tensor, stream: int, num_draws: int
) -> list[tuple[float, int]]:
    """The `num_draws` least of `best` and of (-log(u) / w, id) over the given few tokens."""
    pairs = zip(weights.tolist(), ids.tolist(), strict=True)
    times = {(-math.log(uniform(stream, token)) / weight, token) for weight, token in pairs if weight > 0.0}
    return sorted(times.union(best))[:num_draws]


def _complements(stream: int, ids: Tensor) -> Tensor:
    """1 - uniform(stream, ids), exactly, float64 [num_ids]."""
    state = (ids * _signed(_STEP)).add_(_signed((stream + _STEP) & _WORD))
    shifted = torch.empty_like(state)
    for shift, multiplier in _ROUNDS:
        _xor_shift(state, shift, shifted)
        state.mul_(_signed(multiplier))
    _xor_shift(state, _LAST_SHIFT, shifted)
    state.bitwise_right_shift_(64 - _NUM_BITS).bitwise_and_((1 << _NUM_BITS) - 1)
    # u = (2 * bits + 1) * 2**-53, and every step of 1 - u below is a multiple of 2**-53 under 1: nothing
    # rounds.
    return state.to(torch.float64).mul_(-2.0 * _ULP).add_(1.0 - _ULP)


def _xor_shift(state: Tensor, shift: int, buffer: Tensor) -> None:
    """state ^= state >>> shift. torch shifts int64 arithmetically: the mask makes it a logical shift."""
    torch.bitwise_right_shift(state, shift, out=buffer)
    state.bitwise_xor_(buffer.bitwise_and_((1 << (64 - shift)) - 1))


def _mix(state: int) -> int:
    """The same finaliser on one unsigned Python integer."""
    for shift, multiplier in _ROUNDS:
        state = ((state ^ (state >> shift)) * multiplier) & _WORD
    return state ^ (state >> _LAST_SHIFT)


def _signed(word: int) -> int:
    """The int64 with the bits of an unsigned word."""
    return word - (1 << 64) if word >> 63 else word
