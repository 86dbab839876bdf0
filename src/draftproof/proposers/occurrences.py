"""Where the newest tokens of a text stood before: an index that grows by the token.

The n-gram and suffix proposers keep one per text. For every size n it maps each n-gram to the positions that
followed it, newest first, as the hash chains of LZ77 compressors do (Deutsch, RFC 1951, section 4): one dictionary
entry per size and token, never a scan of the text. A *position* is the index of the token that follows an
occurrence. This module knows texts of token ids and nothing of requests, drafts or models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


class Occurrences:
    """Index over one growing text, which the caller owns and passes in; text once indexed must not change.

    `sizes` are the n-gram sizes that can be looked up. `forget` drops the oldest tokens, so that a text which is
    cut at its front (a bounded pool) needs no rebuilding; positions count from the very first token ever seen.
    """

    __slots__ = ("_latest", "_oldest", "_previous", "num_indexed", "sizes")

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sorted(sizes))
        self.num_indexed = 0
        """Positions below this are indexed."""
        self._oldest = 0
        self._latest: dict[int, dict[tuple[int | None, ...], int]] = {size: {} for size in self.sizes}
        self._previous: dict[int, list[int | None]] = {size: [] for size in self.sizes}

    def extend(self, text: Sequence[int | None], base: int = 0) -> None:
        """Indexes what `text` gained since the last call; `text[0]` has position `base`.

        An n-gram is indexed once a token follows it, so the end of the text never finds itself.
        """
        stop = base + len(text)
        if stop <= self.num_indexed:
            return
        for size in self.sizes:
            latest, previous = self._latest[size], self._previous[size]
            first = max(self.num_indexed, base + size)
            previous.extend([None] * (first - self._oldest - len(previous)))
            window = text[first - base - size : -1]
            shifted = [window[offset:] for offset in range(size)]
            append, last = previous.append, latest.get
            for position, ngram in enumerate(zip(*shifted, strict=False), first):
                append(last(ngram))
                latest[ngram] = position
        self.num_indexed = stop

    def followers(self, size: int, ngram: tuple[int, ...]) -> Iterator[int]:
        """Positions that followed `ngram`, newest first; `size` is its length and one of `sizes`."""
        previous = self._previous[size]
        position = self._latest[size].get(ngram)
        while position is not None and position - size >= self._oldest:
            yield position
            position = previous[position - self._oldest]

    def forget(self, text: Sequence[int | None], base: int, num_tokens: int) -> None:
        """Drops n-grams that touch a token below `base + num_tokens`; `text` still holds those tokens."""
        oldest = base + num_tokens
        for size in self.sizes:
            latest, previous = self._latest[size], self._previous[size]
            for position in range(base + size, min(oldest + size, self.num_indexed)):
                ngram = tuple(text[position - base - size : position - base])
                if latest.get(ngram) == position:
                    del latest[ngram]
            del previous[: oldest - self._oldest]
        self._oldest = oldest

    @property
    def num_entries(self) -> int:
        """Dictionary entries held, over all sizes; for tests of boundedness."""
        return sum(len(latest) for latest in self._latest.values())


class Indexes:
    """An index per request, one for all proposers of a cascade that read the request's own text.

    `take` and `give_back` come in pairs; a request that nobody holds any more is forgotten.
    """

    __slots__ = ("_held", "_sizes")

    def __init__(self, sizes: Iterable[int]) -> None:
        self._sizes = tuple(sorted(set(sizes)))
        self._held: dict[str, tuple[Occurrences, int]] = {}

    def take(self, req_id: str) -> Occurrences:
        index, holders = self._held.get(req_id) or (Occurrences(self._sizes), 0)
        self._held[req_id] = index, holders + 1
        return index

    def give_back(self, req_id: str) -> None:
        index, holders = self._held.pop(req_id)
        if holders > 1:
            self._held[req_id] = index, holders - 1

    def __len__(self) -> int:
        return len(self._held)


def agreement(text: Sequence[int], end: int, other: Sequence[int | None], other_end: int, cap: int) -> int:
    """How many tokens before `text[end]` equal those before `other[other_end]`, at most `cap`."""
    most = min(cap, end, other_end)
    if text[end - most : end] == other[other_end - most : other_end]:
        return most
    length = 0
    while length < most and text[end - 1 - length] == other[other_end - 1 - length]:
        length += 1
    return length


def continuation(text: Sequence[int], position: int, limit: int) -> list[int]:
    """`limit` tokens from `position` on. Where the text ends, the run repeats: a copy that overlaps itself."""
    found = list(text[position : position + limit])
    period = len(found)
    while len(found) < limit:
        found.append(found[-period])
    return found
