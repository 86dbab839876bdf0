"""Paged key/value storage. Knows no models, only their shapes; which block is whose: `pool.py` and `table.py`.

A sequence's token at position t lies in block `block_ids[t // BLOCK_SIZE]` at offset `t % BLOCK_SIZE`. Rolling
back a rejected draft is bookkeeping: the committed length is what counts, slots behind it are overwritten.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.core.footprint import BLOCK_SIZE, block_bytes

__all__ = ["BLOCK_SIZE", "KVCache"]


class KVCache:
    """The storage of one model: `data` [num_blocks, num_layers, 2, num_kv_heads, BLOCK_SIZE, head_dim], keys first.

    A block lies in one piece: what it takes of the machine's memory is its own bytes, also where pages are huge, and it
    is given back as a whole.

    With `wordwise_keys` the keys of a block lie as the native kernels read them, [head_dim / e, BLOCK_SIZE, e], where
    e elements take 32 bits.
    """

    def __init__(
        self,
        num_layers: int,
        num_blocks: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        *,
        wordwise_keys: bool = False,
    ) -> None:
        self.num_blocks = num_blocks
        self._wordwise_keys = wordwise_keys
        # Pages are touched on first use only, so an idle cache costs address space, not memory.
        self.data = torch.empty((num_blocks, num_layers, 2, num_kv_heads, BLOCK_SIZE, head_dim), dtype=dtype)

    @staticmethod
    def block_bytes(num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers."""
        return block_bytes(num_layers, num_kv_heads, head_dim, dtype.itemsize)

    def compact(self, block_ids: Sequence[int], context_len: int, path: Sequence[int]) -> None:
        """Moves the accepted rows of a tree into consecutive slots.

        `path` holds segment rows of the accepted nodes in order (row k lies at slot context_len + k); afterwards
        the j-th of them lies at slot context_len + 1 + j. The root (row 0) is in place already.
        """
        for depth, row in enumerate(path):
            source, target = context_len + row, context_len + 1 + depth
            assert source >= target
            if source != target:
                for new, old in zip(self.slot(block_ids, target), self.slot(block_ids, source), strict=True):
                    new.copy_(old)

    def slot(self, block_ids: Sequence[int], position: int) -> tuple[Tensor, Tensor]:
        """Views of one token's keys and values, each [num_layers, num_kv_heads, head_dim].

        Keys that lie word by word have the shape [num_layers, num_kv_heads, head_dim / e, e].
        """
        keys, values = self.data[block_ids[position // BLOCK_SIZE]].unbind(1)
        offset = position % BLOCK_SIZE
        if not self._wordwise_keys:
            return keys[:, :, offset], values[:, :, offset]
        words = keys.view(*keys.shape[:2], -1, BLOCK_SIZE, 4 // self.data.element_size())
        return words[:, :, :, offset], values[:, :, offset]

    def discard(self, block_ids: Sequence[int]) -> None:
        """Gives the memory of blocks back to the system; what they held is lost.

        Whole pages only, and only where the system has the call (Linux). Elsewhere the memory stays with the
        process until other blocks use it.
        """
        if not sys.platform.startswith("linux") or self.data.device.type != "cpu":
            return
        libc = ctypes.CDLL(None)
        block_bytes = self.data.stride(0) * self.data.element_size()
        for block_id in block_ids:
            start = self.data.data_ptr() + block_id * block_bytes
            first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
            length = (start + block_bytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
            if length > 0:
                libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), mmap.MADV_DONTNEED)
