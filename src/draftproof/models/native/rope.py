"""Rotary tables: cosines and sines of all positions, in float32, the same for every path that uses them.

Frequencies follow Transformers (float32 throughout), with Llama 3's scaling or a file's own divisors. Tables grow
in pieces of a fixed size, so that an entry's bits do not depend on when it was computed.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from draftproof.models.base import RopeConfig

POSITIONS_PER_PIECE = 1024


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians per position, float32 [head_dim / 2] (RoFormer, eq. 15; `scaling`: Llama 3.1's rule)."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    inverse = 1.0 / (rope.theta**exponents)
    if rope.freq_factors is not None:
        return inverse / torch.tensor(rope.freq_factors, dtype=torch.float32)
    if rope.scaling is None:
        return inverse
    wavelengths = 2 * math.pi / inverse
    low_wavelength = rope.original_context / rope.low_freq_factor
    high_wavelength = rope.original_context / rope.high_freq_factor
    smooth = (rope.original_context / wavelengths - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    blended = (1 - smooth) * inverse / rope.factor + smooth * inverse
    scaled = torch.where(wavelengths > low_wavelength, inverse / rope.factor, inverse)
    is_medium = (wavelengths <= low_wavelength) & (wavelengths >= high_wavelength)
    return torch.where(is_medium, blended, scaled)


class RopeTable:
    """Grows on demand, up to the context. Several threads may ask at once."""

    def __init__(self, rope: RopeConfig, head_dim: int, context_length: int) -> None:
        self._inverse = inverse_frequencies(rope, head_dim).numpy()
        self._context_length = context_length
        self._tables = torch.empty((0, head_dim // 2)), torch.empty((0, head_dim // 2))

    def tables(self, num_positions: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, float32 [at least min(num_positions, context), head_dim / 2]."""
        tables = self._tables
        have = tables[0].shape[0]
        wanted = min(self._context_length, num_positions)
        if wanted <= have:
            return tables
        wanted = min(self._context_length, max(wanted, 2 * have))
        pieces = [self._piece(start) for start in range(0, wanted, POSITIONS_PER_PIECE)]
        tables = torch.cat([cos for cos, _ in pieces]), torch.cat([sin for _, sin in pieces])
        self._tables = tables  # two threads may do this at once: both compute the same
        return tables

    def _piece(self, start: int) -> tuple[Tensor, Tensor]:
        positions = np.arange(start, start + POSITIONS_PER_PIECE, dtype=np.float32)
        angles = (positions[:, None] * self._inverse[None, :]).astype(np.float64)  # product in float32
        return torch.from_numpy(np.cos(angles).astype(np.float32)), torch.from_numpy(
            np.sin(angles).astype(np.float32)
        )
