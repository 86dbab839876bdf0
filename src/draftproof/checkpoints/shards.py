"""The safetensors files of a folder taken together: which tensors, in which file, of which shape.

Called by `folder_view`. Follows the index where there is one, else takes every safetensors file. Shards that are
missing are told, not hidden: names are known from the index then, shapes are not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from draftproof.checkpoints.files import INDEX_MAX_BYTES, broken, decode, parse_json
from draftproof.checkpoints.folder import Folder
from draftproof.checkpoints.safetensors import header_length, parse_header
from draftproof.checkpoints.view import Header
from draftproof.core.errors import DraftproofError

INDEX_SUFFIX = ".safetensors.index.json"
MAX_SHARDS = 1 << 12
_FIRST_READ_BYTES = 1 << 18
"""One ranged read gets the whole header of most files."""
_NUM_READERS = 8
_PREFERRED = ("model", "consolidated")
_SHARD_NAME = re.compile(r"(.+)-\d{5,6}-of-(\d{5,6})\.safetensors")


@dataclass(frozen=True, slots=True)
class Shards:
    """weight_map  tensor name → file, from the index; None where there is none
    files       names of the files that hold the weights, ascending
    missing     those of `files` that are not there
    ignored     other safetensors files, which no engine reads beside an index
    """

    weight_map: Mapping[str, str] | None
    files: tuple[str, ...]
    missing: tuple[str, ...]
    ignored: tuple[str, ...]


def find_shards(folder: Folder) -> Shards | None:
    """None where the folder has no safetensors files and no index of them. Raises DP402."""
    names = folder.names()
    present = {name for name in names if name.endswith(".safetensors")}
    index = _preferred({name for name in names if name.endswith(INDEX_SUFFIX)}, INDEX_SUFFIX)
    if index is not None:
        weight_map = _read_index(folder, index)
        files = set(weight_map.values())
        return _shards(weight_map, files, present)
    if not present:
        return None
    single = _preferred(present, ".safetensors")
    if single is not None and single.removesuffix(".safetensors") in _PREFERRED:
        return _shards(None, {single}, present)
    return _shards(None, present | _unlisted(present), present)


def _shards(weight_map: Mapping[str, str] | None, files: set[str], present: set[str]) -> Shards:
    return Shards(
        weight_map, tuple(sorted(files)), tuple(sorted(files - present)), tuple(sorted(present - files))
    )


def _preferred(names: set[str], suffix: str) -> str | None:
    wanted = [stem + suffix for stem in _PREFERRED if stem + suffix in names]
    return next(iter(wanted or sorted(names)), None)


def _unlisted(present: set[str]) -> set[str]:
    """Shards that the names of others promise: model-00001-of-00003 without an index."""
    found: set[str] = set()
    for name in present:
        match = _SHARD_NAME.fullmatch(name)
        if match is None or not 0 < int(match[2]) <= MAX_SHARDS:
            continue
        width = len(match[2])
        found |= {
            f"{match[1]}-{number:0{width}}-of-{match[2]}.safetensors"
            for number in range(1, int(match[2]) + 1)
        }
    return found


def _read_index(folder: Folder, name: str) -> dict[str, str]:
    content = folder.read(name, INDEX_MAX_BYTES)
    label = folder.label(name)
    weight_map = parse_json(label, decode(label, content or b"")).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise broken(label, "no weight_map", "an object from tensor names to file names")
    files = set(weight_map.values())
    if len(files) > MAX_SHARDS:
        raise broken(label, f"{len(files)} shards", f"at most {MAX_SHARDS}")
    for file in files:
        if "/" in file or "\\" in file or not file.endswith(".safetensors"):
            raise broken(label, f"a shard {file[:100]!r}", "names of safetensors files beside the index")
    return weight_map


def read_headers(folder: Folder, shards: Shards) -> Header:
    """The tensors of all files. Only for shards that are all there.

    Raises DP402 for a broken header or a tensor in two files, DP404 where index and shards disagree.
    """
    headers = dict(zip(shards.files, _read_each(folder, shards.files), strict=True))
    found: Header = {}
    if shards.weight_map is None:
        for file, header in headers.items():
            twice = next((tensor for tensor in header if tensor in found), None) if found else None
            if twice is not None:
                raise broken(
                    folder.label(file),
                    f"tensor {twice[:100]!r}, which {found[twice][0].where} has, too",
                    "each tensor in one file",
                )
            found |= header
        return found
    for tensor, file in shards.weight_map.items():
        if tensor not in headers[file]:
            raise DraftproofError(
                "DP404",
                tensor,
                f"not in {folder.label(file)}",
                "the tensor in the shard that the index names",
                "Get the checkpoint's files again.",
            )
        found[tensor] = headers[file][tensor]
    return found


def _read_each(folder: Folder, files: tuple[str, ...]) -> list[Header]:
    """Several at a time: on a hub each is a request."""
    if len(files) == 1:
        return [read_header(folder, files[0])]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_NUM_READERS) as readers:
        return list(readers.map(lambda name: read_header(folder, name), files))


def read_header(folder: Folder, name: str) -> Header:
    """The tensors of one file. Raises DP402."""
    label, size = folder.label(name), folder.size(name)
    start = folder.read_range(name, 0, min(size, _FIRST_READ_BYTES))
    num_bytes = header_length(label, start, size)
    header = start[8 : 8 + num_bytes]
    if len(header) < num_bytes:
        header += folder.read_range(name, len(start), num_bytes - len(header))
    return parse_header(label, name, size, header)
