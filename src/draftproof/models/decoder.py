"""The decoder in PyTorch: reference and fallback of the native kernels. Implements `models.base.Model`.

Called by `models.loading` and the engine. Knows nothing of files; weights come as a mapping by name.

The bits of a row's logits depend on its own tokens and positions alone. Linear layers keep that promise by
`models.linear`, attention by computing each row by itself; everything else here is element by element or sums
over one row. The residual stream, norms and attention are float32 for either storage type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from draftproof.kv.cache import KVCache
from draftproof.models.attention import SegmentView, attend, view_segment, write_slots
from draftproof.models.base import ForwardBatch, LayerConfig, ModelConfig, RopeConfig
from draftproof.models.linear import Linear, PackedLinear
from draftproof.models.mlp import ACTIVATIONS, GatedMlp, MixtureOfExperts, Mlp
from draftproof.models.rope import RopeTable, rotate
from draftproof.models.tensors import Part, tensor_specs


@dataclass(frozen=True, slots=True)
class _Layer:
    config: LayerConfig
    norms: Mapping[Part, Tensor]
    qkv: Linear
    attention_output: Linear
    mlp: Mlp


@dataclass(frozen=True, slots=True)
class _Pass:
    """What all layers of one pass share: rotary tables by row, where rows are written, what they see."""

    rotary: Mapping[RopeConfig, tuple[Tensor, Tensor]]
    slots: tuple[Tensor, Tensor]
    views: list[SegmentView]


class Decoder:
    """A target in packed form.

    weights  tensors under Transformers' names; each is asked for once, packed and dropped, so a mapping that
             produces them on demand keeps the peak low. Which ones: `tensors.tensor_specs`.
    dtype    storage of weights and cache: torch.float32 or torch.bfloat16
    """

    kernels: Literal["native", "python"] = "python"

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        self.config = config
        self.dtype = dtype
        names: dict[int, dict[tuple[Part, int], str]] = {layer: {} for layer in range(config.num_layers)}
        for spec in tensor_specs(config):
            if spec.name.startswith("model.layers."):
                names[spec.layer][spec.part, spec.expert] = spec.name
        embedding = weights["model.embed_tokens.weight"].to(dtype)  # [vocab, hidden]
        self._embedding = embedding
        self._layers = [
            self._load_layer(config.layers[layer], _LayerWeights(weights, names[layer]))
            for layer in range(config.num_layers)
        ]
        self._final_norm = weights["model.norm.weight"].float()
        head = embedding if config.tie_embeddings else weights["lm_head.weight"]
        self._head: Linear = PackedLinear(head, None, dtype)
        self._ropes = {rope: RopeTable(rope, config.head_dim, config.context_length) for rope in config.ropes}

    def _load_layer(self, config: LayerConfig, weights: _LayerWeights) -> _Layer:
        return _Layer(
            config=config,
            norms={part: weights.tensor(part).float() for part in _NORMS if weights.has(part)},
            qkv=weights.linear([Part.Q, Part.K, Part.V], self.dtype),
            attention_output=weights.linear([Part.O], self.dtype),
            mlp=self._load_mlp(config, weights),
        )

    def _load_mlp(self, config: LayerConfig, weights: _LayerWeights) -> Mlp:
        def gated(expert: int = 0) -> GatedMlp:
            return GatedMlp(
                gate_up=weights.linear([Part.GATE, Part.UP], self.dtype, expert),
                down=weights.linear([Part.DOWN], self.dtype, expert),
                activation=ACTIVATIONS[self.config.activation],
            )

        if config.experts is None:
            return gated()
        router = weights.linear([Part.ROUTER], self.dtype)
        return MixtureOfExperts(
            config.experts, router, [gated(expert) for expert in range(config.experts.num_experts)]
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
        num_positions = int(batch.positions.max()) + 1
        tables = {rope: table.tables(num_positions) for rope, table in self._ropes.items()}
        shared = _Pass(
            rotary={
                rope: (cos[batch.positions], sin[batch.positions]) for rope, (cos, sin) in tables.items()
            },
            slots=write_slots(batch.segments),
            views=[view_segment(segment) for segment in batch.segments],
        )
        rows = self._embed(batch.token_ids)
        for layer, layer_cache in zip(self._layers, cache.data.unbind(1), strict=True):
            normed = self._norm(rows, layer, Part.INPUT_NORM)
            attended = layer.attention_output(self._attention(layer, normed, layer_cache, shared))
            rows = rows + self._norm(attended, layer, Part.ATTENTION_POST_NORM)
            normed = self._norm(rows, layer, Part.MLP_NORM)
            rows = rows + self._norm(layer.mlp(normed), layer, Part.MLP_POST_NORM)
        return self._head(rms_norm(rows[batch.logit_rows], self._final_norm, self.config.rms_norm_eps))

    def _embed(self, token_ids: Tensor) -> Tensor:
        """float32 [num_rows, hidden]."""
        rows = self._embedding[token_ids]
        if self.config.embedding_scale != 1.0:
            rows = rows * torch.tensor(self.config.embedding_scale).to(self.dtype)
        return rows.float()

    def _norm(self, rows: Tensor, layer: _Layer, part: Part) -> Tensor:
        """The layer's norm of that name, or the rows themselves where it has none."""
        if part not in layer.norms:
            return rows
        return rms_norm(rows, layer.norms[part], self.config.rms_norm_eps)

    def _attention(self, layer: _Layer, normed: Tensor, layer_cache: Tensor, shared: _Pass) -> Tensor:
        """normed [num_rows, hidden] → [num_rows, num_heads · head_dim]."""
        config = self.config
        num_rows, kv_heads = normed.shape[0], config.num_kv_heads
        heads = layer.qkv(normed).view(num_rows, -1, config.head_dim)
        queries, keys, values = torch.split(heads, [config.num_heads, kv_heads, kv_heads], dim=1)
        queries, keys = self._norm(queries, layer, Part.Q_NORM), self._norm(keys, layer, Part.K_NORM)
        if layer.config.rope is not None:
            cos, sin = shared.rotary[layer.config.rope]
            queries, keys = rotate(queries, cos, sin), rotate(keys, cos, sin)
        blocks, offsets = shared.slots
        layer_cache[blocks, :, :, offsets] = torch.stack([keys, values], dim=1).to(self.dtype)
        grouped = queries.reshape(num_rows, kv_heads, config.num_heads // kv_heads, config.head_dim)
        attended = attend(grouped, layer_cache, shared.views, config.score_scale, layer.config.window)
        return attended.view(num_rows, -1)


_NORMS = (
    Part.INPUT_NORM, Part.MLP_NORM, Part.ATTENTION_POST_NORM, Part.MLP_POST_NORM, Part.Q_NORM, Part.K_NORM,
)  # fmt: skip

_BIASES = {
    Part.Q: Part.Q_BIAS, Part.K: Part.K_BIAS, Part.V: Part.V_BIAS, Part.O: Part.O_BIAS, Part.GATE: Part.GATE_BIAS,
    Part.UP: Part.UP_BIAS, Part.DOWN: Part.DOWN_BIAS,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _LayerWeights:
    """The tensors of one layer by what they are for."""

    weights: Mapping[str, Tensor]
    names: Mapping[tuple[Part, int], str]

    def has(self, part: Part, expert: int = 0) -> bool:
        return (part, expert) in self.names

    def tensor(self, part: Part, expert: int = 0) -> Tensor:
        return self.weights[self.names[part, expert]]

    def linear(self, parts: Sequence[Part], dtype: torch.dtype, expert: int = 0) -> Linear:
        """One layer whose outputs are those of `parts`, one after the other."""
        weight = torch.cat([self.tensor(part, expert) for part in parts])
        biases = [_BIASES[part] for part in parts if part in _BIASES]
        has_bias = bool(biases) and self.has(biases[0], expert)
        bias = torch.cat([self.tensor(part, expert) for part in biases]) if has_bias else None
        return PackedLinear(weight, bias, dtype)


def rms_norm(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Zhang and Sennrich 2019, equation 4. rows float32 […, length], weight float32 [length]."""
    mean_square = rows.pow(2).mean(dim=-1, keepdim=True)
    return weight * (rows * torch.rsqrt(mean_square + eps))
