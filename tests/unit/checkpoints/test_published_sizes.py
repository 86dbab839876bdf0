"""Parameters of published models, in all and per token, against what their publishers say.

Configurations are the published config.json, as far as sizes follow from them. What is said is rounded, and counts a
token's parameters in one of three ways.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from draftproof.checkpoints.geometry import Geometry, geometry
from draftproof.checkpoints.layers import Compressed, KeyValues, Latent
from draftproof.checkpoints.states import RunningState
from draftproof.checkpoints.view import open_view
from draftproof.core.errors import DraftproofError
from support.known_pairs import config_of

Counted = Literal["all", "without embedding", "without embedding and output"]


@dataclass(frozen=True)
class Published:
    """Billions of parameters, and where they are said."""

    config: dict[str, Any]
    total: float
    active: float | None
    counted: Counted
    source: str


_LATENT = {
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
}  # fmt: skip
_DEEPSEEK = _LATENT | {
    "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "intermediate_size": 18432, "vocab_size": 129280, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3,
}  # fmt: skip
_SCOUT = config_of("meta-llama/Llama-4-Scout-17B-16E-Instruct")["text_config"]
_NEMOTRON = {
    "model_type": "nemotron_h", "num_hidden_layers": 52, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
    "conv_kernel": 4, "num_attention_heads": 32, "vocab_size": 131072,
}  # fmt: skip
_MAMBA = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336,
}  # fmt: skip


def _blocks(*runs: tuple[int, int | None, float]) -> list[dict[str, Any]]:
    """Nemotron NAS: layers in a row, query heads per key (None: no attention), and the factor of the feed-forward."""
    return [
        {
            "attention": {"n_heads_in_group": group, "no_op": group is None},
            "ffn": {"ffn_mult": wide, "no_op": False},
        }
        for num, group, wide in runs
        for _ in range(num)
    ]


_SUPER_49B = _blocks(
    (1, 8, 2.625), (5, 8, 5.25), (2, None, 2.625), (3, 8, 5.25), (1, None, 3.28125), (30, 8, 5.25), (1, None, 1.3125),
    (2, None, 2.625), (1, None, 1.3125), (1, None, 5.25), (1, None, 1.3125), (1, None, 2.625), (3, None, 1.3125),
    (1, 8, 5.25), (1, None, 1.3125), (2, None, 1.0), (1, None, 1.3125), (3, None, 1.0), (2, None, 1.3125),
    (2, None, 0.5), (2, None, 1.0), (2, None, 0.5), (1, None, 1.0), (2, None, 0.5), (9, 8, 5.25),
)  # fmt: skip

MODELS: dict[str, Published] = {
    "Llama-4-Scout-17B-16E": Published(_SCOUT, 107.8, 17.2, "all", "model card: 109 with 0.9 of vision, 17 active"),
    "Llama-4-Maverick-17B-128E": Published(
        _SCOUT | {"num_local_experts": 128, "interleave_moe_layer_step": 2}, 400, 17, "all", "model card",
    ),
    "Qwen3-Next-80B-A3B": Published(
        config_of("Qwen/Qwen3-Next-80B-A3B-Instruct"), 79.67, 3.25, "without embedding and output",
        "model card: 80 in all, 79 without embedding, 3 active",
    ),
    "DeepSeek-V3.2": Published(
        _DEEPSEEK | {"model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128},
        671, 37, "without embedding", "report of V3: 671, 37; the indexer adds 0.85",
    ),
    "DeepSeek-V4-Pro": Published(
        {
            "model_type": "deepseek_v4", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
            "num_key_value_heads": 1, "head_dim": 512, "q_lora_rank": 1536, "o_lora_rank": 1024, "o_groups": 16,
            "index_n_heads": 64, "index_head_dim": 128, "sliding_window": 128, "n_routed_experts": 384,
            "n_shared_experts": 1, "num_experts_per_tok": 6, "moe_intermediate_size": 3072, "vocab_size": 129280,
            "hc_mult": 4, "num_hash_layers": 3, "compress_ratios": [128, 128, *[4, 128] * 29, 4, 0],
        },
        1600, 49, "without embedding", "model card: 1.6T with a prediction layer of 0.026, 49 active",
    ),
    "gpt-oss-120b": Published(
        config_of("openai/gpt-oss-120b"), 116.83, 5.13, "without embedding", "model card, table 1",
    ),
    "gpt-oss-20b": Published(
        config_of("openai/gpt-oss-20b"), 20.91, 3.61, "without embedding", "model card, table 1",
    ),
    "Nemotron-H-8B": Published(
        _NEMOTRON | {
            "hidden_size": 4096, "intermediate_size": 21504, "mamba_num_heads": 128, "num_key_value_heads": 8,
            "attention_head_dim": 128,
            "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        },
        8.10, None, "all", "size of the published files, 16.2 GB in bfloat16",
    ),
    "Nemotron-3-Nano-30B-A3B": Published(
        _NEMOTRON | {
            "hidden_size": 2688, "intermediate_size": 1856, "mamba_num_heads": 64, "num_key_value_heads": 2,
            "head_dim": 128, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
            "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 6,
            "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        },
        31.6, 3.6, "all", "report: 31.6, 3.6 active with embeddings",
    ),
    "Kimi-K2": Published(
        _DEEPSEEK | {
            "model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384,
            "vocab_size": 163840, "first_k_dense_replace": 1,
        },
        1030, 32, "without embedding", "model card: 1T, 32 active",
    ),
    "Kimi-Linear-48B-A3B": Published(
        _LATENT | {
            "model_type": "kimi_linear", "q_lora_rank": None, "hidden_size": 2304, "num_hidden_layers": 27,
            "vocab_size": 163840, "num_attention_heads": 32, "num_experts": 256, "num_experts_per_token": 8,
            "num_shared_experts": 1, "moe_intermediate_size": 1024, "first_k_dense_replace": 1,
            "intermediate_size": 9216,
            "linear_attn_config": {
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
                "short_conv_kernel_size": 4,
            },
        },
        49.1, 3.1, "without embedding", "model card: 48, 3 active; files of 98.2 GB in bfloat16",
    ),
    "MiniMax-M1": Published(
        {
            "model_type": "minimax_m1", "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200064,
            "num_local_experts": 32, "num_experts_per_tok": 2, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
        },
        456, 45.9, "without embedding and output", "report: 456, 45.9 active",
    ),
    "MiniMax-M2": Published(
        {
            "model_type": "minimax_m2", "hidden_size": 3072, "num_hidden_layers": 62, "num_attention_heads": 48,
            "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8,
            "intermediate_size": 1536, "vocab_size": 200064,
        },
        230, 10, "without embedding and output", "model card: 230, 10 active",
    ),
    "GLM-4.5": Published(
        {
            "model_type": "glm4_moe", "hidden_size": 5120, "num_hidden_layers": 92, "num_attention_heads": 96,
            "num_key_value_heads": 8, "head_dim": 128, "n_routed_experts": 160, "num_experts_per_tok": 8,
            "moe_intermediate_size": 1536, "intermediate_size": 12288, "first_k_dense_replace": 3,
            "n_shared_experts": 1, "vocab_size": 151552, "attention_bias": True, "use_qk_norm": True,
        },
        355, 32, "without embedding and output", "report: 355, 32 active",
    ),
    "GLM-5": Published(
        {
            "model_type": "glm_moe_dsa", "hidden_size": 6144, "num_hidden_layers": 78, "num_attention_heads": 64,
            "num_key_value_heads": 64, "intermediate_size": 12288, "moe_intermediate_size": 2048,
            "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
            "vocab_size": 154880, "kv_lora_rank": 512, "q_lora_rank": 2048, "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 192, "v_head_dim": 256, "index_n_heads": 32, "index_head_dim": 128,
        },
        744, 40, "without embedding and output", "model card: 744, 40 active",
    ),
    "Granite-4.0-H-Small": Published(
        {
            "model_type": "granitemoehybrid", "hidden_size": 4096, "num_hidden_layers": 40,
            "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 72, "num_experts_per_tok": 10,
            "shared_intermediate_size": 1536, "intermediate_size": 768, "mamba_d_state": 128, "mamba_d_conv": 4,
            "mamba_expand": 2, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1,
            "tie_word_embeddings": True, "vocab_size": 100352,
            "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4,
        },
        32.2, 8.8, "all", "model card: 32, 9 active",
    ),
    "Ling-mini-2.0": Published(
        {
            "model_type": "bailing_moe", "num_hidden_layers": 20, "hidden_size": 2048, "intermediate_size": 5120,
            "first_k_dense_replace": 1, "moe_intermediate_size": 512, "moe_shared_expert_intermediate_size": 512,
            "num_shared_experts": 1, "num_experts": 256, "num_experts_per_tok": 8,
            "moe_router_enable_expert_bias": True, "num_attention_heads": 16, "num_key_value_heads": 4,
            "head_dim": 128, "use_qk_norm": True, "vocab_size": 157184,
        },
        16.26, 1.43, "all", "model card: 16.26 in all, 1.4 active",
    ),
    "Jamba-v0.1": Published(
        _MAMBA | {
            "model_type": "jamba", "vocab_size": 65536, "num_experts": 16, "num_experts_per_tok": 2,
            "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1,
            "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256,
        },
        51.57, 12.1, "all", "model card: 52, 12 active; files of 51,570,323,328 parameters",
    ),
    "Bamba-9B": Published(
        _MAMBA | {
            "model_type": "bamba", "vocab_size": 128256, "attn_layer_indices": [9, 18, 27], "mamba_n_heads": 128,
            "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
        },
        9.78, None, "all", "model card: 9.78",
    ),
    "mamba-2.8b": Published(
        {
            "model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280,
            "intermediate_size": 5120, "state_size": 16, "time_step_rank": 160, "conv_kernel": 4,
        },
        2.768, None, "all", "size of the published files",
    ),
    "falcon-mamba-7b": Published(
        {
            "model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 65024,
            "intermediate_size": 8192, "state_size": 16, "time_step_rank": 256, "tie_word_embeddings": False,
        },
        7.27, None, "all", "model card: 7.27",
    ),
    "LFM2-1.2B": Published(
        {
            "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
            "num_key_value_heads": 8, "block_ff_dim": 12288, "block_multiple_of": 256,
            "block_ffn_dim_multiplier": 1.0, "conv_L_cache": 3, "vocab_size": 65536,
            "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        },
        1.170340608, None, "all", "model card: 1,170,340,608",
    ),
    "Hunyuan-A13B": Published(
        _MAMBA | {
            "model_type": "hunyuan_v1_moe", "head_dim": 128, "num_experts": 64, "moe_topk": [8] * 32,
            "intermediate_size": 3072, "vocab_size": 128167, "tie_word_embeddings": True,
        },
        80, 13, "all", "model card: 80, 13 active",
    ),
    "Step-3": Published(
        {
            "model_type": "step3_text", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64,
            "num_attention_groups": 1, "head_dim": 256, "share_q_dim": 2048, "intermediate_size": 18432,
            "moe_intermediate_size": 5120, "moe_num_experts": 48, "moe_top_k": 3, "share_expert_dim": 5120,
            "vocab_size": 128815, "moe_layers_enum": ",".join(map(str, range(4, 60))),
        },
        316, 38, "without embedding", "report: 316 without vision, 38 active",
    ),
    "LongCat-Flash-Chat": Published(
        {
            "model_type": "longcat_flash", "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64,
            "ffn_hidden_size": 12288, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_topk": 12, "n_routed_experts": 512, "zero_expert_num": 256,
            "expert_ffn_hidden_size": 2048, "vocab_size": 131072,
        },
        560, 31.3, "without embedding", "report: 560, 18.6 to 31.3 active: twelve experts of a token may be idle ones",
    ),
    "RecurrentGemma-2B": Published(
        {
            "model_type": "recurrent_gemma", "hidden_size": 2560, "num_hidden_layers": 26, "num_attention_heads": 10,
            "num_key_value_heads": 1, "intermediate_size": 15360, "vocab_size": 256000, "lru_width": 2560,
        },
        2.7, None, "all", "report (Botev et al., 2024), table 1: 2.7 in all, 2.0 without embedding",
    ),
    "Llama-3.3-Nemotron-Super-49B-v1": Published(
        {
            "model_type": "nemotron-nas", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
            "vocab_size": 128256, "block_configs": _SUPER_49B,
        },
        49, None, "all", "model card: 49",
    ),
    "MiMo-V2-Flash": Published(
        {
            "model_type": "mimo_v2_flash", "hidden_size": 4096, "num_hidden_layers": 48, "num_attention_heads": 64,
            "num_key_value_heads": 4, "swa_num_key_value_heads": 8, "swa_num_attention_heads": 64, "head_dim": 192,
            "v_head_dim": 128, "swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window": 128,
            "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
            "intermediate_size": 16384, "vocab_size": 152576, "moe_layer_freq": [0] + [1] * 47,
            "hybrid_layer_pattern": [0] + ([1] * 5 + [0]) * 7 + [1] * 4 + [0],
        },
        309, 15, "without embedding", "model card: 309, 15 active",
    ),
}  # fmt: skip
TOLERANCE = 0.015
"""Of what is said, which is rounded to two or three digits; more where only one digit is said."""
COARSE = {
    "DeepSeek-V4-Pro": 0.02,
    "Nemotron-3-Nano-30B-A3B": 0.02,
    "Granite-4.0-H-Small": 0.02,
    "Llama-3.3-Nemotron-Super-49B-v1": 0.02,
    "Hunyuan-A13B": 0.03,
    "MiniMax-M2": 0.03,
}


def of(directory: Path, config: dict[str, Any]) -> Geometry:
    (directory / "config.json").write_text(json.dumps(config))
    return geometry(open_view(str(directory)))


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_as_many_as_the_publisher_says(name: str, tmp_path: Path) -> None:
    said = MODELS[name]
    found = of(tmp_path, said.config).parameters
    tolerance = COARSE.get(name, TOLERANCE)
    assert found.total / 1e9 == pytest.approx(said.total, rel=tolerance)
    if said.active is None:
        assert found.active == found.total
        return
    left_out = {
        "all": 0,
        "without embedding": found.embedding,
        "without embedding and output": found.embedding + found.output,
    }
    assert (found.active - left_out[said.counted]) / 1e9 == pytest.approx(said.active, rel=tolerance)


KIMI_K3 = {
    "model_type": "kimi_k3",
    "text_config": _LATENT | {
        "model_type": "kimi_linear", "attn_res_block_size": 12, "first_k_dense_replace": 1, "hidden_size": 7168,
        "intermediate_size": 33792, "latent_moe_use_norm": True, "mla_use_output_gate": True,
        "moe_intermediate_size": 3072, "num_attention_heads": 96, "num_experts": 896, "num_experts_per_token": 16,
        "num_hidden_layers": 93, "num_key_value_heads": 96, "num_shared_experts": 2,
        "routed_expert_hidden_size": 3584, "vocab_size": 163840,
        "linear_attn_config": {
            "full_attn_layers": [*range(4, 93, 4), 93], "head_dim": 128, "num_heads": 96,
            "short_conv_kernel_size": 4, "use_full_rank_gate": True,
        },
    },
}  # fmt: skip


def test_kimi_k3_is_no_kimi_linear_and_holds_what_its_headers_say(tmp_path: Path) -> None:
    """The shapes in the headers of moonshotai/Kimi-K3. Its A_log has 128 numbers for 96 heads: 32 more a layer."""
    hidden, wide, latent = 7168, 12288, 3584
    state = 4 * hidden * wide + hidden * wide + 128 * hidden + wide * 128 + 96 * hidden
    state += 3 * wide * 4 + 128 + wide + 128
    attention = 1536 * hidden + 18432 * 1536 + 576 * hidden + 24576 * 512 + 2 * hidden * wide + 512 + 1536
    mixture = 896 * 3 * 3072 * latent + 896 * hidden + 896 + 2 * latent * hidden + latent + 3 * 6144 * hidden
    total = 69 * state + 24 * attention + 92 * mixture + 3 * hidden * 33792
    total += 93 * 6 * hidden + 3 * hidden + 2 * 163840 * hidden
    found = of(tmp_path, KIMI_K3)
    assert found.model_type == "kimi_k3"
    assert found.parameters.total == total - 69 * 32
    assert sum(isinstance(layer, Latent) for layer in found.layers) == 24


def test_layers_of_nemotron_nas_have_shapes_of_their_own(tmp_path: Path) -> None:
    """Layers without attention keep nothing. A linear layer in place of attention or feed-forward is a square matrix,
    and what is left out has no norm."""
    found = of(tmp_path, MODELS["Llama-3.3-Nemotron-Super-49B-v1"].config)
    assert [isinstance(layer, KeyValues) for layer in found.layers].count(True) == 49
    assert {layer.num_kv_heads for layer in found.layers if isinstance(layer, KeyValues)} == {8}
    blocks = [
        {"attention": {"replace_with_linear": True}, "ffn": {"intermediate_size": 40}},
        {"attention": {"no_op": True}, "ffn": {"replace_with_linear": True}},
        {"attention": {"n_heads_in_group": 2}, "ffn": {"no_op": True}},
    ]
    small = {
        "model_type": "nemotron-nas", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 100, "block_configs": blocks, "tie_word_embeddings": True,
    }  # fmt: skip
    attention = 64 * 16 * (4 + 2 + 2 + 4)
    total = 100 * 64 + 64 + (64 * 64 + 3 * 64 * 40 + 2 * 64) + (64 * 64 + 64) + (attention + 64)
    assert of(tmp_path, small).parameters.total == total
    for broken in ([{"attention": {"no_op": True}}] * 3, blocks[:2], "none", [None] * 3):
        with pytest.raises(DraftproofError, match=r"DP406.*block_configs"):
            of(tmp_path, small | {"block_configs": broken})


def test_what_a_token_and_a_request_keep(tmp_path: Path) -> None:
    """Elements, by the shapes that the model code gives its caches."""
    scout = of(tmp_path, MODELS["Llama-4-Scout-17B-16E"].config).layers
    assert scout[:4] == (KeyValues(8, 128, 128, 8192),) * 3 + (KeyValues(8, 128, 128),)
    sparse = of(tmp_path, MODELS["DeepSeek-V3.2"].config).layers
    assert set(sparse) == {Latent(512, 64, 128)}
    compressed = of(tmp_path, MODELS["DeepSeek-V4-Pro"].config).layers
    assert compressed[1:3] == (Compressed(512, 128, 128, 0), Compressed(512, 128, 4, 128))
    assert compressed[2].elements_per_token == (512 + 128) / 4
    nemotron = of(tmp_path, MODELS["Nemotron-H-8B"].config).layers
    channels = 8192 + 2 * 8 * 128
    row = channels + 8192 + 128
    assert nemotron[0] == RunningState(
        128 * 64 * 128, 3 * channels, channels, row, "mamba2",
        ssm_cache_dtype="float32", num_groups=8, group_width=2 * 128,
    )  # fmt: skip
    kimi = of(tmp_path, MODELS["Kimi-Linear-48B-A3B"].config).layers
    assert isinstance(kimi[0], RunningState)
    assert (kimi[0].state_elements, kimi[0].conv_elements) == (32 * 128 * 128, 3 * 3 * 4096)
    lightning = of(tmp_path, MODELS["MiniMax-M1"].config).layers
    assert isinstance(lightning[0], RunningState)
    assert (lightning[0].state_elements, lightning[0].conv_elements) == (64 * 128 * 128, 0)
