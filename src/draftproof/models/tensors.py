"""The tensors that a model of a configuration has: names (Transformers'), shapes, and what each is for.

Read by `loading`, which checks a checkpoint against it, and by both decoders. Checkpoints that fuse or name tensors
otherwise are brought to these names by `weights`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from draftproof.models.base import ModelConfig


class Part(IntEnum):
    """What a tensor is for. The native kernels know these numbers (`dp::Part` in draftproof.cpp)."""

    EMBEDDING = 0
    HEAD = 1
    FINAL_NORM = 2
    INPUT_NORM = 3
    MLP_NORM = 4
    Q = 5
    K = 6
    V = 7
    O = 8  # noqa: E741
    GATE = 9
    UP = 10
    DOWN = 11
    Q_BIAS = 12
    K_BIAS = 13
    V_BIAS = 14
    O_BIAS = 15
    GATE_BIAS = 16
    UP_BIAS = 17
    DOWN_BIAS = 18
    Q_NORM = 19
    K_NORM = 20
    ATTENTION_POST_NORM = 21
    MLP_POST_NORM = 22
    ROUTER = 23


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that the checkpoint must have: `layer` and `expert` are 0 where the part belongs to none."""

    name: str
    part: Part
    layer: int
    shape: tuple[int, ...]
    expert: int = 0


def tensor_specs(config: ModelConfig) -> Iterator[TensorSpec]:
    """All tensors of the model, in the order in which checkpoints usually hold them."""
    vocab, hidden = config.vocab_size, config.hidden_size
    yield TensorSpec("model.embed_tokens.weight", Part.EMBEDDING, 0, (vocab, hidden))
    for layer in range(config.num_layers):
        yield from _norms(config, layer)
        yield from _attention(config, layer)
        yield from _mlp(config, layer)
    yield TensorSpec("model.norm.weight", Part.FINAL_NORM, 0, (hidden,))
    if not config.tie_embeddings:
        yield TensorSpec("lm_head.weight", Part.HEAD, 0, (vocab, hidden))


def _norms(config: ModelConfig, layer: int) -> Iterator[TensorSpec]:
    norms = [("input_layernorm", Part.INPUT_NORM)]
    if config.post_norms:
        norms += [
            ("post_attention_layernorm", Part.ATTENTION_POST_NORM),
            ("pre_feedforward_layernorm", Part.MLP_NORM),
            ("post_feedforward_layernorm", Part.MLP_POST_NORM),
        ]
    else:
        norms.append(("post_attention_layernorm", Part.MLP_NORM))
    for name, part in norms:
        yield TensorSpec(f"model.layers.{layer}.{name}.weight", part, layer, (config.hidden_size,))
    if config.qk_norm:
        for name, part in (("q_norm", Part.Q_NORM), ("k_norm", Part.K_NORM)):
            full_name = f"model.layers.{layer}.self_attn.{name}.weight"
            yield TensorSpec(full_name, part, layer, (config.head_dim,))


def _attention(config: ModelConfig, layer: int) -> Iterator[TensorSpec]:
    hidden = config.hidden_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    for name, part, bias_part, has_bias, shape in (
        ("q_proj", Part.Q, Part.Q_BIAS, config.qkv_bias, (q_size, hidden)),
        ("k_proj", Part.K, Part.K_BIAS, config.qkv_bias, (kv_size, hidden)),
        ("v_proj", Part.V, Part.V_BIAS, config.qkv_bias, (kv_size, hidden)),
        ("o_proj", Part.O, Part.O_BIAS, config.o_bias, (hidden, q_size)),
    ):
        prefix = f"model.layers.{layer}.self_attn.{name}"
        yield TensorSpec(f"{prefix}.weight", part, layer, shape)
        if has_bias:
            yield TensorSpec(f"{prefix}.bias", bias_part, layer, shape[:1])


def _mlp(config: ModelConfig, layer: int) -> Iterator[TensorSpec]:
    hidden, experts = config.hidden_size, config.layers[layer].experts
    prefix = f"model.layers.{layer}.mlp."
    if experts is not None:
        yield TensorSpec(f"{prefix}gate.weight", Part.ROUTER, layer, (experts.num_experts, hidden))
        for expert in range(experts.num_experts):
            for name, part, _, shape in _gated(hidden, experts.intermediate_size):
                yield TensorSpec(f"{prefix}experts.{expert}.{name}.weight", part, layer, shape, expert)
        return
    for name, part, bias_part, shape in _gated(hidden, config.intermediate_size):
        yield TensorSpec(f"{prefix}{name}.weight", part, layer, shape)
        if config.mlp_bias:
            yield TensorSpec(f"{prefix}{name}.bias", bias_part, layer, shape[:1])


def _gated(hidden: int, inner: int) -> tuple[tuple[str, Part, Part, tuple[int, int]], ...]:
    return (
        ("gate_proj", Part.GATE, Part.GATE_BIAS, (inner, hidden)),
        ("up_proj", Part.UP, Part.UP_BIAS, (inner, hidden)),
        ("down_proj", Part.DOWN, Part.DOWN_BIAS, (hidden, inner)),
    )
