"""Where the product keeps what it can obtain again: models and compiled kernels."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_root() -> Path:
    """$DRAFTPROOF_HOME, else `draftproof` in the user's cache directory.

    A process without a home (a container's numeric user) gets a directory of its own among the temporary files.
    """
    home = os.environ.get("DRAFTPROOF_HOME")
    if home:
        return Path(home)
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "draftproof"
    user = os.path.expanduser("~")
    if user == "~":
        return Path(tempfile.gettempdir()) / f"draftproof-{os.getuid()}"
    return Path(user) / ".cache" / "draftproof"
