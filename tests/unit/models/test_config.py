"""ModelConfig from both formats: values, both styles of rotary settings, and refusals by name."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING

from draftproof.checkpoints.gguf import read_gguf
from draftproof.core.errors import CODES, DraftproofError
from draftproof.models.base import (
    ExpertConfig,
    FrequencyDivisors,
    Llama3Scaling,
    ModelConfig,
    RopeConfig,
)
from draftproof.models.config import config_from_gguf, config_from_hf
from draftproof.models.config.families import FAMILIES, Family
from draftproof.models.rope import inverse_frequencies
from support.checkpoints import write_gguf
from support.specs import HF_NAMES, LLAMA3_SCALING, TINY, Spec, hf_config

LLAMA3 = RopeConfig(10000.0, Llama3Scaling(8.0, 1.0, 4.0, original_context=64))


def hf(spec: Spec = TINY, **changes: Any) -> ModelConfig:
    return config_from_hf(hf_config(spec) | changes, {})


def rope_of(spec: Spec = TINY, **changes: Any) -> RopeConfig:
    (rope,) = hf(spec, **changes).ropes
    return rope


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
    assert rope_of(plain) == RopeConfig(123.0)
    assert rope_of(replace(TINY, config_style=style, rope_scaling=LLAMA3_SCALING)) == LLAMA3


def test_older_spellings_of_rotary_settings() -> None:
    rule = {key: value for key, value in LLAMA3_SCALING.items() if key != "rope_type"} | {"type": "llama3"}
    assert rope_of(rope_scaling=rule) == LLAMA3
    outside = {key: value for key, value in rule.items() if key != "original_max_position_embeddings"}
    assert rope_of(rope_scaling=outside, original_max_position_embeddings=64) == LLAMA3
    assert rope_of(rope_theta=None) == RopeConfig(10000.0)


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


@pytest.mark.parametrize("text_config", [None, 5, [], {}])
def test_a_model_that_reads_images_without_a_sound_text_part(text_config: Any) -> None:
    document = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text_config}
    assert config_error(document).code == "DP406"


def config_error(document: dict[str, Any]) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        config_from_hf(document, {})
    return caught.value


def test_ends_of_text_come_from_both_files() -> None:
    document = hf_config(TINY) | {"eos_token_id": [5, 2]}
    assert config_from_hf(document, {"eos_token_id": 7}).eos_token_ids == (7, 5, 2)
    assert config_from_hf(document | {"eos_token_id": None}, {}).eos_token_ids == ()
    for wrong in (384, -1, "2", 2.0, True, [None]):
        assert refusal(eos_token_id=wrong).code == "DP406"


@pytest.mark.parametrize(
    "architectures",
    [
        ["GPTNeoXForCausalLM"],
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
    if architectures == ["GPTNeoXForCausalLM"]:
        assert "GPTNeoXForCausalLM" in error.found


@pytest.mark.parametrize(
    "name",
    ["MambaForCausalLM", "Rwkv6ForCausalLM", "JambaForCausalLM", "Qwen3NextForCausalLM", "FalconH1ForCausalLM",
     "Lfm2ForCausalLM", "NemotronHForCausalLM", "RecurrentGemmaForCausalLM"],
)  # fmt: skip
def test_models_with_a_state_are_refused_with_that_reason(name: str) -> None:
    error = refusal(architectures=[name])
    assert error.code == "DP403"
    assert name in error.found
    assert "cannot be taken back" in error.expected


@pytest.mark.parametrize("kind", ["proportional", "mrope", 5, ["yarn"]])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_other_rotary_rules_are_refused_by_name(kind: Any, key: str) -> None:
    error = refusal(**{key: {"rope_type": kind, "factor": 2.0}})
    assert (error.code, error.found) == ("DP406", str(kind))
    assert key in error.field


def test_rotary_rules_that_follow_the_length_are_fixed_to_the_context() -> None:
    assert hf(rope_scaling={"type": "dynamic", "factor": 4.0}) == hf()
    phi3 = replace(
        TINY, family="phi3", context=512,
        rope_scaling={"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [9.0] * 8},
    )  # fmt: skip
    config = hf(phi3)  # original_max_position_embeddings is 64
    assert config.context_length == 64
    (rope,) = config.ropes
    assert rope.scaling == FrequencyDivisors((1.0,) * 8)
    assert rope.attention_factor == pytest.approx((1 + math.log(8) / math.log(64)) ** 0.5)
    document = hf_config(phi3)
    assert config_from_hf(document, {}, wanted_len=64) == config
    long = config_from_hf(document, {}, wanted_len=65)
    assert long.context_length == 512
    assert long.ropes == (replace(rope, scaling=FrequencyDivisors((9.0,) * 8)),)
    early = hf(replace(phi3, rope_scaling=dict(phi3.rope_scaling or {}) | {"type": "su"}))
    assert early == hf(replace(phi3, rope_scaling=dict(phi3.rope_scaling or {}) | {"type": "yarn"})) == config


def test_zeros_of_yarn_mean_not_used() -> None:
    rule = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    zeros = {"mscale": 1.0, "mscale_all_dim": 0, "beta_fast": 0, "beta_slow": 0}
    assert rope_of(rope_scaling=rule | zeros) == rope_of(rope_scaling=rule)


def test_mixtral_has_a_norm_of_its_own_where_the_file_names_none() -> None:
    document = hf_config(replace(TINY, family="mixtral"))
    del document["rms_norm_eps"]
    assert config_from_hf(document, {}).rms_norm_eps == 1e-5


def windows(spec: Spec, **changes: Any) -> list[int | None]:
    return [layer.window for layer in hf(spec, **changes).layers]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_key_and_value_heads_that_a_file_leaves_out_are_those_of_transformers(family: Family) -> None:
    model_type = {"qwen3moe": "qwen3_moe", "gemma3": "gemma3_text"}.get(family.name, family.name)
    usual = CONFIG_MAPPING[model_type]()
    document = {**hf_config(TINY), "architectures": [family.hf_name], "model_type": model_type}
    document |= {"num_attention_heads": usual.num_attention_heads, "head_dim": 8}
    document |= {"num_local_experts": 8, "num_experts": 8, "moe_intermediate_size": 32}
    del document["num_key_value_heads"]
    assert config_from_hf(document, {}).num_kv_heads == usual.num_key_value_heads


def test_windows_by_family() -> None:
    qwen2 = replace(TINY, family="qwen2", window=32)
    assert windows(qwen2) == [None, 32]
    assert windows(qwen2, use_sliding_window=False) == [None, None]
    assert windows(qwen2, max_window_layers=2) == [None, None]
    assert windows(qwen2, sliding_window=512) == [None, None], "all that fits is in sight"
    assert windows(qwen2, layer_types=["sliding_attention", "full_attention"]) == [32, None]
    assert windows(replace(TINY, family="mistral", window=16)) == [16, 16]
    assert windows(replace(TINY, family="mistral"), sliding_window=None) == [None, None]
    document = hf_config(replace(TINY, family="mistral", context=8192))
    del document["sliding_window"]
    assert config_from_hf(document, {}).layers[0].window == 4096, "Transformers' default"
    assert windows(replace(TINY, family="gemma3", window=16, layers=7)) == [16] * 5 + [None, 16]
    assert windows(TINY, sliding_window=16) == [None, None], "Llama has none"


def test_layers_without_rotary_embedding() -> None:
    smollm3 = replace(TINY, family="smollm3", layers=8)
    assert [layer.rope is None for layer in hf(smollm3).layers] == [False, False, False, True] * 2
    given = hf(replace(smollm3, layers=3), no_rope_layers=[0, 1, 0, 1])
    assert [layer.rope is None for layer in given.layers] == [True, False, True]


def test_which_layers_have_experts() -> None:
    moe = replace(TINY, family="qwen3moe", layers=4)
    assert all(layer.experts for layer in hf(moe).layers)
    some = hf(moe, decoder_sparse_step=2, mlp_only_layers=[3])
    assert [layer.experts is not None for layer in some.layers] == [False, True, False, False]
    assert some.layers[1].experts == ExpertConfig(4, 2, 128, is_normalised=True)


REFUSED = [
    ("qwen2", {"layer_types": ["full_attention", "sliding_attention"], "use_sliding_window": False}),
    ("qwen2", {"layer_types": ["full_attention"]}),
    ("qwen2", {"layer_types": ["full_attention", "linear_attention"]}),
    ("mistral", {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8}),
    ("qwen3", {"max_window_layers": "x", "use_sliding_window": True}),
    ("qwen3", {"rope_scaling": {"rope_type": "yarn", "factor": 0}}),
    ("qwen3", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1, "beta_slow": 2}}),
    ("smollm3", {"no_rope_layers": [1]}),
    ("smollm3", {"no_rope_layers": [1, 2]}),
    ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 0}),
    ("gemma3", {"final_logit_softcapping": 30.0}),
    ("gemma3", {"attn_logit_softcapping": 50.0}),
    ("gemma3", {"use_bidirectional_attention": True}),
    ("gemma3", {"query_pre_attn_scalar": 0}),
    ("gemma3", {"sliding_window_pattern": 0}),
    ("gemma3", {"rope_parameters": {"sliding_attention": 3}}),
    ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 7, "long_factor": [1.0] * 8}}),
    ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": [0.0] * 8, "long_factor": [1.0] * 8}}),
    ("phi3", {"partial_rotary_factor": 0.01}),
    ("phi3", {"partial_rotary_factor": 1.5}),
    ("mixtral", {"num_local_experts": 1}),
    ("mixtral", {"num_local_experts": 10**6}),
    ("qwen3moe", {"num_experts_per_tok": 0}),
    ("qwen3moe", {"mlp_only_layers": 3}),
    ("qwen3moe", {"norm_topk_prob": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "changes"), REFUSED, ids=str)
def test_values_of_families_that_cannot_be_used(family: Any, changes: dict[str, Any]) -> None:
    spec = replace(TINY, family=family, window=12)
    assert hf(spec)
    with pytest.raises(DraftproofError) as caught:
        hf(spec, **changes)
    assert caught.value.code == "DP406"


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


KEYS = sorted(
    set().union(*(hf_config(replace(TINY, family=family, window=4)) for family in HF_NAMES))
    | {"rope_parameters", "layer_types", "partial_rotary_factor", "no_rope_layers", "no_rope_layer_interval",
       "sliding_window_pattern", "rope_local_base_freq", "mlp_only_layers", "decoder_sparse_step"}
)  # fmt: skip
rotary_keys = st.sampled_from(
    ["rope_type", "type", "factor", "original_max_position_embeddings", "attention_factor", "beta_fast",
     "beta_slow", "mscale", "mscale_all_dim", "truncate", "short_factor", "long_factor", "low_freq_factor",
     "high_freq_factor", "rope_theta", "partial_rotary_factor", "full_attention", "sliding_attention"]
)  # fmt: skip
kinds = st.sampled_from(["default", "linear", "dynamic", "llama3", "yarn", "longrope", "su"])


@settings(deadline=None, max_examples=400)
@given(
    family=st.sampled_from(list(HF_NAMES)),
    changes=st.dictionaries(st.sampled_from(KEYS), anything, max_size=4),
    rule=st.none() | st.dictionaries(rotary_keys, anything | kinds | st.floats(0.5, 64), max_size=6),
)
def test_any_document_gives_a_configuration_or_a_code(
    family: Any, changes: dict[str, Any], rule: dict[str, Any] | None
) -> None:
    outcome = config_or_code(
        replace(TINY, family=family), changes if rule is None else changes | {"rope_scaling": rule}
    )
    if isinstance(outcome, str):
        assert outcome in CODES
        return
    assert len(outcome.layers) == outcome.num_layers
    for rope in outcome.ropes:
        assert len(inverse_frequencies(rope, outcome.head_dim)) == (rope.rotary_dim or outcome.head_dim) // 2


def config_or_code(spec: Spec, changes: dict[str, Any]) -> ModelConfig | str:
    try:
        return hf(spec, **changes)
    except DraftproofError as error:
        return error.code
