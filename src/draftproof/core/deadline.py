"""Ends waiting for what cannot be timed out itself. Called by what asks a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar, cast

Result = TypeVar("Result")


def within(stop: float, work: Callable[[], Result], name: str) -> Result:
    """What `work` returns or raises. Raises TimeoutError at `stop`, by time.monotonic.

    In a thread of its own, called `name`: neither name resolution nor a server that sends its headers byte by byte can
    be timed out otherwise. A thread that is given up holds nothing and does not keep the process alive.
    """
    outcome: list[tuple[Result | None, BaseException | None]] = []

    def run() -> None:
        try:
            outcome.append((work(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True, name=name)
    thread.start()
    thread.join(max(0.0, stop - time.monotonic()))
    if not outcome:
        raise TimeoutError
    result, error = outcome[0]
    if error is not None:
        raise error
    return cast(Result, result)
