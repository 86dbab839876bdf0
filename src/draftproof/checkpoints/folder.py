"""Files of a checkpoint by name, wherever they lie. A local directory here; a hub's repository in `hub`.

Called by `folder_view`. Knows names, sizes and bytes; nothing of what they mean. Every read is bounded.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Protocol

from draftproof.checkpoints.files import broken, member, read_bounded
from draftproof.core.errors import DraftproofError
from draftproof.core.files import open_regular

MAX_FILES = 1 << 16
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")
_DOWNLOAD_RECORD = ".cache/huggingface/download/config.json.metadata"
_HASH_CHUNK = 1 << 20


class Folder(Protocol):
    """A flat set of files. All methods raise DP402 for names and files that cannot be part of a checkpoint."""

    @property
    def place(self) -> str:
        """In words, where it is."""
        ...

    @property
    def commit(self) -> str | None:
        """Of the hub's repository that the files are from, where that is known."""
        ...

    def names(self) -> frozenset[str]: ...

    def label(self, name: str) -> str:
        """The file's full name for messages."""
        ...

    def path_of(self, name: str) -> Path | None:
        """Of a file that exists: where it lies on this machine, or None where it does not."""
        ...

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """The whole file, or None where there is none. Raises DP402 for one longer than `max_bytes`."""
        ...

    def read_range(self, name: str, start: int, num_bytes: int) -> bytes:
        """Bytes of a file that exists. Raises DP402 where it ends before."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a file that exists."""
        ...

    def sha256(self, name: str) -> str:
        """Of a file that exists. Of a large file that a hub keeps, what the hub calls it by."""
        ...


class LocalFolder:
    """A directory. Links may lead only where `files.member` allows; that of the file `named` by the user, anywhere."""

    def __init__(self, path: Path, place: str | None = None, named: str | None = None) -> None:
        self.path = path
        self.place = place or f"directory {path}"
        self._named = named

    @cached_property
    def commit(self) -> str | None:
        """From where it lies in the hub's cache, or from what a download into a directory left in it."""
        for place in (self.path, *self.path.parents):
            if place.parent.name == "snapshots" and COMMIT.fullmatch(place.name):
                return place.name
        try:
            with open_regular(self.path / _DOWNLOAD_RECORD) as file:
                first = file.read(41).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return first if COMMIT.fullmatch(first) else None

    def names(self) -> frozenset[str]:
        found: list[str] = []
        with readable(self.path), os.scandir(self.path) as entries:
            for entry in entries:
                if len(found) == MAX_FILES:
                    raise broken(self.path, f"more than {MAX_FILES} files", "the directory of one checkpoint")
                found.append(entry.name)
        return frozenset(found)

    def label(self, name: str) -> str:
        return str(self.path / name)

    def path_of(self, name: str) -> Path:
        path = self._find(name)
        if path is None:
            raise broken(self.path, f"no file {name}", "the file that the checkpoint names")
        return path

    def read(self, name: str, max_bytes: int) -> bytes | None:
        path = self._find(name)
        if path is None:
            return None
        with readable(path), path.open("rb") as file:
            content = read_bounded(file, max_bytes)
        if len(content) > max_bytes:
            raise broken(path, f"more than {max_bytes} bytes", "a shorter file")
        return content

    def read_range(self, name: str, start: int, num_bytes: int) -> bytes:
        path = self.path_of(name)
        with readable(path), path.open("rb") as file:
            file.seek(start)
            content = file.read(num_bytes)
        if len(content) < num_bytes:
            raise broken(path, f"{start + len(content)} bytes", f"at least {start + num_bytes} bytes")
        return content

    def size(self, name: str) -> int:
        path = self.path_of(name)
        with readable(path):
            return os.path.getsize(path)

    def sha256(self, name: str) -> str:
        path = self.path_of(name)
        with readable(path):
            target = path.resolve()
            if target.parent.name == "blobs" and SHA256.fullmatch(target.name):
                return target.name
            return sha256_of_file(path)

    def _find(self, name: str) -> Path | None:
        if name == self._named:
            return self.path / name
        with readable(self.path / name if "\0" not in name else self.path):
            path = member(self.path, name)
            if path is None and os.path.lexists(self.path / name):
                raise broken(self.path / name, "a link that leads nowhere", "a file")
        return path


def sha256_of(folder: Folder, name: str, max_bytes: int) -> str:
    """Of a file that exists. Raises DP402 for one longer than `max_bytes`, before any of it is read."""
    if folder.size(name) > max_bytes:
        raise broken(folder.label(name), f"more than {max_bytes} bytes", "a shorter file")
    return folder.sha256(name)


def sha256_of_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What the operating system refuses becomes DP002; a chain of links without end too."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "loop" not in str(error).lower():
            raise
        found = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DraftproofError(
            "DP002", str(path), found, "a file that can be read", "Check the path and its permissions."
        ) from error
