"""Tiny random models for the tests of the native kernels, and the same decoder in float64, written plainly."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from draftproof.kv.cache import BLOCK_SIZE
from draftproof.models.base import ForwardBatch, LayerConfig, ModelConfig, RopeConfig, Segment
from draftproof.models.blocks import KERNEL_TYPES, BlockTensor, quantize
from draftproof.models.rope import inverse_frequencies
from draftproof.models.tensors import tensor_specs
from support.checkpoints import random_k_quant

SMALL = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=101,
    hidden_size=72,
    intermediate_size=100,
    layers=(LayerConfig(RopeConfig(theta=10000.0)),) * 2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=64,
    rms_norm_eps=1e-5,
    context_length=512,
    tie_embeddings=True,
)


PLAIN_ROPE = RopeConfig(theta=10000.0)


def variant(num_layers: int = 2, rope: RopeConfig | None = PLAIN_ROPE, **changes: object) -> ModelConfig:
    """SMALL with changes; all layers alike unless `layers` says otherwise."""
    layers = (LayerConfig(rope),) * num_layers
    return dataclasses.replace(SMALL, **{"layers": layers} | changes)  # type: ignore[arg-type]


def random_weights(config: ModelConfig, dtype: torch.dtype, seed: int = 0) -> dict[str, Tensor]:
    """Weights of a size that keeps activations near one, biases and norms away from their neutral values."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for spec in tensor_specs(config):
        values = torch.randn(spec.shape, generator=generator)
        if len(spec.shape) == 2 and "embed" not in spec.name:
            values = values / spec.shape[1] ** 0.5
        if spec.name.endswith("norm.weight"):
            values = 1 + 0.2 * values
        weights[spec.name] = values.to(dtype)
    return weights


def random_blocks(type_name: str, num_rows: int, num_columns: int, seed: int = 0) -> BlockTensor:
    """Weights with a deviation near 1 / sqrt(num_columns). K-quants are random bytes: every factor occurs."""
    deviation = num_columns**-0.5
    if type_name.endswith("_K"):
        data = random_k_quant(np.random.default_rng(seed), (num_rows, num_columns), type_name, deviation)
        return BlockTensor(type_name, (num_rows, num_columns), torch.from_numpy(data))
    generator = torch.Generator().manual_seed(seed)
    return quantize(torch.randn(num_rows, num_columns, generator=generator) * deviation, type_name)


MIXED = variant(num_heads=4, hidden_size=256, intermediate_size=512, qkv_bias=True)


def mixed_weights(config: ModelConfig, dtype: torch.dtype) -> dict[str, Tensor | BlockTensor]:
    """random_weights, with every quantised type in turn, and some matrices in floats between them."""
    weights: dict[str, Tensor | BlockTensor] = dict(random_weights(config, dtype))
    types = itertools.cycle([*sorted(KERNEL_TYPES), "float"])
    for name, tensor in weights.items():
        if len(tensor.shape) == 2 and (type_name := next(types)) != "float":
            weights[name] = random_blocks(type_name, *tensor.shape, seed=len(name))
    return weights


def chain(
    tokens: list[int], context_len: int, blocks: list[int], logit_rows: list[int] | None = None
) -> ForwardBatch:
    return join([(tokens, context_len, blocks, None)], logit_rows)


def join(
    parts: list[tuple[list[int], int, list[int], list[int] | None]], logit_rows: list[int] | None = None
) -> ForwardBatch:
    """One pass over (tokens, context_len, block_ids, parent_rows) of several sequences; all logits by default."""
    tokens, positions, segments = [], [], []
    for own, context_len, blocks, parents in parts:
        segments.append(Segment(blocks, context_len, len(tokens), len(own), parents))
        depths: list[int] = []
        for row in range(len(own)):
            depths.append(row if parents is None else depths[parents[row]] + 1 if row else 0)
        tokens += own
        positions += [context_len + depth for depth in depths]
    rows = list(range(len(tokens))) if logit_rows is None else logit_rows
    return ForwardBatch(
        torch.tensor(tokens), torch.tensor(positions), segments, torch.tensor(rows, dtype=torch.int64)
    )


def blocks_for(num_tokens: int, seed: int, num_blocks: int = 24) -> list[int]:
    """Shuffled block ids."""
    order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed)).tolist()
    return order[: -(-num_tokens // BLOCK_SIZE)]


def random_tokens(count: int, vocab_size: int, seed: int) -> list[int]:
    return torch.randint(0, vocab_size, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def decode64(config: ModelConfig, weights: dict[str, Tensor], tokens: list[int]) -> Tensor:
    """Logits of one sequence, float64 [num_tokens, vocab]: no cache, no batching, nothing rounded on the way."""
    w = {name: tensor.double() for name, tensor in weights.items()}
    x = w["model.embed_tokens.weight"][tokens] * config.embedding_scale
    for number, layer in enumerate(config.layers):
        prefix = f"model.layers.{number}."
        h = _norm(x, w[prefix + "input_layernorm.weight"], config)
        attended = _attention(config, layer, w, prefix + "self_attn.", h)
        mlp_norm = w[prefix + "post_attention_layernorm.weight"]
        if config.post_norms:
            attended = _norm(attended, mlp_norm, config)
            mlp_norm = w[prefix + "pre_feedforward_layernorm.weight"]
        x = x + attended
        result = _mlp(config, layer, w, prefix + "mlp.", _norm(x, mlp_norm, config))
        if config.post_norms:
            result = _norm(result, w[prefix + "post_feedforward_layernorm.weight"], config)
        x = x + result
    head = "model.embed_tokens.weight" if config.tie_embeddings else "lm_head.weight"
    return _norm(x, w["model.norm.weight"], config) @ w[head].T


def _norm(x: Tensor, weight: Tensor, config: ModelConfig) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).sqrt() * weight


def _linear(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    out = x @ w[name + ".weight"].T
    return out + w[name + ".bias"] if name + ".bias" in w else out


def _mlp(config: ModelConfig, layer: LayerConfig, w: dict[str, Tensor], prefix: str, h: Tensor) -> Tensor:
    def gated(prefix: str, h: Tensor) -> Tensor:
        gate = _linear(w, prefix + "gate_proj", h)
        is_silu = config.activation == "silu"
        gate = functional.silu(gate) if is_silu else functional.gelu(gate, approximate="tanh")
        return _linear(w, prefix + "down_proj", gate * _linear(w, prefix + "up_proj", h))

    if layer.experts is None:
        return gated(prefix, h)
    shares, chosen = _linear(w, prefix + "gate", h).softmax(-1).topk(layer.experts.num_used)
    if layer.experts.is_normalised:
        shares = shares / shares.sum(-1, keepdim=True)
    rows = [
        sum(
            share * gated(f"{prefix}experts.{expert}.", row[None])[0]
            for share, expert in zip(shares[index], chosen[index].tolist(), strict=True)
        )
        for index, row in enumerate(h)
    ]
    return torch.stack(rows)  # type: ignore[arg-type]


def _attention(
    config: ModelConfig, layer: LayerConfig, w: dict[str, Tensor], prefix: str, h: Tensor
) -> Tensor:
    def heads(name: str, count: int) -> Tensor:
        return _linear(w, prefix + name, h).view(len(h), count, config.head_dim).transpose(0, 1)

    def positioned(x: Tensor, norm: str) -> Tensor:
        if config.qk_norm:
            x = _norm(x, w[f"{prefix}{norm}.weight"], config)
        if layer.rope is None:
            return x
        inverse = inverse_frequencies(layer.rope, config.head_dim).double()
        angles = torch.arange(len(h)).double()[:, None] * inverse[None, :]
        cos, sin = (part * layer.rope.attention_factor for part in (angles.cos(), angles.sin()))
        half = len(inverse)
        low, high, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat([low * cos - high * sin, high * cos + low * sin, rest], -1)

    group = config.num_heads // config.num_kv_heads
    q = positioned(heads("q_proj", config.num_heads), "q_norm")
    k = positioned(heads("k_proj", config.num_kv_heads), "k_norm").repeat_interleave(group, 0)
    v = heads("v_proj", config.num_kv_heads).repeat_interleave(group, 0)
    scores = q @ k.transpose(1, 2) * config.score_scale
    hidden = torch.ones(len(h), len(h), dtype=torch.bool).triu(1)
    if layer.window is not None:
        hidden |= torch.ones(len(h), len(h), dtype=torch.bool).tril(-layer.window)
    out = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    return _linear(w, prefix + "o_proj", out.transpose(0, 1).reshape(len(h), -1))
