"""Configurations that no model has: numbers of layers, factors. Each is refused by its key's name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from draftproof.core.errors import DraftproofError
from support.families import EXPERTS, KIMI, LLAMA4, MAMBA_2, STEP, TINY, of, write_config

LAYER_NUMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bamba": ("attn_layer_indices", MAMBA_2),
    "lfm2": ("full_attn_idxs", {"conv_L_cache": 3}),
    "step3p5": ("moe_layers_enum", STEP | {"num_sliding_attention_heads": 6}),
    "qwen3_moe": ("mlp_only_layers", EXPERTS | {"num_experts": 8}),
    "llama4_text": ("moe_layers", LLAMA4),
    "kimi_linear": ("full_attn_layers", KIMI),
}


def with_layers(model_type: str, told: Any) -> dict[str, Any]:
    key, sizes = LAYER_NUMBERS[model_type]
    said = {"linear_attn_config": {key: told}} if model_type == "kimi_linear" else {key: told}
    return TINY | sizes | said | {"model_type": model_type}


@pytest.mark.parametrize("model_type", LAYER_NUMBERS)
def test_numbers_of_layers(model_type: str, tmp_path: Path) -> None:
    """All that the model has are taken; one before them, one behind, and what is no number is refused."""
    first = 1 if model_type == "kimi_linear" else 0
    of(write_config(tmp_path, with_layers(model_type, [*range(first, first + 4)])))
    for number in (first - 1, first + 4, 10**400, -(10**400), True, 1.0, "1", None, []):
        with pytest.raises(DraftproofError, match=f"DP406.*{LAYER_NUMBERS[model_type][0]}"):
            of(write_config(tmp_path, with_layers(model_type, [number])))


@pytest.mark.parametrize("text", ["9" * 5000, "4", "1,x", "-1", "²", "1;2"])
def test_layers_in_a_string(text: str, tmp_path: Path) -> None:
    of(write_config(tmp_path, with_layers("step3p5", "1, 3")))
    with pytest.raises(DraftproofError, match=r"DP406.*moe_layers_enum"):
        of(write_config(tmp_path, with_layers("step3p5", text)))


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 1e308, 1e30, -1, 0, -0.5, 10**400, True, "1", []]
)
def test_a_factor_that_no_size_has_is_refused(value: Any, tmp_path: Path) -> None:
    config = TINY | {"model_type": "lfm2", "conv_L_cache": 3, "block_ffn_dim_multiplier": value}
    with pytest.raises(DraftproofError, match=r"DP406.*block_ffn_dim_multiplier"):
        of(write_config(tmp_path, config))


@pytest.mark.parametrize("bits", [-1, 0, 1.5, math.nan, 10**400])
def test_weights_of_no_bits_are_refused(bits: Any, tmp_path: Path) -> None:
    told = {"quantization_config": {"quant_method": "gptq", "bits": bits, "group_size": 128}}
    with pytest.raises(DraftproofError, match=r"DP406.*bits"):
        of(write_config(tmp_path, TINY | told | {"model_type": "llama", "torch_dtype": "float16"}))
