"""ModelConfig from both formats: values, both styles of rotary settings, and refusals by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.checkpoints.gguf import GgufTensor, read_gguf
from draftproof.core.errors import CODES, DraftproofError
from draftproof.models.base import ModelConfig, RopeConfig
from draftproof.models.config import config_from_gguf, config_from_hf, expected_tensors
from support.checkpoints import LLAMA3_SCALING, TINY, Spec, build_weights, hf_config, write_gguf

LLAMA3 = RopeConfig(
    10000.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=64
)


def hf(spec: Spec = TINY, **changes: Any) -> ModelConfig:
    return config_from_hf(hf_config(spec) | changes, {})


def refusal(**changes: Any) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        hf(**changes)
    return caught.value


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_both_formats_give_the_same_configuration(tmp_path: Path, family: str) -> None:
    spec = replace(TINY, family=family, head_dim=32, tie=True)
    file = read_gguf(write_gguf(tmp_path / "m.gguf", spec))
    from_gguf = config_from_gguf(file.metadata, file.tensors)
    assert replace(from_gguf, rms_norm_eps=1e-5) == hf(spec)
    assert from_gguf.rms_norm_eps == pytest.approx(1e-5)


@pytest.mark.parametrize("style", ["transformers4", "transformers5"])
def test_rotary_settings_of_both_styles(style: Any) -> None:
    plain = replace(TINY, config_style=style, rope_theta=123.0)
    assert hf(plain).rope == RopeConfig(123.0)
    assert hf(replace(TINY, config_style=style, rope_scaling=LLAMA3_SCALING)).rope == LLAMA3


def test_older_spellings_of_rotary_settings() -> None:
    rule = {key: value for key, value in LLAMA3_SCALING.items() if key != "rope_type"} | {"type": "llama3"}
    assert hf(rope_scaling=rule).rope == LLAMA3
    outside = {key: value for key, value in rule.items() if key != "original_max_position_embeddings"}
    assert hf(rope_scaling=outside, original_max_position_embeddings=64).rope == LLAMA3
    assert hf(rope_theta=None).rope == RopeConfig(10000.0)


def test_defaults_of_missing_keys() -> None:
    document = hf_config(TINY)
    for key in ("num_key_value_heads", "tie_word_embeddings", "rms_norm_eps", "attention_bias", "mlp_bias"):
        del document[key]
    config = config_from_hf(document, {})
    assert config.num_kv_heads == config.num_heads
    assert (config.tie_embeddings, config.rms_norm_eps) == (False, 1e-6)
    assert (config.qkv_bias, config.o_bias, config.mlp_bias) == (False, False, False)


def test_biases_by_family() -> None:
    llama = hf(replace(TINY, attention_bias=True, mlp_bias=True))
    assert (llama.qkv_bias, llama.o_bias, llama.mlp_bias) == (True, True, True)
    qwen2 = hf(replace(TINY, family="qwen2"))
    assert (qwen2.qkv_bias, qwen2.o_bias, qwen2.mlp_bias) == (True, False, False)


def test_ends_of_text_come_from_both_files() -> None:
    document = hf_config(TINY) | {"eos_token_id": [5, 2]}
    assert config_from_hf(document, {"eos_token_id": 7}).eos_token_ids == (7, 5, 2)
    assert config_from_hf(document | {"eos_token_id": None}, {}).eos_token_ids == ()
    for wrong in (384, -1, "2", 2.0, True, [None]):
        assert refusal(eos_token_id=wrong).code == "DP406"


@pytest.mark.parametrize(
    "architectures",
    [
        ["MistralForCausalLM"],
        ["LlamaForCausalLM", "x"],
        [],
        None,
        "LlamaForCausalLM",
        [["LlamaForCausalLM"]],
        [1],
    ],
)
def test_other_architectures_are_refused_by_name(architectures: Any) -> None:
    error = refusal(architectures=architectures)
    assert error.code == "DP403"
    assert "LlamaForCausalLM" in error.expected
    assert "Qwen2ForCausalLM" in error.expected
    if architectures == ["MistralForCausalLM"]:
        assert "MistralForCausalLM" in error.found


@pytest.mark.parametrize("kind", ["yarn", "linear", "dynamic", "longrope", 5])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_other_rotary_rules_are_refused_by_name(kind: Any, key: str) -> None:
    error = refusal(**{key: {"rope_type": kind, "factor": 2.0}})
    assert (error.code, error.found) == ("DP406", str(kind))
    assert key in error.field


def test_sliding_windows_are_refused_where_they_are_in_use() -> None:
    qwen2 = {"spec": replace(TINY, family="qwen2"), "sliding_window": 32, "max_window_layers": 1}
    assert hf(**qwen2, use_sliding_window=False)
    assert hf(**qwen2 | {"sliding_window": 512}, use_sliding_window=True)
    assert hf(**qwen2 | {"max_window_layers": 2}, use_sliding_window=True)
    error = refusal(**qwen2, use_sliding_window=True)
    assert (error.code, error.found) == ("DP406", "32")
    assert refusal(**qwen2, layer_types=["full_attention", "sliding_attention"]).code == "DP406"


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "gelu"},
        {"quantization_config": {"quant_method": "awq"}},
        {"partial_rotary_factor": 0.5},
        {"num_key_value_heads": 3},
        {"head_dim": 15},
        {"hidden_size": 0},
        {"hidden_size": -64},
        {"hidden_size": 64.0},
        {"hidden_size": "64"},
        {"hidden_size": True},
        {"hidden_size": 2**40},
        {"hidden_size": None},
        {"num_hidden_layers": 10**6},
        {"max_position_embeddings": 2**60},
        {"rms_norm_eps": 0},
        {"rms_norm_eps": float("nan")},
        {"rms_norm_eps": float("inf")},
        {"rope_theta": -1.0},
        {"rope_scaling": "llama3"},
        {"rope_scaling": LLAMA3_SCALING | {"factor": None}},
        {"rope_scaling": LLAMA3_SCALING | {"low_freq_factor": 4.0}},
        {"tie_word_embeddings": "yes"},
    ],
    ids=str,
)
def test_values_that_cannot_be_used(changes: dict[str, Any]) -> None:
    assert refusal(**changes).code == "DP406"


anything = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers())
)


@settings(deadline=None, max_examples=200)
@given(
    changes=st.dictionaries(st.sampled_from([*hf_config(TINY), "rope_parameters", "layer_types"]), anything)
)
def test_any_document_gives_a_configuration_or_a_code(changes: dict[str, Any]) -> None:
    outcome = config_or_code(changes)
    assert isinstance(outcome, ModelConfig) or outcome in CODES


def config_or_code(changes: dict[str, Any]) -> ModelConfig | str:
    try:
        return hf(**changes)
    except DraftproofError as error:
        return error.code


def gguf_parts(tmp_path: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    file = read_gguf(write_gguf(tmp_path / "m.gguf", TINY))
    return file.metadata | changes, dict(file.tensors)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"general.architecture": "mamba"}, "DP403"),
        ({"general.architecture": None}, "DP403"),
        ({"llama.expert_count": 8}, "DP403"),
        ({"llama.rope.scaling.type": "yarn"}, "DP406"),
        ({"llama.rope.scale_linear": 4.0}, "DP406"),
        ({"llama.rope.dimension_count": 8}, "DP406"),
        ({"llama.attention.value_length": 8}, "DP406"),
        ({"llama.attention.sliding_window": 16}, "DP406"),
        ({"llama.attention.sliding_window": "x"}, "DP406"),
        ({"llama.attention.head_count_kv": [2, 2]}, "DP406"),
        ({"llama.block_count": 0}, "DP406"),
        ({"llama.context_length": None}, "DP406"),
        ({"tokenizer.ggml.eos_token_id": 10**6}, "DP406"),
    ],
    ids=str,
)
def test_gguf_values_that_cannot_be_used(tmp_path: Path, changes: dict[str, Any], code: str) -> None:
    metadata, tensors = gguf_parts(tmp_path, **changes)
    with pytest.raises(DraftproofError) as caught:
        config_from_gguf(metadata, tensors)
    assert caught.value.code == code


def test_gguf_divisors_are_checked(tmp_path: Path) -> None:
    metadata, tensors = gguf_parts(tmp_path)
    good = config_from_gguf(metadata, tensors, freq_factors=(1.0,) * 8)
    assert good.rope.freq_factors == (1.0,) * 8
    for factors in ((1.0,) * 7, (0.0,) * 8, (float("nan"),) * 8):
        with pytest.raises(DraftproofError) as caught:
            config_from_gguf(metadata, tensors, freq_factors=factors)
        assert caught.value.code == "DP406"


def test_gguf_end_of_turn_counts_as_end(tmp_path: Path) -> None:
    metadata, tensors = gguf_parts(tmp_path, **{"tokenizer.ggml.eot_token_id": 9})
    assert config_from_gguf(metadata, tensors).eos_token_ids == (2, 9)


@pytest.mark.parametrize(
    "spec",
    [
        TINY,
        replace(TINY, tie=True, attention_bias=True, mlp_bias=True),
        replace(TINY, family="qwen2", head_dim=8),
    ],
)
def test_expected_tensors_are_those_of_a_checkpoint(spec: Spec) -> None:
    assert expected_tensors(hf(spec)) == {name: tuple(w.shape) for name, w in build_weights(spec).items()}
