"""Which architecture keeps and weighs what: a row each, by `model_type` of config.json.

Read by `geometry`, `layers` and `parameters`. Rows are facts of the model code in Transformers 5.24 (and of the
checkpoints' own code where Transformers has none); each row's counts are compared with Transformers' own models in the
tests. A model type without a row is "not known", never taken for a relative.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.checkpoints import extras, layouts, odd, states
from draftproof.checkpoints.architecture import Architecture, MixtureKeys, Rule
from draftproof.checkpoints.hybrids import HYBRIDS

_BIAS: Rule = "attention_bias"
_HEAD_128 = {"head_dim": 128}
_QWEN_WINDOWS = {"max_window_layers": 28, "sliding_window": 4096}
_QWEN_EXPERTS = MixtureKeys()
_QWEN_SHARED = MixtureKeys(shared_size="shared_expert_intermediate_size", shared_gate=True)
_DEEPSEEK_EXPERTS = MixtureKeys(shared_count="n_shared_experts", correction=True)
_STEPS = {"decoder_sparse_step": 1}
_DELTA_NET = {"full_attention_interval": 4, "linear_conv_kernel_dim": 4}
_QWEN2 = Architecture(
    qkv_bias=True, layout=layouts.late_windows, reads_layer_types=True, defaults=_QWEN_WINDOWS
)
_QWEN3 = Architecture(
    qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", layout=layouts.late_windows, reads_layer_types=True,
    defaults=_QWEN_WINDOWS | _HEAD_128,
)  # fmt: skip
_LLAMA = Architecture(qkv_bias=_BIAS, o_bias=_BIAS, mlp_bias="mlp_bias")
_MISTRAL = Architecture(layout=layouts.windows, defaults={"sliding_window": 4096})
_GLM4_MOE = Architecture(
    qkv_bias=_BIAS, qk_norm="head", qk_norm_if="use_qk_norm", feed=layouts.first_dense, mixture=_DEEPSEEK_EXPERTS,
    defaults={"attention_bias": False},
)  # fmt: skip
_DEEPSEEK = Architecture(
    attention="latent",
    feed=layouts.first_dense,
    mixture=_DEEPSEEK_EXPERTS,
    defaults={"attention_bias": False},
)
_QWEN35 = Architecture(
    qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", query_gate=True, reads_layer_types=True,
    layout=layouts.every("full_attention_interval"), state=states.delta_net, defaults=_DELTA_NET | {"head_dim": 256},
)  # fmt: skip
_QWEN35_MOE = Architecture(
    qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", query_gate=True, reads_layer_types=True,
    layout=layouts.every("full_attention_interval"), state=states.delta_net, feed=layouts.by_steps,
    mixture=_QWEN_SHARED, defaults=_DELTA_NET | _STEPS | {"head_dim": 256},
)  # fmt: skip

ARCHITECTURES: Mapping[str, Architecture] = {
    **HYBRIDS,
    "llama": _LLAMA,
    "arcee": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, gated_mlp=False, mlp_bias="mlp_bias"),
    "mistral": _MISTRAL,
    "ministral": Architecture(layout=layouts.windows, reads_layer_types=True),
    "ministral3": Architecture(layout=layouts.windows),
    "mixtral": Architecture(
        layout=layouts.windows, mixture=MixtureKeys(size="intermediate_size"),
        defaults={"num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "qwen2": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "mimo": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_vl_text": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", defaults=_HEAD_128),
    "qwen2_moe": Architecture(
        qkv_bias=True, layout=layouts.late_windows, reads_layer_types=True, feed=layouts.by_steps, mixture=_QWEN_SHARED,
        defaults=_QWEN_WINDOWS | _STEPS,
    ),
    "qwen3_moe": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", layout=layouts.switched_windows, feed=layouts.by_steps,
        mixture=_QWEN_EXPERTS,
        defaults={"sliding_window": 4096} | _STEPS,
    ),
    "qwen3_next": _QWEN35_MOE,
    "qwen3_5_text": _QWEN35,
    "qwen3_5_moe_text": _QWEN35_MOE,
    "smollm3": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, mlp_bias="mlp_bias", reads_layer_types=True,
        defaults={"tie_word_embeddings": True},
    ),
    "phi": Architecture(
        qkv_bias=True, o_bias=True, gated_mlp=False, mlp_bias=True, num_norms=1, norm_bias=True, head_bias=True,
    ),
    "phi3": Architecture(layout=layouts.windows),
    "phimoe": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, norm_bias=True, layout=layouts.windows,
        mixture=MixtureKeys(size="intermediate_size"),
    ),
    "gemma": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, defaults={"tie_word_embeddings": True, "head_dim": 256},
    ),
    "gemma2": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, num_norms=4, layout=layouts.even_windows, reads_layer_types=True,
        defaults={"tie_word_embeddings": True, "head_dim": 256, "sliding_window": 4096},
    ),
    "gemma3_text": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, num_norms=4, qk_norm="head", layout=layouts.window_pattern,
        reads_layer_types=True,
        defaults={
            "tie_word_embeddings": True, "head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 6,
            "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "max_position_embeddings": 131072,
        },
    ),
    "olmo": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, norm_weight=False),
    "olmo2": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="width"),
    "olmo3": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="width", layout=layouts.window_pattern, reads_layer_types=True,
        defaults={"sliding_window_pattern": 4},
    ),
    "olmoe": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="width", mixture=MixtureKeys(size="intermediate_size"),
    ),
    "granite": _LLAMA,
    "granitemoe": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, mixture=MixtureKeys(size="intermediate_size")),
    "granitemoeshared": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS,
        mixture=MixtureKeys(size="intermediate_size", shared_size="shared_intermediate_size"),
    ),
    "hunyuan_v1_moe": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", names={"moe_topk": "num_experts_per_tok"},
        mixture=MixtureKeys(size="intermediate_size", shared_size="intermediate_size"),
    ),
    "cohere": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, num_norms=1, qk_norm="width", qk_norm_if="use_qk_norm",
        defaults={"tie_word_embeddings": True},
    ),
    "cohere2": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, num_norms=1, layout=layouts.window_pattern, reads_layer_types=True,
        defaults={"tie_word_embeddings": True, "sliding_window_pattern": 4},
    ),
    "starcoder2": Architecture(
        qkv_bias="use_bias", o_bias="use_bias", gated_mlp=False, mlp_bias="use_bias", norm_bias=True,
        layout=layouts.windows,
        defaults={"use_bias": True, "tie_word_embeddings": True},
    ),
    "glm": Architecture(qkv_bias=_BIAS, defaults=_HEAD_128),
    "glm4": Architecture(qkv_bias=_BIAS, num_norms=4, defaults=_HEAD_128),
    "glm4_moe": _GLM4_MOE,
    "glm4_moe_lite": _DEEPSEEK,
    "deepseek_v2": Architecture(
        attention="latent", feed=layouts.first_dense, mixture=MixtureKeys(shared_count="n_shared_experts"),
    ),
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "minicpm3": Architecture(attention="latent"),
    "gpt_oss": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, sinks="all", layout=layouts.even_windows, reads_layer_types=True,
        mixture=MixtureKeys(size="intermediate_size", router_bias=True, expert_bias=True),
        defaults={"attention_bias": True, "sliding_window": 128, "head_dim": 64},
    ),
    "exaone4": Architecture(qk_norm="head", layout=layouts.window_pattern, reads_layer_types=True),
    "exaone_moe": Architecture(
        qk_norm="head", layout=layouts.window_pattern, reads_layer_types=True, feed=layouts.first_dense,
        mixture=_DEEPSEEK_EXPERTS, names={"num_shared_experts": "n_shared_experts"},
    ),
    "solar_open": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, mixture=_DEEPSEEK_EXPERTS, defaults=_HEAD_128),
    "hy_v3": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", feed=layouts.first_dense, mixture=_DEEPSEEK_EXPERTS,
        names={"num_shared_experts": "n_shared_experts"}, defaults={"first_k_dense_replace": 1},
    ),
    "mistral4": Architecture(
        attention="latent", feed=layouts.first_dense, mixture=MixtureKeys(shared_count="n_shared_experts"),
        defaults={"attention_bias": False},
    ),
    "flex_olmo": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="width", mixture=MixtureKeys(size="intermediate_size"),
    ),
    "afmoe": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", value_gate=True, num_norms=4, reads_layer_types=True,
        layout=layouts.every("global_attn_every_n_layers", "window"), feed=layouts.first_dense,
        mixture=_DEEPSEEK_EXPERTS,
        names={"num_shared_experts": "n_shared_experts", "num_dense_layers": "first_k_dense_replace"},
        defaults=_HEAD_128 | {"global_attn_every_n_layers": 4},
    ),
    "granite_swa": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, mlp_bias="mlp_bias", sinks="all", layout=layouts.first_of_four,
        reads_layer_types=True, defaults={"sliding_window": 128},
    ),
    "granitemoe_swa": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, sinks="all", layout=layouts.first_of_four, reads_layer_types=True,
        mixture=MixtureKeys(size="intermediate_size", shared_size="shared_intermediate_size"),
        defaults={"sliding_window": 128},
    ),
    "stablelm": Architecture(qkv_bias="use_qkv_bias", norm_bias=True),
    "nemotron": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, gated_mlp=False, mlp_bias="mlp_bias", norm_bias=True,
    ),
    "seed_oss": Architecture(qkv_bias=_BIAS, o_bias="attention_out_bias", mlp_bias="mlp_bias"),
    "helium": Architecture(qkv_bias=_BIAS, mlp_bias="mlp_bias", defaults=_HEAD_128),
    "ernie4_5": Architecture(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", defaults=_HEAD_128),
    "ernie4_5_moe": Architecture(
        qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias",
        feed=layouts.in_span,
        mixture=MixtureKeys(
            num=("moe_num_experts",), used="moe_k", shared_count="moe_num_shared_experts", correction=True,
        ),
        mtp_is_dense=True,
    ),
    "hunyuan_v1_dense": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head"),
    "dots1": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", reads_layer_types=True, feed=layouts.first_dense,
        mixture=_DEEPSEEK_EXPERTS,
    ),
    "minimax_m2": Architecture(
        qk_norm="width", mixture=MixtureKeys(size="intermediate_size", correction=True),
    ),
    "exaone": Architecture(names={"num_layers": "num_hidden_layers"}),
    "cwm": Architecture(layout=layouts.kinds_by_types, reads_layer_types=True),
    "apertus": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, gated_mlp=False, qk_norm="head", extra=extras.learned_scales,
    ),
    "vaultgemma": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, layout=layouts.even_windows, reads_layer_types=True,
        defaults={"tie_word_embeddings": True, "head_dim": 256, "sliding_window": 4096},
    ),
    "youtu": Architecture(attention="latent", defaults={"attention_bias": False}),
    "jais2": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, gated_mlp=False, mlp_bias="mlp_bias", norm_bias=True,
        defaults={"attention_bias": True, "mlp_bias": True},
    ),
    "mellum": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", reads_layer_types=True, feed=layouts.by_steps,
        mixture=_QWEN_EXPERTS, defaults=_STEPS,
    ),
    "laguna": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", reads_layer_types=True, prepare=odd.laguna,
        head_gate="gate_per_head", value_gate="gate_per_element", feed=layouts.first_dense,
        mixture=MixtureKeys(shared_size="shared_expert_intermediate_size", correction=True),
    ),
    "cohere2_moe": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, num_norms=1, reads_layer_types=True, layout=layouts.window_pattern,
        feed=layouts.first_dense, dense_size=extras.prefix_size,
        mixture=MixtureKeys(size="intermediate_size", shared_count="num_shared_experts"),
        defaults={"tie_word_embeddings": True, "sliding_window_pattern": 4},
    ),
    "glm4v_text": Architecture(qkv_bias=True, num_norms=4),
    "glm_ocr_text": Architecture(num_norms=4),
    "gpt2": Architecture(
        qkv_bias=True, o_bias=True, gated_mlp=False, mlp_bias=True, norm_bias=True, extra=extras.positions,
        dense_size=lambda values: values.count("n_inner", 4 * values.count("hidden_size")),
        names={
            "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
            "n_positions": "max_position_embeddings",
        },
        defaults={"tie_word_embeddings": True},
    ),
    "gpt_neox": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, gated_mlp=False, mlp_bias=True, norm_bias=True,
        defaults={"attention_bias": True},
    ),
    "opt": Architecture(
        qkv_bias="enable_bias", o_bias="enable_bias", gated_mlp=False, mlp_bias="enable_bias", norm_bias=True,
        dense_size="ffn_dim", extra=extras.positions_behind_two,
        defaults={"enable_bias": True, "tie_word_embeddings": True},
    ),
    "internlm3": Architecture(qkv_bias="qkv_bias", o_bias="bias", mlp_bias="bias"),
}  # fmt: skip

ALIASES: Mapping[str, str] = {
    "qwen2_vl_text": "qwen2_5_vl_text", "qwen2_vl": "qwen2_5_vl_text", "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text", "gemma3": "gemma3_text", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
    "llama4": "llama4_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "minimax_m3_vl": "minimax_m3_vl_text",
    "minimax_m1": "minimax", "minimax_text_01": "minimax", "step3p7": "step3p5",
    "phi4_multimodal": "phi3", "phi4mm": "phi3", "lfm2_vl": "lfm2",
    "kimi_k25": "deepseek_v3", "sarvam_mla": "deepseek_v3", "glm4v_moe_text": "glm4_moe", "iquestcoder": "llama",
    "qwen3_vl_moe_text": "qwen3_moe", "qwen3_vl_moe": "qwen3_moe", "qwen3_omni_moe_text": "qwen3_moe",
    "glm4v": "glm4v_text", "glm4v_moe": "glm4_moe", "glm_ocr": "glm_ocr_text", "qwen2_5_omni_text": "qwen2_5_vl_text",
    "hunyuan_vl_text": "hunyuan_v1_dense", "hunyuan_vl": "hunyuan_v1_dense", "sarvam_moe": "dots1",
}  # fmt: skip
"""Names under which the same language model appears, where a nested configuration does not carry its own."""
