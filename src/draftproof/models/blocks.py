"""Tensors in GGUF's quantised types: rows of blocks, from values and back to values.

Called by `weights` and `precision`; the native kernels compute with the blocks as they are. Values are those of the
`gguf` library, which defines the types in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

KERNEL_TYPES = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})
"""What the native kernels compute with directly; other types are expanded."""

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
    return int(gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]][0])


def bits_per_weight(type_name: str) -> float:
    size, num_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]]
    return float(8 * num_bytes / size)


def dequantize(content: NDArray[np.uint8], type_name: str) -> Tensor:
    """The values of blocks in their order, float32 [num_values]."""
    size, num_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]]
    quant = getattr(gguf.quants, type_name)
    blocks = content.reshape(-1, num_bytes)
    values = np.empty((blocks.shape[0], size), np.float32)

    def convert(piece: slice) -> None:
        values[piece] = quant.dequantize_blocks(blocks[piece])

    _in_pieces(len(blocks), _VALUES_PER_PIECE // size, convert)
    return torch.from_numpy(values.reshape(-1))


def quantize(tensor: Tensor, type_name: str) -> BlockTensor:
    """A matrix of floats, [num_rows, num_columns], whole blocks a row, rounded to that type."""
    num_rows, num_columns = tensor.shape
    size, num_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]]
    assert num_columns % size == 0
    quant = getattr(gguf.quants, type_name)
    values = tensor.contiguous().view(-1, size)
    blocks = np.empty((values.shape[0], num_bytes), np.uint8)

    def convert(piece: slice) -> None:
        blocks[piece] = quant.quantize_blocks(values[piece].float().numpy())

    _in_pieces(len(blocks), _VALUES_PER_PIECE // size, convert)
    return BlockTensor(type_name, (num_rows, num_columns), torch.from_numpy(blocks).view(num_rows, -1))


def _in_pieces(num_blocks: int, blocks_per_piece: int, convert: Callable[[slice], None]) -> None:
    num_threads = torch.get_num_threads()

    def work(thread: int) -> None:
        with np.errstate(all="ignore"):  # values that are not finite are found by whoever reads them
            for start in range(thread * blocks_per_piece, num_blocks, num_threads * blocks_per_piece):
                convert(slice(start, start + blocks_per_piece))

    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(work, range(num_threads)))
