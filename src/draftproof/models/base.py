"""What the engine knows of a model: its configuration, one forward pass over rows of many sequences, its cache.

Two implementations stand behind `Model`: `decoder.py` (PyTorch, prepacked linears: the reference and fallback)
and `native/` (our C++ kernels). Both promise the same: the bits of a row's logits depend on that row's tokens
and positions alone, not on the other rows of the pass, nor on how the prompt was cut into chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from draftproof.kv.cache import KVCache


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding. `scaling` is None or Llama 3's frequency-dependent rule (factors as in config.json)."""

    theta: float
    scaling: Literal["llama3"] | None = None
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192
    freq_factors: tuple[float, ...] | None = None
    """Per-frequency divisors [head_dim / 2] that a GGUF file may carry (`rope_freqs.weight`) instead of a rule."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder of the Llama family. Lengths are counts, `context_length` is in tokens."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    context_length: int
    tie_embeddings: bool
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one sequence in a pass.

    block_ids    cache blocks of the sequence, in order (at least enough for context_len + num_rows tokens)
    context_len  tokens of the sequence already in the cache; row k of the segment is stored at slot context_len + k
    first_row    index of the segment's first row in the pass
    num_rows     how many
    parent_rows  None for a chain (row k sees the context and rows 0..k). For a tree: [num_rows] row within the
                 segment of each row's parent, parent_rows[0] == 0 for the root; a row sees the context, its
                 ancestors (from the root down) and itself.
    """

    block_ids: list[int]
    context_len: int
    first_row: int
    num_rows: int
    parent_rows: list[int] | None = None


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One pass. `positions` are rotary positions (context_len + depth in a tree).

    token_ids   int64 [num_rows]
    positions   int64 [num_rows]
    segments    cover all rows, in order, without gaps
    logit_rows  int64 [num_logit_rows]: rows of the pass whose logits are wanted
    """

    token_ids: Tensor
    positions: Tensor
    segments: list[Segment]
    logit_rows: Tensor


class Model(Protocol):
    """A loaded target (or, later, drafter)."""

    config: ModelConfig
    dtype: torch.dtype
    """Storage of weights and cache: torch.float32 or torch.bfloat16."""
    kernels: Literal["native", "python"]

    def new_cache(self, num_blocks: int) -> KVCache: ...

    def forward(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        """Writes the rows' keys and values into `cache`; returns logits, float32 [num_logit_rows, vocab]."""
        ...
