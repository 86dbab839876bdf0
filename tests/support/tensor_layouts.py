"""Names and shapes of the tensors of public checkpoints, written out from their configurations.

Called by `known_pairs`. One function per layout; a layout is what the family's repositories on the hub hold. Rows come
first in shapes, as in safetensors. Knows no values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Shape = tuple[int, ...]
Layout = Iterator[tuple[str, str, Shape]]
"""Name, safetensors dtype, shape."""
Config = Mapping[str, Any]

WEIGHT = "BF16"


def tensors_of(layout: str, config: Config) -> dict[str, tuple[str, Shape]]:
    """All tensors of a checkpoint with this layout."""
    return {name: (dtype, shape) for name, dtype, shape in LAYOUTS[layout](config)}


def _head_dim(config: Config) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _linear(name: str, rows: int, columns: int, bias: bool = False) -> Layout:
    yield f"{name}.weight", WEIGHT, (rows, columns)
    if bias:
        yield f"{name}.bias", WEIGHT, (rows,)


def _norms(prefix: str, config: Config, *names: str) -> Layout:
    for name in names:
        yield f"{prefix}{name}.weight", WEIGHT, (config["hidden_size"],)


def _mlp(prefix: str, hidden: int, intermediate: int) -> Layout:
    yield from _linear(f"{prefix}gate_proj", intermediate, hidden)
    yield from _linear(f"{prefix}up_proj", intermediate, hidden)
    yield from _linear(f"{prefix}down_proj", hidden, intermediate)


def _experts(prefix: str, hidden: int, intermediate: int, num_experts: int) -> Layout:
    yield from _linear(f"{prefix}gate", num_experts, hidden)
    for expert in range(num_experts):
        yield from _mlp(f"{prefix}experts.{expert}.", hidden, intermediate)


def _attention(prefix: str, config: Config, input_size: int | None = None, gated: bool = False) -> Layout:
    """Grouped queries; `input_size` where it is not hidden_size, `gated` where q_proj holds a gate besides."""
    hidden, head_dim = config["hidden_size"], _head_dim(config)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    width = input_size or hidden
    bias = config["model_type"] in ("qwen2", "mimo") or bool(config.get("attention_bias"))
    yield from _linear(f"{prefix}q_proj", heads * head_dim * (2 if gated else 1), width, bias)
    yield from _linear(f"{prefix}k_proj", kv_heads * head_dim, width, bias)
    yield from _linear(f"{prefix}v_proj", kv_heads * head_dim, width, bias)
    yield from _linear(f"{prefix}o_proj", hidden, heads * head_dim)
    if config["model_type"].startswith("qwen3") or config.get("use_qk_norm"):
        yield f"{prefix}q_norm.weight", WEIGHT, (head_dim,)
        yield f"{prefix}k_norm.weight", WEIGHT, (head_dim,)


def _ends(config: Config, prefix: str = "model.") -> Layout:
    """Embedding, last norm and head around the layers."""
    yield f"{prefix}embed_tokens.weight", WEIGHT, (config["vocab_size"], config["hidden_size"])
    yield from _norms(prefix, config, "norm")
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", WEIGHT, (config["vocab_size"], config["hidden_size"])


_BLOCK_NORMS = ("input_layernorm", "post_attention_layernorm")


def _dense_block(prefix: str, config: Config) -> Layout:
    yield from _norms(prefix, config, *_BLOCK_NORMS)
    yield from _attention(f"{prefix}self_attn.", config)
    yield from _mlp(f"{prefix}mlp.", config["hidden_size"], config["intermediate_size"])


def _llama(config: Config) -> Layout:
    """Llama, Qwen2, Qwen3, Vicuna, MiniCPM."""
    yield from _ends(config)
    for layer in range(config["num_hidden_layers"]):
        yield from _dense_block(f"model.layers.{layer}.", config)


def _mixtral(config: Config) -> Layout:
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    yield from _ends(config)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield from _norms(prefix, config, *_BLOCK_NORMS)
        yield from _attention(f"{prefix}self_attn.", config)
        yield from _linear(f"{prefix}block_sparse_moe.gate", config["num_local_experts"], hidden)
        for expert in range(config["num_local_experts"]):
            name = f"{prefix}block_sparse_moe.experts.{expert}."
            yield from _linear(f"{name}w1", intermediate, hidden)
            yield from _linear(f"{name}w2", hidden, intermediate)
            yield from _linear(f"{name}w3", intermediate, hidden)


def _qwen3_moe(config: Config) -> Layout:
    yield from _ends(config)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield from _norms(prefix, config, *_BLOCK_NORMS)
        yield from _attention(f"{prefix}self_attn.", config)
        yield from _experts(
            f"{prefix}mlp.", config["hidden_size"], config["moe_intermediate_size"], config["num_experts"]
        )


def _gated_delta(prefix: str, config: Config, fused: bool) -> Layout:
    """Linear attention of Qwen3-Next (`fused` projections) and Qwen3.5."""
    hidden = config["hidden_size"]
    key = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    heads = config["linear_num_value_heads"]
    value = heads * config["linear_value_head_dim"]
    if fused:
        yield from _linear(f"{prefix}in_proj_qkvz", 2 * key + 2 * value, hidden)
        yield from _linear(f"{prefix}in_proj_ba", 2 * heads, hidden)
    else:
        yield from _linear(f"{prefix}in_proj_qkv", 2 * key + value, hidden)
        yield from _linear(f"{prefix}in_proj_z", value, hidden)
        yield from _linear(f"{prefix}in_proj_a", heads, hidden)
        yield from _linear(f"{prefix}in_proj_b", heads, hidden)
    yield f"{prefix}conv1d.weight", WEIGHT, (2 * key + value, 1, config["linear_conv_kernel_dim"])
    yield f"{prefix}A_log", WEIGHT, (heads,)
    yield f"{prefix}dt_bias", WEIGHT, (heads,)
    yield f"{prefix}norm.weight", WEIGHT, (config["linear_value_head_dim"],)
    yield from _linear(f"{prefix}out_proj", hidden, value)


def _shared_experts(prefix: str, config: Config, packed: bool) -> Layout:
    """Experts of Qwen3-Next, and of Qwen3.5, whose body packs them into two tensors."""
    hidden, intermediate, count = (
        config["hidden_size"],
        config["moe_intermediate_size"],
        config["num_experts"],
    )
    if packed:
        yield from _linear(f"{prefix}gate", count, hidden)
        yield f"{prefix}experts.gate_up_proj", WEIGHT, (count, 2 * intermediate, hidden)
        yield f"{prefix}experts.down_proj", WEIGHT, (count, hidden, intermediate)
    else:
        yield from _experts(prefix, hidden, intermediate, count)
    yield from _mlp(f"{prefix}shared_expert.", hidden, config["shared_expert_intermediate_size"])
    yield from _linear(f"{prefix}shared_expert_gate", 1, hidden)


def _hybrid(config: Config, prefix: str, fused: bool, packed: bool) -> Layout:
    """Three layers of linear attention, one of full attention; dense or with experts; one MTP layer."""
    inner = config.get("text_config", config)
    yield from _ends(inner, prefix)

    def feed_forward(name: str) -> Layout:
        if "num_experts" in inner:
            yield from _shared_experts(name, inner, packed)
        else:
            yield from _mlp(name, inner["hidden_size"], inner["intermediate_size"])

    for layer in range(inner["num_hidden_layers"]):
        name = f"{prefix}layers.{layer}."
        yield from _norms(name, inner, *_BLOCK_NORMS)
        if (layer + 1) % inner["full_attention_interval"] == 0:
            yield from _attention(f"{name}self_attn.", inner, gated=True)
        else:
            yield from _gated_delta(f"{name}linear_attn.", inner, fused)
        yield from feed_forward(f"{name}mlp.")
    yield from _norms("mtp.", inner, "norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    yield from _linear("mtp.fc", inner["hidden_size"], 2 * inner["hidden_size"])
    yield from _norms("mtp.layers.0.", inner, *_BLOCK_NORMS)
    yield from _attention("mtp.layers.0.self_attn.", inner, gated=True)
    yield from feed_forward("mtp.layers.0.mlp.")


def _qwen3_next(config: Config) -> Layout:
    yield from _hybrid(config, "model.", fused=True, packed=False)


def _qwen3_5(config: Config) -> Layout:
    yield from _hybrid(config, "model.language_model.", fused=False, packed=True)


def _gpt_oss(config: Config) -> Layout:
    """Experts in MXFP4: blocks of 32 values in 16 bytes and a scale."""
    hidden, intermediate, count = (
        config["hidden_size"],
        config["intermediate_size"],
        config["num_local_experts"],
    )
    yield from _ends(config)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield from _norms(prefix, config, *_BLOCK_NORMS)
        yield from _attention(f"{prefix}self_attn.", config)
        yield f"{prefix}self_attn.o_proj.bias", WEIGHT, (hidden,)
        yield f"{prefix}self_attn.sinks", WEIGHT, (config["num_attention_heads"],)
        yield from _linear(f"{prefix}mlp.router", count, hidden, bias=True)
        for name, rows, columns in (
            ("gate_up_proj", 2 * intermediate, hidden),
            ("down_proj", hidden, intermediate),
        ):
            experts = f"{prefix}mlp.experts.{name}"
            yield f"{experts}_blocks", "U8", (count, rows, columns // 32, 16)
            yield f"{experts}_scales", "U8", (count, rows, columns // 32)
            yield f"{experts}_bias", WEIGHT, (count, rows)


def _latent_attention(prefix: str, config: Config) -> Layout:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    query, latent = config["q_lora_rank"], config["kv_lora_rank"]
    yield from _linear(f"{prefix}q_a_proj", query, hidden)
    yield f"{prefix}q_a_layernorm.weight", WEIGHT, (query,)
    yield from _linear(f"{prefix}q_b_proj", heads * (nope + rope), query)
    yield from _linear(f"{prefix}kv_a_proj_with_mqa", latent + rope, hidden)
    yield f"{prefix}kv_a_layernorm.weight", WEIGHT, (latent,)
    yield from _linear(f"{prefix}kv_b_proj", heads * (nope + value), latent)
    yield from _linear(f"{prefix}o_proj", hidden, heads * value)


def _deepseek_block(prefix: str, config: Config, is_dense: bool) -> Layout:
    """DeepSeek V3, and GLM-4.5 with its grouped queries."""
    yield from _norms(prefix, config, *_BLOCK_NORMS)
    attention = _latent_attention if "kv_lora_rank" in config else _attention
    yield from attention(f"{prefix}self_attn.", config)
    hidden, width = config["hidden_size"], config["moe_intermediate_size"]
    if is_dense:
        yield from _mlp(f"{prefix}mlp.", hidden, config["intermediate_size"])
        return
    yield from _experts(f"{prefix}mlp.", hidden, width, config["n_routed_experts"])
    yield f"{prefix}mlp.gate.e_score_correction_bias", "F32", (config["n_routed_experts"],)
    yield from _mlp(f"{prefix}mlp.shared_experts.", hidden, width * config["n_shared_experts"])


def _deepseek(config: Config) -> Layout:
    """The MTP layer follows the last one, with an embedding and a head of its own."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    yield from _ends(config)
    for layer in range(layers + config["num_nextn_predict_layers"]):
        prefix = f"model.layers.{layer}."
        yield from _deepseek_block(prefix, config, layer < config["first_k_dense_replace"])
        if layer >= layers:
            yield f"{prefix}embed_tokens.weight", WEIGHT, (config["vocab_size"], hidden)
            yield from _norms(prefix, config, "enorm", "hnorm", "shared_head.norm")
            yield from _linear(f"{prefix}eh_proj", hidden, 2 * hidden)
            yield f"{prefix}shared_head.head.weight", WEIGHT, (config["vocab_size"], hidden)


def _deepseek_fp8(config: Config) -> Layout:
    """Projections in blocks of 128 × 128 with a scale each; norms, gates, embeddings and eh_proj stay as they are."""
    for name, dtype, shape in _deepseek(config):
        is_projection = name.endswith("_proj.weight") or name.endswith("_mqa.weight")
        if is_projection and not name.endswith("eh_proj.weight"):
            yield name, "F8_E4M3", shape
            yield f"{name}_scale_inv", "F32", tuple(math.ceil(size / 128) for size in shape)
        else:
            yield name, dtype, shape


def _mimo(config: Config) -> Layout:
    hidden = config["hidden_size"]
    yield from _llama(config)
    prefix = "model.mtp_layers.0."
    yield from _dense_block(prefix, config)
    yield from _norms(prefix, config, "token_layernorm", "hidden_layernorm", "final_layernorm")
    yield from _linear(f"{prefix}input_proj", hidden, 2 * hidden)


def _ernie(config: Config) -> Layout:
    hidden, width = config["hidden_size"], config["moe_intermediate_size"]
    yield from _ends(config)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield from _norms(prefix, config, *_BLOCK_NORMS)
        yield from _attention(f"{prefix}self_attn.", config)
        if layer < config["moe_layer_start_index"]:
            yield from _mlp(f"{prefix}mlp.", hidden, config["intermediate_size"])
            continue
        yield from _experts(f"{prefix}mlp.", hidden, width, config["moe_num_experts"])
        yield f"{prefix}mlp.moe_statics.e_score_correction_bias", "F32", (1, config["moe_num_experts"])
        yield from _mlp(f"{prefix}mlp.shared_experts.", hidden, width * config["moe_num_shared_experts"])
    yield from _dense_block("model.mtp_block.0.", config)
    yield from _norms("model.", config, "mtp_emb_norm.0", "mtp_hidden_norm.0")
    yield from _linear("model.mtp_linear_proj.0", hidden, 2 * hidden)


def _eagle(config: Config) -> Layout:
    """EAGLE-1 and 2: one block without its first norm, and fc over embedding and one feature."""
    hidden = config["hidden_size"]
    yield "embed_tokens.weight", WEIGHT, (config["vocab_size"], hidden)
    yield from _linear("fc", hidden, 2 * hidden, bias=True)
    block = _dense_block("layers.0.", config)
    yield from (entry for entry in block if entry[0] != "layers.0.input_layernorm.weight")


def _eagle3_parts(config: Config, block: str) -> Layout:
    hidden = config["hidden_size"]
    yield from _norms(f"{block}.", config, *_BLOCK_NORMS, "hidden_norm")
    yield from _attention(f"{block}.self_attn.", config, input_size=2 * hidden)
    yield from _mlp(f"{block}.mlp.", hidden, config["intermediate_size"])
    yield from _linear("fc", hidden, 3 * hidden)
    yield from _norms("", config, "norm")
    yield "lm_head.weight", WEIGHT, (config["draft_vocab_size"], hidden)
    yield "d2t", "I64", (config["draft_vocab_size"],)
    yield "t2d", "BOOL", (config["vocab_size"],)


def _eagle3(config: Config) -> Layout:
    """As SpecForge and EAGLE's authors save it; the embedding is the target's."""
    yield from _eagle3_parts(config, "midlayer")


def _speculators_eagle3(config: Config) -> Layout:
    inner = {**config["transformer_layer_config"], "draft_vocab_size": config["draft_vocab_size"]}
    yield "embed_tokens.weight", WEIGHT, (inner["vocab_size"], inner["hidden_size"])
    yield from _eagle3_parts(inner, "layers.0")


def _dflash(config: Config) -> Layout:
    hidden, captured = config["hidden_size"], len(config["dflash_config"]["target_layer_ids"])
    yield from _linear("fc", hidden, captured * hidden)
    yield from _norms("", config, "hidden_norm", "norm")
    for layer in range(config["num_hidden_layers"]):
        yield from _dense_block(f"layers.{layer}.", config)


LAYOUTS: Mapping[str, Callable[[Config], Layout]] = {
    "llama": _llama,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "qwen3_next": _qwen3_next,
    "qwen3_5": _qwen3_5,
    "qwen3_5_moe": _qwen3_5,
    "gpt_oss": _gpt_oss,
    "deepseek_v3": _deepseek_fp8,
    "glm4_moe": _deepseek,
    "mimo": _mimo,
    "ernie4_5_moe": _ernie,
    "eagle": _eagle,
    "eagle3": _eagle3,
    "speculators_eagle3": _speculators_eagle3,
    "dflash": _dflash,
}
