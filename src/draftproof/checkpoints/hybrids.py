"""Rows of `architectures` for models that are more than attention of one kind and a feed-forward: running states,
layers of one part, chunks, indexers, compressed attention, caches that layers share.

Facts of the model code in Transformers 5.24; what it has no class for is read from vLLM 0.33 or the checkpoint's own
code, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.checkpoints import extras, layouts, odd, states
from draftproof.checkpoints.architecture import Architecture, MixtureKeys, Rule

_BIAS: Rule = "attention_bias"
_EXPERTS = MixtureKeys(shared_count="n_shared_experts", correction=True)
_AS_WIDE = MixtureKeys(size="intermediate_size")
_MAMBA = {
    "state_size": "mamba_d_state", "conv_kernel": "mamba_d_conv", "expand": "mamba_expand",
    "use_conv_bias": "mamba_conv_bias", "use_bias": "mamba_proj_bias",
}  # fmt: skip
_MAMBA_1 = _MAMBA | {"time_step_rank": "mamba_dt_rank", "intermediate_size": "mamba_intermediate_size"}
_MAMBA_2 = _MAMBA | {"num_heads": "mamba_n_heads", "head_dim": "mamba_d_head", "n_groups": "mamba_n_groups"}
_MAMBA_DEFAULTS = {
    "mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_d_state": 16,
    "mamba_dt_rank": "auto",
}  # fmt: skip
_MAMBA2_DEFAULTS = _MAMBA_DEFAULTS | {"mamba_n_groups": 1, "mamba_d_state": 256, "mamba_rms_norm": True}
_NO_ATTENTION = Architecture(
    layout=layouts.everywhere("state"), feed=layouts.no_feed, num_norms=1, state=states.mamba, names=_MAMBA_1,
    defaults=_MAMBA_DEFAULTS | {"tie_word_embeddings": True},
)  # fmt: skip
_DSA = Architecture(
    attention="latent", indexer=True, feed=layouts.first_dense, mixture=_EXPERTS,
    defaults={"attention_bias": False},
)  # fmt: skip
_KIMI = {
    "num_experts_per_token": "num_experts_per_tok", "model_max_length": "max_position_embeddings",
    "num_shared_experts": "n_shared_experts",
}  # fmt: skip
_BAILING = Architecture(  # vLLM 0.33
    qkv_bias="use_qkv_bias", o_bias="use_bias", mlp_bias="use_bias", qk_norm="head", qk_norm_if="use_qk_norm",
    feed=layouts.first_dense, names={"num_shared_experts": "n_shared_experts"},
    mixture=MixtureKeys(
        shared_count="n_shared_experts", shared_size="moe_shared_expert_intermediate_size",
        correction="moe_router_enable_expert_bias",
    ),
)  # fmt: skip

_RWKV = Architecture(  # llama.cpp, build 11434
    layout=layouts.everywhere("state"), state=states.wkv, by_files_alone=True, gated_mlp=False,
    defaults={"token_shift_count": 2},
)  # fmt: skip

HYBRIDS: Mapping[str, Architecture] = {
    "llama4_text": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, layout=layouts.chunks, reads_layer_types=True, feed=layouts.interleaved,
        dense_size="intermediate_size_mlp", names={"attention_chunk_size": "sliding_window"},
        mixture=MixtureKeys(size="intermediate_size", shared_size="intermediate_size"),
        defaults={
            "no_rope_layer_interval": 4, "interleave_moe_layer_step": 1, "num_experts_per_tok": 1,
            "num_local_experts": 16, "attention_chunk_size": 8192,
        },
    ),
    "deepseek_v32": _DSA,
    "glm_moe_dsa": _DSA,
    "deepseek_v4": Architecture(
        attention="compressed", layout=layouts.ratios, reads_layer_types=True, mixture=_EXPERTS,
        extra=extras.hyper_connections, mtp_extra=extras.connections_of_predictions,
        dense_size="moe_intermediate_size",
    ),
    "minimax": Architecture(
        layout=layouts.by_zeros("attn_type_list"), reads_layer_types=True, state=states.lightning, mixture=_AS_WIDE,
    ),
    "minimax_m3_vl_text": Architecture(
        qk_norm="head", reads_layer_types=True, layout=layouts.sparse_by_frequency, feed=layouts.by_frequency,
        dense_size="dense_intermediate_size",
        mixture=MixtureKeys(
            size="intermediate_size", shared_size="shared_intermediate_size", correction=True,
        ),
    ),
    "nemotron_h": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, gated_mlp=False, mlp_bias="mlp_bias", num_norms=1, state=states.mamba2,
        layout=layouts.nemotron, reads_layer_types=True, feed=layouts.nemotron_feed,
        mixture=MixtureKeys(
            shared_size="moe_shared_expert_intermediate_size", correction=True, latent="moe_latent_size",
        ),
        mtp_pattern="mtp_hybrid_override_pattern",
        names={
            "ssm_state_size": "mamba_d_state", "mamba_num_heads": "mamba_n_heads", "mamba_head_dim": "mamba_d_head",
            "n_groups": "mamba_n_groups", "conv_kernel": "mamba_d_conv", "use_conv_bias": "mamba_conv_bias",
            "attention_head_dim": "head_dim",
        },
        defaults=_MAMBA2_DEFAULTS | {"head_dim": 128, "mamba_ssm_cache_dtype": "float32"},
    ),
    "kimi_linear": Architecture(
        attention="latent", layout=layouts.kimi, reads_layer_types=True, state=states.kimi_delta,
        feed=layouts.first_dense, mixture=_EXPERTS, names=_KIMI,
        defaults={"attention_bias": False, "first_k_dense_replace": 1},
    ),
    "kimi_k3": Architecture(  # vLLM 0.33, and the headers of the published files
        attention="latent", value_gate="mla_use_output_gate", layout=layouts.kimi, state=states.kimi_delta,
        feed=layouts.first_dense, names=_KIMI, extra=extras.attention_residuals,
        mixture=MixtureKeys(
            shared_count="n_shared_experts", correction=True, latent="routed_expert_hidden_size",
            latent_norm="latent_moe_use_norm",
        ),
        defaults={"attention_bias": False, "first_k_dense_replace": 1},
    ),
    "bailing_hybrid": Architecture(
        attention="latent", head_gate=True, layout=layouts.every("layer_group_size"), reads_layer_types=True,
        state=states.bailing_delta, feed=layouts.first_dense, mixture=_EXPERTS, names=_KIMI,
        defaults={"attention_bias": False, "first_k_dense_replace": 2},
    ),
    "bailing_moe": _BAILING,
    "bailing_moe_v2": _BAILING,
    "minicpm": Architecture(mixture=_AS_WIDE),  # vLLM 0.33
    "step3_text": Architecture(  # vLLM 0.33
        shared_queries="share_q_dim", feed=layouts.enumerated,
        mixture=MixtureKeys(num=("moe_num_experts",), used="moe_top_k", shared_size="share_expert_dim"),
        names={"max_position_embedding": "max_position_embeddings"},
        defaults={"num_key_value_heads": 1, "first_expert_layer": 1},
    ),
    "gemma3n_text": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, num_norms=4, qk_norm="head",
        layout=layouts.every("sliding_window_pattern", "window"),
        reads_layer_types=True, shared_layers="num_kv_shared_layers", extra=extras.alternating_updates,
        defaults={"tie_word_embeddings": True, "head_dim": 256, "sliding_window": 512, "sliding_window_pattern": 5},
    ),
    "gemma4_text": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, num_norms=4, qk_norm="head",
        layout=layouts.every("sliding_window_pattern", "window"),
        reads_layer_types=True, shared_layers="num_kv_shared_layers", wide_if="use_double_wide_mlp",
        value_is_key="attention_k_eq_v", extra=extras.inputs_per_layer,
        full_keys={"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"},
        mixture=MixtureKeys(router_scales=True, beside_dense=True), names={"top_k_experts": "num_experts_per_tok"},
        defaults={
            "tie_word_embeddings": True, "head_dim": 256, "global_head_dim": 512, "sliding_window": 512,
            "sliding_window_pattern": 6,
        },
    ),
    "jamba": Architecture(
        layout=layouts.after("attn_layer_period", "attn_layer_offset"), reads_layer_types=True,
        state=states.jamba_mamba,
        feed=layouts.at_offset, mixture=MixtureKeys(size="intermediate_size", one_is_none=True),
        defaults=_MAMBA_DEFAULTS | {
            "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1,
        },
    ),
    "bamba": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, mlp_bias="mlp_bias", layout=layouts.listed("attn_layer_indices"),
        state=states.mamba2, defaults=_MAMBA2_DEFAULTS,
    ),
    "falcon_h1": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, mlp_bias="mlp_bias", layout=layouts.everywhere("both"), state=states.mamba2,
        defaults=_MAMBA2_DEFAULTS | {"mamba_d_ssm": 1024, "mamba_rms_norm": False},
    ),
    "granitemoehybrid": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, layout=layouts.everywhere("state"), reads_layer_types=True,
        state=states.mamba2, dense_size="shared_intermediate_size",
        mixture=MixtureKeys(size="intermediate_size", shared_size="shared_intermediate_size"),
        defaults=_MAMBA2_DEFAULTS,
    ),
    "mamba": _NO_ATTENTION,
    "falcon_mamba": _NO_ATTENTION,
    "mamba2": Architecture(
        layout=layouts.everywhere("state"), feed=layouts.no_feed, num_norms=1, state=states.mamba2, names=_MAMBA_2,
        defaults=_MAMBA2_DEFAULTS | {"mamba_n_groups": 8, "mamba_d_state": 128},
    ),
    "lfm2": Architecture(
        qk_norm="head", layout=layouts.convolutions, reads_layer_types=True, state=states.short_convolution,
        dense_size=extras.rounded_size,
        names={"block_ff_dim": "intermediate_size", "tie_embedding": "tie_word_embeddings"},
        defaults={"conv_L_cache": 3, "conv_bias": False, "tie_word_embeddings": True},
    ),
    "lfm2_moe": Architecture(
        qk_norm="head", layout=layouts.convolutions, reads_layer_types=True, state=states.short_convolution,
        feed=layouts.first_dense, mixture=MixtureKeys(correction="use_expert_bias"),
        names={"num_dense_layers": "first_k_dense_replace", "tie_embedding": "tie_word_embeddings"},
        defaults={
            "conv_L_cache": 3, "conv_bias": False, "tie_word_embeddings": True, "num_dense_layers": 2,
            "use_expert_bias": True,
        },
    ),
    "olmo_hybrid": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="width", layout=layouts.every("full_attention_interval"),
        reads_layer_types=True, state=states.delta_net, defaults={"linear_conv_kernel_dim": 4},
    ),
    "mimo_v2_flash": Architecture(
        qkv_bias=_BIAS, value_dim=True, sinks="window", layout=layouts.hybrid_pattern, reads_layer_types=True,
        feed=layouts.by_frequency, mixture=MixtureKeys(correction=True),
        window_keys={
            "num_attention_heads": "swa_num_attention_heads", "num_key_value_heads": "swa_num_key_value_heads",
            "head_dim": "swa_head_dim", "v_head_dim": "swa_v_head_dim",
        },
        defaults={"head_dim": 192, "v_head_dim": 128},
    ),
    "hy_v4": Architecture(
        attention="latent", indexer=True, sinks="all", value_gate=True, extra=extras.simple_connections,
        feed=layouts.first_dense, mixture=_EXPERTS, defaults={"attention_bias": False, "first_k_dense_replace": 1},
    ),
    "step3p5": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", head_gate=True, reads_layer_types=True,
        feed=layouts.enumerated,
        mixture=MixtureKeys(num=("n_routed_experts",), shared_size="share_expert_dim", correction=True),
        window_keys={"num_attention_heads": "num_sliding_attention_heads"}, mtp_is_dense=True,
        names={
            "num_attention_groups": "num_key_value_heads", "moe_num_experts": "n_routed_experts",
            "moe_top_k": "num_experts_per_tok", "share_expert_dims": "share_expert_dim",
        },
    ),
    "zamba": Architecture(
        layout=layouts.kinds_by_types, reads_layer_types=True, feed=layouts.no_feed,
        num_norms=1, state=states.mamba, prepare=odd.zamba_sizes, weigh=odd.zamba, extra=extras.shared_block,
        names={"attention_head_dim": "head_dim"},
        defaults=_MAMBA_DEFAULTS | {"tie_word_embeddings": True},
    ),
    "zamba2": Architecture(
        reads_layer_types=True, layout=layouts.kinds_by_types, feed=layouts.no_feed, num_norms=1,
        state=states.mamba2, prepare=odd.zamba_sizes, weigh=odd.zamba2, extra=extras.shared_block,
        names={
            "attention_head_dim": "head_dim", "n_mamba_heads": "mamba_n_heads", "mamba_headdim": "mamba_d_head",
            "mamba_ngroups": "mamba_n_groups", "use_conv_bias": "mamba_conv_bias", "add_bias_linear": "mamba_proj_bias",
        },
        defaults=_MAMBA2_DEFAULTS | {"mamba_d_state": 64, "tie_word_embeddings": True},
    ),
    "recurrent_gemma": Architecture(
        qkv_bias=_BIAS, o_bias=True, mlp_bias=True, dense_size=lambda values: values.count("intermediate_size") // 2,
        layout=layouts.repeated("block_types", {"recurrent": "state", "attention": "window"}), state=states.rglru,
        names={"attention_window_size": "sliding_window"},
        defaults={
            "tie_word_embeddings": True, "sliding_window": 2048,
            "block_types": ["recurrent", "recurrent", "attention"],
        },
    ),
    "longcat_flash": Architecture(
        attention="latent", sublayers=2, feed=layouts.every_other,
        mixture=MixtureKeys(
            num=("n_routed_experts",), correction=True, beside_dense=True, beside_norms=0, idle="zero_expert_num",
        ),
        names={
            "num_layers": "num_hidden_layers", "moe_topk": "num_experts_per_tok",
            "ffn_hidden_size": "intermediate_size", "expert_ffn_hidden_size": "moe_intermediate_size",
        },
        defaults={"attention_bias": False},
    ),
    "rwkv6": _RWKV,
    "rwkv7": _RWKV,
    "nemotron-nas": Architecture(  # vLLM 0.33
        prepare=odd.block_sizes, weigh=odd.of_block, layout=layouts.blocks_attention, feed=layouts.blocks_feed,
        mlp_bias="mlp_bias",
    ),
}  # fmt: skip

GGUF_TELLS = frozenset({"minicpm"})
"""Of these rows, those whose layers are all alike, so that a GGUF file's metadata tell them. Of others the file's
tensors must have told the layers (`gguf_layers`): defaults would be guesses."""
