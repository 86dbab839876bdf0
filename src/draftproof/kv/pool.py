"""Which blocks of one cache are in use, by how many, and which keep contents that may be wanted again.

Sequences hold blocks through a `BlockTable`. Knows block ids and keys of contents; no tokens, no tensors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftproof.kv.budget import ByteBudget
from draftproof.kv.cache import BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """Blocks of a cache by what they are for.

    committed  hold tokens of running requests, or wait for their next one
    draft      needed for drafted tokens alone; taken for one round
    cached     prefixes that nobody uses now: given up, the least recently used first, when blocks are needed
    free       can be had, and hold nothing
    """

    committed: int
    draft: int
    cached: int
    free: int

    @property
    def total(self) -> int:
        return self.committed + self.draft + self.cached + self.free


class BlockPool:
    """Blocks 0 … num_blocks - 1, each in one of four states.

    in use    by one sequence or, where they share a prefix, by several
    cached    used by nobody; its contents are known by key and can be used again until it is given up
    free      its contents are nobody's
    unbacked  free, and without memory: it takes `block_bytes` of `budget` when it is used

    `discard` gives the memory of blocks back to the system when the budget needs it elsewhere.
    """

    def __init__(
        self,
        num_blocks: int,
        block_bytes: int = 1,
        budget: ByteBudget | None = None,
        discard: Callable[[Sequence[int]], None] = lambda block_ids: None,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_bytes = block_bytes
        self._budget = budget if budget is not None else ByteBudget(num_blocks * block_bytes)
        self._discard = discard
        self._unbacked = list(range(num_blocks - 1, -1, -1))
        self._free: list[int] = []
        self._num_users: dict[int, int] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()  # the least recently used first
        self._keys: dict[int, bytes] = {}
        self._by_key: dict[bytes, int] = {}
        self._budget.join(self)

    @staticmethod
    def blocks_for(num_tokens: int) -> int:
        return -(-num_tokens // BLOCK_SIZE)

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` can give, cached ones included."""
        reachable = self._budget.num_within_reach(self) // self.block_bytes
        return len(self._free) + len(self._cached) + min(len(self._unbacked), reachable)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_in_use(self) -> int:
        return len(self._num_users)

    @property
    def capacity(self) -> int:
        """Blocks that one sequence could have if every pool of the budget were idle."""
        return min(self.num_blocks, (self._budget.num_bytes - self._budget.num_reserved) // self.block_bytes)

    def allocate(self, num_blocks: int) -> list[int] | None:
        """`num_blocks` block ids, or None when there are not so many (nothing is taken then).

        Free blocks go first, then memory that nobody holds, then what other pools hold for nothing, then this
        pool's own cached blocks, then those of other pools.
        """
        if num_blocks > self.num_free:
            return None
        taken = [self._take() for _ in range(num_blocks)]
        for block_id in taken:
            self._num_users[block_id] = 1
        return taken

    def release(self, block_ids: Sequence[int]) -> None:
        """One user less for each. The last of a sequence's blocks are the first to be given up."""
        for block_id in reversed(block_ids):
            left = self._num_users[block_id] - 1
            if left:
                self._num_users[block_id] = left
                continue
            del self._num_users[block_id]
            if block_id in self._keys:
                self._cached[block_id] = None
            else:
                self._free.append(block_id)

    def remember(self, block_id: int, key: bytes) -> None:
        """Names the contents of a block in use, which will not change any more. The first block of a key keeps it."""
        assert block_id in self._num_users
        if key not in self._by_key and block_id not in self._keys:
            self._by_key[key] = block_id
            self._keys[block_id] = key

    def num_known(self, keys: Sequence[bytes]) -> int:
        """How many of `keys`, from the first on without a gap, have a block."""
        for count, key in enumerate(keys):
            if key not in self._by_key:
                return count
        return len(keys)

    def share(self, keys: Sequence[bytes]) -> list[int]:
        """The blocks of the first keys that are known, with one user more each."""
        block_ids = [self._by_key[key] for key in keys[: self.num_known(keys)]]
        for block_id in block_ids:
            self._cached.pop(block_id, None)
            self._num_users[block_id] = self._num_users.get(block_id, 0) + 1
        return block_ids

    # ---- what the budget asks (see `Sharer`) -----------------------------------------------------------

    @property
    def num_free_bytes(self) -> int:
        return len(self._free) * self.block_bytes

    @property
    def num_cached_bytes(self) -> int:
        return len(self._cached) * self.block_bytes

    def give_back(self, num_bytes: int, evict: bool) -> None:
        num_blocks = -(-num_bytes // self.block_bytes)
        while evict and self._cached and len(self._free) < num_blocks:
            self._free.append(self._evict())
        given = [self._free.pop() for _ in range(min(num_blocks, len(self._free)))]
        if given:
            self._discard(given)
            self._unbacked.extend(given)
            self._budget.give(len(given) * self.block_bytes)

    def _take(self) -> int:
        if self._free:
            return self._free.pop()
        if self._unbacked and self._budget.take(self.block_bytes, self, evict=False):
            return self._unbacked.pop()
        if self._cached:
            return self._evict()
        backed = self._budget.take(self.block_bytes, self, evict=True)
        assert backed, "num_free counted a block that cannot be had"
        return self._unbacked.pop()

    def _evict(self) -> int:
        block_id, _ = self._cached.popitem(last=False)
        del self._by_key[self._keys.pop(block_id)]
        return block_id
