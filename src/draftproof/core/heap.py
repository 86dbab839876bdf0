"""The allocator's own memory. Called where much was freed that nobody will ask for again."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Gives what the allocator holds for nothing back to the system, where it can be asked to (glibc)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
