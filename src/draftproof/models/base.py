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
class LinearScaling:
    """All positions are divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN (Peng et al. 2023): a ramp between stretched and kept frequencies, by rotations in the old context."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    """Whether the ends of the ramp are rounded outwards to whole frequencies."""


@dataclass(frozen=True, slots=True)
class FrequencyDivisors:
    """One divisor per frequency, [rotary_dim / 2]: `rope_freqs.weight` of a GGUF file, factors of LongRoPE."""

    values: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | FrequencyDivisors


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding.

    rotary_dim        elements of a head that are rotated, from the first on; None: all
    attention_factor  what cosines and sines are multiplied with (YaRN, LongRoPE)
    """

    theta: float
    scaling: RopeScaling | None = None
    rotary_dim: int | None = None
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class ExpertConfig:
    """A mixture of experts in place of one MLP.

    num_used           experts that a row goes through: those with the largest router probabilities
    intermediate_size  of each expert
    is_normalised      whether the probabilities of the chosen ones are divided by their sum
    """

    num_experts: int
    num_used: int
    intermediate_size: int
    is_normalised: bool


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """What may differ from layer to layer.

    rope     None: queries and keys carry no position
    window   a row sees itself and the `window` - 1 tokens before it; None: all before it
    experts  None: one MLP of the model's intermediate size
    """

    rope: RopeConfig | None
    window: int | None = None
    experts: ExpertConfig | None = None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder as data: attention with rotary positions and a gated MLP, RMS-normed before each.

    qk_norm          queries and keys are RMS-normed per head before they are rotated
    post_norms       attention's and MLP's results are RMS-normed too before they are added
    embedding_scale  factor of the embeddings, rounded to the storage type like the product
    attention_scale  factor of the scores; None: 1 / sqrt(head_dim)
    context_length   in tokens; other lengths are counts
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: tuple[LayerConfig, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    context_length: int
    tie_embeddings: bool
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    activation: Literal["silu", "gelu_tanh"] = "silu"
    embedding_scale: float = 1.0
    attention_scale: float | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def score_scale(self) -> float:
        """Factor of the attention scores."""
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale

    @property
    def ropes(self) -> tuple[RopeConfig, ...]:
        """The distinct rotary embeddings of all layers, in order of first use."""
        return tuple(dict.fromkeys(layer.rope for layer in self.layers if layer.rope is not None))


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
