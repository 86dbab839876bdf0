"""GGUF headers: what the library reads, and what hostile files get."""

from __future__ import annotations

import os
import struct
import tracemalloc
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.checkpoints.folder import LocalFolder
from draftproof.checkpoints.gguf import (
    HEADER_MAX_BYTES,
    TENSOR_TYPES,
    GgufFile,
    open_checkpoint,
    read_gguf,
)
from draftproof.checkpoints.gguf_cursor import MAX_ARRAY_ELEMENTS, Cursor, StoredArray
from draftproof.core.errors import DraftproofError
from support.checkpoints import write_gguf
from support.specs import K_QUANT, TINY


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", TINY, "Q4_1", layers=1, vocab=300)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch") / "hostile.gguf"


def refusal(path: Path, content: bytes) -> DraftproofError:
    path.write_bytes(content)
    with pytest.raises(DraftproofError) as caught:
        read_gguf(path)
    return caught.value


def header(num_tensors: int, num_keys: int, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys) + rest


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def test_reads_what_the_library_reads(tmp_path: Path) -> None:
    kinds = {
        "ffn_down.weight": "Q6_K",
        "attn_q.weight": "Q4_K",
        "token_embd.weight": "Q8_0",
        "ffn_up.weight": "BF16",
    }
    path = write_gguf(tmp_path / "model.gguf", K_QUANT, kinds)
    file, reader = read_gguf(path), gguf.GGUFReader(path)
    assert {name for name in reader.fields if not name.startswith("GGUF.")} == set(file.metadata)
    for name, value in file.metadata.items():
        assert value == reader.fields[name].contents(), name
    assert [tensor.name for tensor in reader.tensors] == list(file.tensors)
    for tensor in reader.tensors:
        ours = file.tensors[tensor.name]
        assert ours.type_name == tensor.tensor_type.name
        assert ours.shape == tuple(reversed(tensor.shape.tolist()))
        assert (ours.offset, ours.num_bytes) == (tensor.data_offset, tensor.n_bytes)


def test_all_metadata_types(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    values: dict[str, tuple[str, Any]] = {
        "u8": ("uint8", 255), "i8": ("int8", -128), "u16": ("uint16", 65535), "i16": ("int16", -5),
        "u32": ("uint32", 2**32 - 1), "i32": ("int32", -1), "u64": ("uint64", 2**64 - 1), "i64": ("int64", -(2**63)),
        "f32": ("float32", 0.5), "f64": ("float64", 0.1), "bool": ("bool", True), "string": ("string", "Straße"),
        "words": ("array", ["a", "ß", ""]), "numbers": ("array", [1, 2, 3]),
    }  # fmt: skip
    for name, (kind, value) in values.items():
        getattr(writer, f"add_{kind}")(name, value)
    writer.add_tensor("t", np.zeros(3, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = read_gguf(path).metadata
    assert {name: metadata[name] for name in values} == {name: value for name, (_, value) in values.items()}


def array_of_strings(key: bytes, texts: list[bytes]) -> bytes:
    return string(key) + struct.pack("<IIQ", 9, 8, len(texts)) + b"".join(map(string, texts))


def read_arrays(metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value.elements() if isinstance(value, StoredArray) else value for key, value in metadata.items()
    }


@pytest.mark.parametrize("longest", [0, 1, 299, 300])
def test_long_arrays_stay_in_the_file_until_they_are_asked_for(sample: Path, longest: int) -> None:
    whole = read_gguf(sample)
    file = read_gguf(sample, longest_read=longest)
    for key, value in whole.metadata.items():
        stays = isinstance(value, list) and len(value) > longest
        assert isinstance(file.metadata[key], StoredArray) == stays, key
    assert read_arrays(file.metadata) == whole.metadata
    assert file.tensors == whole.tensors


def test_the_text_of_long_arrays_is_judged_when_it_is_read_their_bounds_at_once(scratch: Path) -> None:
    scratch.write_bytes(header(0, 1, array_of_strings(b"k", [b"a", b"\xff"])) + bytes(8))
    array = read_gguf(scratch, longest_read=1).metadata["k"]
    assert len(array) == 2
    with pytest.raises(DraftproofError, match="DP402"):
        array.elements()
    scratch.write_bytes(header(0, 1, array_of_strings(b"k", [b"a", b"ff"]))[:-1])
    with pytest.raises(DraftproofError, match="DP402"):
        read_gguf(scratch, longest_read=1)


@pytest.mark.parametrize("longest", [0, MAX_ARRAY_ELEMENTS])
def test_a_file_that_is_cut_off_while_it_is_read_ends_in_a_refusal(
    sample: Path, scratch: Path, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever that is: before the first byte was read or at any later read. A mapping would end the process."""
    scratch.write_bytes(sample.read_bytes())
    size = scratch.stat().st_size

    def shrinking(folder: LocalFolder, name: str) -> int:
        os.truncate(scratch, 100)
        return size

    monkeypatch.setattr(LocalFolder, "size", shrinking)
    with pytest.raises(DraftproofError, match=r"DP402.*100 bytes"):
        read_gguf(scratch, longest_read=longest)


@pytest.mark.parametrize("longest", [0, MAX_ARRAY_ELEMENTS])
def test_what_was_read_of_a_header_stands_when_the_file_is_cut_off(
    sample: Path, scratch: Path, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch.write_bytes(sample.read_bytes())

    class Cutting(Cursor):
        def take(self, num_bytes: int) -> bytes:
            os.truncate(scratch, 0)
            return super().take(num_bytes)

    monkeypatch.setattr("draftproof.checkpoints.gguf.Cursor", Cutting)
    assert read_arrays(read_gguf(scratch, longest_read=longest).metadata) == read_gguf(sample).metadata


def sparse(path: Path, lengths: list[int], *, as_array: bool) -> Path:
    """A file whose strings of these lengths are holes."""
    with path.open("wb") as file:
        file.write(header(0, 1 if as_array else len(lengths)))
        if as_array:
            file.write(string(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, len(lengths)))
        for number, length in enumerate(lengths):
            key = b"" if as_array else string(b"k%d" % number) + struct.pack("<I", 8)
            file.write(key + struct.pack("<Q", length))
            file.seek(length, os.SEEK_CUR)
        file.truncate(file.tell() + 64)
    return path


@pytest.mark.parametrize("longest", [0, MAX_ARRAY_ELEMENTS])
@pytest.mark.parametrize(
    ("lengths", "as_array"), [([1 << 24] * 64, False), ([1 << 24] * 20, True), ([1 << 16] * 4096, True)]
)
def test_headers_of_holes_cost_bounded_memory(
    scratch: Path, lengths: list[int], as_array: bool, longest: int
) -> None:
    sparse(scratch, lengths, as_array=as_array)
    tracemalloc.start()
    try:
        with pytest.raises(DraftproofError, match="DP402"):
            read_gguf(scratch, longest_read=longest)
        assert tracemalloc.get_traced_memory()[1] < 4 * HEADER_MAX_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("longest", [0, MAX_ARRAY_ELEMENTS])
def test_a_long_header_is_read_piece_by_piece_and_no_byte_twice(
    sample: Path, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the first piece ends: in a number, a string, an array, a tensor's name or shape."""
    whole = read_gguf(sample)
    length = min(tensor.offset for tensor in whole.tensors.values())
    read: list[tuple[int, int]] = []
    read_range = LocalFolder.read_range

    def recorded(folder: LocalFolder, name: str, start: int, num_bytes: int) -> bytes:
        read.append((start, num_bytes))
        return read_range(folder, name, start, num_bytes)

    monkeypatch.setattr(LocalFolder, "read_range", recorded)
    for first in [*range(8, 600, 3), *range(600, length - 300, 61), *range(length - 300, length - 40, 7)]:
        monkeypatch.setattr("draftproof.checkpoints.gguf._FIRST_PART_HERE", HEADER_MAX_BYTES // first)
        read.clear()
        file = read_gguf(sample, longest_read=longest)
        assert read_arrays(file.metadata) == whole.metadata
        assert file.tensors == whole.tensors
        assert len(read) > 1
        assert [start for start, _ in read] == [0, *accumulate(num_bytes for _, num_bytes in read)][:-1]


def test_the_tensor_that_is_there_twice_is_named(scratch: Path) -> None:
    infos = [(b"a", 0), (b"b", 32), (b"c", 64), (b"b", 96)]
    content = header(4, 0, b"".join(tensor_info(name, [8], 0, offset) for name, offset in infos))
    assert "'b' twice" in str(refusal(scratch, content + bytes(256)))


def test_type_table_agrees_with_the_library() -> None:
    for number, (name, block_size, block_bytes) in TENSOR_TYPES.items():
        quant_type = gguf.GGMLQuantizationType(number)
        assert (quant_type.name, gguf.GGML_QUANT_SIZES[quant_type]) == (name, (block_size, block_bytes))


def test_open_checkpoint_knows_files_by_content(sample: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "blob"
    renamed.write_bytes(sample.read_bytes())
    opened = open_checkpoint(renamed)
    assert isinstance(opened, GgufFile)


def test_every_truncation_is_noticed(sample: Path, scratch: Path) -> None:
    content = sample.read_bytes()
    for length in [*range(0, 400), *range(400, len(content), 997), len(content) - 1]:
        scratch.write_bytes(content[:length])
        with pytest.raises(DraftproofError) as caught:
            read_gguf(scratch)
        assert caught.value.code == "DP402", length


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "DP402"),
        (b"GGUF", "DP402"),
        (b"PK\x03\x04" + bytes(100), "DP402"),
        (header(1, 0, version=1), "DP406"),
        (header(1, 0, version=0x03000000), "DP406"),
        (header(2**63, 0), "DP402"),
        (header(0, 2**63), "DP402"),
        (header(0, 1, struct.pack("<Q", 2**62)), "DP402"),
        (header(0, 1, string(b"k") + struct.pack("<IQ", 8, 2**40)), "DP402"),
        (header(0, 1, string(b"k") + struct.pack("<IIQ", 9, 4, 2**60)), "DP402"),
        (header(0, 1, string(b"k") + struct.pack("<IIQ", 9, 8, MAX_ARRAY_ELEMENTS)), "DP402"),
        (header(0, 1, string(b"k") + struct.pack("<IIQ", 9, 9, 1) + bytes(64)), "DP402"),
        (header(0, 1, string(b"k") + struct.pack("<I", 77)), "DP402"),
        (header(0, 2, (string(b"k") + struct.pack("<IB", 0, 1)) * 2), "DP402"),
        (header(0, 1, string(b"\xff") + struct.pack("<IB", 0, 1)), "DP402"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_headers_that_lie(scratch: Path, content: bytes, code: str) -> None:
    assert refusal(scratch, content + bytes(8)).code == code


def tensor_info(name: bytes, dims: list[int], kind: int, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


@pytest.mark.parametrize(
    ("infos", "code"),
    [
        ([(b"t", [2**62, 2**62], 0, 0)], "DP402"),
        ([(b"t", [8], 0, 2**63)], "DP402"),
        ([(b"t", [8], 0, 4)], "DP402"),
        ([(b"t", [0], 0, 0)], "DP402"),
        ([(b"t", [], 0, 0)], "DP402"),
        ([(b"t", [1, 1, 1, 1, 1], 0, 0)], "DP402"),
        ([(b"t", [33], 2, 0)], "DP402"),
        ([(b"t", [32], 20, 0)], "DP406"),
        ([(b"t", [8], 0, 0), (b"t", [8], 0, 32)], "DP402"),
        ([(b"a", [16], 0, 0), (b"b", [8], 0, 32)], "DP402"),
    ],
)
def test_tensors_that_lie(scratch: Path, infos: list[tuple[bytes, list[int], int, int]], code: str) -> None:
    content = header(len(infos), 0, b"".join(tensor_info(*info) for info in infos)) + bytes(256)
    assert refusal(scratch, content).code == code


def test_alignment_must_be_a_power_of_two(scratch: Path) -> None:
    for alignment in (0, 3, 2**31):
        content = header(0, 1, string(b"general.alignment") + struct.pack("<II", 4, alignment)) + bytes(8)
        assert refusal(scratch, content).code == "DP402"


def edits(num_bytes: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Places and new values of bytes, most of them in the header's first kilobyte."""
    place = st.one_of(st.integers(0, min(1023, num_bytes - 1)), st.integers(0, num_bytes - 1))
    return st.lists(st.tuples(place, st.integers(0, 255)), min_size=1, max_size=8)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_changed_bytes_end_in_a_header_or_a_refusal(sample: Path, scratch: Path, data: st.DataObject) -> None:
    content = bytearray(sample.read_bytes())
    for place, value in data.draw(edits(len(content))):
        content[place] = value
    scratch.write_bytes(content)
    outcome = read_or_code(scratch)
    assert repr(outcome) == repr(read_or_code(scratch, longest_read=2))
    if isinstance(outcome, str):
        assert outcome in ("DP402", "DP406")
    else:
        assert all(0 < t.num_bytes <= len(content) - t.offset for t in outcome.tensors.values())


@settings(deadline=None, max_examples=200)
@given(rest=st.binary(max_size=400), num_tensors=st.integers(0, 3), num_keys=st.integers(0, 3))
def test_random_bytes_end_in_a_header_or_a_refusal(
    scratch: Path, rest: bytes, num_tensors: int, num_keys: int
) -> None:
    scratch.write_bytes(header(num_tensors, num_keys, rest))
    outcome = read_or_code(scratch)
    assert repr(outcome) == repr(read_or_code(scratch, longest_read=2))
    assert isinstance(outcome, GgufFile) or outcome in ("DP402", "DP406")


def read_or_code(path: Path, longest_read: int = MAX_ARRAY_ELEMENTS) -> GgufFile | str:
    """What the file holds once every array was asked for."""
    try:
        file = read_gguf(path, longest_read=longest_read)
        return replace(file, metadata=read_arrays(file.metadata))
    except DraftproofError as error:
        return error.code
