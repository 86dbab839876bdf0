"""Which tensors a model of the family has, under Transformers' names, and where the kernels want them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from draftproof.models.base import ModelConfig


class Part(IntEnum):
    """Mirrors dp::Part in draftproof.cpp."""

    EMBEDDING = 0
    HEAD = 1
    FINAL_NORM = 2
    INPUT_NORM = 3
    POST_NORM = 4
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


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that the checkpoint must have: `layer` is 0 where the part belongs to none."""

    name: str
    part: Part
    layer: int
    shape: tuple[int, ...]


def tensor_specs(config: ModelConfig) -> Iterator[TensorSpec]:
    """All tensors of the model, in the order in which checkpoints usually hold them."""
    vocab, hidden, inter = config.vocab_size, config.hidden_size, config.intermediate_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield TensorSpec("model.embed_tokens.weight", Part.EMBEDDING, 0, (vocab, hidden))
    linears = [
        ("self_attn.q_proj", Part.Q, Part.Q_BIAS, config.qkv_bias, (q_size, hidden)),
        ("self_attn.k_proj", Part.K, Part.K_BIAS, config.qkv_bias, (kv_size, hidden)),
        ("self_attn.v_proj", Part.V, Part.V_BIAS, config.qkv_bias, (kv_size, hidden)),
        ("self_attn.o_proj", Part.O, Part.O_BIAS, config.o_bias, (hidden, q_size)),
        ("mlp.gate_proj", Part.GATE, Part.GATE_BIAS, config.mlp_bias, (inter, hidden)),
        ("mlp.up_proj", Part.UP, Part.UP_BIAS, config.mlp_bias, (inter, hidden)),
        ("mlp.down_proj", Part.DOWN, Part.DOWN_BIAS, config.mlp_bias, (hidden, inter)),
    ]
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        yield TensorSpec(prefix + "input_layernorm.weight", Part.INPUT_NORM, layer, (hidden,))
        yield TensorSpec(prefix + "post_attention_layernorm.weight", Part.POST_NORM, layer, (hidden,))
        for name, part, bias_part, has_bias, shape in linears:
            yield TensorSpec(prefix + name + ".weight", part, layer, shape)
            if has_bias:
                yield TensorSpec(prefix + name + ".bias", bias_part, layer, shape[:1])
    yield TensorSpec("model.norm.weight", Part.FINAL_NORM, 0, (hidden,))
    if not config.tie_embeddings:
        yield TensorSpec("lm_head.weight", Part.HEAD, 0, (vocab, hidden))
