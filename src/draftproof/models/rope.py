"""Rotary position embedding: frequencies, and tables of cosines and sines.

Called by the decoders. Knows no cache and no layers. Angles are rounded to float32 as Transformers does; cosine
and sine of an angle are taken in float64 and rounded, so that an entry has the same bits on every machine and
whenever it was computed.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from draftproof.models.base import RopeConfig

POSITIONS_PER_PIECE = 1024


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians per position, float32 [head_dim / 2].

    RoFormer (Su et al. 2021), equation 15; `llama3` is the rule of Llama 3.1 as Transformers 4 and 5 apply it:
    long wavelengths are stretched by `factor`, short ones kept, those between blended.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    inverse = 1.0 / (rope.theta**exponents)
    if rope.freq_factors is not None:
        return inverse / torch.tensor(rope.freq_factors, dtype=torch.float32)
    if rope.scaling is None:
        return inverse
    wavelengths = 2 * math.pi / inverse
    low, high = rope.low_freq_factor, rope.high_freq_factor
    smooth = (rope.original_context / wavelengths - low) / (high - low)
    blended = (1 - smooth) * inverse / rope.factor + smooth * inverse
    scaled = torch.where(wavelengths > rope.original_context / low, inverse / rope.factor, blended)
    return torch.where(wavelengths < rope.original_context / high, inverse, scaled)


class RopeTable:
    """Cosines and sines by position; grows on demand up to the context, in pieces of a fixed size."""

    def __init__(self, rope: RopeConfig, head_dim: int, context_length: int) -> None:
        self._inverse = inverse_frequencies(rope, head_dim).numpy()
        self._context_length = context_length
        self._tables = torch.empty((0, head_dim // 2)), torch.empty((0, head_dim // 2))

    def tables(self, num_positions: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, float32 [at least min(num_positions, context), head_dim / 2]."""
        cos, sin = self._tables
        wanted = min(self._context_length, num_positions)
        if wanted > cos.shape[0]:
            first, last = cos.shape[0], min(self._context_length, max(wanted, 2 * cos.shape[0]))
            pieces = [self._piece(start) for start in range(first, last, POSITIONS_PER_PIECE)]
            cos = torch.cat([cos, *(piece[0] for piece in pieces)])
            sin = torch.cat([sin, *(piece[1] for piece in pieces)])
            self._tables = cos, sin  # threads that do this at once compute the same
        return cos, sin

    def _piece(self, start: int) -> tuple[Tensor, Tensor]:
        positions = np.arange(start, start + POSITIONS_PER_PIECE, dtype=np.float32)
        angles = (positions[:, None] * self._inverse[None, :]).astype(np.float64)  # product in float32
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        return torch.from_numpy(cos), torch.from_numpy(sin)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates pairs (x[j], x[j + head_dim / 2]) of each head.

    x [num_rows, num_heads, head_dim], cos and sin [num_rows, head_dim / 2], all float32.
    """
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
