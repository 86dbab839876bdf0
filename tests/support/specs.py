"""What small generated checkpoints are made of: shape, family, seed; weights and config.json that follow.

Weights are random but scaled so that attention is peaked, no layer fades and greedy text wanders instead of
repeating one token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

BOS_ID, START_ID, EOS_ID = 0, 1, 2

LLAMA3_SCALING: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

YARN: dict[str, Any] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

Family = Literal["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3moe", "smollm3", "gemma3", "phi3"]
"""Names as in `ModelConfig.architecture`."""

HF_NAMES: dict[Family, tuple[str, str]] = {
    "llama": ("LlamaForCausalLM", "llama"),
    "mistral": ("MistralForCausalLM", "mistral"),
    "mixtral": ("MixtralForCausalLM", "mixtral"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "qwen3moe": ("Qwen3MoeForCausalLM", "qwen3_moe"),
    "smollm3": ("SmolLM3ForCausalLM", "smollm3"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
    "phi3": ("Phi3ForCausalLM", "phi3"),
}
GGUF_NAMES: dict[Family, str] = {"mistral": "llama", "mixtral": "llama"}
"""Where they are other names."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Shape, family and seed of a generated checkpoint. Lengths are counts of elements or tokens."""

    family: Family = "llama"
    hidden: int = 64
    intermediate: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int | None = None
    """None: hidden // heads, and not written into config.json."""
    vocab: int = 384
    """Model rows; the tokenizer has at most so many tokens, so a few ids may stand for no text."""
    tie: bool = False
    dtype: torch.dtype = torch.float32
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    context: int = 512
    seed: int = 0
    num_shards: int = 1
    config_style: Literal["transformers4", "transformers5"] = "transformers4"
    rotary_dim: int | None = None
    """Elements of a head that are rotated, where not all are."""
    window: int | None = None
    """Of those layers that the family's rule gives one."""
    experts: int = 4
    used_experts: int = 2
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More keys of config.json."""

    @property
    def resolved_head_dim(self) -> int:
        return self.head_dim or self.hidden // self.heads


TINY = Spec()
"""Milliseconds per pass; use it wherever the shape does not matter."""

WIDE = Spec(hidden=128, intermediate=1536, layers=2, heads=4, kv_heads=2)
"""One inner dimension of 1536, where kernels begin to treat a single row differently."""

WIDE_HIDDEN = Spec(hidden=1536, intermediate=2048, layers=2, heads=12, kv_heads=2, vocab=512)
"""Every linear layer has an inner dimension of at least 1536."""

K_QUANT = Spec(hidden=256, intermediate=512, layers=2, heads=4, kv_heads=2)
"""Every row length is a multiple of 256, as K-quants need."""


def build_weights(spec: Spec) -> dict[str, Tensor]:
    """Float32 weights by the names that the family's checkpoints use."""
    generator = torch.Generator().manual_seed(spec.seed)
    family, hidden, inner = spec.family, spec.hidden, spec.intermediate

    def normal(*shape: int, gain: float = 1.0) -> Tensor:
        return torch.randn(*shape, generator=generator) * gain / shape[-1] ** 0.5

    def bias(length: int) -> Tensor:
        return torch.randn(length, generator=generator) * 0.1

    def norm(length: int = hidden) -> Tensor:
        return (0.0 if family == "gemma3" else 1.0) + 0.1 * torch.randn(length, generator=generator)

    q_size, kv_size = spec.heads * spec.resolved_head_dim, spec.kv_heads * spec.resolved_head_dim
    # Gemma multiplies its embeddings with the square root of their length.
    embedding_gain = 0.4 if family == "gemma3" else 0.4 * hidden**0.5
    weights = {"model.embed_tokens.weight": normal(spec.vocab, hidden, gain=embedding_gain)}
    for layer in range(spec.layers):
        prefix = f"model.layers.{layer}."
        weights |= {
            prefix + "input_layernorm.weight": norm(),
            prefix + "self_attn.q_proj.weight": normal(q_size, hidden, gain=2.0),
            prefix + "self_attn.k_proj.weight": normal(kv_size, hidden, gain=2.0),
            prefix + "self_attn.v_proj.weight": normal(kv_size, hidden, gain=2.0),
            prefix + "self_attn.o_proj.weight": normal(hidden, q_size, gain=2.0),
            prefix + "post_attention_layernorm.weight": norm(),
        }
        if family == "gemma3":
            weights |= {prefix + f"{name}_feedforward_layernorm.weight": norm() for name in ("pre", "post")}
        if family in ("gemma3", "qwen3", "qwen3moe"):
            weights |= {prefix + f"self_attn.{n}_norm.weight": norm(spec.resolved_head_dim) for n in "qk"}
        moe = {"mixtral": "block_sparse_moe", "qwen3moe": "mlp"}.get(family)
        names = ("w1", "w3", "w2") if family == "mixtral" else ("gate_proj", "up_proj", "down_proj")
        mlps = [prefix + "mlp."]
        if moe is not None:
            weights[f"{prefix}{moe}.gate.weight"] = normal(spec.experts, hidden, gain=2.0)
            mlps = [f"{prefix}{moe}.experts.{expert}." for expert in range(spec.experts)]
        for mlp in mlps:
            weights |= {
                f"{mlp}{names[0]}.weight": normal(inner, hidden, gain=1.5),
                f"{mlp}{names[1]}.weight": normal(inner, hidden, gain=1.5),
                f"{mlp}{names[2]}.weight": normal(hidden, inner, gain=2.0),
            }
        if family == "phi3":
            for fused, parts in (("self_attn.qkv", "qkv"), ("mlp.gate_up", ("gate", "up"))):
                stem = fused.split(".")[0]
                pieces = [weights.pop(f"{prefix}{stem}.{part}_proj.weight") for part in parts]
                weights[f"{prefix}{fused}_proj.weight"] = torch.cat(pieces)
        if spec.attention_bias or family == "qwen2":
            weights |= {prefix + f"self_attn.{name}_proj.bias": bias(size)
                        for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size))}  # fmt: skip
        if spec.attention_bias and family != "qwen2":
            weights[prefix + "self_attn.o_proj.bias"] = bias(hidden)
        if spec.mlp_bias:
            sizes = (("gate", inner), ("up", inner), ("down", hidden))
            weights |= {prefix + f"mlp.{name}_proj.bias": bias(size) for name, size in sizes}
    weights["model.norm.weight"] = norm()
    if not spec.tie:
        weights["lm_head.weight"] = normal(spec.vocab, hidden, gain=2.0)
    return weights


def hf_config(spec: Spec) -> dict[str, Any]:
    """The content of config.json."""
    architecture, model_type = HF_NAMES[spec.family]
    config: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": spec.context,
        "tie_word_embeddings": spec.tie,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "torch_dtype": str(spec.dtype).removeprefix("torch."),
    }
    if spec.head_dim is not None or spec.family in ("qwen3", "qwen3moe", "gemma3"):
        config["head_dim"] = spec.resolved_head_dim
    if spec.family in ("llama", "qwen3", "qwen3moe", "smollm3", "gemma3"):
        config["attention_bias"] = spec.attention_bias
    if spec.family in ("llama", "smollm3"):
        config["mlp_bias"] = spec.mlp_bias
    if spec.family == "gemma3":
        config |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24}
    else:
        config["hidden_act"] = "silu"
    if spec.family == "phi3":  # its defaults lie beyond the small vocabulary
        config |= {"pad_token_id": EOS_ID, "original_max_position_embeddings": 64}
    if spec.family == "smollm3":
        config["pad_token_id"] = EOS_ID
    if spec.family == "mixtral":
        config |= {"num_local_experts": spec.experts, "num_experts_per_tok": spec.used_experts}
    if spec.family == "qwen3moe":
        config |= {"num_experts": spec.experts, "num_experts_per_tok": spec.used_experts}
        config |= {"moe_intermediate_size": spec.intermediate, "norm_topk_prob": True}
    if spec.family in ("mistral", "mixtral", "phi3", "gemma3"):
        config["sliding_window"] = spec.window
    elif spec.window is not None:
        config |= {"sliding_window": spec.window, "use_sliding_window": True}
    if spec.family in ("qwen2", "qwen3") and spec.window is not None:
        config["max_window_layers"] = 1
    if spec.rotary_dim is not None:
        config["partial_rotary_factor"] = spec.rotary_dim / spec.resolved_head_dim
    if spec.config_style == "transformers5":
        scaling = dict(spec.rope_scaling) if spec.rope_scaling else {"rope_type": "default"}
        config["rope_parameters"] = scaling | {"rope_theta": spec.rope_theta}
    else:
        config |= {"rope_theta": spec.rope_theta, "rope_scaling": dict(spec.rope_scaling or {}) or None}
    return config | dict(spec.extra)
