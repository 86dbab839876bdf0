"""Safetensors headers and indices: what the library reads, and what hostile files get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from draftproof.checkpoints.safetensors import HEADER_MAX_BYTES, TensorEntry, read_directory, read_header
from draftproof.core.errors import DraftproofError
from support.checkpoints import write_checkpoint
from support.specs import TINY, build_weights


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"), TINY, layers=1) / "model.safetensors"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch") / "model.safetensors"


def write(path: Path, header: Any, data: bytes = b"") -> Path:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + data)
    return path


def code_of(path: Path) -> str:
    with pytest.raises(DraftproofError) as caught:
        read_header(path)
    return caught.value.code


def test_reads_what_the_library_reads(sample: Path) -> None:
    entries = read_header(sample)
    content = sample.read_bytes()
    with safe_open(sample, "np") as reader:
        assert set(reader.keys()) == set(entries)
        for name, entry in entries.items():
            array = reader.get_tensor(name)
            assert (entry.dtype, entry.shape) == ("F32", array.shape)
            assert content[entry.offset : entry.offset + entry.num_bytes] == array.tobytes()


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    entries = read_directory(write_checkpoint(tmp_path, num_shards=3))
    assert set(entries) == set(build_weights(TINY))
    assert len({entry.path for entry in entries.values()}) == 3


def test_an_empty_tensor_and_a_scalar_are_fine(scratch: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "empty": {"dtype": "F32", "shape": [0, 4], "data_offsets": [0, 0]},
        "scalar": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
    }
    assert {name: e.shape for name, e in read_header(write(scratch, header, bytes(8))).items()} == {
        "empty": (0, 4),
        "scalar": (),
    }


def test_every_truncation_is_noticed(sample: Path, scratch: Path) -> None:
    content = sample.read_bytes()
    for length in [*range(0, 100), *range(100, len(content), 1009), len(content) - 1]:
        scratch.write_bytes(content[:length])
        assert code_of(scratch) == "DP402", length


def test_added_bytes_are_noticed(sample: Path, scratch: Path) -> None:
    scratch.write_bytes(sample.read_bytes() + b"\0")
    assert code_of(scratch) == "DP402"


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"nonsense",
        b"[]",
        b"\xff\xfe",
        b'{"a": ' + b"[" * 100_000,
        b'{"a": ' + b"9" * 100_000 + b"}",
        {"t": []},
        {"t": ENTRY | {"dtype": "F33"}},
        {"t": ENTRY | {"dtype": ["F32"]}},
        {"t": ENTRY | {"shape": [-2]}},
        {"t": ENTRY | {"shape": [2.0]}},
        {"t": ENTRY | {"shape": [True, 2]}},
        {"t": ENTRY | {"shape": "2"}},
        {"t": ENTRY | {"shape": [2**62, 2**62]}},
        {"t": ENTRY | {"shape": [1] * 100}},
        {"t": ENTRY | {"data_offsets": [8, 0]}},
        {"t": ENTRY | {"data_offsets": [0, 8, 8]}},
        {"t": ENTRY | {"data_offsets": [0, 12]}},
        {"t": ENTRY | {"data_offsets": [4, 12]}},
        {"t": ENTRY | {"data_offsets": [0, 2**80]}},
        {"a": ENTRY, "b": ENTRY},
        {"a": ENTRY, "b": ENTRY | {"data_offsets": [4, 12]}},
        b'{"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "t": {}}',
    ],
    ids=lambda header: str(header)[:40],
)
def test_headers_that_lie(scratch: Path, header: Any) -> None:
    assert code_of(write(scratch, header, bytes(8))) == "DP402"


def test_an_absurd_header_length_reads_nothing(scratch: Path) -> None:
    for length in (HEADER_MAX_BYTES + 1, 2**64 - 1):
        scratch.write_bytes(length.to_bytes(8, "little") + b"{}")
        assert code_of(scratch) == "DP402"


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "a/b", "", "..", "a\0b"])
def test_an_index_may_not_lead_out_of_the_directory(tmp_path: Path, name: str) -> None:
    directory = write_checkpoint(tmp_path / "model", num_shards=2)
    index = directory / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["model.norm.weight"] = name
    index.write_text(json.dumps(document))
    with pytest.raises(DraftproofError) as caught:
        read_directory(directory)
    assert caught.value.code == "DP402"


@pytest.mark.parametrize("weight_map", [None, [], {"a": 1}, {"a": None}, "x"])
def test_an_index_without_a_usable_map(tmp_path: Path, weight_map: Any) -> None:
    directory = write_checkpoint(tmp_path, num_shards=2)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(DraftproofError) as caught:
        read_directory(directory)
    assert caught.value.code == "DP402"


def test_a_missing_shard_and_a_missing_tensor_are_named(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, num_shards=2)
    index = directory / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["no.such.tensor"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(document))
    with pytest.raises(DraftproofError) as caught:
        read_directory(directory)
    assert (caught.value.code, caught.value.field) == ("DP404", "no.such.tensor")
    (directory / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DraftproofError, match="no file model-00002") as caught:
        read_directory(directory)
    assert caught.value.code == "DP401"


@settings(deadline=None, max_examples=200)
@given(
    edits=st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_changed_bytes_end_in_a_header_or_a_refusal(
    sample: Path, scratch: Path, edits: list[tuple[int, int]]
) -> None:
    content = bytearray(sample.read_bytes())
    for place, value in edits:
        content[place] = value
    scratch.write_bytes(content)
    outcome = read_or_code(scratch)
    if isinstance(outcome, str):
        assert outcome == "DP402"
    else:
        assert sum(entry.num_bytes for entry in outcome.values()) <= len(content)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, max_examples=100)
@given(
    header=st.dictionaries(
        st.sampled_from(["__metadata__", "a", "b"]),
        st.fixed_dictionaries({}, optional=dict.fromkeys(("dtype", "shape", "data_offsets"), json_values)),
    )
)
def test_random_headers_end_in_entries_or_a_refusal(scratch: Path, header: dict[str, Any]) -> None:
    write(scratch, header)
    outcome = read_or_code(scratch)
    assert isinstance(outcome, dict) or outcome == "DP402"


def read_or_code(path: Path) -> dict[str, TensorEntry] | str:
    try:
        return read_header(path)
    except DraftproofError as error:
        return error.code
