"""Opens files that a user or a configuration names, so that nothing waits on a pipe or reads a device without end; and
writes files whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

from draftproof.core.interrupts import uninterrupted


def open_regular(path: Path) -> BinaryIO:
    """The file for reading. Raises OSError for one that cannot be opened and for anything that is no regular file, and
    ValueError for a path with a zero byte."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "a pipe or device, no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def write_whole(path: Path, text: str, *, over: bool = True) -> None:
    """Writes a file in UTF-8, whole or not at all: what was there stays until all is written.

    A link is followed, a file keeps its permissions, and a pipe or device is written to and never replaced. Of several
    who write with `over` false one succeeds. Raises OSError, FileExistsError with `over` false for what is there.
    """
    path = Path(os.path.realpath(path))
    with uninterrupted():
        is_new = _reserved(path, over)
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            try:
                _replace(path, text, stat.S_IMODE(mode))
            except BaseException:
                if is_new:
                    path.unlink(missing_ok=True)
                raise
            return
    path.write_text(text, encoding="utf-8")  # may wait for a reader


def _reserved(path: Path, over: bool) -> bool:
    """Whether the empty file is ours: another may have come first."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        if not over:
            raise
        return False
    return True


def _replace(path: Path, text: str, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".draftproof-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
