"""Server-sent events: bytes in any pieces → the data of each event.

Called by the client for streamed answers. Follows the WHATWG HTML standard, section 9.2.6, as far as data is
concerned; event names, ids and retry times are of no use here. Knows no JSON and no time.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator


class EventTooLargeError(Exception):
    """One event grew beyond the limit: a stream without line ends, or not a stream of events."""


class EventDecoder:
    """Feed it bytes as they come; it yields the data of each event that is complete. `max_chars` per event."""

    def __init__(self, max_chars: int) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._max_chars = max_chars
        self._line = ""
        self._data: list[str] = []
        self._num_chars = 0
        self._started = False
        self._after_return = False

    def feed(self, piece: bytes) -> Iterator[str]:
        """Raises EventTooLargeError."""
        text = self._text.decode(piece)
        if not self._started and text:
            text = text.removeprefix("\ufeff")
            self._started = True
        if self._after_return and text:
            text = text.removeprefix("\n")
            self._after_return = False
        self._after_return = self._after_return or text.endswith("\r")
        lines = (self._line + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._line = lines.pop()
        for line in lines:
            data = self._take(line)
            if data is not None:
                yield data
        if len(self._line) + self._num_chars > self._max_chars:
            raise EventTooLargeError

    @property
    def is_within_event(self) -> bool:
        """Whether what came last is not complete: at the end of a stream, a cut one."""
        return bool(self._data or self._line)

    def _take(self, line: str) -> str | None:
        """Reads one line; returns an event's data at the blank line that ends it."""
        if line:
            field, _, value = line.partition(":")
            if field == "data":
                self._data.append(value.removeprefix(" "))
                self._num_chars += len(value)
            if self._num_chars > self._max_chars:
                raise EventTooLargeError
            return None
        data, self._data, self._num_chars = self._data, [], 0
        return "\n".join(data) if data else None
