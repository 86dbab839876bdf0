"""The decoder in PyTorch: reference and fallback of the native kernels. Implements `models.base.Model`.

Called by `models.loading` and the engine. Knows nothing of files; weights come as a mapping by name.

The bits of a row's logits depend on its own tokens and positions alone. Linear layers keep that promise by
`models.linear`, attention by computing each row by itself; everything else here is element by element or sums
over one row. `silu` is spelled out: PyTorch's own uses another exponential for the last elements of a tensor than
for the others. The residual stream, norms and attention are float32 for either storage type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from draftproof.kv.cache import KVCache
from draftproof.models.attention import SegmentView, attend, view_segment, write_slots
from draftproof.models.base import ForwardBatch, ModelConfig
from draftproof.models.linear import Linear, PackedLinear
from draftproof.models.rope import RopeTable, rotate


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: Tensor
    qkv: Linear
    attention_output: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class _Pass:
    """What all layers of one pass share: rotary tables by row, where rows are written, what they see."""

    cos: Tensor
    sin: Tensor
    slots: tuple[Tensor, Tensor]
    views: list[SegmentView]


class Decoder:
    """A target in packed form.

    weights  tensors under Transformers' names; each is asked for once, packed and dropped, so a mapping that
             produces them on demand keeps the peak low. Which ones: `config.expected_tensors`.
    dtype    storage of weights and cache: torch.float32 or torch.bfloat16
    """

    kernels: Literal["native", "python"] = "python"

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        self.config = config
        self.dtype = dtype
        self._embedding = weights["model.embed_tokens.weight"].to(dtype)  # [vocab, hidden]
        self._layers = [
            self._load_layer(weights, f"model.layers.{layer}.") for layer in range(config.num_layers)
        ]
        self._final_norm = weights["model.norm.weight"].float()
        head = self._embedding if config.tie_embeddings else weights["lm_head.weight"]
        self._head: Linear = PackedLinear(head, None, dtype)
        self._rope = RopeTable(config.rope, config.head_dim, config.context_length)

    def _load_layer(self, weights: Mapping[str, Tensor], prefix: str) -> _Layer:
        config = self.config

        def linear(names: list[str], has_bias: bool) -> Linear:
            weight = torch.cat([weights[f"{prefix}{name}.weight"] for name in names])
            bias = torch.cat([weights[f"{prefix}{name}.bias"] for name in names]) if has_bias else None
            return PackedLinear(weight, bias, self.dtype)

        qkv = [f"self_attn.{part}_proj" for part in "qkv"]
        return _Layer(
            input_norm=weights[prefix + "input_layernorm.weight"].float(),
            qkv=linear(qkv, config.qkv_bias),
            attention_output=linear(["self_attn.o_proj"], config.o_bias),
            post_norm=weights[prefix + "post_attention_layernorm.weight"].float(),
            gate_up=linear(["mlp.gate_proj", "mlp.up_proj"], config.mlp_bias),
            down=linear(["mlp.down_proj"], config.mlp_bias),
        )

    def new_cache(self, num_blocks: int) -> KVCache:
        """An empty cache of this model's shape and type."""
        config = self.config
        return KVCache(config.num_layers, num_blocks, config.num_kv_heads, config.head_dim, self.dtype)

    @torch.no_grad()
    def forward(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        """Writes the rows' keys and values into `cache`; returns logits, float32 [num_logit_rows, vocab]."""
        assert batch.token_ids.shape == batch.positions.shape
        assert sum(segment.num_rows for segment in batch.segments) == batch.token_ids.shape[0]
        cos, sin = self._rope.tables(int(batch.positions.max()) + 1)
        shared = _Pass(
            cos=cos[batch.positions],
            sin=sin[batch.positions],
            slots=write_slots(batch.segments),
            views=[view_segment(segment) for segment in batch.segments],
        )
        rows = self._embedding[batch.token_ids].float()  # [num_rows, hidden]
        for layer, layer_cache in zip(self._layers, cache.data, strict=True):
            normed = rms_norm(rows, layer.input_norm, self.config.rms_norm_eps)
            rows = rows + layer.attention_output(self._attention(layer.qkv(normed), layer_cache, shared))
            normed = rms_norm(rows, layer.post_norm, self.config.rms_norm_eps)
            gate, up = layer.gate_up(normed).chunk(2, dim=-1)  # [num_rows, intermediate]
            rows = rows + layer.down(silu(gate) * up)
        return self._head(rms_norm(rows[batch.logit_rows], self._final_norm, self.config.rms_norm_eps))

    def _attention(self, qkv: Tensor, layer_cache: Tensor, shared: _Pass) -> Tensor:
        """qkv [num_rows, (num_heads + 2 num_kv_heads) · head_dim] → [num_rows, num_heads · head_dim]."""
        config = self.config
        num_rows, kv_heads = qkv.shape[0], config.num_kv_heads
        heads = qkv.view(num_rows, -1, config.head_dim)
        queries, keys, values = torch.split(heads, [config.num_heads, kv_heads, kv_heads], dim=1)
        queries, keys = rotate(queries, shared.cos, shared.sin), rotate(keys, shared.cos, shared.sin)
        blocks, offsets = shared.slots
        layer_cache[blocks, :, :, offsets] = torch.stack([keys, values], dim=1).to(self.dtype)
        grouped = queries.view(num_rows, kv_heads, config.num_heads // kv_heads, config.head_dim)
        return attend(grouped, layer_cache, shared.views).view(num_rows, -1)


def rms_norm(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Zhang and Sennrich 2019, equation 4. rows float32 [num_rows, hidden], weight float32 [hidden]."""
    mean_square = rows.pow(2).mean(dim=-1, keepdim=True)
    return weight * (rows * torch.rsqrt(mean_square + eps))


def silu(x: Tensor) -> Tensor:
    """x · sigmoid(x), with the same bits for an element wherever it stands in the tensor."""
    return x / (1 + torch.exp(-x))
