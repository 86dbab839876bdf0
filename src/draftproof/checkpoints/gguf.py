"""Reader of GGUF headers: metadata, and which tensors a model's files hold, of which type and shape, and where.

Called by `models.loading`, `models.tokenizer` and `gguf_view`; which files make up a model is `gguf_parts`' matter.
Reads no tensor data and needs no GGUF library: that one believes the counts it reads and builds an array object per
token. Format: GGUF 2 and 3, little-endian (`docs/gguf.md` of ggml).
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

from draftproof.checkpoints.files import broken, detect
from draftproof.checkpoints.folder import Folder, LocalFolder
from draftproof.checkpoints.gguf_cursor import LENGTH, MAX_ARRAY_ELEMENTS, Cursor
from draftproof.checkpoints.gguf_naming import models_among
from draftproof.checkpoints.gguf_parts import check_part, part_names, require_all
from draftproof.checkpoints.view import Header, TensorInfo
from draftproof.core.errors import DraftproofError

MAX_METADATA_KEYS = 1 << 14
MAX_TENSORS = 1 << 17
MAX_NAME_BYTES = 1 << 16
HEADER_MAX_BYTES = 1 << 26
"""A quarter of a million tokens with their merges take ten million bytes."""
LATER_HEADER_MAX_BYTES = 1 << 20
"""The same of a split model's parts behind the first, which have no vocabulary."""
_FIRST_PART_HERE, _FIRST_PART_OF_A_HUB = 8, 32
"""Which part of those bytes is read first."""
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


@dataclass(frozen=True)
class GgufFile:
    """The headers of one model: of a file, or of the parts of a split one, in order.

    Metadata is the first part's; values are int, float, bool, str, lists of these, or `StoredArray`. Of a hub's file,
    a path is no more than its name.
    """

    paths: tuple[Path, ...]
    metadata: dict[str, Any]
    header: Header

    @property
    def path(self) -> Path:
        return self.paths[0]

    @cached_property
    def tensors(self) -> dict[str, GgufTensor]:
        parts = {path.name: part for part, path in enumerate(self.paths)}
        return {
            name: GgufTensor(info.dtype, info.shape, place, info.num_bytes, parts[info.where])
            for name, (info, place) in self.header.items()
        }


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
    tensors: Header = {}
    for index, (part, header) in enumerate(zip(names, headers, strict=True)):
        check_part(folder.label(part), header.metadata, index, len(names))
        for tensor in header.tensors.keys() & tensors.keys():
            raise broken(
                folder.label(part),
                f"tensor {tensor[:100]!r}, which {tensors[tensor][0].where} has, too",
                "each tensor once",
            )
        tensors |= header.tensors
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
    tensors: Header


def _read_header(
    folder: Folder, name: str, types: Mapping[int, tuple[str, int, int]], longest_read: int, max_bytes: int
) -> _Header:
    """The header is copied, at most `max_bytes` of it: who maps a file that is cut off meanwhile is killed."""
    is_here, size, label = folder.path_of(name) is not None, folder.size(name), folder.label(name)
    if size < 24:
        raise broken(label, f"{size} bytes", "a GGUF file")

    def more(num_at_hand: int) -> bytes:
        # Most headers are in the first piece. Then as much again, or where each piece is a request three times as much.
        if is_here:
            wanted = num_at_hand or max_bytes // _FIRST_PART_HERE
        else:
            wanted = 3 * num_at_hand or max_bytes // _FIRST_PART_OF_A_HUB
        num_bytes = min(wanted, size - num_at_hand, max_bytes - num_at_hand)
        if num_bytes <= 0:
            raise broken(label, f"a header of more than {max_bytes} bytes", "a shorter one")
        return folder.read_range(name, num_at_hand, num_bytes)

    cursor = Cursor(label, more(0), size, longest_read, more)
    if cursor.take(4) != b"GGUF":
        raise broken(label, "other first bytes", "the magic bytes GGUF")
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise _unsupported(label, "format version", version, "GGUF version 2 or 3, little-endian")
    num_tensors = cursor.count("Q", MAX_TENSORS, "tensors")
    num_keys = cursor.count("Q", MAX_METADATA_KEYS, "metadata keys")
    metadata = _read_metadata(cursor, num_keys)
    return _Header(metadata, _read_tensors(cursor, name, num_tensors, metadata, types))


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
    cursor: Cursor,
    file: str,
    num_tensors: int,
    metadata: dict[str, Any],
    types: Mapping[int, tuple[str, int, int]],
) -> Header:
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise broken(cursor.path, f"general.alignment {alignment}", "a power of two")
    names, kinds, offsets = _read_columns(cursor, num_tensors)
    if len(set(names)) < len(names):
        [(twice, _)] = Counter(names).most_common(1)
        raise broken(cursor.path, f"the tensor {twice!r} twice", "each tensor once")
    known: dict[bytes, TensorInfo] = {}
    for name, kind in zip(names, kinds, strict=True):
        if kind not in known:
            known[kind] = _info(cursor, file, name, kind, types)
    data_start = -(-cursor.position // alignment) * alignment
    end = data_start
    tensors: Header = {}
    for relative, name, kind in sorted(zip(offsets, names, kinds, strict=True), key=itemgetter(0)):
        info, place = known[kind], data_start + relative
        if relative % alignment or place < end:
            raise broken(cursor.path, f"tensor {name!r} at {relative}", "aligned tensors without overlaps")
        end = place + info.num_bytes
        if end > cursor.size:
            raise broken(cursor.path, f"{cursor.size} bytes", f"at least {end} bytes, where {name!r} ends")
        tensors[name] = (info, place)
    return tensors


def _read_columns(cursor: Cursor, num_tensors: int) -> tuple[list[str], list[bytes], list[int]]:
    """By tensor: its name, what the header has of its shape and type, and its offset behind the header. There may be a
    hundred thousand, of a few kinds."""
    names: list[bytes] = []
    kinds, offsets = [], []
    read_length, read_num_dims = LENGTH.unpack_from, _NUM_DIMS.unpack_from
    position = cursor.position
    while len(names) < num_tensors:
        data = cursor.reach(position + 1)
        try:
            for _ in range(num_tensors - len(names)):
                (num_bytes,) = read_length(data, position)
                if num_bytes > MAX_NAME_BYTES:
                    raise broken(cursor.path, f"a name of {num_bytes} bytes", f"at most {MAX_NAME_BYTES}")
                start = position + LENGTH.size
                kind = start + num_bytes
                (num_dims,) = read_num_dims(data, kind)
                if num_dims > _MAX_DIMS:
                    raise broken(cursor.path, f"{num_dims} dimensions", f"at most {_MAX_DIMS}")
                behind = kind + _KINDS[num_dims].size
                (offset,) = read_length(data, behind)
                names.append(data[start:kind])
                kinds.append(data[kind:behind])
                offsets.append(offset)
                position = behind + LENGTH.size
        except struct.error:  # not all of it is at hand
            cursor.reach(len(data) + 1)
    cursor.position = position
    return cursor.text(names), kinds, offsets


_NUM_DIMS = struct.Struct("<I")
_KINDS = tuple(struct.Struct(f"<I{num_dims}QI") for num_dims in range(_MAX_DIMS + 1))
"""By number of dimensions: that number, these, the number of the type."""


def _info(
    cursor: Cursor, file: str, name: str, kind: bytes, types: Mapping[int, tuple[str, int, int]]
) -> TensorInfo:
    """Of tensors with these bytes in the header, of which `name` is the first."""
    (num_dims,) = _NUM_DIMS.unpack_from(kind)
    _, *dims, number = _KINDS[num_dims].unpack(kind)
    if number not in types:
        known = ", ".join(type_name for type_name, _, _ in types.values())
        raise _unsupported(cursor.path, f"tensor {name!r}", f"type number {number}", f"one of {known}")
    type_name, block_size, block_bytes = types[number]
    if not dims or 0 in dims or dims[0] % block_size:
        raise broken(cursor.path, f"tensor {name!r} of {dims}", f"rows of whole blocks of {block_size}")
    return TensorInfo(type_name, tuple(reversed(dims)), math.prod(dims) // block_size * block_bytes, file)
