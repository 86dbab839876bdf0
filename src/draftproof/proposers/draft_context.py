"""What a drafter with a cache of its own has read of one request, and how far its cache follows the text.

Used by `draft_model` alone. The engine does not say what became of a draft: the request's text does. So a drafter that
was not asked for a while (another proposer drafted, nothing was drafted, the request was preempted) simply lags, and
catches up with the text when it is asked next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from draftproof.kv.table import BlockTable
from draftproof.models.tokenizer import Tokenizer
from draftproof.proposers.base import SequenceView


class Context(Protocol):
    """The request's text in the drafter's tokens."""

    def read(self, sequence: SequenceView) -> tuple[Sequence[int], int] | None:
        """The tokens, and the first index at which they may differ from the last call's; None while the text
        cannot be said in the drafter's tokens (it ends within a character)."""
        ...

    def num_tokens(self, sequence: SequenceView) -> int:
        """How many tokens `read` would give, or about so many."""
        ...


class SameTokens:
    """Target and drafter share ids: the text is the engine's own list, or its end."""

    def __init__(self, tail: int | None = None) -> None:
        """`tail`: tokens that are read at most of what stands there when the first draft is asked for."""
        self._tail = tail
        self._start: int | None = None if tail else 0

    def read(self, sequence: SequenceView) -> tuple[Sequence[int], int] | None:
        ids = sequence.token_ids
        if self._start is None:
            assert self._tail is not None
            self._start = max(0, len(ids) - self._tail)
        if self._start:
            ids = ids[self._start :]
        return ids, len(ids)

    def num_tokens(self, sequence: SequenceView) -> int:
        num_tokens = len(sequence.token_ids)
        if self._start is None:
            assert self._tail is not None
            return min(num_tokens, self._tail)
        return num_tokens - self._start


class MappedTokens:
    """Another vocabulary: token by token while each has a counterpart, else tokenised again from the output's text.

    The prompt is tokenised once, by itself.
    """

    def __init__(
        self, target: Tokenizer, target_bos: int | None, drafter: Tokenizer, to_drafter: Mapping[int, int]
    ) -> None:
        self._target = target
        self._target_bos = target_bos
        self._drafter = drafter
        self._to_drafter = to_drafter
        self._prompt: list[int] | None = None
        self._ids: list[int] = []
        self._num_read = 0

    def read(self, sequence: SequenceView) -> tuple[Sequence[int], int] | None:
        if self._prompt is None:
            self._prompt = self._encode_prompt(sequence.token_ids[: sequence.num_prompt])
            self._ids, self._num_read = list(self._prompt), sequence.num_prompt
        news = sequence.token_ids[self._num_read :]
        mapped = [self._to_drafter.get(token) for token in news]
        first_changed = len(self._ids)
        if None in mapped:
            output = self._encode_output(sequence.token_ids[sequence.num_prompt :])
            if output is None:
                return None
            ids = self._prompt + output
            first_changed = num_equal(ids, self._ids)
            self._ids = ids
        else:
            self._ids.extend(token for token in mapped if token is not None)
        self._num_read = len(sequence.token_ids)
        return (self._ids, first_changed) if self._ids else None

    def num_tokens(self, sequence: SequenceView) -> int:
        return len(self._ids) + len(sequence.token_ids) - self._num_read

    def _encode_prompt(self, token_ids: list[int]) -> list[int]:
        """With the beginning that the drafter was taught; the target's own, a BOS token, is no text."""
        if token_ids[0] == self._target_bos:
            token_ids = token_ids[1:]
        return self._drafter.encode(self._target.decode(token_ids, skip_special=False), add_special=True)

    def _encode_output(self, token_ids: list[int]) -> list[int] | None:
        try:
            text = b"".join(map(self._target.token_bytes, token_ids)).decode()
        except UnicodeDecodeError:
            return None
        return self._drafter.encode(text)


@dataclass(slots=True)
class CachedRequest:
    """One request's part of the drafter's cache.

    context      what the drafter reads
    table        the cache blocks; it shares prefixes only where the context's tokens never change
    token_ids    its tokens as of the last `follow`
    num_cached   how many of them have keys and values in the cache
    is_stopped   drafts no more
    """

    context: Context
    table: BlockTable
    token_ids: Sequence[int] = ()
    num_cached: int = 0
    is_stopped: bool = False
    _fed: list[int] = field(default_factory=list)
    """Drafted tokens that lie in the cache behind the first `num_cached` tokens."""

    def follow(self, sequence: SequenceView) -> bool:
        """Takes in what the text became; False when there is nothing to draft from.

        Drafted tokens that came true stay in the cache; the last token of the text is always left to compute, for
        its logits are what a draft begins with.
        """
        read = self.context.read(sequence)
        if read is None:
            return False
        self.token_ids, first_changed = read
        if first_changed >= self.num_cached:
            self.num_cached += num_equal(self._fed, self.token_ids, self.num_cached)
        else:
            self.num_cached = first_changed
        self._fed.clear()
        if not self.table.block_ids:
            self.num_cached = self.table.match(self.token_ids, len(self.token_ids) - 1)
        self.num_cached = min(self.num_cached, len(self.token_ids) - 1)
        return True

    def computed(self, num_tokens: int) -> None:
        """So many more tokens of the text are in the cache; whole blocks of them may be shared from now on."""
        self.num_cached += num_tokens
        self.table.remember(self.token_ids, self.num_cached)

    def release(self) -> bool:
        """Gives the cache blocks up: everything is to be computed again. Whether there were any."""
        had_blocks = bool(self.table.block_ids)
        self.table.shrink(0)
        self.num_cached = 0
        self._fed.clear()
        return had_blocks

    @property
    def num_missing(self) -> int:
        """Tokens of the text that are still to compute, at least one after `follow`."""
        return len(self.token_ids) - self.num_cached

    @property
    def num_fed(self) -> int:
        return len(self._fed)

    def feed(self, drafted: int) -> None:
        """A drafted token was computed into the cache, behind the text and those before it."""
        self._fed.append(drafted)


def num_equal(first: Sequence[int], second: Sequence[int], start: int = 0) -> int:
    """How many tokens of `first` equal those of `second` from `start` on, one after the other."""
    for index, token in enumerate(first):
        if start + index >= len(second) or token != second[start + index]:
            return index
    return len(first)
