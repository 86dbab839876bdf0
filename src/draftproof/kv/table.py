"""The blocks of one sequence in one cache: they grow with its tokens, and full ones may be shared.

Used by the engine's scheduler for the target, and by proposers with a cache of their own. A block's contents are
named by a key made of the tenant's scope, the tokens in it, and all tokens before it: equal keys, equal contents.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

from draftproof.kv.cache import BLOCK_SIZE
from draftproof.kv.pool import BlockPool


class PrefixKeys:
    """Keys of the full blocks of one growing list of tokens, each made once. Others share within `scope` only."""

    def __init__(self, scope: str) -> None:
        self._root = hashlib.blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=32).digest()
        self._keys: list[bytes] = []

    def of(self, token_ids: Sequence[int], num_tokens: int) -> list[bytes]:
        """Keys of the blocks that the first `num_tokens` tokens fill."""
        num_blocks = num_tokens // BLOCK_SIZE
        for block in range(len(self._keys), num_blocks):
            tokens = array("q", token_ids[block * BLOCK_SIZE : (block + 1) * BLOCK_SIZE])
            parent = self._keys[-1] if self._keys else self._root
            self._keys.append(hashlib.blake2b(parent + tokens.tobytes(), digest_size=32).digest())
        return self._keys[:num_blocks]


class BlockTable:
    """`block_ids` hold the sequence's tokens in order (see `kv.cache`). `keys` None: nothing is shared."""

    def __init__(self, pool: BlockPool, keys: PrefixKeys | None) -> None:
        self.block_ids: list[int] = []
        self._pool = pool
        self._keys = keys
        self._num_named = 0  # leading blocks whose contents have a key in the pool, or another block has it

    def match(self, token_ids: Sequence[int], limit: int) -> int:
        """Starts the table with shared blocks for as many of the first `limit` tokens as are known; returns those."""
        assert not self.block_ids
        if self._keys is not None:
            self.block_ids.extend(self._pool.share(self._keys.of(token_ids, limit)))
            self._num_named = len(self.block_ids)
        return self._num_named * BLOCK_SIZE

    def grow(self, num_tokens: int) -> bool:
        """Room for `num_tokens` tokens in all; False, and nothing changed, when the blocks cannot be had."""
        missing = BlockPool.blocks_for(num_tokens) - len(self.block_ids)
        if missing > 0:
            block_ids = self._pool.allocate(missing)
            if block_ids is None:
                return False
            self.block_ids.extend(block_ids)
        return True

    def shrink(self, num_tokens: int) -> None:
        """Gives back the blocks that `num_tokens` tokens do not need."""
        num_kept = BlockPool.blocks_for(num_tokens)
        if num_kept < len(self.block_ids):
            self._pool.release(self.block_ids[num_kept:])
            del self.block_ids[num_kept:]
            self._num_named = min(self._num_named, num_kept)

    def remember(self, token_ids: Sequence[int], num_tokens: int) -> None:
        """Offers the blocks that the first `num_tokens` tokens fill to others; they must not change any more."""
        if self._keys is not None and self._num_named < num_tokens // BLOCK_SIZE:
            keys = self._keys.of(token_ids, num_tokens)
            for block in range(self._num_named, len(keys)):
                self._pool.remember(self.block_ids[block], keys[block])
            self._num_named = len(keys)
