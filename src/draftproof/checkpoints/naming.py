"""The language model's configuration by Transformers' names, from nested configurations and from GGUF metadata.

Called by the views. Renames and flattens; judges no value and fills in no default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.checkpoints.gguf_layers import layer_keys
from draftproof.checkpoints.view import TensorInfo

_NESTED = (
    "text_config", "llm_config", "language_config", "language_model_config", "thinker_config",
    "transformer_layer_config",
)  # fmt: skip
"""Where configurations of several parts keep the language model's: vision (most), InternVL, DeepSeek-VL, Qwen-Omni,
heads in the `speculators` format."""
_MAX_DEPTH = 3

_MODEL_TYPES = {
    "qwen2moe": "qwen2_moe", "qwen2vl": "qwen2_vl", "qwen3moe": "qwen3_moe", "qwen3next": "qwen3_next",
    "qwen3vl": "qwen3_vl", "qwen3vlmoe": "qwen3_vl_moe", "qwen35": "qwen3_5_text", "qwen35moe": "qwen3_5_moe_text",
    "gemma3": "gemma3_text", "deepseek2": "deepseek_v3", "glm4moe": "glm4_moe", "gpt-oss": "gpt_oss",
    "minimax-m2": "minimax_m2", "mimo2": "mimo_v2", "command-r": "cohere", "nemotron_h_moe": "nemotron_h",
    "llama4": "llama4_text", "granitehybrid": "granitemoehybrid", "lfm2moe": "lfm2_moe", "falcon-h1": "falcon_h1",
    "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "deci": "nemotron-nas", "arwkv7": "rwkv7",
}  # fmt: skip
"""GGUF architecture → Transformers' model_type, where they are spelled differently. deepseek2 stands for DeepSeek V2,
V3 and models built alike."""

_DELTA_NETS = ("qwen3next", "qwen35", "qwen35moe")

_PLAIN = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "feed_forward_length": "intermediate_size",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_shared_count": "n_shared_experts",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace",
    "full_attention_interval": "full_attention_interval",
    "nextn_predict_layers": "num_nextn_predict_layers",
    "rope.freq_base": "rope_theta",
}
_ROPE_SCALING = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
}
_TOKENS = {
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.eos_token_id": "eos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}


def language_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with its nested language model's keys in place of the outer ones."""
    flat = dict(config)
    for _ in range(_MAX_DEPTH):
        name = next((name for name in _NESTED if isinstance(flat.get(name), dict)), None)
        if name is None:
            break
        inner = flat.pop(name)
        flat = {**flat, **inner}
    return flat


def gguf_names(
    metadata: Mapping[str, Any], tensors: Mapping[str, TensorInfo], num_tokens: int | None
) -> dict[str, Any]:
    """GGUF metadata under Transformers' names; `num_tokens` is the tokenizer's.

    Layers that only predict further tokens are counted in GGUF's `block_count`, not in `num_hidden_layers`.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        return {}
    own = {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()}
    named = {theirs: own[ours] for ours, theirs in _PLAIN.items() if ours in own}
    named |= {theirs: metadata[ours] for ours, theirs in _TOKENS.items() if ours in metadata}
    named["model_type"] = _MODEL_TYPES.get(architecture, architecture)
    scaling = {theirs: own[ours] for ours, theirs in _ROPE_SCALING.items() if ours in own}
    if scaling and scaling.get("rope_type") != "none":
        named["rope_scaling"] = scaling
    if "kv_lora_rank" in named:
        named |= _latent_attention(own)
    if architecture in _DELTA_NETS:
        named |= _delta_net(own)
    named |= layer_keys(architecture, own, tensors)
    embedding = tensors.get("token_embd.weight")
    if embedding is not None and len(embedding.shape) == 2:
        named["vocab_size"] = embedding.shape[0]
        named["tie_word_embeddings"] = "output.weight" not in tensors
    elif num_tokens is not None:
        named["vocab_size"] = num_tokens
    layers, extra = named.get("num_hidden_layers"), named.get("num_nextn_predict_layers")
    if type(layers) is int and type(extra) is int and 0 < extra < layers:
        named["num_hidden_layers"] = layers - extra
    return named


def _latent_attention(own: Mapping[str, Any]) -> dict[str, Any]:
    """Lengths of a head with latent attention: GGUF's key is latent plus rotary part, `_mla` what the head has."""
    found: dict[str, Any] = {}
    rotary = own.get("rope.dimension_count")
    key = own.get("attention.key_length_mla", own.get("attention.key_length"))
    value = own.get("attention.value_length_mla", own.get("attention.value_length"))
    if rotary is not None:
        found["qk_rope_head_dim"] = rotary
        if type(key) is int and type(rotary) is int and key > rotary:
            found["qk_nope_head_dim"] = key - rotary
    if value is not None:
        found["v_head_dim"] = value
    return found


def _delta_net(own: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of gated delta nets as llama.cpp's converter writes them: under the names of a state space model's."""
    names = {
        "ssm.conv_kernel": "linear_conv_kernel_dim",
        "ssm.state_size": "linear_key_head_dim",
        "ssm.group_count": "linear_num_key_heads",
        "ssm.time_step_rank": "linear_num_value_heads",
    }
    found = {theirs: own[ours] for ours, theirs in names.items() if ours in own}
    inner, heads = own.get("ssm.inner_size"), own.get("ssm.time_step_rank")
    if type(inner) is int and type(heads) is int and heads > 0 and inner % heads == 0:
        found["linear_value_head_dim"] = inner // heads
    return found
