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

from draftproof.models.base import (
    FrequencyDivisors,
    LinearScaling,
    Llama3Scaling,
    RopeConfig,
    YarnScaling,
)

POSITIONS_PER_PIECE = 1024


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians per position, float32 [rotary_dim / 2]. RoFormer (Su et al. 2021), equation 15, then the scaling."""
    dim = rope.rotary_dim or head_dim
    exponents = torch.arange(0, dim, 2, dtype=torch.int64).float() / dim
    inverse = 1.0 / (rope.theta**exponents)
    match rope.scaling:
        case None:
            return inverse
        case LinearScaling(factor):
            return inverse / factor
        case FrequencyDivisors(values):
            return inverse / torch.tensor(values, dtype=torch.float32)
        case Llama3Scaling() as scaling:
            return _llama3(inverse, scaling)
        case YarnScaling() as scaling:
            return _yarn(inverse, scaling, rope.theta, dim)


def _llama3(inverse: Tensor, scaling: Llama3Scaling) -> Tensor:
    """As Transformers 4 and 5 apply it."""
    wavelengths = 2 * math.pi / inverse
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = (scaling.original_context / wavelengths - low) / (high - low)
    blended = (1 - smooth) * inverse / scaling.factor + smooth * inverse
    scaled = torch.where(wavelengths > scaling.original_context / low, inverse / scaling.factor, blended)
    return torch.where(wavelengths < scaling.original_context / high, inverse, scaled)


def _yarn(inverse: Tensor, scaling: YarnScaling, theta: float, dim: int) -> Tensor:
    """Peng et al. 2023, section 3.2: frequencies that turn more than `beta_fast` times in the old context stay."""

    def index_of(num_rotations: float) -> float:
        return (
            dim * math.log(scaling.original_context / (num_rotations * 2 * math.pi)) / (2 * math.log(theta))
        )

    low, high = index_of(scaling.beta_fast), index_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = (torch.arange(dim // 2).float() - low) / (high - low if high != low else 0.001)
    kept = 1 - ramp.clamp(0, 1)
    return inverse / scaling.factor * (1 - kept) + inverse * kept


class RopeTable:
    """Cosines and sines by position; grows on demand up to the context, in pieces of a fixed size."""

    def __init__(self, rope: RopeConfig, head_dim: int, context_length: int) -> None:
        self._inverse = inverse_frequencies(rope, head_dim).numpy()
        self._factor = rope.attention_factor
        self._context_length = context_length
        self._tables = torch.empty((0, len(self._inverse))), torch.empty((0, len(self._inverse)))

    def tables(self, num_positions: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, float32 [at least min(num_positions, context), rotary_dim / 2]."""
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
        cos, sin = np.cos(angles) * self._factor, np.sin(angles) * self._factor
        return torch.from_numpy(cos.astype(np.float32)), torch.from_numpy(sin.astype(np.float32))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates pairs (x[j], x[j + rotary_dim / 2]) of each head; elements behind the first rotary_dim stay.

    x [num_rows, num_heads, head_dim], cos and sin [num_rows, rotary_dim / 2], all float32.
    """
    half = cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)
