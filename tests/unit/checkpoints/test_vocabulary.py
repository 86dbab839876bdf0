"""Token maps of checkpoints: what each id stands for, and how two of them fit together."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.checkpoints.gguf import open_checkpoint
from draftproof.checkpoints.vocabulary import (
    Vocabulary,
    added_token_bytes,
    byte_of_character,
    bytes_of_token,
    bytes_of_tokens,
    character_of_byte,
    compare,
    parse_gguf_vocabulary,
    parse_vocabulary,
    read_vocabulary,
)
from draftproof.core.errors import DraftproofError
from draftproof.models.tokenizer import load_tokenizer
from support.checkpoints import write_checkpoint, write_gguf
from support.drafters import give_other_ids


def vocabulary(*tokens: bytes | None, special: tuple[int, ...] = ()) -> Vocabulary:
    return Vocabulary(tokens, frozenset(special))


def _document(tmp_path: Path, document: dict[str, Any]) -> Vocabulary:
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    return read_vocabulary(tmp_path)


@pytest.mark.parametrize("write", [write_checkpoint, write_gguf])
def test_tokens_are_those_of_the_tokenizer(write: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", vocab=400)
    found = read_vocabulary(open_checkpoint(path))
    tokenizer = load_tokenizer(open_checkpoint(path))
    expected = [tokenizer.token_bytes(token_id) for token_id in range(len(found.tokens))]
    assert [token or b"" for token in found.tokens] == [
        b"" if token.startswith(b"[PAD") else token for token in expected
    ]
    assert found.special == tokenizer.special_ids == {0, 1, 2}


def test_the_same_tokenizer_fits_in_either_format(tmp_path: Path) -> None:
    files = read_vocabulary(write_checkpoint(tmp_path / "model"))
    gguf = read_vocabulary(open_checkpoint(write_gguf(tmp_path / "model.gguf")))
    fit = compare(files, gguf)
    assert fit.same_ids
    assert fit.covers_target
    assert fit.describe() == "the same vocabulary"


def test_sentencepiece_spells_bytes_and_spaces(tmp_path: Path) -> None:
    unigram = {
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["▁the", -1.5], ["<0x0A>", -3]]},
        "added_tokens": [{"id": 3, "content": "<s>", "special": True}, {"id": 5, "content": "<think>"}],
    }
    found = _document(tmp_path, unigram)
    assert found.tokens == (b"<unk>", b" the", b"\n", b"<s>", None, b"<think>")
    assert found.special == {0, 3}


def test_padded_tails_do_not_matter() -> None:
    short = vocabulary(b"a", b"b", b"<s>", special=(2,))
    long = vocabulary(b"a", b"b", b"<s>", None, None, special=(2,))
    for target, drafter in ((short, long), (long, short)):
        fit = compare(target, drafter)
        assert (fit.same_ids, fit.covers_target) == (True, True)
        assert fit.pairs == ((0, 0), (1, 1), (2, 2))
        assert fit.overlap == 1.0


def test_a_longer_tail_with_tokens_keeps_the_ids() -> None:
    short, long = vocabulary(b"a", b"b"), vocabulary(b"a", b"b", b"c")
    assert compare(short, long).covers_target
    fit = compare(long, short)
    assert (fit.same_ids, fit.covers_target, fit.pairs) == (True, False, ((0, 0), (1, 1)))
    assert "2 of the target's 3" in fit.describe()


def test_other_ids_are_mapped_by_bytes_without_special_tokens() -> None:
    target = vocabulary(b"<s>", b"a", b"b", b"only", b"a", special=(0,))
    drafter = vocabulary(b"b", b"<s>", b"other", b"a", b"", special=(1,))
    fit = compare(target, drafter)
    assert not fit.same_ids
    assert fit.pairs == ((1, 3), (2, 0))  # of equal tokens the lowest id
    assert (fit.num_target, fit.num_drafter, fit.num_shared) == (3, 3, 2)
    assert fit.overlap == pytest.approx(2 / 3)
    assert fit.first_difference == "id 0 is '<s>' in the target and 'b' in the drafter"


def test_reordered_ids_of_a_real_tokenizer(tmp_path: Path) -> None:
    ours = read_vocabulary(write_checkpoint(tmp_path / "target"))
    write_checkpoint(tmp_path / "other", vocab=340)
    give_other_ids(tmp_path / "other")
    theirs = read_vocabulary(tmp_path / "other")
    fit = compare(ours, theirs)
    assert fit.overlap == 1.0  # of the smaller one
    assert all(ours.tokens[target] == theirs.tokens[drafter] for target, drafter in fit.pairs)
    assert len(fit.pairs) == 340 - 3


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"model": {}},
        {"model": {"vocab": 3}},
        {"model": {"vocab": {"a": "x"}}},
        {"model": {"vocab": {"a": 1 << 40}}},
        {"model": {"vocab": {"a": -2}}},
        {"model": {"vocab": [[]]}},
        {"model": {"vocab": {"a": float("inf")}}},
        {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": None}]},
        {"model": {"vocab": {"a": 0}}, "added_tokens": 7},
    ],
)
def test_broken_vocabularies_are_refused(document: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DraftproofError, match="DP402"):
        _document(tmp_path, document)


def test_no_vocabulary_at_all(tmp_path: Path) -> None:
    with pytest.raises(DraftproofError, match="DP405"):
        read_vocabulary(tmp_path)


def test_added_tokens_are_decoded_like_others_unless_special(tmp_path: Path) -> None:
    """Runs of `▁` are added tokens in some SentencePiece vocabularies; both formats mean spaces by them."""
    added = [{"id": 1, "content": "▁▁", "special": False}, {"id": 3, "content": "<s>", "special": True}]
    model = {"type": "BPE", "vocab": {"▁": 0, "▁▁": 1, "a": 2, "<s>": 3}, "merges": []}
    from_json = _document(tmp_path, {"model": model, "added_tokens": added, "decoder": {"type": "Replace"}})
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["▁", "▁▁", "a", "<s>"],
        "tokenizer.ggml.token_type": [1, 4, 1, 3],
    }
    from_gguf = parse_gguf_vocabulary(metadata)
    assert from_json.tokens == from_gguf.tokens == (b" ", b"  ", b"a", b"<s>")
    assert from_json.special == from_gguf.special == {3}


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer.ggml.token_type": 1},
        {"tokenizer.ggml.token_type": [1]},
        {"tokenizer.ggml.tokens": 3},
        {"tokenizer.ggml.tokens": []},
        {"tokenizer.ggml.tokens": [0.5, 1.5]},
        {"tokenizer.ggml.tokens": ["a", 1]},
        {"tokenizer.ggml.token_type": ["1", "3"]},
        {"tokenizer.ggml.token_type": [1, math.nan]},
        {"tokenizer.ggml.token_type": [True, False]},
    ],
)
def test_broken_gguf_vocabularies_are_refused(changes: dict[str, Any]) -> None:
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["a", "b"],
        "tokenizer.ggml.token_type": [1, 1],
    }
    with pytest.raises(DraftproofError, match="DP405"):
        parse_gguf_vocabulary(metadata | changes)


@pytest.mark.parametrize("token", ["<0xZZ>", "<0x+1>", "<0x 1>", "<0x1>", "<0x041>"])
def test_only_two_hexadecimal_digits_are_a_byte(token: str) -> None:
    assert bytes_of_token(token, False) == token.encode()
    assert bytes_of_token("<0xe9>", False) == b"\xe9"


SPELLINGS = st.lists(
    st.one_of(
        st.text(st.sampled_from(sorted(byte_of_character())), max_size=5),
        st.text(max_size=3),
        st.sampled_from(["\0", "Ā", "▁", "<0x0A>"]),
    ),
    max_size=6,
)


@given(tokens=SPELLINGS, is_byte_level=st.booleans())
def test_many_tokens_at_once_are_what_each_is_alone(tokens: list[str], is_byte_level: bool) -> None:
    assert bytes_of_tokens(tokens, is_byte_level) == [
        bytes_of_token(token, is_byte_level) for token in tokens
    ]


def built(tokens: list[bytes | None], special: set[int], is_spelled: bool) -> Vocabulary:
    """As bytes, or as a file in GPT-2's alphabet has them."""
    if not is_spelled:
        return Vocabulary(tokens, frozenset(special))
    characters = character_of_byte()
    spelled = (token if token is None else "".join(characters[byte] for byte in token) for token in tokens)
    return Vocabulary((), frozenset(special), tuple(spelled))


VOCABULARIES = st.builds(
    built,
    st.lists(st.sampled_from([None, b"", b"a", b"b", b"\0", b"a\xc3"]), max_size=6),
    st.sets(st.integers(-1, 7), max_size=2),
    st.booleans(),
)


@given(target=VOCABULARIES, drafter=VOCABULARIES)
def test_how_vocabularies_fit_is_what_their_definition_says(target: Vocabulary, drafter: Vocabulary) -> None:
    both = [
        (token_id, our, their)
        for token_id, (our, their) in enumerate(zip(target.tokens, drafter.tokens, strict=False))
        if our is not None and their is not None
    ]
    ours, theirs = ({}, {})
    for vocabulary, lowest in ((target, ours), (drafter, theirs)):
        for token_id, token in enumerate(vocabulary.tokens):
            if token and token_id not in vocabulary.special:
                lowest.setdefault(token, token_id)
    fit = compare(target, drafter)
    assert fit.same_ids == all(our == their for _, our, their in both)
    if fit.same_ids:
        assert fit.pairs == tuple((token_id, token_id) for token_id, _, _ in both)
    else:
        assert fit.pairs == tuple(sorted((ours[token], theirs[token]) for token in ours if token in theirs))
    assert (fit.num_target, fit.num_drafter) == (len(ours), len(theirs))
    assert fit.num_shared == sum(token in theirs for token in ours)
    assert fit.covers_target == (len(fit.pairs) == sum(token is not None for token in target.tokens))


@given(ours=VOCABULARIES, theirs=VOCABULARIES)
def test_vocabularies_are_equal_by_their_bytes(ours: Vocabulary, theirs: Vocabulary) -> None:
    are_equal = (ours.tokens, ours.special) == (theirs.tokens, theirs.special)
    assert (ours == theirs) == are_equal
    assert not are_equal or hash(ours) == hash(theirs)


@given(
    tokens=st.lists(st.one_of(st.text(st.sampled_from(sorted(byte_of_character())), max_size=3), st.text(max_size=2)),
                    min_size=1, max_size=6, unique=True),
    shift=st.integers(0, 2),
    order=st.randoms(),
    added=st.dictionaries(st.integers(0, 9), st.tuples(st.sampled_from(["<a>", "b é", "Ġ"]), st.booleans())),
    is_byte_level=st.booleans(),
)  # fmt: skip
def test_the_order_of_a_file_does_not_change_what_ids_stand_for(
    tokens: list[str], shift: int, order: Any, added: dict[int, tuple[str, bool]], is_byte_level: bool
) -> None:
    by_id = {token_id + shift: token for token_id, token in enumerate(tokens)}
    expected: dict[int, bytes] = {
        token_id: bytes_of_token(token, is_byte_level) for token_id, token in by_id.items()
    }
    for token_id, (content, is_special) in added.items():
        expected[token_id] = added_token_bytes(content, is_special, is_byte_level)
    shuffled = list(by_id.items())
    order.shuffle(shuffled)
    for pairs in (by_id.items(), shuffled):
        document = {
            "model": {"vocab": {token: token_id for token_id, token in pairs}},
            "added_tokens": [
                {"id": token_id, "content": content, "special": is_special}
                for token_id, (content, is_special) in added.items()
            ],
            "decoder": {"type": "ByteLevel" if is_byte_level else "Metaspace"},
        }
        found = parse_vocabulary("tokenizer.json", json.dumps(document))
        assert found.tokens == tuple(map(expected.get, range(1 + max(expected))))
        assert found.special == {token_id for token_id, (_, is_special) in added.items() if is_special}


@pytest.mark.parametrize(
    "vocab",
    [
        {"a": 0, "b": 1.0},
        {"a": 0, "b": "1"},
        {"a": 0, "b": None},
        {"a": 0, "b": 0},
        {"a": 0, "b": -1},
        {"a": 0, "b": 1 << 40},
        [["a", 0.0], [None, 0.0]],
        [["a", 0.0], [0, 0.0]],
    ],
)
@pytest.mark.parametrize("kind", ["ByteLevel", "Metaspace"])
def test_ids_and_tokens_that_are_none_are_refused(vocab: Any, kind: str) -> None:
    document = {"model": {"vocab": vocab}, "decoder": {"type": kind}}
    with pytest.raises(DraftproofError, match="DP402"):
        parse_vocabulary("tokenizer.json", json.dumps(document))
