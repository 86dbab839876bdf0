"""Paged key/value storage and its bookkeeping. Knows no models, only their shapes.

A sequence's token at position t lies in block `block_ids[t // BLOCK_SIZE]` at offset `t % BLOCK_SIZE`. Rolling
back a rejected draft is bookkeeping: the committed length is what counts, slots behind it are overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK_SIZE = 32
"""Tokens per block. Native kernels are compiled for this number (`DP_BLOCK_SIZE`)."""


class KVCache:
    """The storage of one model: `data` [num_layers, num_blocks, 2, num_kv_heads, BLOCK_SIZE, head_dim], keys first."""

    def __init__(
        self, num_layers: int, num_blocks: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> None:
        self.num_blocks = num_blocks
        # Pages are touched on first use only, so an idle cache costs address space, not memory.
        self.data = torch.empty((num_layers, num_blocks, 2, num_kv_heads, BLOCK_SIZE, head_dim), dtype=dtype)

    @staticmethod
    def block_bytes(num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers."""
        return num_layers * 2 * num_kv_heads * BLOCK_SIZE * head_dim * dtype.itemsize

    def compact(self, block_ids: Sequence[int], context_len: int, path: Sequence[int]) -> None:
        """Moves the accepted rows of a tree into consecutive slots.

        `path` holds segment rows of the accepted nodes in order (row k lies at slot context_len + k); afterwards
        the j-th of them lies at slot context_len + 1 + j. The root (row 0) is in place already.
        """
        for depth, row in enumerate(path):
            source, target = context_len + row, context_len + 1 + depth
            assert source >= target
            if source != target:
                self.slot(block_ids, target).copy_(self.slot(block_ids, source))

    def slot(self, block_ids: Sequence[int], position: int) -> Tensor:
        """View of one token's keys and values, [num_layers, 2, num_kv_heads, head_dim]."""
        return self.data[:, block_ids[position // BLOCK_SIZE], :, :, position % BLOCK_SIZE, :]


class BlockPool:
    """Free blocks of one cache. After all sequences ended, `num_free` equals `num_blocks` again."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    @staticmethod
    def blocks_for(num_tokens: int) -> int:
        return -(-num_tokens // BLOCK_SIZE)

    def allocate(self, num_blocks: int) -> list[int] | None:
        """`num_blocks` block ids, or None when there are not so many (nothing is taken then)."""
        if num_blocks > len(self._free):
            return None
        return [self._free.pop() for _ in range(num_blocks)]

    def release(self, block_ids: Sequence[int]) -> None:
        assert not set(block_ids) & set(self._free), "a block was released twice"
        self._free.extend(reversed(block_ids))
