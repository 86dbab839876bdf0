"""Tensors in GGUF's quantised types: rows of blocks, from values and back to values.

Called by `weights` and `precision`; the native kernels compute with the blocks as they are, and round faster. Values
are those of the `gguf` library, which defines the types in NumPy; it takes time to import, and few models need it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftproof.checkpoints.gguf import TENSOR_TYPES

KERNEL_TYPES = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})
"""What the native kernels compute with directly; other types are expanded."""

_SIZES = {name: (size, num_bytes) for name, size, num_bytes in TENSOR_TYPES.values()}

_VALUES_PER_PIECE = 1 << 17
"""Converted at a time: what fits into the cache; the library's own entries are several times slower."""


@dataclass(frozen=True, slots=True)
class BlockTensor:
    """A matrix in a type of GGUF. `data` uint8 [num_rows, row_bytes]: the blocks as they lie in a file."""

    type_name: str
    shape: tuple[int, int]
    data: Tensor

    def dequantize(self) -> Tensor:
        """The values, float32; those of a damaged block may be NaN or infinite."""
        return dequantize(self.data.numpy(), self.type_name).view(self.shape)


def block_size(type_name: str) -> int:
    """Inputs of one block."""
    return _SIZES[type_name][0]


def bits_per_weight(type_name: str) -> float:
    size, num_bytes = _SIZES[type_name]
    return 8 * num_bytes / size


def empty_blocks(type_name: str, num_rows: int, num_columns: int) -> BlockTensor:
    """Room for a matrix of that type, not filled; whole blocks a row."""
    size, num_bytes = _SIZES[type_name]
    data = torch.empty((num_rows, num_columns // size * num_bytes), dtype=torch.uint8)
    return BlockTensor(type_name, (num_rows, num_columns), data)


def dequantize(content: NDArray[np.uint8], type_name: str) -> Tensor:
    """The values of blocks in their order, float32 [num_values]."""
    size, num_bytes = _SIZES[type_name]
    quant = _definition(type_name)
    blocks = content.reshape(-1, num_bytes)
    values = np.empty((blocks.shape[0], size), np.float32)

    def convert(piece: slice) -> None:
        values[piece] = quant.dequantize_blocks(blocks[piece])

    _in_pieces(len(blocks), _VALUES_PER_PIECE // size, convert)
    return torch.from_numpy(values.reshape(-1))


def quantize(tensor: Tensor, type_name: str) -> BlockTensor:
    """A matrix of floats, [num_rows, num_columns], whole blocks a row, rounded to that type."""
    num_rows, num_columns = tensor.shape
    size, num_bytes = _SIZES[type_name]
    assert num_columns % size == 0
    quant = _definition(type_name)
    values = tensor.contiguous().view(-1, size)
    result = empty_blocks(type_name, num_rows, num_columns)
    blocks = result.data.numpy().reshape(-1, num_bytes)

    def convert(piece: slice) -> None:
        blocks[piece] = quant.quantize_blocks(values[piece].float().numpy())

    _in_pieces(len(blocks), _VALUES_PER_PIECE // size, convert)
    return result


def _definition(type_name: str) -> Any:
    from gguf import quants

    return getattr(quants, type_name)


def _in_pieces(num_blocks: int, blocks_per_piece: int, convert: Callable[[slice], None]) -> None:
    num_threads = torch.get_num_threads()

    def work(thread: int) -> None:
        with np.errstate(all="ignore"):  # values that are not finite are found by whoever reads them
            for start in range(thread * blocks_per_piece, num_blocks, num_threads * blocks_per_piece):
                convert(slice(start, start + blocks_per_piece))

    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(work, range(num_threads)))
