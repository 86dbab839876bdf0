"""What came back for one request: an answer, or why there is none.

Made by the client, read by every part of the probe. Texts in it are free of the key and of bounded length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class FailureKind(StrEnum):
    """Why a request has no usable answer."""

    UNREACHABLE = "unreachable"
    TLS = "TLS error"
    TIMEOUT = "timeout"
    TOO_SLOW = "over the time for one request"
    TOO_LARGE = "answer too large"
    ENCODED = "compressed although plain was asked for"
    NOT_JSON = "not JSON"
    NOT_AN_ANSWER = "not the shape of a chat completion"
    BROKEN_STREAM = "stream broken off"
    ERROR_IN_STREAM = "error inside the stream"
    REDIRECT = "redirect, not followed"
    REFUSED = "refused"
    RATE_LIMITED = "rate limited"
    SERVER_ERROR = "server error"
    BUDGET = "not sent: the budget is spent"


@dataclass(frozen=True, slots=True)
class Failure:
    """`status` is HTTP's, where there was one; `text` the server's own words or the system's, cut and scrubbed."""

    kind: FailureKind
    status: int | None
    text: str

    def __str__(self) -> str:
        status = f" (status {self.status})" if self.status is not None else ""
        return f"{self.kind}{status}: {self.text}" if self.text else f"{self.kind}{status}"


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a stream and when it was read, in seconds from the request."""

    at_s: float
    payload: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The text that it brings: content, reasoning and arguments of tool calls."""
        parts = []
        for choice in dicts(self.payload.get("choices")):
            delta = choice.get("delta")
            if not isinstance(delta, Mapping):
                continue
            parts += [delta.get(name) for name in ("content", "reasoning_content", "reasoning")]
            for call in dicts(delta.get("tool_calls")):
                function = call.get("function")
                parts.append(function.get("arguments") if isinstance(function, Mapping) else None)
        return "".join(part for part in parts if isinstance(part, str))

    @property
    def has_reasoning(self) -> bool:
        deltas = [choice.get("delta") for choice in dicts(self.payload.get("choices"))]
        names = ("reasoning_content", "reasoning")
        return any(isinstance(delta, Mapping) and delta.get(name) for delta in deltas for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`elapsed_s` from the last attempt's start to its end; `events` of a stream, `body` of a plain answer."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    body: Mapping[str, Any] | None = None
    text: str = ""
    events: tuple[StreamEvent, ...] = ()
    elapsed_s: float = 0.0
    retries: int = 0
    failure: Failure | None = None

    @property
    def payloads(self) -> tuple[Mapping[str, Any], ...]:
        """Everything that the server said as JSON objects."""
        plain = (self.body,) if self.body is not None else ()
        return plain + tuple(event.payload for event in self.events)

    @property
    def usage(self) -> Mapping[str, Any] | None:
        """The last usage object, or None where the server gave none."""
        found = [payload["usage"] for payload in self.payloads if isinstance(payload.get("usage"), Mapping)]
        return found[-1] if found else None

    @property
    def content(self) -> str:
        """The text of the answer."""
        if self.body is None:
            return "".join(event.text for event in self.events)
        messages = [choice.get("message") for choice in dicts(self.body.get("choices"))]
        texts = [message.get("content") for message in messages if isinstance(message, Mapping)]
        return "".join(text for text in texts if isinstance(text, str))

    @property
    def text_events(self) -> tuple[StreamEvent, ...]:
        """The events that brought text."""
        return tuple(event for event in self.events if event.text)


def dicts(value: object) -> list[Mapping[str, Any]]:
    """The objects in a list that a server sent; nothing where it is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def count(usage: Mapping[str, Any] | None, *path: str) -> int | None:
    """A count in a usage object: a whole number from 0, or None where it is not given or is none."""
    value: object = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
