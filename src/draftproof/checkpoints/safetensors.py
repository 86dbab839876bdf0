"""Reader of safetensors headers: which tensors a file holds, of which type and shape, and where.

Called by `models.loading` and by commands that plan memory. Reads no tensor data. Format: an unsigned 64-bit
little-endian header length, a JSON header, then the tensors' bytes without gaps (safetensors 0.x).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from draftproof.checkpoints.files import INDEX_MAX_BYTES, broken, decode, member, parse_json, read_json
from draftproof.core.errors import DraftproofError

HEADER_MAX_BYTES = 100_000_000
"""The format's own limit."""

_MAX_DIMS = 8
_MAX_ELEMENTS = 1 << 48

ELEMENT_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "BOOL": 8, "U8": 8, "I8": 8, "F16": 16, "BF16": 16, "I16": 16, "U16": 16, "F32": 32, "I32": 32, "U32": 32,
    "F64": 64, "I64": 64, "U64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: element type by the format's name, shape, and the byte range in `path`."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


def read_directory(directory: Path) -> dict[str, TensorEntry]:
    """All tensors of a checkpoint directory by name, following the index where there are shards.

    Raises DP401 if there are no weights, DP402 if a file is broken, DP404 if index and shards disagree.
    """
    index = member(directory, "model.safetensors.index.json")
    if index is not None:
        return _read_shards(directory, index)
    single = member(directory, "model.safetensors")
    if single is None:
        raise DraftproofError(
            "DP401",
            "MODEL",
            f"{directory} without model.safetensors",
            "model.safetensors or its index of shards",
            "Check that the download is complete.",
        )
    return read_header(single)


def _read_shards(directory: Path, index: Path) -> dict[str, TensorEntry]:
    weight_map = read_json(index, INDEX_MAX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise broken(index, "no usable weight_map", "an object from tensor names to file names")
    headers: dict[str, dict[str, TensorEntry]] = {}
    for name in sorted(set(weight_map.values())):
        path = member(directory, name)
        if path is None:
            raise DraftproofError(
                "DP401", str(index), f"no file {name}", "every shard of the index", "Get the missing shard."
            )
        headers[name] = read_header(path)
    tensors: dict[str, TensorEntry] = {}
    for tensor, name in weight_map.items():
        if tensor not in headers[name]:
            raise DraftproofError(
                "DP404",
                tensor,
                f"not in {name}",
                f"the tensor in the shard that {index.name} names",
                "Get the checkpoint's files again.",
            )
        tensors[tensor] = headers[name][tensor]
    return tensors


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of one file by name. Raises DP402 for anything that contradicts the format."""
    size = os.path.getsize(path)
    with path.open("rb") as file:
        header_bytes = header_length(path, file.read(8), size)
        return parse_header(path, size, file.read(header_bytes))


def header_length(path: Path | str, prefix: bytes, size: int) -> int:
    """Bytes of the JSON header, from the first 8 bytes of a file of `size` bytes. Raises DP402."""
    if len(prefix) < 8:
        raise broken(path, f"{size} bytes", "a safetensors file")
    header_bytes = int.from_bytes(prefix[:8], "little")
    if header_bytes > min(HEADER_MAX_BYTES, size - 8):
        raise broken(path, f"a header of {header_bytes} bytes of {size}", "a header within the file")
    return header_bytes


def parse_header(path: Path | str, size: int, header: bytes) -> dict[str, TensorEntry]:
    """The tensors that the JSON header of a file of `size` bytes describes. Raises DP402.

    `path` may also name a file of a hub; it stands in messages and in the entries.
    """
    document = parse_json(path, decode(path, header))
    document.pop("__metadata__", None)
    where, data_start = Path(path), 8 + len(header)
    tensors = {name: _entry(where, name, value, data_start) for name, value in document.items()}
    end = data_start
    for entry in sorted(tensors.values(), key=lambda entry: (entry.offset, entry.num_bytes)):
        if entry.offset != end:
            raise broken(path, "tensors that overlap or leave gaps", "tensors one after the other")
        end += entry.num_bytes
    if end != size:
        raise broken(path, f"{size} bytes", f"{end} bytes, as the header says")
    return tensors


def _entry(path: Path, name: str, value: Any, data_start: int) -> TensorEntry:
    found = value if isinstance(value, dict) else {}
    dtype, shape, offsets = found.get("dtype"), found.get("shape"), found.get("data_offsets")
    bits = ELEMENT_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is not None and _are_counts(shape, 0, _MAX_DIMS) and _are_counts(offsets, 2, 2):
        num_elements = math.prod(shape)
        begin, end = offsets
        if num_elements <= _MAX_ELEMENTS and (end - begin) * 8 == num_elements * bits:
            return TensorEntry(path, str(dtype), tuple(shape), data_start + begin, end - begin)
    said = f"tensor {name[:100]!r}: {str(value)[:200]}"
    raise broken(path, said, "dtype, shape and data_offsets that agree")


def _are_counts(values: Any, shortest: int, longest: int) -> TypeGuard[list[int]]:
    if not isinstance(values, list) or not shortest <= len(values) <= longest:
        return False
    return all(type(value) is int and 0 <= value < 1 << 63 for value in values)
