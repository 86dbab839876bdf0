"""One amount of memory that several caches share, each with blocks of its own size.

Made by the engine. A `BlockPool` draws bytes for a block when it first uses it, so a target's and a drafter's cache
meet in the middle, wherever that is. What is held for good (a drafter's weights) is reserved. Knows no models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Sharer(Protocol):
    """A pool that draws from the budget and can give back what it holds without need."""

    @property
    def num_free_bytes(self) -> int:
        """Held for blocks without contents."""
        ...

    @property
    def num_cached_bytes(self) -> int:
        """Held for blocks that nobody uses and whose contents somebody may want again."""
        ...

    def give_back(self, num_bytes: int, evict: bool) -> None:
        """Returns at least `num_bytes`, or all that it can; from cached blocks only with `evict`."""
        ...


class ByteBudget:
    """`num_bytes` in all. Never more than that is taken and reserved together."""

    def __init__(self, num_bytes: int) -> None:
        assert num_bytes >= 0
        self.num_bytes = num_bytes
        self.num_reserved = 0
        self._num_taken = 0
        self._sharers: list[Sharer] = []

    @property
    def num_unclaimed(self) -> int:
        return self.num_bytes - self.num_reserved - self._num_taken

    def join(self, sharer: Sharer) -> None:
        self._sharers.append(sharer)

    def leave(self, sharer: Sharer) -> None:
        """A pool that goes: everything it holds must be idle, and is given back."""
        sharer.give_back(self.num_bytes, evict=True)
        self._sharers.remove(sharer)

    def reserve(self, num_bytes: int) -> bool:
        """Takes bytes for good, from what no block in use holds; False when there are not so many, and
        then nothing is evicted."""
        if self.num_within_reach(None) < num_bytes or not self._make_room(num_bytes, None, evict=True):
            return False
        self.num_reserved += num_bytes
        return True

    def unreserve(self, num_bytes: int) -> None:
        assert num_bytes <= self.num_reserved
        self.num_reserved -= num_bytes

    def take(self, num_bytes: int, sharer: Sharer, evict: bool) -> bool:
        """Bytes for a block of `sharer`; the other pools give up idle blocks for it (cached ones with `evict`)."""
        if not self._make_room(num_bytes, sharer, evict):
            return False
        self._num_taken += num_bytes
        return True

    def give(self, num_bytes: int) -> None:
        assert num_bytes <= self._num_taken
        self._num_taken -= num_bytes

    def num_within_reach(self, sharer: Sharer | None) -> int:
        """Bytes that `sharer` could take if the other pools gave up all that is idle."""
        others = [other for other in self._sharers if other is not sharer]
        return self.num_unclaimed + sum(other.num_free_bytes + other.num_cached_bytes for other in others)

    def _make_room(self, num_bytes: int, asking: Sharer | None, evict: bool) -> bool:
        for evicting in (False, True) if evict else (False,):
            for sharer in self._sharers:
                if self.num_unclaimed >= num_bytes:
                    return True
                if sharer is not asking:
                    sharer.give_back(num_bytes - self.num_unclaimed, evicting)
        return self.num_unclaimed >= num_bytes


class Account:
    """A `Sharer` without blocks: memory that its owner can do without, as for outputs that are remembered.

    It grows at the expense of what is idle elsewhere, and shrinks where somebody else needs it.
    """

    num_free_bytes = 0

    def __init__(self, budget: ByteBudget, held: Callable[[], int], shrink: Callable[[int], None]) -> None:
        """`held` tells how many bytes there are; `shrink(n)` gives up until there are at most n."""
        self._budget = budget
        self._held = held
        self._shrink = shrink
        self._num_taken = 0
        budget.join(self)

    @property
    def num_cached_bytes(self) -> int:
        return self._num_taken

    def settle(self) -> None:
        """To be called whenever the owner took or freed memory."""
        missing = self._held() - self._num_taken
        if missing > 0 and not self._budget.take(missing, self, evict=True):
            self._shrink(self._num_taken)
            missing = self._held() - self._num_taken
        if missing < 0:
            self._budget.give(-missing)
        self._num_taken += missing

    def give_back(self, num_bytes: int, evict: bool) -> None:
        if evict and num_bytes > 0:
            self._shrink(max(0, self._num_taken - num_bytes))
            self.settle()
