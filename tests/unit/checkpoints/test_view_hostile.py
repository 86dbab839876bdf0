"""Whatever lies in a checkpoint's files, a view gives values or one error with a code."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.checkpoints.view import open_view
from draftproof.core.errors import DraftproofError
from support.checkpoints import write_checkpoint, write_gguf
from support.tiny_views import write_view

CODES = ("DP002", "DP401", "DP402", "DP404", "DP405", "DP406", "DP407")
DOCUMENTS = (
    "config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors.index.json",
    "hf_quant_config.json", "chat_template.json",
)  # fmt: skip


def look_at_everything(path: Path) -> DraftproofError | None:
    """Every property by itself: an error of one must not hide another's."""
    errors = []
    try:
        view = open_view(str(path))
    except DraftproofError as error:
        return error
    parts = (
        lambda: view.config, lambda: view.language_config, lambda: view.quantization_config, lambda: view.revision,
        lambda: view.generation_config, lambda: view.tokenizer_config, lambda: view.chat_template, lambda: view.kind,
        lambda: view.tensor_names, lambda: view.tensors, view.vocabulary, view.hashes, lambda: view.remarks,
        lambda: view.integers("d2t"), lambda: view.integers("model.norm.weight"), lambda: view.source,
        lambda: view.tokenizer, view.tokenizer_digest,
    )  # fmt: skip
    for part in parts:
        try:
            part()
        except DraftproofError as error:
            errors.append(error)
    for error in errors:
        assert error.code in CODES, error
    return errors[0] if errors else None


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = write_checkpoint(tmp_path_factory.mktemp("sharded"), num_shards=2, layers=1, vocab=300)
    (directory / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    (directory / "chat_template.json").write_text('{"chat_template": "x"}')
    return directory


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", layers=1, vocab=300)


def mutated(content: bytes, data: st.DataObject) -> bytes:
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"]))
    position = data.draw(st.integers(0, max(0, min(len(content), 4000) - 1)))
    if kind == "cut":
        return content[:position]
    if kind == "insert":
        return content[:position] + data.draw(st.binary(min_size=1, max_size=9)) + content[position:]
    if kind == "repeat":
        return content[:position] + content[max(0, position - 40) :]
    flipped = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        flipped[data.draw(st.integers(0, min(len(content), 4000) - 1))] = data.draw(st.integers(0, 255))
    return bytes(flipped)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_damaged_files_of_a_directory(sharded: Path, data: st.DataObject) -> None:
    path = sharded / data.draw(st.sampled_from(sorted(item.name for item in sharded.iterdir())))
    content = path.read_bytes()
    path.write_bytes(mutated(content, data))
    try:
        look_at_everything(sharded)
    finally:
        path.write_bytes(content)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_damaged_gguf_files(gguf_file: Path, data: st.DataObject) -> None:
    content = gguf_file.read_bytes()
    gguf_file.write_bytes(mutated(content, data))
    try:
        look_at_everything(gguf_file)
    finally:
        gguf_file.write_bytes(content)


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.just(10**400),
        st.floats(),
        st.text(max_size=4),
        st.just("\ud800"),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document, at most a few per list."""
    inner = (
        value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    )
    for key, part in list(inner)[:40]:
        found.append((value, key))
        places(part, found)
    return found


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_values_of_other_types(sharded: Path, data: st.DataObject) -> None:
    path = sharded / data.draw(st.sampled_from(DOCUMENTS))
    content = path.read_bytes()
    document = json.loads(content)
    container, key = data.draw(st.sampled_from(places(document, [])))
    container[key] = data.draw(VALUES)
    path.write_text(json.dumps(document))
    try:
        look_at_everything(sharded)
    finally:
        path.write_bytes(content)


NESTED = ("[" * 100_000, '{"a":' * 100_000, "[" * 900 + "]" * 900)


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"[1, 2]", b"null", b"3", b'"text"', b"{", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b'{"a": 1, "a": 2}',
        b'{"a": ' + b"9" * 10_000 + b"}", *(text.encode() for text in NESTED), b"\0" * 100, b'{"a": "\\ud800"}',
        b'{"model": {"vocab": {"a": 1e999}}}', b'{"weight_map": {"a": 1}}', b'{"weight_map": {"a": "/dev/zero"}}',
        b'{"weight_map": {"a": "../../x.safetensors"}}', b'{"weight_map": {"a": "\\u0000.safetensors"}}',
    ],
    ids=lambda content: content[:12].decode("latin-1"),
)  # fmt: skip
def test_documents_of_every_wrong_kind(sharded: Path, name: str, content: bytes) -> None:
    before = (sharded / name).read_bytes()
    (sharded / name).write_bytes(content)
    try:
        look_at_everything(sharded)
    finally:
        (sharded / name).write_bytes(before)


def test_numbers_that_are_none_are_no_reason_to_refuse_a_file(tmp_path: Path) -> None:
    """Published configurations hold Infinity, as `time_step_limit` of state space models does."""
    (tmp_path / "config.json").write_text('{"time_step_limit": [0.0, Infinity], "a": NaN, "b": 1e999}')
    assert open_view(str(tmp_path)).config["time_step_limit"][1] == float("inf")


@pytest.mark.parametrize("num_bytes", [9, 2**31, 2**62, 2**64 - 1])
def test_lengths_that_lie_cost_no_memory(tmp_path: Path, num_bytes: int) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", num_bytes) + b"{}")
    tracemalloc.start()
    error = look_at_everything(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error is not None
    assert error.code == "DP402"
    assert peak < 4 << 20


def write_header(path: Path, header: dict[str, Any], data: bytes = b"") -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize(
    "header",
    [
        {
            "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            "b": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]},
        },
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [2**62] * 8, "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1] * 9999, "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}},
        {"a": {"dtype": "none", "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}},
        {"a": {"dtype": "F32", "shape": None, "data_offsets": [0, 4]}},
        {"a": None},
        {"a": []},
    ],
    ids=str,
)  # fmt: skip
def test_headers_that_lie(tmp_path: Path, header: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text("{}")
    write_header(tmp_path / "model.safetensors", header, bytes(6))
    error = look_at_everything(tmp_path)
    assert error is not None
    assert error.code == "DP402"


TOKENIZERS = ("tokenizer.json", "tekken.json", "tokenizer.model", "tiktoken.model", "x.tiktoken")
BESIDE = ("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json")
HUGE = 1 << 40
"""Bytes of a file of holes: whoever reads it whole does not come back in this test's time."""


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "chat_template.jinja",
        *TOKENIZERS,
        *BESIDE,
        "merges.txt",
        "vocab.txt",
    ],
)
def test_a_small_file_of_any_size_is_not_written_down(tmp_path: Path, name: str) -> None:
    write_view(tmp_path / "m", {"model_type": "llama"}, tensors={"a.weight": (2, 2)})
    with (tmp_path / "m" / name).open("wb") as file:
        file.truncate(HUGE)
    with pytest.raises(DraftproofError, match="more than"):
        open_view(str(tmp_path / "m")).hashes()


@pytest.mark.parametrize("name", [*TOKENIZERS, *BESIDE])
def test_a_tokenizer_of_any_size_is_neither_hashed_nor_read(tmp_path: Path, name: str) -> None:
    write_view(tmp_path / "m", {"model_type": "llama"}, tensors={"a.weight": (2, 2)})
    if name in BESIDE:
        (tmp_path / "m" / "tiktoken.model").write_bytes(b"YQ== 0\n")
        (tmp_path / "m" / "tokenizer.json").unlink(missing_ok=True)
    with (tmp_path / "m" / name).open("wb") as file:
        file.truncate(HUGE)
    view = open_view(str(tmp_path / "m"))
    for ask in (view.tokenizer_digest, view.vocabulary):
        with pytest.raises(DraftproofError, match=r"DP402.*more than"):
            ask()


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    entry = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    for name in ("one.safetensors", "two.safetensors"):
        write_header(tmp_path / name, entry, bytes(4))
    error = look_at_everything(tmp_path)
    assert error is not None
    assert "which one.safetensors has" in error.found


def test_an_index_and_shards_that_disagree(tmp_path: Path) -> None:
    write_header(tmp_path / "a.safetensors", {})
    index = {"weight_map": {"x": "a.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    error = look_at_everything(tmp_path)
    assert error is not None
    assert error.code == "DP404"


def test_promises_of_endless_shards(tmp_path: Path) -> None:
    write_header(tmp_path / "model-00001-of-99999.safetensors", {})
    assert open_view(str(tmp_path)).tensors == {}
    index = {"weight_map": {str(number): f"{number}.safetensors" for number in range(5000)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    error = look_at_everything(tmp_path)
    assert error is not None
    assert error.code == "DP402"


# Things that are no plain files


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.safetensors", "chat_template.jinja"]
)
@pytest.mark.parametrize("kind", ["directory", "fifo", "device", "loop", "dangling", "outside", "secret"])
def test_files_that_are_no_files(tmp_path: Path, name: str, kind: str) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    if name != "config.json":
        (directory / "config.json").write_text("{}")
    (tmp_path / "outside").write_text("{}")
    path = directory / name
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        targets = {"device": "/dev/zero", "loop": name, "dangling": "nothing", "outside": "../outside"}
        path.symlink_to(targets.get(kind, "/etc/hostname"))
    error = look_at_everything(directory)
    assert error is not None
    assert error.code in ("DP002", "DP402")


@pytest.mark.parametrize("kind", ["fifo", "device", "loop", "text", "empty"])
def test_references_that_are_no_checkpoints(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.gguf"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind in ("text", "empty"):
        path.write_text("hello" if kind == "text" else "")
    else:
        path.symlink_to({"device": "/dev/zero", "loop": "model.gguf"}[kind])
    error = look_at_everything(path)
    assert error is not None
    assert error.code in CODES


@pytest.mark.parametrize("reference", ["", "\0", "a\0b", "x" * 5000, "/" + "x" * 300, "~nobody/x", "\ud800"])
def test_references_that_cannot_be_paths(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DraftproofError) as caught:
        open_view(reference)
    assert caught.value.code in ("DP401", "DP002", "DP414")


def test_a_directory_that_cannot_be_read(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("the superuser reads everything")
    tmp_path.chmod(0)
    try:
        error = look_at_everything(tmp_path)
    finally:
        tmp_path.chmod(0o755)
    assert error is not None
    assert error.code == "DP002"
