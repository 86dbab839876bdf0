"""Geometry: what each family keeps and weighs, against Transformers' own models and against files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from draftproof.checkpoints.architectures import ARCHITECTURES
from draftproof.checkpoints.geometry import Geometry, geometry
from draftproof.checkpoints.layers import (
    Compressed,
    KeyValues,
    Latent,
    NoCache,
    Paired,
    RunningState,
    SharedCache,
)
from draftproof.checkpoints.view import open_view
from draftproof.core.errors import DraftproofError
from support.checkpoints import write_checkpoint, write_gguf
from support.known_pairs import known_pairs, write_model

TINY: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT = {
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
}
DELTA_NET = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "head_dim": 32,
}
ROUTED = EXPERTS | {"n_routed_experts": 8, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}
INDEXER = {"index_n_heads": 4, "index_head_dim": 16}
LLAMA4 = {"num_local_experts": 8, "head_dim": 16, "attention_chunk_size": 64, "intermediate_size_mlp": 112}
DEEPSEEK_V4 = EXPERTS | INDEXER | {
    "n_routed_experts": 8, "q_lora_rank": 24, "o_lora_rank": 20, "o_groups": 2, "head_dim": 32,
    "sliding_window": 64,
}  # fmt: skip
NEMOTRON_H = EXPERTS | {
    "n_routed_experts": 8, "moe_shared_expert_intermediate_size": 40, "mamba_num_heads": 8, "mamba_head_dim": 16,
    "ssm_state_size": 24, "n_groups": 2, "head_dim": 16,
}  # fmt: skip
KIMI = LATENT | {
    "num_experts": 8, "num_experts_per_token": 2, "moe_intermediate_size": 48, "linear_head_dim": 8,
    "linear_num_heads": 3, "num_expert_group": 1, "topk_group": 1,
}  # fmt: skip
GEMMA_3N = {
    "num_hidden_layers": 10, "head_dim": 16, "num_kv_shared_layers": 4, "vocab_size_per_layer_input": 300,
    "hidden_size_per_layer_input": 12, "laurel_rank": 6, "altup_num_inputs": 3, "sliding_window": 64,
}  # fmt: skip
GEMMA_4 = {
    "num_hidden_layers": 6, "head_dim": 16, "global_head_dim": 32, "sliding_window": 64,
    "hidden_size_per_layer_input": 0,
}  # fmt: skip
MAMBA_2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 24}
STEP = EXPERTS | {
    "moe_num_experts": 8, "moe_top_k": 2, "share_expert_dim": 40, "num_attention_groups": 2, "head_dim": 16,
    "sliding_window": 64,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with biases, tied": (
        "llama",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama with long heads": ("llama", {"head_dim": 24}),
    "arcee": ("arcee", {"head_dim": 16}),
    "mistral": ("mistral", {"head_dim": 16, "sliding_window": 128}),
    "ministral": ("ministral", {"head_dim": 16, "sliding_window": 128}),
    "ministral3": ("ministral3", {"head_dim": 16}),
    "mixtral": ("mixtral", {"num_local_experts": 4}),
    "qwen2": ("qwen2", {}),
    "qwen2 with a window in late layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2},
    ),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "qwen2_moe": ("qwen2_moe", EXPERTS | {"num_experts": 8, "shared_expert_intermediate_size": 80}),
    "qwen3_moe": ("qwen3_moe", EXPERTS | {"num_experts": 8, "head_dim": 32, "mlp_only_layers": [1]}),
    "qwen3_moe, every other layer": (
        "qwen3_moe",
        EXPERTS | {"num_experts": 8, "head_dim": 16, "decoder_sparse_step": 2},
    ),
    "qwen3_next": (
        "qwen3_next",
        DELTA_NET | EXPERTS | {"num_experts": 8, "shared_expert_intermediate_size": 48},
    ),
    "qwen3_5_text": ("qwen3_5_text", DELTA_NET),
    "qwen3_5_moe_text": (
        "qwen3_5_moe_text",
        DELTA_NET | EXPERTS | {"num_experts": 8, "shared_expert_intermediate_size": 48},
    ),
    "smollm3": ("smollm3", {}),
    "phi": ("phi", {}),
    "phi3": ("phi3", {"sliding_window": 128}),
    "phimoe": ("phimoe", {"num_local_experts": 4}),
    "gemma": ("gemma", {"head_dim": 32}),
    "gemma2": ("gemma2", {"head_dim": 32, "sliding_window": 64}),
    "gemma3_text": ("gemma3_text", {"head_dim": 32, "sliding_window": 64, "num_hidden_layers": 7}),
    "olmo": ("olmo", {}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", {"sliding_window": 64}),
    "olmoe": ("olmoe", {"num_experts": 8, "num_experts_per_tok": 2}),
    "granite": ("granite", {}),
    "granitemoe": ("granitemoe", {"num_local_experts": 4}),
    "cohere": ("cohere", {}),
    "cohere with norms of queries": ("cohere", {"use_qk_norm": True}),
    "cohere2": ("cohere2", {"head_dim": 16, "sliding_window": 64}),
    "starcoder2": ("starcoder2", {"sliding_window": 64}),
    "glm": ("glm", {"head_dim": 16}),
    "glm4": ("glm4", {"head_dim": 16}),
    "glm4_moe": ("glm4_moe", ROUTED | {"head_dim": 16, "first_k_dense_replace": 1}),
    "glm4_moe with norms and biases": (
        "glm4_moe",
        ROUTED | {"head_dim": 16, "use_qk_norm": True, "attention_bias": True},
    ),
    "glm4_moe_lite": ("glm4_moe_lite", ROUTED | LATENT),
    "deepseek_v2": ("deepseek_v2", ROUTED | LATENT | {"first_k_dense_replace": 2}),
    "deepseek_v2 lite": ("deepseek_v2", ROUTED | LATENT | {"q_lora_rank": None, "first_k_dense_replace": 1}),
    "deepseek_v3": ("deepseek_v3", ROUTED | LATENT | {"first_k_dense_replace": 1}),
    "minicpm3": ("minicpm3", LATENT),
    "gpt_oss": (
        "gpt_oss",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 64},
    ),
    "exaone4": ("exaone4", {"sliding_window": 64, "sliding_window_pattern": 4}),
    "stablelm": ("stablelm", {"use_qkv_bias": True}),
    "nemotron": ("nemotron", {"head_dim": 16}),
    "seed_oss": ("seed_oss", {"head_dim": 16}),
    "helium": ("helium", {"head_dim": 16}),
    "ernie4_5": ("ernie4_5", {"head_dim": 16}),
    "ernie4_5_moe": (
        "ernie4_5_moe",
        {
            "moe_num_experts": 8,
            "moe_k": 2,
            "moe_intermediate_size": 48,
            "moe_num_shared_experts": 2,
            "head_dim": 16,
        },
    ),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", {"head_dim": 16}),
    "dots1": ("dots1", ROUTED | {"first_k_dense_replace": 1, "head_dim": 16}),
    "minimax_m2": ("minimax_m2", {"num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 16}),
    "internlm3": ("internlm3", {"head_dim": 16}),
    "qwen2_5_vl_text": ("qwen2_5_vl_text", {}),
    "llama4_text": ("llama4_text", LLAMA4 | {"num_hidden_layers": 5}),
    "llama4_text, experts in every other layer": ("llama4_text", LLAMA4 | {"interleave_moe_layer_step": 2}),
    "llama4_text, no chunks": ("llama4_text", LLAMA4 | {"attention_chunk_size": None}),
    "deepseek_v32": ("deepseek_v32", ROUTED | LATENT | INDEXER | {"first_k_dense_replace": 1}),
    "glm_moe_dsa": ("glm_moe_dsa", ROUTED | LATENT | INDEXER | {"first_k_dense_replace": 1}),
    "glm_moe_dsa, one choice for two layers": (
        "glm_moe_dsa",
        ROUTED | LATENT | INDEXER | {"indexer_types": ["full", "shared", "full", "shared"]},
    ),
    "glm_moe_dsa, an indexer in every other layer": (
        "glm_moe_dsa",
        ROUTED | LATENT | INDEXER | {"index_topk_freq": 2, "index_skip_topk_offset": 1},
    ),
    "deepseek_v4": ("deepseek_v4", DEEPSEEK_V4),
    "deepseek_v4 with a window alone": (
        "deepseek_v4",
        DEEPSEEK_V4 | {"num_hash_layers": 1, "compress_ratios": [0, 4, 128, 4, 0]},
    ),
    "minimax": ("minimax", {"num_local_experts": 4, "head_dim": 24}),
    "minimax_m3_vl_text": (
        "minimax_m3_vl_text",
        {
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "head_dim": 16,
            "shared_intermediate_size": 40,
            "dense_intermediate_size": 112,
            "moe_layer_freq": [0, 1, 1, 1],
            "sparse_attention_config": {"sparse_attention_freq": [0, 1, 0, 1], "sparse_index_dim": 24},
        },
    ),
    "nemotron_h": ("nemotron_h", NEMOTRON_H | {"hybrid_override_pattern": "M-M*"}),
    "nemotron_h with experts behind a narrow matrix": (
        "nemotron_h",
        NEMOTRON_H | {"hybrid_override_pattern": "MEM*E", "moe_latent_size": 32, "use_conv_bias": False},
    ),
    "kimi_linear": ("kimi_linear", KIMI | {"layer_types": ["linear_attention"] * 3 + ["full_attention"]}),
    "kimi_linear by numbers of layers": (
        "kimi_linear",
        KIMI
        | {
            "q_lora_rank": None,
            "linear_attn_config": {
                "full_attn_layers": [2, 4],
                "kda_layers": [1, 3],
                "num_heads": 3,
                "head_dim": 8,
                "short_conv_kernel_size": 3,
            },
        },
    ),
    "bailing_hybrid": (
        "bailing_hybrid",
        KIMI
        | {"layer_group_size": 2, "head_dim": 24, "short_conv_kernel_size": 3, "num_nextn_predict_layers": 0},
    ),
    "gemma3n_text": ("gemma3n_text", GEMMA_3N),
    "gemma3n_text with unequal layers": (
        "gemma3n_text",
        GEMMA_3N | {"intermediate_size": list(range(80, 160, 8)), "num_kv_shared_layers": 0},
    ),
    "gemma4_text": (
        "gemma4_text",
        GEMMA_4 | {"hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 300},
    ),
    "gemma4_text with shared caches": (
        "gemma4_text",
        GEMMA_4
        | {
            "num_kv_shared_layers": 6,
            "num_hidden_layers": 12,
            "use_double_wide_mlp": True,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
        },
    ),
    "gemma4_text with experts": (
        "gemma4_text",
        GEMMA_4
        | {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 40},
    ),
    "jamba": ("jamba", {"num_experts": 4, "attn_layer_period": 2, "attn_layer_offset": 1}),
    "jamba without experts": (
        "jamba",
        {"num_experts": 1, "num_experts_per_tok": 1, "mamba_proj_bias": True, "mamba_dt_rank": 5},
    ),
    "bamba": ("bamba", MAMBA_2 | {"attn_layer_indices": [1, 3]}),
    "falcon_h1": ("falcon_h1", MAMBA_2 | {"mamba_d_ssm": 96, "mamba_n_heads": 6, "mamba_rms_norm": True}),
    "falcon_h1 without a norm": ("falcon_h1", MAMBA_2 | {"mamba_d_ssm": 96, "mamba_n_heads": 6}),
    "granitemoehybrid": (
        "granitemoehybrid",
        MAMBA_2
        | {
            "num_local_experts": 8,
            "shared_intermediate_size": 40,
            "layer_types": ["mamba", "attention", "mamba", "attention"],
        },
    ),
    "granitemoehybrid without experts": (
        "granitemoehybrid",
        MAMBA_2
        | {
            "num_local_experts": 0,
            "shared_intermediate_size": 40,
            "layer_types": ["mamba", "mamba", "mamba", "attention"],
        },
    ),
    "granitemoeshared": ("granitemoeshared", {"num_local_experts": 8, "shared_intermediate_size": 40}),
    "mamba": ("mamba", {}),
    "mamba with biases": ("mamba", {"use_bias": True, "use_conv_bias": False, "conv_kernel": 3}),
    "falcon_mamba": ("falcon_mamba", {}),
    "mamba2": ("mamba2", {"num_heads": 8, "head_dim": 16, "n_groups": 2, "state_size": 24}),
    "lfm2": ("lfm2", {"layer_types": ["conv", "full_attention", "conv", "conv"], "block_multiple_of": 16}),
    "lfm2 with all numbers": (
        "lfm2",
        {"full_attn_idxs": [1], "block_ffn_dim_multiplier": 1.3, "block_multiple_of": 16, "conv_bias": True},
    ),
    "lfm2_moe": (
        "lfm2_moe",
        EXPERTS
        | {
            "num_experts": 8,
            "num_dense_layers": 1,
            "layer_types": ["conv", "full_attention", "conv", "conv"],
        },
    ),
    "olmo_hybrid": (
        "olmo_hybrid",
        {"layer_types": ["linear_attention"] * 3 + ["full_attention"], "linear_conv_kernel_dim": 3},
    ),
    "mimo_v2_flash": (
        "mimo_v2_flash",
        EXPERTS
        | {
            "n_routed_experts": 8,
            "n_group": 1,
            "topk_group": 1,
            "head_dim": 24,
            "v_head_dim": 16,
            "sliding_window": 64,
            "hybrid_layer_pattern": [0, 1, 1, 0],
            "moe_layer_freq": [0, 1, 1, 1],
            "swa_num_key_value_heads": 4,
            "swa_num_attention_heads": 4,
            "swa_head_dim": 24,
            "swa_v_head_dim": 16,
        },
    ),
    "step3p5": ("step3p5", STEP | {"num_sliding_attention_heads": 6}),
    "step3p5 as published": (
        "step3p5",
        STEP | {"attention_other_setting": {"num_attention_heads": 6}, "moe_layers_enum": "1,3"},
    ),
    "exaone_moe": ("exaone_moe", EXPERTS | {"num_experts": 8, "num_shared_experts": 2, "sliding_window": 64}),
    "solar_open": ("solar_open", ROUTED | {"head_dim": 16}),
    "hy_v3": ("hy_v3", EXPERTS | {"num_experts": 8, "head_dim": 16, "num_shared_experts": 2}),
    "hy_v4": ("hy_v4", ROUTED | LATENT | INDEXER | {"hc_mult": 3}),
    "mistral4": ("mistral4", ROUTED | LATENT | {"first_k_dense_replace": 1}),
    "flex_olmo": ("flex_olmo", {"num_experts": 8, "num_experts_per_tok": 2}),
    "afmoe": (
        "afmoe",
        EXPERTS
        | {
            "num_experts": 8,
            "num_shared_experts": 2,
            "num_dense_layers": 2,
            "head_dim": 16,
            "sliding_window": 64,
        },
    ),
    "granite_swa": ("granite_swa", {"sliding_window": 64}),
    "granitemoe_swa": (
        "granitemoe_swa",
        {"sliding_window": 64, "num_local_experts": 8, "shared_intermediate_size": 40},
    ),
    "hunyuan_v1_moe": (
        "hunyuan_v1_moe",
        {"num_experts": 8, "moe_topk": [2] * 4, "head_dim": 16, "num_shared_expert": [1] * 4},
    ),
    "qwen3_vl_text": ("qwen3_vl_text", {"head_dim": 16}),
}
WITHOUT_A_MODEL_IN_TRANSFORMERS = {
    "mimo", "kimi_k2", "kimi_k3", "bailing_moe", "bailing_moe_v2", "minicpm", "step3_text",
}  # fmt: skip
"""Compared with what their publishers say (`test_published_sizes`), with a relative's count, or with headers."""


RELATIVES = {
    "minicpm": ("llama", {}),
    "mimo": ("qwen2", {}),
    "kimi_k2": ("deepseek_v3", ROUTED | LATENT),
    "bailing_moe": ("qwen3", {"head_dim": 16, "use_qk_norm": True}),
}


@pytest.mark.parametrize("name", RELATIVES)
def test_rows_without_a_model_count_as_their_relatives_do(name: str, tmp_path: Path) -> None:
    relative, changes = RELATIVES[name]
    config = TINY | changes | {"tie_word_embeddings": False}
    found = of(write_config(tmp_path / "own", config | {"model_type": name}))
    expected = of(write_config(tmp_path / "relative", config | {"model_type": relative}))
    assert found.parameters == expected.parameters
    assert found.layers == expected.layers


def write_config(directory: Path, config: dict[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def of(directory: Path) -> Geometry:
    return geometry(open_view(str(directory)))


def test_every_row_has_a_case() -> None:
    assert {model_type for model_type, _ in CASES.values()} == set(
        ARCHITECTURES
    ) - WITHOUT_A_MODEL_IN_TRANSFORMERS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_counts_of_parameters_and_caches_are_transformers_own(case: str, tmp_path: Path) -> None:
    model_type, changes = CASES[case]
    if model_type not in CONFIG_MAPPING:
        pytest.skip("the installed Transformers has no such model")
    config = CONFIG_MAPPING[model_type](**(TINY | changes))
    model = build(config)
    config.save_pretrained(tmp_path)
    found = of(tmp_path)
    assert found.parameters_by == "formula"
    assert found.parameters.total == num_stored(model)
    assert 0 < found.parameters.active <= found.parameters.total
    assert (found.experts is None) == (found.parameters.active == found.parameters.total)
    assert_kinds(found, config)


def build(config: Any) -> Any:
    with torch.device("meta"):
        if type(config) in AutoModelForCausalLM._model_mapping:
            return AutoModelForCausalLM.from_config(config)
        if config.model_type == "step3p5":  # no automatic class knows it
            from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel

            return Step3p7TextModel(config)
        return AutoModel.from_config(config)  # the text part of a model that reads images


DERIVED = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
"""Buffers of MiniMax that follow from numbers of heads and layers: no parameters."""


def num_stored(model: Any) -> int:
    """Elements that a checkpoint of the model holds: a matrix that is tied counts once, whole numbers (tables) not, and
    a text part's output matrix lies beside it."""
    is_tied = getattr(model.config, "tie_word_embeddings", False)
    tied = set(getattr(model, "_tied_weights_keys", None) or ()) if is_tied else set()
    found = sum(
        tensor.numel()
        for name, tensor in model.state_dict().items()
        if name not in tied and tensor.is_floating_point() and not name.endswith(DERIVED)
    )
    is_whole = type(model.config) in AutoModelForCausalLM._model_mapping
    return found + (0 if is_whole else model.config.vocab_size * model.config.hidden_size)


KINDS: dict[str, type | tuple[type, ...]] = {
    "full_attention": (KeyValues, Latent, SharedCache), "indexed_attention": Latent,
    "sliding_attention": (KeyValues, SharedCache), "chunked_attention": KeyValues, "linear_attention": RunningState,
    "mamba": RunningState, "conv": RunningState, "hybrid": Paired, "mlp": NoCache, "moe": NoCache,
    "compressed_sparse_attention": Compressed, "heavily_compressed_attention": Compressed,
    "minimax_m3_sparse": KeyValues,
}  # fmt: skip


def assert_kinds(found: Geometry, config: Any) -> None:
    """The kinds of layers that Transformers fills in are those that we read."""
    kinds = getattr(config, "layer_types", None) or [None] * len(found.layers)
    for layer, kind in zip(found.layers, kinds, strict=True):
        assert kind is None or isinstance(layer, KINDS[kind])
        if isinstance(layer, KeyValues):
            key = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
            expected = getattr(config, key[kind]) if kind in key else layer.window if kind is None else None
            assert layer.window == expected
            assert (layer.index_dim > 0) == (kind == "minimax_m3_sparse")
        if isinstance(layer, Compressed):
            assert layer.rate == config.compress_rates[kind]
            assert (layer.index_dim > 0) == (kind == "compressed_sparse_attention")


def test_prediction_layers_are_what_lists_say_behind_the_last_layer(tmp_path: Path) -> None:
    """Step 3.5 has windows and no experts there, DeepSeek V4 a window alone; Nemotron-H says it in letters."""
    step = TINY | STEP | {
        "model_type": "step3p5", "num_nextn_predict_layers": 2, "num_sliding_attention_heads": 6,
        "layer_types": [*STEP["layer_types"], "sliding_attention", "sliding_attention"],
    }  # fmt: skip
    found = of(write_config(tmp_path / "step", step))
    assert found.mtp_layers == (KeyValues(2, 16, 16, 64),) * 2
    assert found.mtp_weights is not None
    one = 64 * (6 + 2 + 2 + 6) * 16 + 64 * 6 + 3 * 64 * 96 + 2 * 64 * 64 + 5 * 64 + 2 * 16
    assert found.mtp_weights.float_elements == 2 * one

    config = TINY | DEEPSEEK_V4 | {"num_nextn_predict_layers": 1, "compress_ratios": [128, 128, 4, 128, 0]}
    deepseek = of(write_config(tmp_path / "v4", config | {"model_type": "deepseek_v4"}))
    assert deepseek.mtp_layers == (KeyValues(1, 32, 0, 64),)

    letters = TINY | NEMOTRON_H | {
        "model_type": "nemotron_h", "num_nextn_predict_layers": 1, "hybrid_override_pattern": "ME*E",
    }  # fmt: skip
    by_default = of(write_config(tmp_path / "nemotron", letters))
    said = of(write_config(tmp_path / "said", letters | {"mtp_hybrid_override_pattern": "*E"}))
    only = of(write_config(tmp_path / "only", letters | {"mtp_hybrid_override_pattern": "*"}))
    assert by_default.mtp_layers == only.mtp_layers == (KeyValues(2, 16, 16),)
    assert by_default.mtp_weights == said.mtp_weights
    assert only.mtp_weights is not None
    attention = 64 * (4 + 2 + 2 + 4) * 16 + 64
    assert only.mtp_weights.float_elements == attention + 2 * 64 * 64 + 3 * 64


PUBLISHED: dict[str, tuple[dict[str, Any], int, int]] = {
    "Llama-3.1-8B": (
        {
            "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
        },
        8_030_261_248,
        32 * 8 * 128 * 2,
    ),
    "Qwen2.5-7B": (
        {
            "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
            "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "torch_dtype": "bfloat16",
            "use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 28,
        },
        7_615_616_512,
        28 * 4 * 128 * 2,
    ),
    "Qwen3-30B-A3B": (
        {
            "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
            "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "vocab_size": 151936,
            "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
            "mlp_only_layers": [], "torch_dtype": "bfloat16",
        },
        30_532_122_624,
        48 * 4 * 128 * 2,
    ),
    "Mixtral-8x7B": (
        {
            "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
            "num_experts_per_tok": 2, "sliding_window": None, "torch_dtype": "bfloat16",
        },
        46_702_792_704,
        32 * 8 * 128 * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_their_published_size(name: str, tmp_path: Path) -> None:
    config, parameters, elements_per_token = PUBLISHED[name]
    found = of(write_config(tmp_path, config))
    assert found.parameters.total == parameters
    assert (
        sum(layer.elements_per_token for layer in found.layers if isinstance(layer, KeyValues))
        == elements_per_token
    )
    assert found.weights.by == "formula"
    assert found.weights.num_bytes() == 2 * parameters
    assert found.weights.num_bytes(4) == 4 * parameters


def test_three_billion_of_thirty_are_active(tmp_path: Path) -> None:
    found = of(write_config(tmp_path, PUBLISHED["Qwen3-30B-A3B"][0]))
    assert round(found.parameters.active / 1e9, 1) == 3.4  # "3.3B activated" without biases of rounding
    assert found.experts is not None
    assert (found.experts.num, found.experts.num_used) == (128, 8)


DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "intermediate_size": 18432, "vocab_size": 129280, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16", "max_position_embeddings": 163840,
}  # fmt: skip


def test_deepseek_v3_keeps_one_vector_per_token_and_has_one_prediction_layer(tmp_path: Path) -> None:
    found = of(write_config(tmp_path, DEEPSEEK_V3))
    assert found.layers == (Latent(512, 64),) * 61
    assert found.mtp_layers == (Latent(512, 64),)
    assert round(found.parameters.total / 1e9) == 671
    assert round(found.parameters.active / 1e9) == 37 + 1  # the report leaves the embedding out
    assert found.mtp_weights is not None
    assert (
        round(found.mtp_weights.num_bytes() / 2e9, 1) == 11.6
    )  # 14 billion with copies of both vocabulary matrices


QUANTISED: dict[str, tuple[dict[str, Any], float]] = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 64}, 4 + 20 / 64),
    "fp8 in blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 16384),
    "fp8": ({"quant_method": "fp8"}, 8),
    "compressed-tensors": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}},
        },
        4 + 16 / 128,
    ),
    "nvfp4": ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
    "bitsandbytes": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
}


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_weights_by_formula(name: str, tmp_path: Path) -> None:
    quantisation, bits = QUANTISED[name]
    config = PUBLISHED["Llama-3.1-8B"][0] | {"quantization_config": quantisation}
    found = of(write_config(tmp_path, config))
    matrices = 32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336)
    assert found.weights.fixed_bytes == math.ceil(matrices * bits / 8)
    assert found.weights.float_elements == 8_030_261_248 - matrices
    assert found.weights.num_bytes(2) == found.weights.num_bytes()


def test_a_quantisation_that_is_not_known_is_not_guessed(tmp_path: Path) -> None:
    config = PUBLISHED["Llama-3.1-8B"][0] | {"quantization_config": {"quant_method": "novel"}}
    with pytest.raises(DraftproofError, match=r"DP406.*novel"):
        of(write_config(tmp_path, config))


@pytest.mark.parametrize("model_type", [None, "rwkv", "llama5", 7])
def test_an_architecture_without_a_row_is_not_known(model_type: Any, tmp_path: Path) -> None:
    with pytest.raises(DraftproofError, match="DP403"):
        of(write_config(tmp_path, PUBLISHED["Llama-3.1-8B"][0] | {"model_type": model_type}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", None), ("hidden_size", "4096"), ("num_hidden_layers", 1 << 20), ("num_attention_heads", 0),
        ("num_key_value_heads", -8), ("vocab_size", 1.5), ("num_key_value_heads", [8, 8]), ("tie_word_embeddings", 1),
    ],
)  # fmt: skip
def test_values_that_are_none_are_refused(key: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(DraftproofError, match=f"DP406.*{key}"):
        of(write_config(tmp_path, PUBLISHED["Llama-3.1-8B"][0] | {key: value}))


def test_files_have_the_last_word(tmp_path: Path) -> None:
    directory = of(write_checkpoint(tmp_path / "hf", layers=2, vocab=320))
    file = of(write_gguf(tmp_path / "model.gguf", layers=2, vocab=320))
    assert directory.parameters_by == file.parameters_by == "tensors"
    assert directory.weights.by == "tensors"
    formula = of(write_config(tmp_path / "config", json.loads((tmp_path / "hf/config.json").read_text())))
    assert directory.parameters == formula.parameters == file.parameters
    assert directory.weights.num_bytes() == (tmp_path / "hf/model.safetensors").stat().st_size - header_bytes(
        tmp_path / "hf/model.safetensors"
    )
    assert directory.layers == file.layers


def test_many_keys_and_many_layers_are_read_without_copying_keys_for_layers(tmp_path: Path) -> None:
    """4,096 copies of 100,000 keys would take minutes and gigabytes."""
    config = TINY | NEMOTRON_H | {f"key{number}": number for number in range(100_000)}
    layers = {"model_type": "nemotron_h", "num_hidden_layers": 4096, "hybrid_override_pattern": "ME*-" * 1024}
    found = of(write_config(tmp_path, config | layers))
    assert found.num_layers == 4096
    assert sum(isinstance(layer, NoCache) for layer in found.layers) == 2048


def write_metadata(path: Path, architecture: str, **own: int) -> Path:
    """A GGUF file of one tensor with these numbers of its architecture."""
    writer = gguf.GGUFWriter(str(path), architecture)
    for key, value in own.items():
        writer.add_uint32(f"{architecture}.{key.replace('__', '.')}", value)
    writer.add_tensor("token_embd.weight", np.zeros((320, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


SIZES = {
    "block_count": 4, "embedding_length": 64, "attention__head_count": 4, "attention__head_count_kv": 2,
    "attention__key_length": 32, "feed_forward_length": 96,
}  # fmt: skip


def test_a_gguf_file_tells_what_delta_nets_keep(tmp_path: Path) -> None:
    states = {
        "ssm__conv_kernel": 3, "ssm__state_size": 8, "ssm__group_count": 2, "ssm__time_step_rank": 4,
        "ssm__inner_size": 64, "full_attention_interval": 2,
    }  # fmt: skip
    config = (
        TINY
        | DELTA_NET
        | {"model_type": "qwen3_5_text", "full_attention_interval": 2, "linear_conv_kernel_dim": 3}
    )
    expected = of(write_config(tmp_path / "config", config))
    assert of(write_metadata(tmp_path / "model.gguf", "qwen35", **SIZES, **states)).layers == expected.layers


@pytest.mark.parametrize(
    "architecture", ["llama4", "gemma3n", "gemma4", "mamba", "jamba", "nemotron_h", "lfm2"]
)
def test_layers_that_gguf_metadata_tell_in_words_not_read_are_not_guessed(
    architecture: str, tmp_path: Path
) -> None:
    with pytest.raises(DraftproofError, match=r"DP403.*config\.json"):
        of(write_metadata(tmp_path / "model.gguf", architecture, **SIZES))


def test_experts_that_the_files_do_not_hold_are_refused(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path / "hf", layers=2, vocab=320)
    config = json.loads((directory / "config.json").read_text())
    write_config(directory, config | {"num_experts": 1 << 20, "num_experts_per_tok": 1})
    with pytest.raises(DraftproofError, match=r"DP406.*experts"):
        of(directory)


def test_a_layer_number_of_thousands_of_digits_is_none(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path / "hf", layers=2, vocab=320)
    name = f"model.layers.{'9' * 5000}.eh_proj.weight"
    save_file({name: torch.zeros(1, dtype=torch.bfloat16)}, directory / "model.safetensors")
    assert of(directory).mtp_weights is None


def header_bytes(path: Path) -> int:
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def eagle3_tensors(hidden: int, target: int, draft_vocab: int, vocab: int) -> dict[str, torch.Tensor]:
    """A head as published for Llama targets (32 query heads are 4 here), and its two tables."""
    sizes = {
        "fc.weight": (hidden, 3 * target),
        "midlayer.self_attn.q_proj.weight": (64, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (32, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": (32, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, 64),
        "midlayer.mlp.gate_proj.weight": (96, hidden),
        "midlayer.mlp.up_proj.weight": (96, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, 96),
        "midlayer.hidden_norm.weight": (hidden,),
        "midlayer.input_layernorm.weight": (hidden,),
        "midlayer.post_attention_layernorm.weight": (hidden,),
        "norm.weight": (hidden,),
        "lm_head.weight": (draft_vocab, hidden),
    }
    tables = {"d2t": torch.zeros(draft_vocab, dtype=torch.int64), "t2d": torch.zeros(vocab, dtype=torch.bool)}
    return {name: torch.zeros(size, dtype=torch.bfloat16) for name, size in sizes.items()} | tables


def test_an_eagle3_head(tmp_path: Path) -> None:
    config = TINY | {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
        "draft_vocab_size": 100, "target_hidden_size": 80, "torch_dtype": "bfloat16",
    }  # fmt: skip
    by_formula = of(write_config(tmp_path / "config", config))
    save_file(eagle3_tensors(64, 80, 100, 320), write_config(tmp_path / "head", config) / "model.safetensors")
    head = of(tmp_path / "head")
    assert head.parameters == by_formula.parameters
    assert head.head is not None
    assert (head.head.generation, head.head.num_features, head.head.target_hidden_size) == ("eagle3", 3, 80)
    assert (head.vocab_size, head.draft_vocab_size, head.num_layers) == (320, 100, 1)
    assert head.weights.num_bytes() == 2 * head.parameters.total + 100 * 8 + 320


@pytest.fixture(scope="module")
def pairs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.mark.parametrize(
    "name", sorted({name for pair in known_pairs() for name in (pair.target, pair.drafter) if name})
)
def test_models_of_known_pairs_by_headers_and_by_formula(
    name: str, pairs_folder: Path, tmp_path: Path
) -> None:
    """Both ways agree on every published model whose tensors are known; heads may bring a copy of the embedding."""
    directory = write_model(name, pairs_folder)
    view = open_view(str(directory))
    found = geometry(view)
    configuration = open_view(
        str(write_config(tmp_path, json.loads((directory / "config.json").read_text())))
    )
    if "DFlash" in name:
        with pytest.raises(DraftproofError, match="DP406"):
            geometry(configuration)
        return
    formula = geometry(configuration)
    assert found.layers == formula.layers
    assert found.mtp_layers == formula.mtp_layers or formula.mtp_layers == ()
    if found.head is not None and view.tensors is not None:
        assert found.head.generation == ("eagle3" if "eagle3" in name.lower() else "eagle")
        copies = [
            info
            for key, info in view.tensors.items()
            if key.endswith(("embed_tokens.weight", "verifier_norm.weight"))
        ]
        copied = sum(math.prod(info.shape) for info in copies)
        assert formula.head is None or 0 <= found.parameters.total - formula.parameters.total <= copied
    elif found.parameters_by == "tensors":
        assert found.parameters.total == formula.parameters.total


def test_prediction_layers_that_no_key_declares_are_counted_by_their_tensors(pairs_folder: Path) -> None:
    found = of(write_model("Qwen/Qwen3-Next-80B-A3B-Instruct", pairs_folder))
    assert len(found.mtp_layers) == 1
    assert found.mtp_weights is not None
    assert found.mtp_weights.num_bytes() == 2 * found.mtp_weights.float_elements > 3e9
