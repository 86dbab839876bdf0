"""Whatever a tokenizer's files hold, a view gives a vocabulary, words, or one error with a code; in bounded memory."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.checkpoints.tokenizers.base import MAX_BYTES, MAX_TOKENS
from draftproof.checkpoints.view import open_view
from draftproof.checkpoints.vocabulary import Vocabulary
from draftproof.core.errors import DraftproofError
from support.tokenizers import (
    decoder_of,
    tekken,
    train_sentencepiece,
    write_documents,
    write_tiktoken,
    write_vocab_json,
)

TOKENS = [bytes([byte]) for byte in range(256)]
DOCUMENTS = ("vocab", "tekken", "tokenizer_config", "added_tokens", "special_tokens_map")


@pytest.fixture(scope="module", params=["vocab.json", "tokenizer.model", "tekken.json", "tiktoken.model"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sound")
    documents = {
        "tokenizer_config": decoder_of({500: "<a>"}) | {"bos_token": "<a>"},
        "added_tokens": {"<b>": 501},
        "special_tokens_map": {"eos_token": {"content": "<b>"}},
    }
    write_documents(directory, **documents)
    if request.param == "vocab.json":
        write_vocab_json(directory, 320, **documents)
    elif request.param == "tokenizer.model":
        (directory / request.param).write_bytes(train_sentencepiece())
    elif request.param == "tekken.json":
        write_documents(directory, tekken=tekken(TOKENS, ["<unk>", "<s>"], 4), **documents)
    else:
        write_tiktoken(directory / request.param, dict(enumerate(TOKENS)))
    assert open_view(str(directory)).tokenizer == request.param
    assert isinstance(outcome(directory), Vocabulary)
    return directory


@pytest.fixture
def damaged(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "damaged"))


def outcome(directory: Path) -> Vocabulary | str:
    """The vocabulary, the words why there is none, or a code."""
    view = open_view(str(directory))
    try:
        found = view.vocabulary()
        view.tokenizer_digest()
    except DraftproofError as error:
        return error.code
    return view.tokenizer if found is None else found


def is_handled(found: Vocabulary | str) -> bool:
    return isinstance(found, Vocabulary) or found in ("DP002", "DP402") or "not read" in found


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_damaged_bytes(sound: Path, data: st.DataObject) -> None:
    path = sound / data.draw(st.sampled_from(sorted(item.name for item in sound.iterdir())))
    before = path.read_bytes()
    content = bytearray(before)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(before) - 1))
        change = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if change == "flip":
            content[place % len(content)] = data.draw(st.integers(0, 255))
        elif change == "cut":
            del content[place + 1 :]
        else:
            content[place:place] = data.draw(st.binary(min_size=1, max_size=9))
    path.write_bytes(content)
    try:
        found = outcome(sound)
    finally:
        path.write_bytes(before)
    assert is_handled(found), found


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats()
    | st.text(max_size=4)
    | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_values_of_other_types(sound: Path, data: st.DataObject) -> None:
    present = [name for name in DOCUMENTS if (sound / f"{name}.json").exists()]
    path = sound / f"{data.draw(st.sampled_from(present))}.json"
    before = path.read_bytes()
    document = json.loads(before)
    places = list(_places(document))
    container, key = data.draw(st.sampled_from(places))
    container[key] = data.draw(VALUES)
    path.write_text(json.dumps(document))
    try:
        found = outcome(sound)
    finally:
        path.write_bytes(before)
    assert is_handled(found), found


def _places(value: Any) -> Any:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(inner)[:20]:
        yield value, key
        yield from _places(part)


@pytest.mark.parametrize("kind", ["directory", "fifo", "device", "loop", "dangling", "outside", "empty"])
def test_files_that_are_no_files(damaged: Path, kind: str) -> None:
    names = ("vocab.json", "tokenizer.model", "tekken.json", "tiktoken.model")
    path = next(damaged / name for name in names if (damaged / name).exists())
    (damaged.parent / "outside").write_bytes(path.read_bytes())
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        targets = {"device": "/dev/zero", "loop": path.name, "dangling": "no", "outside": "../outside"}
        path.symlink_to(targets[kind])
    assert outcome(damaged) in ("DP002", "DP402")


def varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


@pytest.mark.parametrize(
    "content",
    [
        b"\x0a",
        b"\x0a" + varint(2**63),
        b"\x0a" + b"\xff" * 11,
        b"\x0a\x05\x0a" + varint(2**31) + b"aa",
        b"\x0a\x03\x0a\x01\xff",
        b"\x0a\x02\x0b\x0c",
        b"\x0a\x00\x0f",
        b"\x0a\x00\x15\x00",
        b"\x0a\x00\x80",
        b"\x0a\x00" + b"\x10\x00" * (MAX_TOKENS + (1 << 10)),
        b"\x0a" + varint(130) + b"\x10\x00" * 65,
    ],
    ids=lambda content: repr(content[:12]),
)  # fmt: skip
def test_pieces_that_lie(tmp_path: Path, content: bytes) -> None:
    (write_documents(tmp_path) / "tokenizer.model").write_bytes(content)
    assert peak_of(tmp_path) < (4 << 20) + 2 * len(content)


@pytest.mark.parametrize(
    "content",
    [
        b"QQ== 0\nQQ== 0\n", b"QQ== 0\nQg== -1\n", b"QQ== 0\nQg==\n", b"QQ== 0\nQ 1\n", b"QQ== 0\n\xff\xfe 1\n",
        b"QQ== 0\nQg== 999999999\n", b"QQ== 0\nQg== 1e3\n", b"QQ== 0 0\n", b"hello", b"<html>",
        b"QQ== 0\n" + b"A" * 9999,
    ],
    ids=lambda content: repr(content[:24]),
)  # fmt: skip
def test_lines_that_lie(tmp_path: Path, content: bytes) -> None:
    (write_documents(tmp_path) / "tiktoken.model").write_bytes(content)
    assert peak_of(tmp_path) < 4 << 20


@pytest.mark.parametrize(
    "changes",
    [
        {"default_num_special_tokens": 2**62},
        {"default_num_special_tokens": -1},
        {"default_vocab_size": MAX_TOKENS + 1},
        {"default_vocab_size": 3},
        {"default_vocab_size": 999},
        {"default_vocab_size": True},
    ],
    ids=str,
)
def test_counts_that_lie(tmp_path: Path, changes: dict[str, int]) -> None:
    document = tekken(TOKENS, ["<unk>"], 4)
    document["config"] |= changes
    write_documents(tmp_path, tekken=document)
    assert peak_of(tmp_path) < 4 << 20


@pytest.mark.parametrize("name", ["vocab.json", "tekken.json", "tokenizer_config.json", "added_tokens.json"])
@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, '{"a": 1, "a": 2}', "3", "{"])
def test_documents_of_every_wrong_kind(tmp_path: Path, name: str, content: str) -> None:
    write_vocab_json(tmp_path, 320)
    (tmp_path / name).write_text(content)
    assert outcome(tmp_path) == "DP402"


def test_files_of_any_length_are_not_read_whole(tmp_path: Path) -> None:
    """A sparse file: its length is all that costs."""
    for name in ("tokenizer.model", "tekken.json", "qwen.tiktoken", "vocab.json"):
        directory = write_documents(tmp_path / name)
        (directory / "merges.txt").write_text("")
        with (directory / name).open("wb") as file:
            file.truncate(1 << 40)
        assert peak_of(directory) < 2 * MAX_BYTES


def peak_of(directory: Path) -> int:
    """Bytes that a refusal of the folder's tokenizer takes."""
    tracemalloc.start()
    found = outcome(directory)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == "DP402"
    return peak


ONE_ID_TWICE: dict[str, dict[str, Any]] = {
    "vocabulary": {"tokenizer": {"model": {"vocab": {"a": 0, "b": 0}}}},
    "added": {
        "tokenizer": {
            "model": {"vocab": {"a": 0}},
            "added_tokens": [{"id": 1, "content": "b"}, {"id": 1, "content": "c"}],
        }
    },
    "vocab.json": {"vocab": {"Ġ": 0, "a": 1, "b": 1}},
    "added_tokens.json": {"vocab": {"Ġ": 0, "a": 1}, "added_tokens": {"<a>": 5, "<b>": 5}},
    "added_tokens_decoder": {
        "vocab": {"Ġ": 0, "a": 1},
        "tokenizer_config": {"added_tokens_decoder": {"3": {"content": "<a>"}, "03": {"content": "<b>"}}},
    },
    "tekken": {
        "tekken": tekken(TOKENS, ["<unk>", "<s>"], 4)
        | {"special_tokens": [{"rank": 1, "token_str": "<a>"}, {"rank": 1, "token_str": "<b>"}]}
    },
}


@pytest.mark.parametrize("place", ONE_ID_TWICE)
def test_two_tokens_under_one_id_are_refused_wherever_they_are_told(place: str, tmp_path: Path) -> None:
    write_documents(tmp_path, config={"model_type": "llama"}, **ONE_ID_TWICE[place])
    (tmp_path / "merges.txt").touch()
    with pytest.raises(DraftproofError, match=r"DP402.*twice"):
        open_view(str(tmp_path)).vocabulary()
