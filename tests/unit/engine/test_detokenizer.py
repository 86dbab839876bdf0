"""Streaming text: whatever tokens split, the deltas joined are the decoded whole, and no delta is taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.engine.detokenizer import Detokenizer

Decode = Callable[[list[int]], str]
SPECIAL = 10**6

TEXTS = st.text(
    st.sampled_from("ab \n")
    | st.sampled_from("äß€字🙂👩🏽\u200d🚀e\u0301\ufffd")
    | st.characters(exclude_categories=["Cs"]),
    max_size=20,
)


def byte_decoder(pieces: Sequence[bytes]) -> Decode:
    """Token ids index `pieces`; SPECIAL is a special token, which has no text."""
    return lambda ids: b"".join(pieces[token] for token in ids if token != SPECIAL).decode("utf-8", "replace")


def split(data: st.DataObject, whole: bytes) -> list[bytes]:
    """`whole` cut anywhere, also within characters."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=len(whole))))
    return [whole[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def deltas_of(decode: Decode, ids: Sequence[int], stop: Sequence[str] = ()) -> list[str]:
    detokenizer = Detokenizer(decode, stop)
    deltas = []
    for token in ids:
        detokenizer.push(token)
        deltas.append(detokenizer.take_delta())
    detokenizer.close()
    return [*deltas, detokenizer.take_delta()]


@settings(deadline=None, max_examples=300)
@given(
    st.data(), TEXTS | st.binary(max_size=24) | st.lists(st.binary(max_size=2), max_size=30).map(b"\xff".join)
)
def test_deltas_join_to_the_decoded_whole(data: st.DataObject, whole: str | bytes) -> None:
    """Any text, any broken bytes, split anywhere, with special tokens between."""
    pieces = split(data, whole.encode() if isinstance(whole, str) else whole)
    ids = list(range(len(pieces)))
    for _ in range(data.draw(st.integers(0, 3))):
        ids.insert(data.draw(st.integers(0, len(ids))), SPECIAL)
    decode = byte_decoder(pieces)
    stop = data.draw(st.lists(st.text("ab \nä🙂", min_size=1, max_size=4), max_size=2))
    assert "".join(deltas_of(decode, ids, stop)) == decode(ids)


@settings(deadline=None, max_examples=200)
@given(st.data(), TEXTS)
def test_a_delta_holds_whole_characters_and_waits_for_nothing_else(data: st.DataObject, text: str) -> None:
    """After each token, what came out is exactly the characters whose last byte has arrived."""
    text = text.replace("\ufffd", "?")
    pieces = split(data, text.encode())
    streamed, num_bytes = "", 0
    for piece, delta in zip(pieces, deltas_of(byte_decoder(pieces), range(len(pieces))), strict=False):
        num_bytes += len(piece)
        streamed += delta
        assert streamed == text.encode()[:num_bytes].decode("utf-8", "ignore")


def test_broken_bytes_without_end_come_out_as_they_arrive() -> None:
    deltas = deltas_of(byte_decoder([b"\xff"]), [0] * 80)
    assert "".join(deltas) == "\ufffd" * 80
    assert len(deltas[-1]) < 40


@pytest.mark.parametrize("word", ["🙂", "é", "字", "\ufffd"])
def test_one_byte_per_token(word: str) -> None:
    pieces = [bytes([byte]) for byte in word.encode()]
    deltas = deltas_of(byte_decoder(pieces), range(len(pieces)))
    assert "".join(deltas) == word
    assert all(delta == "" for delta in deltas[: len(pieces) - 1])


def metaspace_decoder(words: Sequence[str]) -> Decode:
    """As SentencePiece does: words carry their space, and one space at the start of what is decoded is dropped."""

    def decode(ids: list[int]) -> str:
        return "".join(words[token] for token in ids if token != SPECIAL).replace("▁", " ").removeprefix(" ")

    return decode


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(["▁", "▁a", "b", "▁▁", "▁ä", ".", ""]), max_size=60), st.data())
def test_spaces_survive_decoders_that_drop_the_first(words: list[str], data: st.DataObject) -> None:
    ids = list(range(len(words)))
    for _ in range(data.draw(st.integers(0, 20))):
        ids.insert(data.draw(st.integers(0, len(ids))), SPECIAL)
    decode = metaspace_decoder(words)
    assert "".join(deltas_of(decode, ids)) == decode(ids)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 255), max_size=40))
def test_a_real_byte_level_decoder(ids: list[int]) -> None:
    """The alphabet of byte-level BPE, one token per byte, random bytes: valid, unfinished and broken characters."""
    assert "".join(deltas_of(BYTE_LEVEL.decode, ids)) == BYTE_LEVEL.decode(ids)


def _byte_level() -> tokenizers.Tokenizer:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE({character: index for index, character in enumerate(alphabet)}, [])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


BYTE_LEVEL = _byte_level()


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(["▁", "a", "▁a", "字", "🙂", "ä", "\n"]), max_size=30))
def test_a_real_decoder_with_one_token_per_byte(words: list[str]) -> None:
    """As in SentencePiece vocabularies: what they lack is spelt in byte tokens, neighbours decoded together."""
    ids: list[int] = []
    for word in words:
        known = BYTE_FALLBACK.token_to_id(word)
        ids += [known] if known is not None else list(word.encode())
    deltas = deltas_of(BYTE_FALLBACK.decode, ids)
    assert "".join(deltas) == BYTE_FALLBACK.decode(ids) == "".join(words).replace("▁", " ").removeprefix(" ")


def _byte_fallback() -> tokenizers.Tokenizer:
    names = [f"<0x{byte:02X}>" for byte in range(256)] + ["▁", "a", "▁a"]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE({name: index for index, name in enumerate(names)}, [])
    )
    decoders = tokenizers.decoders
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


BYTE_FALLBACK = _byte_fallback()


def test_what_may_become_a_stop_string_is_held_back() -> None:
    pieces = [b"one ", b"E", b"N", b"x", b"EN", b"D more"]
    detokenizer = Detokenizer(byte_decoder(pieces), ["END", "NIL"])
    taken = []
    for token in range(len(pieces)):
        detokenizer.push(token)
        matched = detokenizer.match_stop()
        taken.append((detokenizer.take_delta(), matched))
    assert taken == [("one ", None), ("", None), ("", None), ("ENx", None), ("", None), ("", "END")]
    assert detokenizer.text == "one ENx"


def test_the_stop_string_that_starts_first_wins_then_the_one_named_first() -> None:
    for stop, expected in [(["cd", "bcde"], "bcde"), (["bc", "bcd"], "bc"), (["bcd", "bc"], "bcd")]:
        detokenizer = Detokenizer(byte_decoder([b"abcdef"]), stop)
        detokenizer.push(0)
        assert detokenizer.match_stop() == expected
        assert detokenizer.text == "a"


@pytest.mark.parametrize(
    "pieces",
    [[b"x"], [b"\xff"], [b"\xff", b"\xe2"], [b"x", b"\xff"], [b""]],
    ids=lambda pieces: b"+".join(pieces),
)
@pytest.mark.parametrize("begin", [0, SPECIAL])
@pytest.mark.parametrize("ending", [[], [SPECIAL] * 3])
def test_any_text_decodes_a_bounded_window(pieces: list[bytes], begin: int, ending: list[int]) -> None:
    """Whatever a model repeats: words, broken bytes, special tokens that it was told to ignore."""
    pieces = [b"begin ", *pieces]
    decode_all = byte_decoder(pieces)
    lengths: list[int] = []

    def decode(ids: list[int]) -> str:
        lengths.append(len(ids))
        return decode_all(ids)

    ids = [begin, *([*range(1, len(pieces)), *ending] * 500)]
    assert "".join(deltas_of(decode, ids)) == decode_all(ids)
    assert max(lengths) < 150


@settings(deadline=None, max_examples=300)
@given(st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=3), st.text("abc", max_size=40))
def test_exactly_what_may_become_a_stop_string_is_held_back(stop: list[str], text: str) -> None:
    """By definition: of all proper beginnings of stop strings the longest that the text ends with."""
    detokenizer = Detokenizer(byte_decoder([char.encode() for char in text]), stop)
    taken = ""
    for index in range(len(text)):
        detokenizer.push(index)
        taken += detokenizer.take_delta()
        begun = text[: index + 1]
        longest = max(n for each in stop for n in range(len(each)) if begun.endswith(each[:n]))
        assert taken == begun[: max(len(taken), len(begun) - longest)]
        assert len(taken) >= len(begun) - longest


def test_a_long_stop_string_costs_a_step_per_character() -> None:
    steps: list[object] = []
    slices: list[object] = []

    class Watched(str):
        def __getitem__(self, key: Any) -> str:
            (slices if isinstance(key, slice) else steps).append(key)
            return super().__getitem__(key)

    num_tokens, stop = 2000, Watched("b" * 3000 + "c")
    assert deltas_of(byte_decoder([b"b"]), [0] * num_tokens, [stop])[-1] == "b" * num_tokens
    assert len(steps) < 6 * (num_tokens + len(stop))
    assert len(slices) <= 1
