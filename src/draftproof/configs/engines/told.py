"""Which engine a text starts, and which version of it: by the program, else by the image. The one way of telling it.

Called by `check`, `plan`, `translate` and `lock`; `take_start` by the dialects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.reading.options import Options
from draftproof.configs.reading.prefixes import program
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.shell import Word
from draftproof.configs.reading.start import IN_A_VARIABLE, Start
from draftproof.configs.reading.started import PROGRAMS, read_start
from draftproof.core.errors import DraftproofError

_LOOKED_AT = 8
"""Words at the front, of which one is the program."""
_OF_TENSORRT = re.compile(r"^[ \t]*[\"']?decoding_type[\"']?[ \t]*:", re.MULTILINE)
"""A key of TensorRT-LLM's file, which no other engine has."""


@dataclass(frozen=True, slots=True)
class Told:
    """None where the text does not tell it. `version`: of the image's tag."""

    engine: str | None = None
    version: str | None = None


def told_by(text: str, engine: str | None = None) -> Told:
    """What `text` says of itself; of several containers, what the one of `engine` says. An object of JSON says nothing,
    nor does a text that no dialect could read as a command."""
    if text.lstrip()[:1] in ("{", ""):
        return Told()
    if _OF_TENSORRT.search(text):
        return Told("trtllm")
    try:
        start = read_start(Place(engine or "command", text))
    except DraftproofError:  # the dialect says what is wrong, and where
        return Told(program_of(tuple(Word(word, 0) for word in text.split(None, 64)[:64])))
    image = start.image
    by_program = program_of(start.words)
    if image is not None and image.engine is not None and by_program in (None, image.engine):
        return Told(image.engine, image.version)
    return Told(by_program)


def program_of(words: tuple[Word, ...]) -> str | None:
    """The engine whose program or module is among the first words."""
    names = (program(word) for word in words[:_LOOKED_AT])
    return next((PROGRAMS[name] for name in names if name in PROGRAMS), None)


def take_start(place: Place, found: Gathering) -> Start:
    """What starts the engine; variables, image and what was not read go to `found`.

    Raises DP111, also for an image of another engine in which arguments stand alone."""
    start = read_start(place)
    for part in start.unread:
        found.remark(part.effect, part.setting, part.reason, found=part.found, position=part.position)
    if start.environment:
        found.own("env", start.environment, around=True)
    image = start.image
    if image is None:
        return start
    found.own("image", image.name, around=True)
    alone = not start.words or start.words[0].text.startswith("-")
    if image.engine == found.engine:
        if image.version is not None and found.asked is None:
            found.asked = found.version = image.version
    elif alone and image.engine is not None:
        where = start.words[0].position if start.words else 0
        raise place.at(where).refused(
            f"the image {image.name}",
            f"an image of {found.engine}, or the command in it",
            "Name the engine's own.",
        )
    elif alone:
        found.remark(
            "unknown", "image", f"not known: its entry point is taken for {found.engine}'s", found=image.name
        )
    return start


def remark_variables(options: Options, found: Gathering) -> None:
    """What of a command is in variables where nothing reads it."""
    for name, word in options.variables:
        if name:
            found.remark(
                "unknown", name.partition("=")[0], IN_A_VARIABLE, found=word.text, position=word.position
            )
        else:
            found.remark(
                "unread", "arguments", "arguments in a variable: what they set is not known here",
                found=word.text, position=word.position,
            )  # fmt: skip
