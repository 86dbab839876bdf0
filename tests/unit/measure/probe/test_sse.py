"""The decoder of server-sent events: any cutting into pieces gives the same events."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.measure.probe.sse import EventDecoder, EventTooLargeError


def decode(pieces: list[bytes], max_chars: int = 1000) -> list[str]:
    decoder = EventDecoder(max_chars)
    return [data for piece in pieces for data in decoder.feed(piece)]


STREAM = "\ufeffdata: eins\n\n: comment\ndata:zwei\r\ndata:  zwo\r\n\r\nevent: x\nid: 7\nretry: 1\ndata\n\n"
STREAM += "data: ä€😀\r\r"
EVENTS = ["eins", "zwei\n zwo", "", "ä€😀"]


@given(cuts=st.lists(st.integers(0, len(STREAM.encode())), max_size=12))
@settings(max_examples=150, deadline=None)
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    data = STREAM.encode()
    edges = [0, *sorted(cuts), len(data)]
    assert decode([data[a:b] for a, b in itertools.pairwise(edges)]) == EVENTS


def test_an_event_without_data_is_none() -> None:
    assert decode([b"event: ping\n\n:\n\n\n\n"]) == []


def test_a_cut_event_is_told() -> None:
    decoder = EventDecoder(100)
    assert list(decoder.feed(b"data: one\n\ndata: tw")) == ["one"]
    assert decoder.is_within_event
    assert list(decoder.feed(b"o\n\n")) == ["two"]
    assert not decoder.is_within_event


@pytest.mark.parametrize("piece", [b"x" * 101, b"data: " + b"y" * 96, b"data: abc\n" * 40])
def test_an_endless_event_is_refused(piece: bytes) -> None:
    with pytest.raises(EventTooLargeError):
        decode([piece], max_chars=100)


def test_bytes_that_are_no_text_do_not_raise() -> None:
    assert decode([b"data: \xff\xfe\n\n"]) == ["\ufffd\ufffd"]
