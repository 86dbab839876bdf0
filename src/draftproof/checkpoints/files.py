"""What kind of checkpoint a path is, and bounded access to the small files in it.

Called by `models.loading` and `models.tokenizer`. Knows formats by their content and file names, no tensors.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, Literal

from draftproof.checkpoints.gguf_naming import models_among
from draftproof.core.errors import DraftproofError

CONFIG_MAX_BYTES = 8 << 20
INDEX_MAX_BYTES = 64 << 20
TOKENIZER_MAX_BYTES = 256 << 20

_PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_GGUF_MAGIC = b"GGUF"


def detect(path: Path) -> Literal["safetensors", "gguf"]:
    """Says which format lies at `path`: a directory with safetensors or one GGUF model, or a GGUF file.

    Raises DP401 if there is nothing that could be a checkpoint, DP407 for pickled weights.
    """
    if path.is_dir():
        return _detect_directory(path)
    if not path.exists():
        raise DraftproofError(
            "DP401",
            "MODEL",
            path,
            "a directory with safetensors weights or a GGUF file",
            "Check the path; `draftproof models list` shows the models that can be had by name.",
        )
    _require_regular(path, path)
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == _GGUF_MAGIC:
        return "gguf"
    if path.suffix in _PICKLED_SUFFIXES or magic[:2] in (b"PK", b"\x80\x02", b"\x80\x04"):
        raise _pickled(path)
    if path.suffix == ".gguf":
        raise broken(path, f"first bytes {magic!r}", "the magic bytes GGUF")
    raise DraftproofError(
        "DP401",
        "MODEL",
        path,
        "a directory with safetensors weights or a GGUF file",
        "For safetensors name the directory that holds config.json, not the file.",
    )


def _detect_directory(path: Path) -> Literal["safetensors", "gguf"]:
    names = sorted(entry.name for entry in path.iterdir())
    if any(name.endswith(".safetensors") for name in names):
        return "safetensors"
    gguf = models_among(names)
    if len(gguf) == 1:
        return "gguf"
    if any(name.endswith(_PICKLED_SUFFIXES) for name in names):
        raise _pickled(path / next(name for name in names if name.endswith(_PICKLED_SUFFIXES)))
    raise DraftproofError(
        "DP401",
        "MODEL",
        f"{path} without *.safetensors",
        "a directory with safetensors weights or a GGUF file",
        f"Name the GGUF file itself: {path / gguf[0]}" if gguf else "Check that the download is complete.",
    )


def is_pickled(name: str) -> bool:
    """Whether a file of this name holds pickled weights. They can run code when they are read."""
    return name.endswith(_PICKLED_SUFFIXES)


def _pickled(path: Path) -> DraftproofError:
    return DraftproofError(
        "DP407",
        "MODEL",
        path,
        "safetensors or GGUF weights",
        "Pickled files can run code when they are read. Convert the weights to safetensors.",
    )


def broken(path: Path | str, found: object, expected: str) -> DraftproofError:
    """The error for a file whose content contradicts its format; `path` may also name a file of a hub."""
    remedy = "Get the file again and compare its size and SHA-256 with the source."
    return DraftproofError("DP402", str(path), found, expected, remedy)


def member(directory: Path, name: str) -> Path | None:
    """The file `name` of a checkpoint directory, or None if it is not there.

    `name` may come from the checkpoint itself: it must be a plain file name, and a link may lead only to a
    place within the directory or to the `blobs` folder that a hub cache keeps beside its snapshots. Raises
    DP402.
    """
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise broken(directory, f"a file name {name!r}", "a plain file name without a path")
    path = directory / name
    if not path.exists():
        return None
    target = path.resolve()
    root = directory.resolve()
    snapshots = [parent for parent in root.parents if parent.name == "snapshots"]
    allowed = [root, *(parent.parent / "blobs" for parent in snapshots[:1])]
    if not any(target.is_relative_to(place) for place in allowed):
        raise DraftproofError(
            "DP402",
            str(path),
            f"a link to {target}",
            f"a file within {root}",
            "Name the directory that holds the files themselves, or copy them: links that lead elsewhere are not read.",
        )
    _require_regular(path, target)
    return path


def _require_regular(path: Path, target: Path) -> None:
    if not stat.S_ISREG(target.stat().st_mode):
        raise broken(path, "a directory or device", "a regular file")


def read_json(path: Path, max_bytes: int) -> dict[str, Any]:
    """The JSON object in `path`. Raises DP402 if it is too long, not UTF-8, not JSON or not an object."""
    return parse_json(path, read_text(path, max_bytes))


def read_text(path: Path, max_bytes: int) -> str:
    """The text in `path`. Raises DP402 if it is too long or not UTF-8."""
    with path.open("rb") as file:
        content = read_bounded(file, max_bytes)
    if len(content) > max_bytes:
        raise broken(path, f"more than {max_bytes} bytes", "a shorter file")
    return decode(path, content)


def read_bounded(file: BinaryIO, max_bytes: int) -> bytes:
    """The rest of a file, or a byte more than `max_bytes` of it; takes no more memory than the file is long."""
    return file.read(min(os.fstat(file.fileno()).st_size, max_bytes) + 1)


def decode(path: Path | str, content: bytes) -> str:
    """UTF-8 bytes that came from `path` as text. Raises DP402."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise broken(path, f"bytes that are not UTF-8 ({error.reason})", "UTF-8 text") from error


def parse_json(path: Path | str, text: str) -> dict[str, Any]:
    """As `read_json`, of text that came from `path`."""
    try:
        document = json.loads(text, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise broken(path, f"not JSON ({error})"[:200], "a JSON object") from error
    if not isinstance(document, dict):
        raise broken(path, f"a JSON {type(document).__name__}", "a JSON object")
    return document


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key appears twice")
    return document
