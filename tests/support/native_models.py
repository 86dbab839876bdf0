"""Tiny random models for the tests of the native kernels, and the same decoder in float64, written plainly."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from draftproof.kv.cache import BLOCK_SIZE
from draftproof.models.base import ForwardBatch, ModelConfig, RopeConfig, Segment
from draftproof.models.native.weights import tensor_specs
from draftproof.models.rope import inverse_frequencies

SMALL = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=101,
    hidden_size=72,
    intermediate_size=100,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=64,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=10000.0),
    context_length=512,
    tie_embeddings=True,
)


def variant(**changes: object) -> ModelConfig:
    return dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]


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
    positions = torch.arange(len(tokens)).double()
    angles = positions[:, None] * inverse_frequencies(config.rope, config.head_dim).double()[None, :]
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        h = _norm(x, w[prefix + "input_layernorm.weight"], config)
        x = x + _attention(config, w, prefix + "self_attn.", h, cos, sin)
        h = _norm(x, w[prefix + "post_attention_layernorm.weight"], config)
        gate, up = _linear(w, prefix + "mlp.gate_proj", h), _linear(w, prefix + "mlp.up_proj", h)
        x = x + _linear(w, prefix + "mlp.down_proj", torch.nn.functional.silu(gate) * up)
    head = "model.embed_tokens.weight" if config.tie_embeddings else "lm_head.weight"
    return _norm(x, w["model.norm.weight"], config) @ w[head].T


def _norm(x: Tensor, weight: Tensor, config: ModelConfig) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).sqrt() * weight


def _linear(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    out = x @ w[name + ".weight"].T
    return out + w[name + ".bias"] if name + ".bias" in w else out


def _attention(
    config: ModelConfig, w: dict[str, Tensor], prefix: str, h: Tensor, cos: Tensor, sin: Tensor
) -> Tensor:
    def heads(name: str, count: int) -> Tensor:
        return _linear(w, prefix + name, h).view(len(h), count, config.head_dim).transpose(0, 1)

    def rotate(x: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat([-high, low], -1) * sin

    group = config.num_heads // config.num_kv_heads
    q = rotate(heads("q_proj", config.num_heads))
    k = rotate(heads("k_proj", config.num_kv_heads)).repeat_interleave(group, 0)
    v = heads("v_proj", config.num_kv_heads).repeat_interleave(group, 0)
    scores = q @ k.transpose(1, 2) / config.head_dim**0.5
    hidden = torch.ones(len(h), len(h), dtype=torch.bool).triu(1)
    out = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    return _linear(w, prefix + "o_proj", out.transpose(0, 1).reshape(len(h), -1))
