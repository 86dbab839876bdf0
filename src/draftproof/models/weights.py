"""Tensors of a checkpoint on demand, under Transformers' names, whichever format they lie in.

Called by `loading`; the decoders see a `Mapping[str, Tensor]`. Each access reads the tensor again and keeps
nothing, so that loading holds one tensor at a time beside the packed ones. Knows formats, no decoders.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftproof.checkpoints.files import broken
from draftproof.checkpoints.gguf import GgufFile, GgufTensor
from draftproof.checkpoints.safetensors import TensorEntry
from draftproof.core.errors import DraftproofError
from draftproof.models.base import ModelConfig
from draftproof.models.blocks import BlockTensor, dequantize
from draftproof.models.layout import Source, norm_offset_of, sources_of_gguf, sources_of_hf

_BYTES_PER_READER = 1 << 21

_SAFETENSORS_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Weights(Mapping[str, Tensor]):
    """Names, shapes and, on access, values: float32, float16 or bfloat16, all finite.

    Access raises DP402 for a file that ends early, DP404 for values that are not finite.
    """

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape, without reading it."""
        return self._sources[name].shape

    @abstractmethod
    def stored(self, name: str) -> Tensor | BlockTensor:
        """The tensor as the file holds it: blocks where it is quantised. Their scales are checked by no one yet."""

    @abstractmethod
    def stored_bytes(self, name: str) -> int:
        """What the tensor takes in its file, without reading it."""

    @abstractmethod
    def stored_type(self, name: str) -> str | None:
        """The quantised type of the tensor in the file, without reading it; None for floats."""

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __getitem__(self, name: str) -> Tensor:
        stored = self.stored(name)
        tensor = stored.dequantize() if isinstance(stored, BlockTensor) else stored
        return finite(name, tensor)


def finite(name: str, tensor: Tensor) -> Tensor:
    """The tensor itself. Raises DP404 if it has a NaN or an infinity."""
    # Both extremes pass a NaN on, and one of them is any infinity: ten times as quick as a look at each element.
    if tensor.numel() and not all(math.isfinite(extreme) for extreme in tensor.aminmax()):
        raise DraftproofError(
            "DP404",
            name,
            "NaN or infinite values",
            "finite weights",
            "Get the checkpoint again, or from another source.",
        )
    return tensor


class SafetensorsWeights(Weights):
    """Of a safetensors directory; tensors keep their stored type."""

    def __init__(self, entries: Mapping[str, TensorEntry], config: ModelConfig) -> None:
        self._entries = entries
        for name, entry in entries.items():
            if entry.dtype not in _SAFETENSORS_DTYPES:
                raise DraftproofError(
                    "DP406",
                    name,
                    f"element type {entry.dtype}",
                    f"one of {', '.join(_SAFETENSORS_DTYPES)}",
                    "Use a checkpoint that is not quantised, or a GGUF file.",
                )
        shapes = {name: entry.shape for name, entry in entries.items()}
        super().__init__(sources_of_hf(shapes, config))
        self._norm_offset = norm_offset_of(config)

    def stored_bytes(self, name: str) -> int:
        source = self._sources[name]
        entry = self._entries[source.stored]
        return source.byte_range(entry.offset, entry.num_bytes)[1]

    def stored(self, name: str) -> Tensor:
        source = self._sources[name]
        entry = self._entries[source.stored]
        dtype = _SAFETENSORS_DTYPES[entry.dtype]
        if math.prod(source.shape) == 0:
            return torch.empty(source.shape, dtype=dtype)
        offset, num_bytes = source.byte_range(entry.offset, entry.num_bytes)
        tensor = torch.frombuffer(read_bytes(entry.path, offset, num_bytes), dtype=dtype).view(source.shape)
        is_shifted = self._norm_offset != 0 and name.endswith("norm.weight")
        return tensor.float() + self._norm_offset if is_shifted else tensor

    def stored_type(self, name: str) -> None:
        """Quantised ones are refused."""


class GgufWeights(Weights):
    """Of a GGUF model. Quantised tensors come as float32, rotary rows in Transformers' order."""

    def __init__(self, file: GgufFile, config: ModelConfig) -> None:
        self._paths = file.paths
        self._tensors = file.tensors
        shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
        super().__init__(sources_of_gguf(shapes, config))

    def stored_bytes(self, name: str) -> int:
        source = self._sources[name]
        whole = self._tensors[source.stored]
        return source.byte_range(whole.offset, whole.num_bytes)[1]

    def stored(self, name: str) -> Tensor | BlockTensor:
        source = self._sources[name]
        whole = self._tensors[source.stored]
        offset, num_bytes = source.byte_range(whole.offset, whole.num_bytes)
        part = replace(whole, offset=offset, num_bytes=num_bytes, shape=source.shape)
        tensor = read_gguf_tensor(self._paths, part)
        return tensor if source.paired_heads is None else _to_halves(tensor, source.paired_heads)

    def stored_type(self, name: str) -> str | None:
        type_name = self._tensors[self._sources[name].stored].type_name
        return None if type_name in _SAFETENSORS_DTYPES else type_name


def _to_halves(tensor: Tensor | BlockTensor, num_heads: int) -> Tensor | BlockTensor:
    """Undoes the converter's reordering of rotary rows: pairs (2j, 2j + 1) become (j, j + head_dim / 2)."""
    if isinstance(tensor, BlockTensor):
        return replace(tensor, data=_rows_to_halves(tensor.data, num_heads))
    return _rows_to_halves(tensor, num_heads)


def _rows_to_halves(rows: Tensor, num_heads: int) -> Tensor:
    pairs = rows.view(num_heads, -1, 2, *rows.shape[1:])  # [num_heads, head_dim / 2, 2, …]
    return pairs.transpose(1, 2).reshape(rows.shape)


def read_gguf_tensor(paths: Sequence[Path], tensor: GgufTensor) -> Tensor | BlockTensor:
    """One tensor of a GGUF model as stored; a quantised one that is no matrix dequantised."""
    content = read_bytes(paths[tensor.part], tensor.offset, tensor.num_bytes)
    stored = _SAFETENSORS_DTYPES.get(tensor.type_name)
    if stored is not None:
        return torch.frombuffer(content, dtype=stored).view(tensor.shape)
    rows = torch.frombuffer(content, dtype=torch.uint8)
    if len(tensor.shape) != 2:
        return dequantize(rows.numpy(), tensor.type_name).view(tensor.shape)
    num_rows, num_columns = tensor.shape
    return BlockTensor(tensor.type_name, (num_rows, num_columns), rows.view(num_rows, -1))


def read_values(paths: Sequence[Path], tensor: GgufTensor) -> Tensor:
    """One tensor of a GGUF model, dequantised where it is not stored as floats."""
    stored = read_gguf_tensor(paths, tensor)
    return stored.dequantize() if isinstance(stored, BlockTensor) else stored


def read_bytes(path: Path, offset: int, num_bytes: int) -> NDArray[np.uint8]:
    """That range of the file, by several threads if it is long, for one alone waits for memory.

    Raises DP402 if the file ends before (it may have shrunk since its header).
    """
    content = np.empty(num_bytes, np.uint8)  # unlike a bytearray, not filled before it is read into
    num_parts = min(torch.get_num_threads(), 1 + num_bytes // _BYTES_PER_READER)
    size = -(-num_bytes // num_parts)

    def read(start: int) -> int:
        with path.open("rb") as file:
            file.seek(offset + start)
            return file.readinto(content[start : start + size].data)

    starts = range(0, num_parts * size, size)
    if num_parts > 1:
        with ThreadPoolExecutor(num_parts) as pool:
            num_read = sum(pool.map(read, starts))
    else:
        num_read = read(0)
    if num_read != num_bytes:
        raise broken(path, f"{offset + num_read} bytes", f"at least {offset + num_bytes} bytes")
    return content
