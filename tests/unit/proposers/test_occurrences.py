"""The n-gram index against a scan of the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.proposers.occurrences import Indexes, Occurrences, agreement, continuation

texts = st.lists(st.integers(0, 3), max_size=60)


def scan(text: list[int | None], ngram: tuple[int, ...], oldest: int = 0) -> list[int]:
    """Positions of tokens that follow `ngram`, newest first; the n-gram begins at `oldest` or behind."""
    size = len(ngram)
    return [
        p
        for p in range(len(text) - 1, size - 1, -1)
        if tuple(text[p - size : p]) == ngram and p - size >= oldest
    ]


@settings(deadline=None, max_examples=200)
@given(texts, st.lists(st.integers(0, 60), max_size=5), st.sets(st.integers(1, 6), min_size=1))
def test_finds_what_a_scan_finds_however_the_text_grew(
    text: list[int], cuts: list[int], sizes: set[int]
) -> None:
    index = Occurrences(tuple(sizes))
    for cut in sorted(cuts):
        index.extend(text[:cut])
    index.extend(text)
    index.extend(text)
    for size in sizes:
        for start in range(len(text) - size + 1):
            ngram = tuple(text[start : start + size])
            assert list(index.followers(size, ngram)) == scan([*text], ngram)
    assert list(index.followers(min(sizes), (9,) * min(sizes))) == []


@settings(deadline=None, max_examples=200)
@given(st.lists(texts, min_size=1, max_size=8), st.data())
def test_forgetting_equals_never_having_found(parts: list[list[int]], data: st.DataObject) -> None:
    sizes = (1, 2, 4)
    index = Occurrences(sizes)
    kept: list[int | None] = []
    base = 0
    whole: list[int | None] = []
    for part in parts:
        kept += part
        whole += part
        index.extend(kept, base)
        num_gone = data.draw(st.integers(0, len(kept)))
        index.forget(kept, base, num_gone)
        del kept[:num_gone]
        base += num_gone
        for size in sizes:
            for start in range(len(kept) - size + 1):
                ngram = tuple(t for t in kept[start : start + size] if t is not None)
                assert list(index.followers(size, ngram)) == scan(whole, ngram, base)
        assert index.num_entries <= len(sizes) * len(kept)


def test_an_index_is_shared_until_nobody_holds_it() -> None:
    indexes = Indexes((2, 1, 2))
    index = indexes.take("r")
    assert index.sizes == (1, 2)
    assert indexes.take("r") is index
    assert indexes.take("s") is not index
    indexes.give_back("r")
    assert indexes.take("r") is index
    for req_id in ("r", "r", "s"):
        indexes.give_back(req_id)
    assert len(indexes) == 0
    assert indexes.take("r") is not index


def test_the_end_of_the_text_does_not_find_itself() -> None:
    index = Occurrences((2,))
    index.extend([1, 2, 3])
    assert list(index.followers(2, (2, 3))) == []
    index.extend([1, 2, 3, 4])
    assert list(index.followers(2, (2, 3))) == [3]


@pytest.mark.parametrize(
    ("text", "end", "other", "other_end", "cap", "length"),
    [
        ([1, 2, 3], 3, [1, 2, 3], 3, 9, 3),
        ([1, 2, 3], 3, [9, 2, 3, 5], 3, 9, 2),
        ([1, 2, 3], 3, [9, 2, 3, 5], 4, 9, 0),
        ([1, 2, 3], 3, [1, 2, 3], 3, 2, 2),
        ([1, 2, 3], 3, [None, 3], 2, 9, 1),
        ([], 0, [1], 1, 9, 0),
    ],
)
def test_agreement(
    text: list[int], end: int, other: list[int | None], other_end: int, cap: int, length: int
) -> None:
    assert agreement(text, end, other, other_end, cap) == length


def test_continuation_repeats_where_the_text_ends() -> None:
    assert continuation([1, 2, 3, 4], 1, 2) == [2, 3]
    assert continuation([1, 2, 3, 4], 2, 5) == [3, 4, 3, 4, 3]
    assert continuation([1, 2, 3, 4], 3, 3) == [4, 4, 4]
