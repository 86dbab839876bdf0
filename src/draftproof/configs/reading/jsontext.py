"""Reads JSON with positions, strictly: no duplicate keys, no NaN, bounded depth and size.

Called by the dialects and, for `--config` files, by commands. Python's own reader keeps no positions and takes
duplicates and NaN.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from types import MappingProxyType

from draftproof.configs.reading.node import Budget, Node, given_twice
from draftproof.configs.reading.refusal import Place, bounded

_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>\.[0-9]+)?(?P<exponent>[eE][-+]?[0-9]+)?")
_WORDS: tuple[tuple[str, bool | None], ...] = (("true", True), ("false", False), ("null", None))
_MAX_DIGITS = 40
_STRINGS = JSONDecoder(strict=True)


def read_json(place: Place, start: int = 0) -> Node:
    """The one value that `place.text` holds from `start` on. Raises DP111 with the position."""
    bounded(place)
    reader = _Json(place)
    node = reader.value(reader.blank(start), 0, None)
    end = reader.blank(reader.end)
    if end < len(place.text):
        raise place.at(end).refused(
            place.text[end : end + 20], "the end of the JSON text", "Give one value, nothing behind it."
        )
    return node


class _Json:
    """One reading; `end` is where the value that was read last ends."""

    def __init__(self, place: Place) -> None:
        self.place, self.text, self.end = place, place.text, 0
        self._budget = Budget()

    def blank(self, position: int) -> int:
        match = _BLANK.match(self.text, position)
        assert match is not None
        return match.end()

    def value(self, position: int, depth: int, key_place: Place | None) -> Node:
        here = self.place.at(position)
        self._budget.take(here, depth)
        char = self.text[position : position + 1]
        if char == "{":
            return Node(self._object(position, depth), here, key_place)
        if char == "[":
            return Node(self._list(position, depth), here, key_place)
        if char == '"':
            return Node(self._string(position), here, key_place)
        for word, value in _WORDS:
            if self.text.startswith(word, position):
                self.end = position + len(word)
                return Node(value, here, key_place)
        return Node(self._number(position), here, key_place)

    def _number(self, position: int) -> int | float:
        match = _NUMBER.match(self.text, position)
        here = self.place.at(position)
        if match is None:
            raise here.refused(
                self.text[position : position + 20] or "nothing", "a JSON value", "Correct the JSON."
            )
        raw = match[0]
        if len(raw) > _MAX_DIGITS:
            raise here.refused(raw, f"a number of at most {_MAX_DIGITS} characters", "Correct the value.")
        self.end = match.end()
        number = float(raw) if match["fraction"] or match["exponent"] else int(raw)
        if number in (float("inf"), float("-inf")):
            raise here.refused(raw, "a finite number", "Correct the value.")
        return number

    def _string(self, position: int) -> str:
        try:
            text, self.end = _STRINGS.raw_decode(self.text, position)
        except JSONDecodeError as error:
            raise self.place.at(min(error.pos, len(self.text))).refused(
                error.msg, "a JSON string", "Correct the JSON."
            ) from None
        assert isinstance(text, str)
        return text

    def _list(self, position: int, depth: int) -> tuple[Node, ...]:
        parts: list[Node] = []
        position = self.blank(position + 1)
        if self.text[position : position + 1] == "]":
            self.end = position + 1
            return ()
        while True:
            parts.append(self.value(position, depth + 1, None))
            if self._closes("]"):
                return tuple(parts)
            position = self.blank(self.end)

    def _object(self, position: int, depth: int) -> MappingProxyType[str, Node]:
        found: dict[str, Node] = {}
        position = self.blank(position + 1)
        if self.text[position : position + 1] == "}":
            self.end = position + 1
            return MappingProxyType(found)
        while True:
            here = self.place.at(position)
            if self.text[position : position + 1] != '"':
                raise here.refused(
                    self.text[position : position + 20] or "nothing",
                    "a key in double quotes",
                    "Correct the JSON.",
                )
            key = self._string(position)
            if key in found:
                raise given_twice(here, key)
            position = self.blank(self.end)
            if self.text[position : position + 1] != ":":
                raise self.place.at(position).refused(
                    self.text[position : position + 20] or "nothing", "a colon", "Correct the JSON."
                )
            found[key] = self.value(self.blank(position + 1), depth + 1, here)
            if self._closes("}"):
                return MappingProxyType(found)
            position = self.blank(self.end)

    def _closes(self, bracket: str) -> bool:
        """Whether the list or object ends here; steps over a comma otherwise."""
        position = self.blank(self.end)
        char = self.text[position : position + 1]
        self.end = position + 1
        if char == bracket:
            return True
        if char != ",":
            raise self.place.at(position).refused(
                self.text[position : position + 20] or "nothing", f"a comma or {bracket}", "Correct the JSON."
            )
        return False
