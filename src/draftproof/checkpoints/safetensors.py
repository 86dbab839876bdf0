"""Reader of safetensors headers: which tensors a file holds, of which type and shape, and where.

Called by `models.loading` and by commands that plan memory. Reads no tensor data. Format: an unsigned 64-bit
little-endian header length, a JSON header, then the tensors' bytes without gaps (safetensors 0.x).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from draftproof.checkpoints.files import INDEX_MAX_BYTES, broken, decode, member, parse_json, read_json
from draftproof.checkpoints.view import Header, TensorInfo
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
        header = parse_header(path, path.name, size, file.read(header_bytes))
    return {
        name: TensorEntry(path, info.dtype, info.shape, place, info.num_bytes)
        for name, (info, place) in header.items()
    }


def header_length(path: Path | str, prefix: bytes, size: int) -> int:
    """Bytes of the JSON header, from the first 8 bytes of a file of `size` bytes. Raises DP402."""
    if len(prefix) < 8:
        raise broken(path, f"{size} bytes", "a safetensors file")
    header_bytes = int.from_bytes(prefix[:8], "little")
    if header_bytes > min(HEADER_MAX_BYTES, size - 8):
        raise broken(path, f"a header of {header_bytes} bytes of {size}", "a header within the file")
    return header_bytes


def parse_header(path: Path | str, file: str, size: int, header: bytes) -> Header:
    """The tensors that the JSON header of a file of `size` bytes describes. Raises DP402.

    `path` stands in messages, `file` in what is returned.
    """
    text = decode(path, header)
    names, infos, begins = _read_usual(file, text) or _read_any(path, file, text)
    lengths = [info.num_bytes for info in infos]
    end = 0
    for begin, num_bytes in sorted(zip(begins, lengths, strict=True)):
        if begin != end:
            raise broken(path, "tensors that overlap or leave gaps", "tensors one after the other")
        end += num_bytes
    start = 8 + len(header)
    if start + end != size:
        raise broken(path, f"{size} bytes", f"{start + end} bytes, as the header says")
    places = [start + begin for begin in begins]
    return dict(zip(names, zip(infos, places, strict=True), strict=True))


_Columns = tuple[Sequence[str], Sequence[TensorInfo], Sequence[int]]
"""By tensor, in the header's order: its name, what it is, and its first byte behind the header."""

_USUAL_METADATA = re.compile(r'\{ ?"__metadata__": ?(\{[^{}]*+\}), ?|\{')
_USUAL_TENSOR = re.compile(
    r'"([^"\\\x00-\x1f]*+)": ?\{("dtype": ?"[^]]*+\], ?"data_offsets": ?)\[([0-9]++, ?[0-9]++\]\}[,}]) *+|(.++)',
    re.DOTALL,
)
"""Name, kind and offsets with what follows them; or all that is left, for it is written in another way."""


def _read_usual(file: str, text: str) -> _Columns | None:
    """Of a header as the format's own library and its like write it, tensor by tensor: read at once, as columns, for
    there may be hundreds of thousands. None for any other header, broken ones too; what is read is valid JSON.
    """
    start = _USUAL_METADATA.match(text)
    found = _USUAL_TENSOR.findall(text, start.end()) if start is not None else []
    if start is None or not found or found[-1][3]:
        return None
    names, kinds, offsets, _ = zip(*found, strict=True)
    try:
        if start[1] is not None:
            parse_json("", start[1])
        known = {kind: _info(file, parse_json("", f"{{{kind}[0, 0]}}")) for kind in set(kinds)}
        # A comma behind the last tensor, or a bracket behind another, leaves no list of numbers.
        bounds = json.loads(f"[{''.join(offsets).replace(']}', '').removesuffix('}')}]")
    except (DraftproofError, ValueError):
        return None
    infos, begins = [known[kind] for kind in kinds], bounds[::2]
    agree = [begin + info.num_bytes for begin, info in zip(begins, infos, strict=True)] == bounds[1::2]
    is_sound = agree and len({*names, "__metadata__"}) > len(names)
    return (names, infos, begins) if is_sound else None


def _read_any(path: Path | str, file: str, text: str) -> _Columns:
    """The same of any header. Raises DP402."""
    document = parse_json(path, text)
    document.pop("__metadata__", None)
    infos, begins = [], []
    for name, value in document.items():
        offsets = value.get("data_offsets") if isinstance(value, dict) else None
        try:
            info = _info(file, value)
            if not _are_counts(offsets, 2, 2) or offsets[1] - offsets[0] != info.num_bytes:
                raise ValueError
        except ValueError:
            said = f"tensor {name[:100]!r}: {str(value)[:200]}"
            raise broken(path, said, "dtype, shape and data_offsets that agree") from None
        infos.append(info)
        begins.append(offsets[0])
    return list(document), infos, begins


def _info(file: str, value: object) -> TensorInfo:
    """Raises ValueError for one without a dtype or shape that there is, or whose size is no whole number of bytes."""
    found = value if isinstance(value, dict) else {}
    dtype, shape = found.get("dtype"), found.get("shape")
    bits = ELEMENT_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None or not _are_counts(shape, 0, _MAX_DIMS):
        raise ValueError
    num_elements = math.prod(shape)
    if num_elements > _MAX_ELEMENTS or num_elements * bits % 8:
        raise ValueError
    return TensorInfo(str(dtype), tuple(shape), num_elements * bits // 8, file)


def _are_counts(values: Any, shortest: int, longest: int) -> TypeGuard[list[int]]:
    if not isinstance(values, list) or not shortest <= len(values) <= longest:
        return False
    return all(type(value) is int and 0 <= value < 1 << 63 for value in values)
