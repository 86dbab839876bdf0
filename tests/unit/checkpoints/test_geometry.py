"""Geometry: sizes against published figures and files, and what is refused."""

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

from draftproof.checkpoints.geometry import geometry
from draftproof.checkpoints.layers import (
    KeyValues,
    Latent,
    NoCache,
)
from draftproof.checkpoints.view import open_view
from draftproof.core.errors import DraftproofError
from support.checkpoints import write_checkpoint, write_gguf
from support.families import DELTA_NET, NEMOTRON_H, TINY, of, write_config
from support.known_pairs import known_pairs, write_model

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


def compressed(**weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


QUANTISED: dict[str, tuple[dict[str, Any], float]] = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 64}, 4 + 20 / 64),
    "fp8 in blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 16384),
    "fp8": ({"quant_method": "fp8"}, 8),
    "compressed-tensors": (compressed(num_bits=4, group_size=128), 4 + 16 / 128),
    "compressed-tensors, zero points": (
        compressed(num_bits=4, group_size=128, symmetric=False),
        4 + 20 / 128,
    ),
    "compressed-tensors, NVFP4": (compressed(num_bits=4, group_size=16, type="float"), 4 + 8 / 16),
    "compressed-tensors, MXFP4": (compressed(num_bits=4, group_size=32, type="float"), 4 + 8 / 32),
    "compressed-tensors, FP8": (compressed(num_bits=8, type="float", strategy="channel"), 8),
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


LATENT_HEAD = {
    "model_type": "deepseek_v3", "architectures": ["Eagle3DeepseekV2ForCausalLM"], "num_hidden_layers": 1,
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 320, "draft_vocab_size": 100,
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def latent_head_tensors(q_lora_rank: int | None) -> dict[str, torch.Tensor]:
    """By vLLM 0.33, deepseek_eagle3.py: latent attention over twice the hidden size, a dense feed-forward."""
    queries = {"self_attn.q_proj": (80, 128)} if q_lora_rank is None else {
        "self_attn.q_a_proj": (q_lora_rank, 128), "self_attn.q_a_layernorm": (q_lora_rank,),
        "self_attn.q_b_proj": (80, q_lora_rank),
    }  # fmt: skip
    layer = queries | {
        "self_attn.kv_a_proj_with_mqa": (24, 128), "self_attn.kv_a_layernorm": (16,),
        "self_attn.kv_b_proj": (88, 16), "self_attn.o_proj": (64, 40), "mlp.gate_proj": (96, 64),
        "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96), "hidden_norm": (64,), "input_layernorm": (64,),
        "post_attention_layernorm": (64,),
    }  # fmt: skip
    sizes = {f"midlayer.{name}": shape for name, shape in layer.items()}
    sizes |= {"fc": (64, 192), "norm": (64,), "lm_head": (100, 64)}
    return {f"{name}.weight": torch.zeros(shape, dtype=torch.bfloat16) for name, shape in sizes.items()}


@pytest.mark.parametrize("q_lora_rank", [24, None])
def test_an_eagle3_head_with_latent_attention(q_lora_rank: int | None, tmp_path: Path) -> None:
    config = LATENT_HEAD | {"q_lora_rank": q_lora_rank}
    by_formula = of(write_config(tmp_path / "config", config))
    save_file(latent_head_tensors(q_lora_rank), write_config(tmp_path / "head", config) / "model.safetensors")
    head = of(tmp_path / "head")
    assert (head.parameters_by, by_formula.parameters_by) == ("tensors", "formula")
    assert head.parameters == by_formula.parameters
    assert head.parameters.active == head.parameters.total
    assert head.experts is None


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
