"""Ctrl-C at a line of one's choice, for tests of what must be done whole or not at all."""

from __future__ import annotations

import linecache
import signal
import sys
from types import FrameType
from typing import Any


class CtrlC:
    """Sends SIGINT before the `at`-th line of the package that is run, where Python would look for signals."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.was_sent = False
        self._before = sys.gettrace()

    def __enter__(self) -> CtrlC:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if "/draftproof/" not in name:
            return None
        if event == "line" and not linecache.getline(name, frame.f_lineno).lstrip().startswith("return"):
            self.left -= 1
            if self.left == 0:
                self.was_sent = True
                signal.raise_signal(signal.SIGINT)
        return self._trace


class CtrlCAtCall(CtrlC):
    """Sends SIGINT as the `at`-th function begins or goes on, of whatever package: where Python looks for signals."""

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "call" and frame.f_code is not CtrlC.__exit__.__code__:
            self.left -= 1
            if self.left == 0:
                self.was_sent = True
                signal.raise_signal(signal.SIGINT)
        return None
