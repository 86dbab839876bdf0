"""Fields, headers and metrics that speak of speculation, as they were seen, each with its place.

Called by the observed part. Copies numbers and short words; explains nothing. What is not named here but sounds like
speculation (draft, accepted, rejected, spec…) is kept as well, so that a field that nobody wrote down is not missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from draftproof.measure.probe.answer import Answer
from draftproof.measure.probe.client import Client

_SPEAKS = re.compile(
    r"spec(?![a-z])|specul|draft|accept|reject|prediction_|avg_decoded_tokens", re.IGNORECASE
)
_SILENT = re.compile(r"^accept(-|$)", re.IGNORECASE)
"""Names that say accept and mean HTTP's own (Accept-Ranges)."""
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens", "reasoning_tokens", "cached_tokens")
_MAX_NODES = 4000
_MAX_DEPTH = 8
_MAX_LIST = 64
_MAX_CHARS = 200

Value = int | float | str | bool | None | tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class Signal:
    """`place`: "usage", "header", "metrics"; or "body" for other fields of an answer. `name` is the path there."""

    place: str
    name: str
    value: Value


def answer_signals(answer: Answer, client: Client) -> tuple[Signal, ...]:
    """What an answer says of speculation and of counts, the last value of each field."""
    found: dict[tuple[str, str], Signal] = {}
    for payload in answer.payloads:
        for path, value in _walk(payload):
            place, _, rest = path.partition(".")
            if place == "usage" and (rest.rpartition(".")[2] in _COUNTS or _SPEAKS.search(rest)):
                found["usage", rest] = Signal("usage", rest, _short(value, client))
            elif place != "usage" and _SPEAKS.search(path) and "content" not in path:
                found["body", path] = Signal("body", path, _short(value, client))
    for name, text in answer.headers.items():
        if name.startswith("fireworks-") or (_SPEAKS.search(name) and not _SILENT.search(name)):
            found["header", name] = Signal("header", name, client.shown(text)[:_MAX_CHARS])
    return tuple(found.values())


_SAMPLE = re.compile(
    r"^(?P<name>[A-Za-z_:][\w:]*)(?P<labels>\{[^}]*\})?[ \t]+(?P<value>[-+.\deE]+|NaN|[+-]Inf)(?:[ \t]|$)"
)


def metric_samples(text: str) -> dict[str, float]:
    """Samples of a Prometheus text page that speak of speculation: name with labels → value."""
    samples: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None or not _SPEAKS.search(match["name"]) or len(samples) >= _MAX_NODES:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if value - value == 0.0:  # finite
            samples[match["name"] + (match["labels"] or "")] = value
    return samples


def server_signals(document: Mapping[str, object], client: Client) -> tuple[Signal, ...]:
    """Fields of a server's own description that speak of speculation or name its version."""
    wanted = re.compile(_SPEAKS.pattern + r"|version$|build_info", re.IGNORECASE)
    found = [
        Signal("server", path, _short(value, client))
        for path, value in _walk(document)
        if wanted.search(path)
    ]
    return tuple(found[:_MAX_LIST])


def _walk(document: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """(path, value) of the leaves, lists of plain values being leaves. Bounded in depth and number."""
    left = _MAX_NODES
    stack: list[tuple[str, object, int]] = [("", document, 0)]
    while stack and left > 0:
        left -= 1
        path, value, depth = stack.pop()
        if isinstance(value, Mapping) and depth < _MAX_DEPTH:
            items = [
                (f"{path}.{name}" if path else str(name), child, depth + 1) for name, child in value.items()
            ]
            stack.extend(reversed(items[:_MAX_NODES]))
        elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
            if depth < _MAX_DEPTH:
                stack.extend((f"{path}[{at}]", item, depth + 1) for at, item in enumerate(value[:_MAX_LIST]))
        elif not isinstance(value, Mapping):
            yield path[:_MAX_CHARS], value


def _short(value: object, client: Client) -> Value:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return tuple(_short(item, client) for item in value[:_MAX_LIST])
    return client.shown(str(value))[:_MAX_CHARS]
