"""What starts a program: its words, its environment, the image it runs in, and what of the text was not read.

Filled by `started`, `prefixes` and `manifest`; read by the dialects and by whoever asks for engine and version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from draftproof.configs.reading.images import Image
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.shell import Word

IN_A_VARIABLE = "its value is in a variable, not in the text; carried along as it is"
FROM_OUTSIDE = "its value comes from outside of the text"


@dataclass(frozen=True, slots=True)
class Unread:
    """A part of the text that is not read. unread: it may set what is judged. unknown: it has a name, and its value is
    elsewhere. lost: it concerns the surroundings alone."""

    effect: Literal["unread", "unknown", "lost"]
    setting: str
    found: str
    reason: str
    position: int


@dataclass(frozen=True, slots=True)
class Start:
    """`words`: the program and its arguments, or arguments alone. `around`: `docker run` up to the image."""

    words: tuple[Word, ...]
    environment: Mapping[str, str]
    image: Image | None
    around: tuple[str, ...]
    unread: tuple[Unread, ...]


@dataclass(slots=True)
class Collected:
    """What is found on the way to the words."""

    place: Place
    environment: dict[str, str] = field(default_factory=dict)
    image: Image | None = None
    around: tuple[str, ...] = ()
    unread: list[Unread] = field(default_factory=list)
    entrypoint: Word | None = None
    """The program in place of the image's own."""
    depth: int = 0
    """Of shells within shells."""

    def leave(
        self,
        effect: Literal["unread", "unknown", "lost"],
        setting: str,
        found: str,
        reason: str,
        position: int = 0,
    ) -> None:
        self.unread.append(Unread(effect, setting, found, reason, min(position, len(self.place.text))))

    def set(self, name: str, value: str, word: Word) -> None:
        """A variable; one whose value is itself in a variable is kept as it is written."""
        self.environment[name] = value
        if word.variable is not None:
            self.leave("unknown", name, value, IN_A_VARIABLE, word.position)

    def inherit(self, name: str, position: int) -> None:
        """A variable that is passed on without its value."""
        self.leave("unknown", name, name, FROM_OUTSIDE, position)

    def start(self, words: tuple[Word, ...]) -> Start:
        return Start(words, self.environment, self.image, self.around, tuple(self.unread))
