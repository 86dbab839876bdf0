"""Reads the options of a command as Python's argparse does: aliases, `--name=value`, abbreviations, lists.

Called by dialects with a table of the options that they know. Which of them mean what is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.shell import Word

_NEGATIVE = re.compile(r"-(\d+|\d*\.\d+)")

_SHOWN = 12
"""Options that a refusal lists."""

Kind = Literal["str", "int", "float", "flag", "list", "any"]
"""list: one value or more; any: a list that may be empty."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of an engine: `name` with its dashes as it is written today."""

    name: str
    kind: Kind = "str"
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    carried: bool = False
    """Nothing reads its value, so that a variable may stand there."""
    removed: bool = False
    """The engine had it once: a beginning that it shares with today's options means those."""


@dataclass(frozen=True, slots=True)
class Given:
    """One option as it stands in the command."""

    option: Option
    written: str
    value: str | int | float | bool | tuple[str, ...]
    place: Place

    @property
    def position(self) -> int:
        return self.place.position


@dataclass(slots=True)
class Options:
    """What a command says: known options by name (the last one counts), words that precede or follow them, the rest."""

    given: dict[str, Given] = field(default_factory=dict)
    overridden: list[Given] = field(default_factory=list)
    positional: list[Word] = field(default_factory=list)
    rest: list[Word] = field(default_factory=list)
    """Options that the table does not have, each followed by its words."""
    variables: list[tuple[str, Word]] = field(default_factory=list)
    """Option (or "" where options themselves may come of it) and the word whose value is in a variable."""


def read_options(
    place: Place,
    words: Sequence[Word],
    table: Mapping[str, Option],
    abbreviated: str = "",
    gone: Collection[str] = (),
) -> Options:
    """Sorts `words`. `table` maps every spelling to its option; unique beginnings count for options that begin with
    `abbreviated`, of which the table must then have all. What is `gone` is no beginning of anything: it goes to the
    rest.

    Raises DP111 for a missing, superfluous or ill-formed value, and for a variable in one that is read.
    """
    found = Options()
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not is_option(word.text):
            if word.variable is None:
                found.positional.append(word)
            else:
                found.variables.append(("", word))
            continue
        name, equals, inline = word.text.partition("=")
        option = table.get(name) or (
            _by_beginning(place, word, name, table)
            if abbreviated and name.startswith(abbreviated) and name != "--" and name not in gone
            else None
        )
        following = index
        while following < len(words) and not is_option(words[following].text):
            following += 1
        if option is None:
            values = [] if equals else words[index:following]
            found.rest += [word, *values]
            for count, part in enumerate((word, *values)):  # one value is taken for the option's own
                if part.variable is not None:
                    found.variables.append((name if count < 2 else "", part))
            index += len(values)
            continue
        given, taken = _value(place, option, word, inline if equals else None, words[index:following])
        for part in (word, *words[index : index + taken]):
            if part.variable is not None:
                if not option.carried:
                    part.known(place)
                found.variables.append((option.name, part))
        index += taken
        if option.name in found.given:
            found.overridden.append(found.given[option.name])
        found.given[option.name] = given
    return found


def single(place: Place, found: Options, expected: str, is_told: bool = False) -> Word | None:
    """The only argument before the flags, or None. Raises DP111 for a second one, and for a variable in its place
    unless a flag tells it (`is_told`)."""
    if len(found.positional) > 1:
        raise place.at(found.positional[1].position).refused(
            found.positional[1].text, expected, "Remove it, or quote it."
        )
    first = next((word for name, word in found.variables if not name), None)
    argument = found.positional[0] if found.positional else None
    if first is not None and not is_told and (argument is None or first.position < argument.position):
        first.known(place)
    return argument


def is_option(text: str) -> bool:
    """argparse takes a negative number, and text with a blank, for a value."""
    name = text.partition("=")[0]
    return text.startswith("-") and text != "-" and " " not in name and not _NEGATIVE.fullmatch(text)


def begun(name: str, table: Mapping[str, Option]) -> dict[str, Option]:
    """Options that `name` may be the beginning of."""
    hits = {option.name: option for spelling, option in table.items() if spelling.startswith(name)}
    return {name: option for name, option in hits.items() if not option.removed} or hits


def _by_beginning(place: Place, word: Word, name: str, table: Mapping[str, Option]) -> Option | None:
    hits = begun(name, table)
    if len(hits) > 1:
        some = ", ".join(sorted(hits)[:_SHOWN]) + (", …" if len(hits) > _SHOWN else "")
        raise place.at(word.position).refused(
            f"{name}, which begins {len(hits)} options", f"one of {some}", "Write it out."
        )
    return next(iter(hits.values()), None)


def _value(
    place: Place, option: Option, word: Word, inline: str | None, following: Sequence[Word]
) -> tuple[Given, int]:
    """The option with its value, and how many of the `following` words it took."""
    written = word.text.partition("=")[0]
    if option.kind == "flag":
        if inline is not None:
            raise place.at(word.position).refused(
                word.text, f"{option.name} without a value", "Leave the value out."
            )
        return Given(option, written, True, place.at(word.position)), 0
    if option.kind in ("list", "any"):
        values = [inline] if inline is not None else [item.text for item in following]
        if not values and option.kind == "list":
            raise _no_value(place, option, word)
        given = Given(option, written, tuple(values), place.at(word.position))
        return given, 0 if inline is not None else len(following)
    if inline is None and not following:
        raise _no_value(place, option, word)
    raw = inline if inline is not None else following[0].text
    holder = word if inline is not None else following[0]
    if option.carried and holder.variable is not None:
        return Given(option, written, raw, place.at(word.position)), 0 if inline is not None else 1
    holder.known(place)
    value = number(place.at(word.position), option.name, raw, option.kind)
    if option.choices and value not in option.choices:
        raise place.at(word.position).refused(
            f"{option.name} {raw}", "one of " + ", ".join(option.choices), "Write one of these."
        )
    return Given(option, written, value, place.at(word.position)), 0 if inline is not None else 1


def _no_value(place: Place, option: Option, word: Word) -> Exception:
    return place.at(word.position).refused(
        f"{word.text} without a value", f"{option.name} VALUE", "Give the value."
    )


def number(place: Place, name: str, raw: str, kind: Kind) -> str | int | float:
    """`raw` as the option's kind. Raises DP111 for what is no number, for infinities and for absurdly long ones."""
    if kind not in ("int", "float"):
        return raw
    try:
        if len(raw) > 40:
            raise ValueError
        value = int(raw) if kind == "int" else float(raw)
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError
    except ValueError:
        expected = "a whole number" if kind == "int" else "a number"
        raise place.refused(f"{name} {raw}", f"{name} with {expected}", "Correct the value.") from None
    return value
