"""Ctrl-C between two steps of something, never within one.

Used by the engine around a round, and by whatever else must be done whole or not at all.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Lets Python's handlers of SIGINT and SIGTERM run when the block is done, where what they raise is raised.

    Python runs handlers in the main thread alone: elsewhere there is nothing to hold. Keep the block short.
    """
    if threading.current_thread() is threading.main_thread():
        with _held(signal.SIGINT), _held(signal.SIGTERM):
            yield
    else:
        yield


@contextmanager
def _held(number: signal.Signals) -> Iterator[None]:
    handler = signal.getsignal(number)
    if not callable(handler):  # the system's own: it raises nothing
        yield
        return
    came: list[FrameType | None] = []
    try:
        signal.signal(number, lambda _, frame: came.append(frame))
        yield
    finally:
        signal.signal(number, handler)
        if came:
            handler(number, came[-1])
