"""Earlier outputs that later requests of the same scope may draft from. Bounded in outputs and in tokens.

Kept by the suffix proposer. A scope is an API key or a cache salt: text never crosses it. What is dropped first is
the oldest output of the scope that was used least recently. An output that is of use comes again in a newer one,
so age within a scope is a fair stand-in for use. It knows nothing of requests that still run.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from draftproof.proposers.occurrences import Occurrences

MAX_POOL_TOKENS = 131_072
"""Tokens remembered over all scopes: about 60 MiB with their index, 17 MiB in C++."""
BYTES_PER_TOKEN = 480
"""About what a remembered token takes here, with its index."""
MAX_OUTPUT_TOKENS = 16_384
"""Tokens remembered of one output, its last ones."""


class Pool:
    """The remembered outputs of one scope, one text with None between outputs."""

    __slots__ = ("_lengths", "base", "index", "text")

    def __init__(self, sizes: Sequence[int]) -> None:
        self.index = Occurrences(sizes)
        self.text: list[int | None] = []
        self.base = 0
        """Position of `text[0]`."""
        self._lengths: deque[int] = deque()

    @property
    def num_outputs(self) -> int:
        return len(self._lengths)

    @property
    def num_tokens(self) -> int:
        """The None after each output counts: it is held too."""
        return len(self.text)

    def remember(self, output: Sequence[int]) -> None:
        self.text.extend(output)
        self.text.append(None)
        self.index.extend(self.text, self.base)
        self._lengths.append(len(output) + 1)

    def forget_oldest(self) -> None:
        num_tokens = self._lengths.popleft()
        self.index.forget(self.text, self.base, num_tokens)
        del self.text[:num_tokens]
        self.base += num_tokens


class Pools:
    """One pool per scope, the bounds over all of them."""

    def __init__(self, sizes: Sequence[int], max_outputs: int, max_tokens: int = MAX_POOL_TOKENS) -> None:
        self._sizes = tuple(sizes)
        self._max_outputs = max_outputs
        self._max_tokens = max_tokens
        self._scopes: OrderedDict[str, Pool] = OrderedDict()
        self.num_outputs = 0
        self.num_tokens = 0

    def get(self, scope: str) -> Pool | None:
        """The scope's pool, which counts as used now; None if nothing is remembered for it."""
        pool = self._scopes.get(scope)
        if pool is not None:
            self._scopes.move_to_end(scope)
        return pool

    def remember(self, scope: str, output: Sequence[int]) -> None:
        """Adds an output and drops what then is too much."""
        output = output[-min(MAX_OUTPUT_TOKENS, self._max_tokens - 1) :]
        if not output or self._max_outputs < 1:
            return
        pool = self._scopes.setdefault(scope, Pool(self._sizes))
        self._scopes.move_to_end(scope)
        pool.remember(output)
        self.num_outputs += 1
        self.num_tokens += len(output) + 1
        while self.num_outputs > self._max_outputs or self.num_tokens > self._max_tokens:
            self._forget_oldest()

    def num_bytes(self) -> int:
        """About what all of it takes."""
        return self.num_tokens * BYTES_PER_TOKEN

    def shrink(self, most: int) -> None:
        """Forgets outputs until at most `most` bytes are held."""
        while self.num_bytes() > most:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        scope, pool = next(iter(self._scopes.items()))
        before = pool.num_tokens
        pool.forget_oldest()
        self.num_outputs -= 1
        self.num_tokens -= before - pool.num_tokens
        if pool.num_outputs == 0:
            del self._scopes[scope]
