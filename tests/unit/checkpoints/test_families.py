"""Every family's parameters and layers against Transformers' own models, built without memory from small sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from draftproof.checkpoints.architectures import ALIASES, ARCHITECTURES
from draftproof.checkpoints.geometry import Geometry
from draftproof.checkpoints.layers import (
    Compressed,
    KeyValues,
    Latent,
    NoCache,
    Paired,
    RunningState,
    SharedCache,
)
from draftproof.checkpoints.parts import weight_parts
from draftproof.checkpoints.view import open_view
from draftproof.core.errors import DraftproofError
from support.families import (
    DEEPSEEK_V4,
    DELTA_NET,
    EXPERTS,
    GEMMA_3N,
    GEMMA_4,
    INDEXER,
    KIMI,
    LAGUNA,
    LATENT,
    LLAMA4,
    LONGCAT,
    MAMBA_2,
    NEMOTRON_H,
    ROUTED,
    STEP,
    TINY,
    ZAMBA,
    of,
    write_config,
)

UNTIED = {"head_dim": 16, "tie_word_embeddings": False}
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
    "zamba": ("zamba", ZAMBA | {"n_mamba_heads": 2}),
    "zamba2": ("zamba2", ZAMBA | {"n_mamba_heads": 8, "mamba_ngroups": 2}),
    "zamba2 with blocks in turns and narrow matrices": (
        "zamba2",
        ZAMBA
        | {
            "n_mamba_heads": 8,
            "num_mem_blocks": 2,
            "use_shared_attention_adapter": True,
            "adapter_rank": 6,
            "add_bias_linear": True,
        },
    ),
    "recurrent_gemma": (
        "recurrent_gemma",
        {"num_hidden_layers": 5, "num_key_value_heads": 1, "lru_width": 80},
    ),
    "longcat_flash": ("longcat_flash", LONGCAT),
    "exaone": ("exaone", {"head_dim": 16}),
    "cwm": ("cwm", {"head_dim": 16, "sliding_window": 64}),
    "apertus": ("apertus", {}),
    "vaultgemma": ("vaultgemma", {"head_dim": 32, "sliding_window": 64}),
    "youtu": ("youtu", LATENT),
    "jais2": ("jais2", {"head_dim": 16}),
    "mellum": (
        "mellum",
        EXPERTS
        | {
            "num_experts": 8,
            "head_dim": 16,
            "sliding_window": 64,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    ),
    "laguna": ("laguna", EXPERTS | LAGUNA),
    "laguna with heads of its own and gates per element": (
        "laguna",
        EXPERTS | LAGUNA | {"gating": "per-element", "num_attention_heads_per_layer": [4, 8, 8, 4]},
    ),
    "cohere2_moe": (
        "cohere2_moe",
        {
            "num_experts": 8,
            "head_dim": 16,
            "sliding_window": 64,
            "num_shared_experts": 2,
            "prefix_dense_intermediate_size": 112,
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        },
    ),
    "glm4v_text": ("glm4v_text", {}),
    "glm4v_moe_text": ("glm4v_moe_text", ROUTED | {"head_dim": 16, "first_k_dense_replace": 1}),
    "glm_ocr_text": ("glm_ocr_text", {"head_dim": 16}),
    "qwen3_vl_moe_text": ("qwen3_vl_moe_text", EXPERTS | UNTIED | {"num_experts": 8}),
    "hunyuan_vl_text": ("hunyuan_vl_text", UNTIED),
    "iquestcoder": ("iquestcoder", {"head_dim": 16}),
    "sarvam_mla": ("sarvam_mla", ROUTED | LATENT | {"first_k_dense_replace": 1}),
    "sarvam_moe": ("sarvam_moe", ROUTED | {"head_dim": 16, "first_k_dense_replace": 1}),
    "gpt2": ("gpt2", {"num_key_value_heads": 4}),
    "gpt_neox": ("gpt_neox", {"num_key_value_heads": 4}),
    "opt": ("opt", {"ffn_dim": 96, "num_key_value_heads": 4, "word_embed_proj_dim": 64}),
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
    "nemotron-nas", "rwkv6", "rwkv7",
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


def test_every_row_has_a_case() -> None:
    named = {ALIASES.get(model_type, model_type) for model_type, _ in CASES.values()}
    assert named == set(ARCHITECTURES) - WITHOUT_A_MODEL_IN_TRANSFORMERS


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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_each_layer_weighs_what_its_tensors_say(case: str, tmp_path: Path) -> None:
    """By formula as by the names in the files: what stages of a pipeline are made of. What a row of the table cannot
    lay to one layer (`extra`) is spread evenly, so of those models the sum alone is compared."""
    model_type, changes = CASES[case]
    if model_type not in CONFIG_MAPPING:
        pytest.skip("the installed Transformers has no such model")
    config = CONFIG_MAPPING[model_type](**(TINY | changes))
    model = build(config)
    config.save_pretrained(tmp_path / "formula")
    formula = weight_parts(open_view(str(tmp_path / "formula")))
    config.save_pretrained(tmp_path / "files")
    stored = {
        name: torch.zeros(tensor.shape, dtype=torch.bfloat16)
        for name, tensor in stored_tensors(model).items()
    }
    if type(config) not in AutoModelForCausalLM._model_mapping:
        stored["lm_head.weight"] = torch.zeros(config.vocab_size, config.hidden_size, dtype=torch.bfloat16)
    save_file(stored, tmp_path / "files" / "model.safetensors")
    files = weight_parts(open_view(str(tmp_path / "files")))
    elements = [part.float_elements for part in (files.before, *files.layers, files.behind)]
    counted = [part.float_elements for part in (formula.before, *formula.layers, formula.behind)]
    assert files.embedding.float_elements == formula.embedding.float_elements
    row = ARCHITECTURES[of(tmp_path / "formula").model_type]
    if row.extra is None:
        starts = range(1, len(counted) - 1, row.sublayers)
        assert [sum(counted[first : first + row.sublayers]) for first in starts] == [
            sum(elements[first : first + row.sublayers]) for first in starts
        ]
        assert (counted[0], counted[-1]) == (elements[0], elements[-1])
    assert sum(counted) == sum(elements) == sum(tensor.numel() for tensor in stored.values())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sign", [{"draft_vocab_size": 64}, {"architectures": ["Eagle3LlamaForCausalLM"]}])
def test_a_head_of_any_family_is_counted_or_refused(case: str, sign: dict[str, Any], tmp_path: Path) -> None:
    """By what its first layer keeps: nothing else comes of it than a count or DP403."""
    model_type, changes = CASES[case]
    if model_type not in CONFIG_MAPPING:
        pytest.skip("the installed Transformers has no such model")
    config = json.loads(json.dumps(CONFIG_MAPPING[model_type](**(TINY | changes)).to_dict(), default=str))
    first = of(write_config(tmp_path / "model", config)).layers[0]
    write_config(tmp_path, config | sign)
    if not isinstance(first, KeyValues | Latent) or first.index_dim:
        with pytest.raises(DraftproofError, match=r"DP403.*EAGLE-3"):
            of(tmp_path)
        return
    found = of(tmp_path)
    assert found.head is not None
    assert found.head.generation == "eagle3"
    assert found.layers[0] == first
    assert found.experts is None


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
    """Elements that a checkpoint of the model holds; a text part's output matrix lies beside it."""
    found = sum(tensor.numel() for tensor in stored_tensors(model).values())
    is_whole = type(model.config) in AutoModelForCausalLM._model_mapping
    return found + (0 if is_whole else model.config.vocab_size * model.config.hidden_size)


def stored_tensors(model: Any) -> dict[str, Any]:
    """By name: what is shared by several names once, whole numbers (tables) not."""
    is_tied = getattr(model.config, "tie_word_embeddings", False)
    tied = set(getattr(model, "_tied_weights_keys", None) or ()) if is_tied else set()
    first = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name in first - tied and tensor.is_floating_point() and not name.endswith(DERIVED)
    }


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
