"""Safetensors headers and indices: what the library reads, and what hostile files get."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from draftproof.checkpoints import safetensors
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


USUAL = {
    "__metadata__": {"format": "pt"},
    "a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [12, 24]},
    "b.scale": {"dtype": "F32", "shape": [], "data_offsets": [24, 28]},
}
TEXTS = [
    json.dumps(header, separators=separators)
    for header in (USUAL, {name: USUAL[name] for name in list(USUAL)[1:]})
    for separators in ((",", ":"), (", ", ": "))
]


def both_ways(path: Path, text: str, num_bytes: int = 28) -> tuple[Any, Any]:
    """What is read of a header as it is written, and with a line break behind its bracket, which no library writes."""
    data = bytes(num_bytes)
    plain = read_or_code(write(path, text.encode(), data))
    broken = read_or_code(write(path, text.encode().replace(b"{", b"{\n", 1), data))
    if isinstance(broken, dict):
        broken = {name: replace(entry, offset=entry.offset - 1) for name, entry in broken.items()}
    return plain, broken


@pytest.mark.parametrize("text", TEXTS)
def test_headers_are_read_alike_however_they_are_written(scratch: Path, text: str) -> None:
    plain, broken = both_ways(scratch, text)
    assert list(plain.items()) == list(broken.items())
    assert [entry.shape for entry in plain.values()] == [(2, 3), (2, 3), ()]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("28]}}", "28]},}"),
        ("28]}}", "28]}"),
        ("28]}}", "28]},"),
        ("28]}}", "28]}} 0"),
        ("12]},", "12]}},"),
        ("12]},", "12]}"),
        ("[0,12]", "[00,12]"),
        ("[0,12]", "[0,012]"),
        ("[0,12]", "[0,12,]"),
        ("[0,12]", "[0,12.0]"),
        ("[0,12]", "[0,24]"),
        ("[2,3]", "[2,3"),
        ("[2,3]", "[[2,3]]"),
        ("[2,3]", "[02,3]"),
        ("[2,3]", '[2,3],"x":[1]'),
        ("[2,3]", '[2,3],"dtype":"F32"'),
        ('"shape"', '"x":{"shape"'),
        ('"data_offsets"', '"x\\"data_offsets"'),
        ('"data_offsets"', '"x"data_offsets"'),
        ("b.weight", "a.weight"),
        ("b.weight", "__metadata__"),
        ("b.weight", "b\tweight"),
        ("b.weight", "b\\tweight"),
        ("b.weight", "b\\weight"),
        ("b.weight", "ü🎈"),
        ("BF16", "BF17"),
        ("pt", "p}t"),
        ("pt", "p\\t"),
        ('"pt"', '"pt'),
        ('"pt"', "{}"),
        ('"pt"', '"pt","format":"pt"'),
    ],
)
def test_what_is_nearly_usual_is_judged_like_any_other_header(scratch: Path, old: str, new: str) -> None:
    assert old in TEXTS[0]
    plain, broken = both_ways(scratch, TEXTS[0].replace(old, new, 1))
    assert plain == broken


@settings(deadline=None, max_examples=300)
@given(
    text=st.sampled_from(TEXTS),
    edits=st.lists(
        st.tuples(st.integers(0, 300), st.sampled_from([*'{}[]":,0129 -aé\\', ""]), st.booleans()),
        min_size=1,
        max_size=3,
    ),
)
def test_changed_characters_are_judged_alike(
    scratch: Path, text: str, edits: list[tuple[int, str, bool]]
) -> None:
    for place, new, is_inserted in edits:
        at = 1 + place % (len(text) - 1)  # the bracket in front stays
        text = text[:at] + new + text[at if is_inserted else at + 1 :]
    plain, broken = both_ways(scratch, text)
    assert plain == broken


def test_tensors_need_not_be_in_the_order_of_their_bytes(scratch: Path) -> None:
    header = {name: USUAL[name] for name in ("b.scale", "b.weight", "a.weight")}
    plain, broken = both_ways(scratch, json.dumps(header))
    assert list(plain.items()) == list(broken.items())
    assert list(plain) == list(header)


def test_a_thousand_tensors_of_one_kind_are_described_once(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    real = safetensors.parse_json

    def parse(path: Path | str, text: str) -> dict[str, Any]:
        parsed.append(text)
        return real(path, text)

    monkeypatch.setattr(safetensors, "parse_json", parse)
    header = {
        f"layers.{rank}.weight": {"dtype": "U8", "shape": [4], "data_offsets": [4 * rank, 4 * rank + 4]}
        for rank in range(1000)
    }
    assert len(read_header(write(scratch, header, bytes(4000)))) == 1000
    assert [len(text) < 100 for text in parsed] == [True]
