"""GGUF files of models with layers of several kinds: their layers are those of the configuration they were made of.

What llama.cpp's converter writes was recorded by `benchmarks/gguf_metadata.py`."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from draftproof.checkpoints.geometry import Geometry, geometry
from draftproof.checkpoints.layers import KeyValues, NoCache, RunningState, state_of
from draftproof.checkpoints.view import open_view
from draftproof.core.errors import DraftproofError
from support.families import of, write_config

_RECORDS = Path(__file__).parent / "data" / "gguf_metadata.json"


def records() -> list[dict[str, Any]]:
    found = json.loads(_RECORDS.read_text())["records"]
    assert isinstance(found, list)
    return found


def write(path: Path, metadata: dict[str, Any], tensors: dict[str, list[int]]) -> Path:
    """A file with these metadata and float tensors of zeros."""
    writer = gguf.GGUFWriter(str(path), metadata["general.architecture"])
    for key, value in metadata.items():
        if key == "general.architecture":
            continue
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value:
            writer.add_array(key, value)
    for name, shape in tensors.items():
        writer.add_tensor(name, np.zeros(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read(path: Path) -> Geometry:
    return geometry(open_view(str(path)))


def kept(layer: Any) -> Any:
    """What a layer keeps; names of types are a configuration's alone."""
    state = state_of(layer)
    if state is None:
        return layer
    plain = replace(state, ssm_dtype=None, ssm_cache_dtype=None)
    return plain if isinstance(layer, RunningState) else replace(layer, state=plain)


@pytest.mark.parametrize("record", records(), ids=lambda record: record["name"])
def test_layers_are_those_of_the_configuration(record: dict[str, Any], tmp_path: Path) -> None:
    expected = of(write_config(tmp_path / "config", record["config"]))
    found = read(write(tmp_path / "model.gguf", record["metadata"], record["tensors"]))
    assert list(map(kept, found.layers)) == list(map(kept, expected.layers))
    assert found.model_type == expected.model_type
    assert found.experts == expected.experts
    assert (found.hidden_size, found.num_heads, found.num_kv_heads, found.head_dim, found.vocab_size) == (
        expected.hidden_size, expected.num_heads, expected.num_kv_heads, expected.head_dim, expected.vocab_size,
    )  # fmt: skip
    assert found.intermediate_size == expected.intermediate_size
    assert found.parameters_by == "tensors"
    stored = sum(int(np.prod(shape)) for shape in record["tensors"].values())
    assert found.parameters.total == found.weights.float_elements == stored
    assert (
        found.parameters.total - found.parameters.active
        == expected.parameters.total - expected.parameters.active
    )


def record_of(name: str) -> dict[str, Any]:
    return next(record for record in records() if record["name"] == name)


def test_llama_4_sees_everything_where_the_file_has_no_window(tmp_path: Path) -> None:
    record = record_of("llama4")
    metadata = record["metadata"] | {"llama4.attention.sliding_window": 0}
    found = read(write(tmp_path / "model.gguf", metadata, record["tensors"]))
    assert set(found.layers) == {KeyValues(2, 16, 16)}


def test_heads_that_a_list_leaves_out_are_counted_in_the_tensors(tmp_path: Path) -> None:
    """The converter wrote zeros for Granite's layers under Transformers 5's words for them."""
    record = record_of("granite hybrid")
    metadata = record["metadata"] | {"granitehybrid.attention.head_count_kv": [0, 0, 0, 0]}
    found = read(write(tmp_path / "model.gguf", metadata, record["tensors"]))
    assert found.layers[1] == found.layers[3] == KeyValues(2, 16, 16)


def test_nemotron_nas_in_a_file(tmp_path: Path) -> None:
    """As `conversion/deci.py` writes it: lists of heads, zeros for layers without attention."""
    hidden = 64
    base = {
        "general.architecture": "deci", "deci.block_count": 3, "deci.embedding_length": hidden,
        "deci.attention.head_count": [4, 0, 4], "deci.attention.head_count_kv": [2, 0, 0],
        "deci.feed_forward_length": [96, 40, 96], "deci.vocab_size": 320, "deci.context_length": 512,
    }  # fmt: skip
    tensors = {
        "token_embd.weight": [320, hidden], "output.weight": [320, hidden], "output_norm.weight": [hidden],
        "blk.0.attn_q.weight": [64, hidden], "blk.0.attn_k.weight": [32, hidden], "blk.0.attn_v.weight": [32, hidden],
        "blk.0.attn_output.weight": [hidden, 64], "blk.0.attn_norm.weight": [hidden],
        "blk.2.attn_output.weight": [hidden, hidden], "blk.2.attn_norm.weight": [hidden],
        **{f"blk.{layer}.ffn_norm.weight": [hidden] for layer in range(3)},
        **{f"blk.{layer}.ffn_{part}.weight": [wide, hidden] for layer, wide in enumerate((96, 40, 96))
           for part in ("up", "gate")},
        **{f"blk.{layer}.ffn_down.weight": [hidden, wide] for layer, wide in enumerate((96, 40, 96))},
    }  # fmt: skip
    found = read(write(tmp_path / "model.gguf", base, tensors))
    assert found.layers == (KeyValues(2, 16, 16), NoCache(), NoCache())
    assert found.parameters.total == sum(int(np.prod(shape)) for shape in tensors.values())
    assert found.intermediate_size == 96


@pytest.mark.parametrize(("architecture", "shifted"), [("rwkv6", 2), ("rwkv7", 2), ("arwkv7", 1)])
def test_rwkv_in_a_file(architecture: str, shifted: int, tmp_path: Path) -> None:
    """`n_embd_r` and `n_embd_s` of llama.cpp: inputs that are shifted, and a square matrix per head."""
    base = {
        "general.architecture": architecture, f"{architecture}.block_count": 2, f"{architecture}.embedding_length": 64,
        f"{architecture}.wkv.head_size": 16, f"{architecture}.token_shift_count": shifted,
        f"{architecture}.feed_forward_length": 224, f"{architecture}.attention.head_count": 0,
    }  # fmt: skip
    tensors = {"token_embd.weight": [320, 64], "output.weight": [320, 64], "output_norm.weight": [64]}
    for layer in range(2):
        tensors[f"blk.{layer}.time_mix_receptance.weight"] = [64, 64]
        tensors[f"blk.{layer}.channel_mix_key.weight"] = [224, 64]
    found = read(write(tmp_path / "model.gguf", base, tensors))
    [state] = {state_of(layer) for layer in found.layers}
    assert state is not None
    assert (state.state_elements, state.conv_elements) == (64 * 16, shifted * 64)
    assert found.num_heads == 0
    config = {
        "model_type": "rwkv7",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "wkv_head_size": 16,
        "vocab_size": 320,
    }
    with pytest.raises(DraftproofError, match=r"DP406.*weight files"):
        of(write_config(tmp_path / "config", config | {"intermediate_size": 224}))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("mamba", "ssm.state_size"), ("mamba", "ssm.conv_kernel"), ("mamba", "ssm.inner_size"),
        ("mamba 2", "ssm.group_count"), ("mamba 2", "ssm.time_step_rank"), ("lfm2", "shortconv.l_cache"),
        ("gemma3n", "attention.sliding_window"), ("jamba", "ssm.time_step_rank"),
        ("granite hybrid", "ssm.state_size"), ("nemotron-h", "ssm.group_count"),
    ],
)  # fmt: skip
def test_sizes_that_the_file_leaves_out_are_not_taken_from_defaults(
    name: str, key: str, tmp_path: Path
) -> None:
    record = record_of(name)
    metadata = {key_: value for key_, value in record["metadata"].items() if not key_.endswith(f".{key}")}
    assert len(metadata) == len(record["metadata"]) - 1
    with pytest.raises(DraftproofError, match=r"DP406"):
        read(write(tmp_path / "model.gguf", metadata, record["tensors"]))


@pytest.mark.parametrize("key", ["block_count", "attention.head_count", "ssm.state_size", "ssm.inner_size"])
@pytest.mark.parametrize("value", [None, 0, 1 << 31, "four", [2, 2], True, -1.5])
def test_metadata_that_no_model_has_are_refused_or_read(key: str, value: Any, tmp_path: Path) -> None:
    """Nothing else comes of it than a geometry or a refusal that names the key's value."""
    record = record_of("granite hybrid")
    metadata = {**record["metadata"], f"granitehybrid.{key}": value}
    if value is None:
        del metadata[f"granitehybrid.{key}"]
    path = write(tmp_path / "model.gguf", metadata, record["tensors"])
    with contextlib.suppress(DraftproofError):
        assert read(path).num_layers == 4


@pytest.mark.parametrize(
    "architecture", ["kimi-linear", "mimo2", "minimax-m3", "deepseek4", "plamo2", "glm-dsa"]
)
def test_what_is_not_read_is_refused(architecture: str, tmp_path: Path) -> None:
    base = {"general.architecture": architecture, f"{architecture}.block_count": 1}
    path = write(tmp_path / "model.gguf", base, {"token_embd.weight": [8, 8]})
    with pytest.raises(DraftproofError, match=r"DP403"):
        read(path)


@pytest.mark.parametrize("architecture", ["cohere2", "exaone4", "gemma3", "gpt-oss"])
@pytest.mark.parametrize(
    ("pattern", "windows"), [([True, False] * 2, [0, 2]), ([False, False, True, True], [2, 3])]
)
def test_windows_are_where_a_files_list_has_them(
    architecture: str, pattern: list[bool], windows: list[int], tmp_path: Path
) -> None:
    said = {
        "block_count": 4, "embedding_length": 64, "feed_forward_length": 96, "attention.head_count": 4,
        "attention.head_count_kv": 2, "attention.key_length": 32, "attention.sliding_window": 64,
        "attention.sliding_window_pattern": pattern, "expert_count": 4, "expert_used_count": 2,
    }  # fmt: skip
    metadata = {f"{architecture}.{key}": value for key, value in said.items()}
    path = write(
        tmp_path / "model.gguf",
        metadata | {"general.architecture": architecture},
        {"token_embd.weight": [1 << 14, 64], "output.weight": [1 << 14, 64]},
    )
    found = read(path)
    assert [place for place, layer in enumerate(found.layers) if getattr(layer, "window", None)] == windows
