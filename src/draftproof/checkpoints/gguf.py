"""Reader of GGUF headers: metadata, and which tensors a model's files hold, of which type and shape, and where.

Called by `models.loading`, `models.tokenizer` and `gguf_view`; which files make up a model is `gguf_parts`' matter.
Reads no tensor data and needs no GGUF library: that one believes the counts it reads and builds an array object per
token. Format: GGUF 2 and 3, little-endian (`docs/gguf.md` of ggml).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from draftproof.checkpoints.files import broken, detect
from draftproof.checkpoints.folder import Folder, LocalFolder
from draftproof.checkpoints.gguf_cursor import MAX_ARRAY_ELEMENTS, Cursor, ShortError
from draftproof.checkpoints.gguf_naming import models_among
from draftproof.checkpoints.gguf_parts import check_part, part_names, require_all
from draftproof.core.errors import DraftproofError

MAX_METADATA_KEYS = 1 << 14
MAX_TENSORS = 1 << 17
MAX_NAME_BYTES = 1 << 16
HEADER_MAX_BYTES = 1 << 26
"""A quarter of a million tokens with their merges take ten million bytes."""
LATER_HEADER_MAX_BYTES = 1 << 20
"""The same of a split model's parts behind the first, which have no vocabulary."""
_NUM_READERS = 8
_MAX_DIMS = 4
_MAX_ALIGNMENT = 1 << 16

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
    """One tensor: type by its GGUF name, shape with the row length last, and the byte range in the file.

    `part` is the file's place among those of a split model, from 0.
    """

    type_name: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The headers of one model: of a file, or of the parts of a split one, in order.

    Metadata is the first part's; values are int, float, bool, str, lists of these, or `StoredArray`. Of a hub's file,
    a path is no more than its name.
    """

    paths: tuple[Path, ...]
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @property
    def path(self) -> Path:
        return self.paths[0]


Checkpoint = Path | GgufFile
"""A safetensors directory, or a GGUF model whose header was read."""


def open_checkpoint(path: Path) -> Checkpoint:
    """What lies at `path`. Raises DP401, DP402, DP406 or DP407."""
    if detect(path) == "safetensors":
        return path
    if path.is_dir():
        path /= models_among(entry.name for entry in path.iterdir())[0]
    return read_gguf(path)


def read_gguf(
    path: Path,
    types: Mapping[int, tuple[str, int, int]] = TENSOR_TYPES,
    longest_read: int = MAX_ARRAY_ELEMENTS,
) -> GgufFile:
    """Reads the header of `path`, and of the files beside it where it is a part of a split model.

    As `read_model`.
    """
    return read_model(LocalFolder(path.parent, named=path.name), path.name, types, longest_read)


def read_model(
    folder: Folder, name: str, types: Mapping[int, tuple[str, int, int]], longest_read: int
) -> GgufFile:
    """Reads the headers of the model that `name` is a file of, any of its parts. Tensors may be of `types`, arrays of
    more than `longest_read` elements become `StoredArray`.

    Raises DP401 for a part that is missing, DP402 for anything that contradicts the format or another part, DP406 for
    a format version or a tensor type that is not supported.
    """
    named = _read_header(folder, name, types, longest_read, HEADER_MAX_BYTES)
    names = part_names(folder.label(name), name, named.metadata)
    paths = tuple(Path(folder.label(part)) for part in names)
    if len(names) == 1:
        return GgufFile(paths, named.metadata, named.tensors)
    require_all(folder.label(name), names, folder.names())

    def read(part: str) -> _Header:
        max_bytes = HEADER_MAX_BYTES if part == names[0] else LATER_HEADER_MAX_BYTES
        return named if part == name else _read_header(folder, part, types, longest_read, max_bytes)

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_NUM_READERS) as readers:
        headers = list(readers.map(read, names))
    metadata = headers[0].metadata
    tensors: dict[str, GgufTensor] = {}
    for index, (part, header) in enumerate(zip(names, headers, strict=True)):
        check_part(folder.label(part), header.metadata, index, len(names))
        for tensor, entry in header.tensors.items():
            if tensor in tensors:
                first = names[tensors[tensor].part]
                raise broken(
                    folder.label(part), f"tensor {tensor[:100]!r}, which {first} has, too", "each tensor once"
                )
            tensors[tensor] = replace(entry, part=index) if index else entry
        if len(tensors) > MAX_TENSORS:
            raise broken(folder.label(part), f"more than {MAX_TENSORS} tensors", "the tensors of one model")
    if metadata.get("split.tensors.count") != len(tensors):
        said = str(metadata.get("split.tensors.count"))[:80]
        raise broken(
            paths[0], f"split.tensors.count {said}", f"{len(tensors)}, as its {len(names)} parts have"
        )
    return GgufFile(paths, metadata, tensors)


@dataclass(frozen=True, slots=True)
class _Header:
    """Of one file."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


def _read_header(
    folder: Folder, name: str, types: Mapping[int, tuple[str, int, int]], longest_read: int, max_bytes: int
) -> _Header:
    """The header is copied, at most `max_bytes` of it: who maps a file that is cut off meanwhile is killed."""
    is_here, size, label = folder.path_of(name) is not None, folder.size(name), folder.label(name)
    if size < 24:
        raise broken(label, f"{size} bytes", "a GGUF file")
    # Most headers are that short (here a copy costs less than to begin again); then four times as much, up to all.
    data, wanted = b"", max_bytes >> (3 if is_here else 5)
    while len(data) < max_bytes:
        data += folder.read_range(name, len(data), min(wanted, size, max_bytes) - len(data))
        try:
            return _parse_header(Cursor(label, data, size, longest_read), types)
        except ShortError:
            wanted *= 4
    raise broken(label, f"a header of more than {max_bytes} bytes", "a shorter one")


def _parse_header(cursor: Cursor, types: Mapping[int, tuple[str, int, int]]) -> _Header:
    path = cursor.path
    if cursor.take(4) != b"GGUF":
        raise broken(path, "other first bytes", "the magic bytes GGUF")
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise _unsupported(path, "format version", version, "GGUF version 2 or 3, little-endian")
    num_tensors = cursor.count("Q", MAX_TENSORS, "tensors")
    num_keys = cursor.count("Q", MAX_METADATA_KEYS, "metadata keys")
    metadata = _read_metadata(cursor, num_keys)
    return _Header(metadata, _read_tensors(cursor, num_tensors, metadata, types))


def _unsupported(path: Path | str, field: str, found: object, expected: str) -> DraftproofError:
    return DraftproofError(
        "DP406", f"{path}: {field}", found, expected, "Convert the model again with a current converter."
    )


def _read_metadata(cursor: Cursor, num_keys: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = cursor.string(MAX_NAME_BYTES)
        if key in metadata:
            raise broken(cursor.path, f"the key {key!r} twice", "each key once")
        metadata[key] = cursor.value(cursor.scalar("I"))
    return metadata


def _read_tensors(
    cursor: Cursor, num_tensors: int, metadata: dict[str, Any], types: Mapping[int, tuple[str, int, int]]
) -> dict[str, GgufTensor]:
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise broken(cursor.path, f"general.alignment {alignment}", "a power of two")
    found: dict[str, tuple[int, str, tuple[int, ...], int]] = {}
    for _ in range(num_tensors):
        name = cursor.string(MAX_NAME_BYTES)
        if name in found:
            raise broken(cursor.path, f"the tensor {name!r} twice", "each tensor once")
        found[name] = _read_tensor(cursor, name, types)
    data_start = -(-cursor.position // alignment) * alignment
    end = data_start
    tensors: dict[str, GgufTensor] = {}
    for name, (relative, type_name, shape, num_bytes) in sorted(found.items(), key=lambda item: item[1][0]):
        offset = data_start + relative
        if relative % alignment or offset < end:
            raise broken(cursor.path, f"tensor {name!r} at {relative}", "aligned tensors without overlaps")
        end = offset + num_bytes
        if end > cursor.size:
            raise broken(cursor.path, f"{cursor.size} bytes", f"at least {end} bytes, where {name!r} ends")
        tensors[name] = GgufTensor(type_name, shape, offset, num_bytes)
    return tensors


_TENSOR_LAYOUTS = tuple(struct.Struct(f"<{num_dims}QIQ") for num_dims in range(_MAX_DIMS + 1))
"""By number of dimensions: these, the number of the type, the offset."""


def _read_tensor(
    cursor: Cursor, name: str, types: Mapping[int, tuple[str, int, int]]
) -> tuple[int, str, tuple[int, ...], int]:
    """Its offset behind the header, type, shape with the row length last, and bytes."""
    num_dims = cursor.count("I", _MAX_DIMS, "dimensions")
    *dims, number, offset = cursor.numbers(_TENSOR_LAYOUTS[num_dims])
    if number not in types:
        known = ", ".join(type_name for type_name, _, _ in types.values())
        raise _unsupported(cursor.path, f"tensor {name!r}", f"type number {number}", f"one of {known}")
    type_name, block_size, block_bytes = types[number]
    if not dims or 0 in dims or dims[0] % block_size:
        raise broken(cursor.path, f"tensor {name!r} of {dims}", f"rows of whole blocks of {block_size}")
    return offset, type_name, tuple(reversed(dims)), math.prod(dims) // block_size * block_bytes
