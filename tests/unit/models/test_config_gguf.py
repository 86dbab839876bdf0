"""ModelConfig from GGUF metadata: windows, rotary rules, end tokens, and refusals by name."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.checkpoints.gguf import GgufFile, GgufTensor, read_gguf
from draftproof.core.errors import CODES, DraftproofError
from draftproof.models.base import (
    FrequencyDivisors,
    LinearScaling,
    ModelConfig,
    RopeConfig,
    YarnScaling,
)
from draftproof.models.config import config_from_gguf
from support.checkpoints import write_gguf
from support.specs import HF_NAMES, TINY, YARN

anything = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers())
)
kinds = st.sampled_from(["none", "linear", "yarn", "longrope"])


def gguf_parts(tmp_path: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    file = read_gguf(write_gguf(tmp_path / "m.gguf", TINY))
    return file.metadata | changes, dict(file.tensors)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"general.architecture": "mamba"}, "DP403"),
        ({"general.architecture": None}, "DP403"),
        ({"general.architecture": ["llama"]}, "DP403"),
        ({"llama.expert_count": 8}, "DP406"),
        ({"llama.expert_count": 2, "llama.expert_used_count": 0}, "DP406"),
        ({"llama.rope.scaling.type": "ntk"}, "DP406"),
        ({"llama.rope.scaling.type": "longrope"}, "DP406"),
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_ext_factor": 0.5}, "DP406"),
        ({"llama.rope.scaling.factor": -4.0}, "DP406"),
        ({"llama.rope.dimension_count": 8}, "DP406"),
        ({"llama.attention.value_length": 8}, "DP406"),
        ({"llama.attention.sliding_window": 16, "llama.attention.sliding_window_pattern": [True]}, "DP406"),
        ({"llama.final_logit_softcapping": 30.0}, "DP406"),
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


@pytest.mark.parametrize("name", ["mamba", "rwkv7", "jamba", "qwen3next", "falcon-h1", "lfm2", "nemotron_h"])
def test_gguf_models_with_a_state_are_refused_with_that_reason(tmp_path: Path, name: str) -> None:
    metadata, tensors = gguf_parts(tmp_path, **{"general.architecture": name})
    with pytest.raises(DraftproofError, match="cannot be taken back") as caught:
        config_from_gguf(metadata, tensors)
    assert caught.value.code == "DP403"


def test_gguf_rotary_rules(tmp_path: Path) -> None:
    def rope(**changes: Any) -> RopeConfig:
        metadata, tensors = gguf_parts(
            tmp_path, **{f"llama.rope.{key}": value for key, value in changes.items()}
        )
        (rope,) = config_from_gguf(metadata, tensors).ropes
        return rope

    linear = RopeConfig(10000.0, LinearScaling(4.0))
    assert rope(scale_linear=4.0) == linear
    assert rope(**{"scaling.type": "linear", "scaling.factor": 4.0}) == linear
    yarn = {"scaling.type": "yarn", "scaling.factor": 8.0, "scaling.original_context_length": 64}
    usual = 1 + 0.1 * math.log(8)
    assert rope(**yarn) == RopeConfig(10000.0, YarnScaling(8.0, 64), attention_factor=usual)
    assert rope(**yarn, **{"scaling.yarn_attn_factor": 1.5}).attention_factor == 1.5
    assert rope(**yarn, **{"scaling.yarn_log_multiplier": 1.0}).attention_factor == 1.0
    assert rope(**yarn, **{"scaling.attn_factor": 2.0}).attention_factor == 2 * usual


def test_gguf_windows(tmp_path: Path) -> None:
    def windows(family: str, **changes: Any) -> list[int | None]:
        spec = replace(TINY, family=family, window=16, layers=3)
        file = read_gguf(write_gguf(tmp_path / "m.gguf", spec))
        prefix = f"{file.metadata['general.architecture']}.attention."
        metadata = file.metadata | {prefix + key: value for key, value in changes.items()}
        return [layer.window for layer in config_from_gguf(metadata, file.tensors).layers]

    assert windows("mistral") == [16, 16, 16]
    assert windows("mistral", sliding_window=4096) == [None] * 3
    assert windows("gemma3", sliding_window_pattern=2) == [16, None, 16]
    assert windows("gemma3", sliding_window_pattern=[False, True, True]) == [None, 16, 16]
    with pytest.raises(DraftproofError, match="sliding_window"):
        windows("qwen3")


@pytest.fixture(scope="module")
def gguf_files(tmp_path_factory: pytest.TempPathFactory) -> list[GgufFile]:
    """Of each family, with every kind of metadata that the parser reads."""
    directory = tmp_path_factory.mktemp("gguf")
    kinds: list[Any] = [None, {"rope_type": "linear", "factor": 2.0}, YARN]
    return [
        read_gguf(
            write_gguf(directory / f"{family}{index}.gguf", replace(TINY, family=family, rope_scaling=kind))
        )
        for index, family in enumerate(HF_NAMES)
        for kind in kinds
    ]


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_any_metadata_gives_a_configuration_or_a_code(
    gguf_files: list[GgufFile], data: st.DataObject
) -> None:
    file = data.draw(st.sampled_from(gguf_files))
    prefix = f"{file.metadata['general.architecture']}."
    more = ["attention.sliding_window", "attention.sliding_window_pattern", "attention.scale", "expert_count",
            "rope.freq_base_swa", "rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor",
            "rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_beta_fast"]  # fmt: skip
    keys = st.sampled_from(
        sorted({key for key in file.metadata if key.startswith(prefix)} | {prefix + k for k in more})
    )
    changes = data.draw(st.dictionaries(keys, anything | kinds | st.floats(0.5, 64), max_size=4))
    outcome = gguf_config_or_code(file, changes)
    assert isinstance(outcome, ModelConfig) or outcome in CODES


def gguf_config_or_code(file: GgufFile, changes: dict[str, Any]) -> ModelConfig | str:
    try:
        return config_from_gguf(file.metadata | changes, file.tensors)
    except DraftproofError as error:
        return error.code


def test_gguf_divisors_are_checked(tmp_path: Path) -> None:
    metadata, tensors = gguf_parts(tmp_path)
    good = config_from_gguf(metadata, tensors, freq_factors=(1.0,) * 8)
    assert good.ropes == (RopeConfig(10000.0, FrequencyDivisors((1.0,) * 8)),)
    for factors in ((1.0,) * 7, (0.0,) * 8, (float("nan"),) * 8):
        with pytest.raises(DraftproofError) as caught:
            config_from_gguf(metadata, tensors, freq_factors=factors)
        assert caught.value.code == "DP406"


def test_gguf_end_of_turn_counts_as_end(tmp_path: Path) -> None:
    metadata, tensors = gguf_parts(tmp_path, **{"tokenizer.ggml.eot_token_id": 9})
    assert config_from_gguf(metadata, tensors).eos_token_ids == (2, 9)
