"""Reader of GGUF headers: metadata, and which tensors the file holds, of which type and shape, and where.

Called by `models.loading`, `models.tokenizer` and by commands that plan memory. Reads no tensor data and
needs no GGUF library: that one believes the counts it reads and builds an array object per token. Format:
GGUF 2 and 3, little-endian (`docs/gguf.md` of ggml).
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.checkpoints.files import broken, detect
from draftproof.core.errors import DraftproofError

MAX_METADATA_KEYS = 1 << 14
MAX_TENSORS = 1 << 17
MAX_ARRAY_ELEMENTS = 1 << 22
"""Over all arrays of a file; a vocabulary with its merges has fewer than a million."""
MAX_STRING_BYTES = 1 << 24
MAX_NAME_BYTES = 1 << 16
_MAX_DIMS = 4
_MAX_ALIGNMENT = 1 << 16

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
"""Number in the file → name, elements per block, bytes per block: what our engine loads."""

ALL_TENSOR_TYPES: dict[int, tuple[str, int, int]] = TENSOR_TYPES | {
    9: ("Q8_1", 32, 40),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
"""The same for every type that files may have (gguf 0.19): enough to judge a file without loading it."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: type by its GGUF name, shape with the row length last, and the byte range in the file."""

    type_name: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The header of one file. Metadata values are int, float, bool, str or lists of these."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


Checkpoint = Path | GgufFile
"""A safetensors directory, or a GGUF file whose header was read."""


def open_checkpoint(path: Path) -> Checkpoint:
    """What lies at `path`. Raises DP401, DP402, DP406 or DP407."""
    return read_gguf(path) if detect(path) == "gguf" else path


def read_gguf(path: Path, types: Mapping[int, tuple[str, int, int]] = TENSOR_TYPES) -> GgufFile:
    """Reads the header of `path`, whose tensors may be of `types`.

    Raises DP402 for anything that contradicts the format, DP406 for a format version, a split file or a
    tensor type that is not supported.
    """
    if os.path.getsize(path) < 24:
        raise broken(path, f"{os.path.getsize(path)} bytes", "a GGUF file")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = _Cursor(path, data)
        if cursor.take(4) != b"GGUF":
            raise broken(path, "other first bytes", "the magic bytes GGUF")
        version = cursor.scalar("I")
        if version not in (2, 3):
            raise _unsupported(path, "format version", version, "GGUF version 2 or 3, little-endian")
        num_tensors = cursor.count("Q", MAX_TENSORS, "tensors")
        num_keys = cursor.count("Q", MAX_METADATA_KEYS, "metadata keys")
        metadata = _read_metadata(cursor, num_keys)
        if metadata.get("split.count", 0) not in (0, 1):
            raise _unsupported(path, "split.count", metadata["split.count"], "one file with all tensors")
        tensors = _read_tensors(cursor, num_tensors, metadata, types)
    return GgufFile(path, metadata, tensors)


def _unsupported(path: Path, field: str, found: object, expected: str) -> DraftproofError:
    return DraftproofError(
        "DP406", f"{path}: {field}", found, expected, "Convert the model again with a current converter."
    )


class _Cursor:
    """A position in the file; every read is checked against the end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.position = 0
        self.num_elements_left = MAX_ARRAY_ELEMENTS

    def take(self, num_bytes: int) -> bytes:
        if num_bytes > self.size - self.position:
            raise broken(self.path, f"{self.size} bytes", f"at least {self.position + num_bytes} bytes")
        self.position += num_bytes
        return self.data[self.position - num_bytes : self.position]

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def count(self, code: str, limit: int, what: str) -> int:
        number: int = self.scalar(code)
        if number > limit:
            raise broken(self.path, f"{number} {what}", f"at most {limit}")
        return number

    def string(self, limit: int) -> str:
        return self.strings(1, limit)[0]

    def strings(self, length: int, limit: int) -> list[str]:
        read_length = struct.Struct("<Q").unpack_from
        start = self.position
        result = []
        try:
            for _ in range(length):
                (num_bytes,) = read_length(self.data, start)
                start += 8 + num_bytes
                if num_bytes > limit or start > self.size:
                    raise broken(self.path, f"a string of {num_bytes} bytes", "strings within the file")
                result.append(str(self.data[start - num_bytes : start], "utf-8"))
        except struct.error as error:
            raise broken(self.path, f"{self.size} bytes", f"at least {start + 8} bytes") from error
        except UnicodeDecodeError as error:
            raise broken(self.path, f"a string that is not UTF-8 ({error})", "UTF-8 strings") from error
        self.position = start
        return result

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string(MAX_STRING_BYTES)
        if kind == _ARRAY:
            return self.array()
        if kind not in _SCALARS:
            raise broken(self.path, f"metadata type {kind}", "a type of the GGUF format")
        return self.scalar(_SCALARS[kind])

    def array(self) -> list[Any]:
        kind = self.scalar("I")
        length = self.count("Q", self.num_elements_left, "array elements")
        self.num_elements_left -= length
        if kind == _STRING:
            return list(self.strings(length, MAX_STRING_BYTES))
        if kind not in _SCALARS:
            raise broken(self.path, f"an array of type {kind}", "an array of numbers or strings")
        layout = f"<{length}{_SCALARS[kind]}"
        return list(struct.unpack(layout, self.take(struct.calcsize(layout))))


def _read_metadata(cursor: _Cursor, num_keys: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = cursor.string(MAX_NAME_BYTES)
        if key in metadata:
            raise broken(cursor.path, f"the key {key!r} twice", "each key once")
        metadata[key] = cursor.value(cursor.scalar("I"))
    return metadata


def _read_tensors(
    cursor: _Cursor, num_tensors: int, metadata: dict[str, Any], types: Mapping[int, tuple[str, int, int]]
) -> dict[str, GgufTensor]:
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise broken(cursor.path, f"general.alignment {alignment}", "a power of two")
    relative: dict[str, GgufTensor] = {}
    for _ in range(num_tensors):
        name = cursor.string(MAX_NAME_BYTES)
        if name in relative:
            raise broken(cursor.path, f"the tensor {name!r} twice", "each tensor once")
        relative[name] = _read_tensor(cursor, name, types)
    data_start = -(-cursor.position // alignment) * alignment
    end = data_start
    tensors: dict[str, GgufTensor] = {}
    for name, tensor in sorted(relative.items(), key=lambda item: item[1].offset):
        offset = data_start + tensor.offset
        if tensor.offset % alignment or offset < end:
            raise broken(
                cursor.path, f"tensor {name!r} at {tensor.offset}", "aligned tensors without overlaps"
            )
        end = offset + tensor.num_bytes
        if end > cursor.size:
            raise broken(cursor.path, f"{cursor.size} bytes", f"at least {end} bytes, where {name!r} ends")
        tensors[name] = GgufTensor(tensor.type_name, tensor.shape, offset, tensor.num_bytes)
    return tensors


def _read_tensor(cursor: _Cursor, name: str, types: Mapping[int, tuple[str, int, int]]) -> GgufTensor:
    num_dims = cursor.count("I", _MAX_DIMS, "dimensions")
    dims = [cursor.scalar("Q") for _ in range(num_dims)]
    number = cursor.scalar("I")
    offset = cursor.scalar("Q")
    if number not in types:
        known = ", ".join(type_name for type_name, _, _ in types.values())
        raise _unsupported(cursor.path, f"tensor {name!r}", f"type number {number}", f"one of {known}")
    type_name, block_size, block_bytes = types[number]
    if not dims or 0 in dims or dims[0] % block_size:
        raise broken(cursor.path, f"tensor {name!r} of {dims}", f"rows of whole blocks of {block_size}")
    return GgufTensor(type_name, tuple(reversed(dims)), offset, math.prod(dims) // block_size * block_bytes)
