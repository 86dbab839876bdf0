"""How a text is refused: DP111 with the engine, line and column.

Called by the readers of this package and by the dialects. Knows nothing of what the text should say.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.core.errors import DraftproofError

MAX_CHARS = 262_144
"""Longest text that is read: a configuration is a page, not a book."""
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which text: what an error of a reader or a dialect points at."""

    engine: str
    text: str
    position: int = 0
    name: str | None = None
    """Of the file, where the text is one."""

    def at(self, position: int) -> Place:
        return Place(self.engine, self.text, position, self.name)

    def refused(self, found: object, expected: str, remedy: str) -> DraftproofError:
        """The error to raise for what stands here."""
        before = self.text[: self.position]
        line = before.count("\n") + 1
        column = self.position - (before.rfind("\n") + 1) + 1
        subject = f"{self.engine} {cut(self.name)}" if self.name else self.engine
        return DraftproofError(
            "DP111", f"{subject}, line {line}, column {column}", cut(str(found)), expected, remedy
        )


def without_zero(place: Place, text: str) -> None:
    """Raises DP111 for a zero character: no argument, variable or file name of a program can hold one."""
    if "\0" in text:
        here = place.at(text.index("\0")) if text is place.text else place
        raise here.refused("a zero character", "text without it", "Remove it.")


def cut(text: str) -> str:
    """At most 80 characters of what may be a hostile text."""
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def bounded(place: Place) -> None:
    """Raises DP111 for a text that is longer than any configuration, or holds a zero character."""
    without_zero(place, place.text)
    if len(place.text) > MAX_CHARS:
        raise place.at(MAX_CHARS).refused(
            f"{len(place.text)} characters",
            f"at most {MAX_CHARS} characters",
            "Give the configuration alone.",
        )
