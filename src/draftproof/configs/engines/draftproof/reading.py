"""Reads this product's own speculation objects and command lines.

Called by the dialect. Whether an object is valid is `core.intent`'s decision; here its position in the text is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.configs.engines.account import Settings, build, changeable
from draftproof.configs.engines.base import Reader
from draftproof.configs.engines.draftproof import words
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.told import remark_variables, take_start
from draftproof.configs.reading.jsontext import read_json
from draftproof.configs.reading.node import Node
from draftproof.configs.reading.options import Given, Options, read_options
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import Speculation
from draftproof.core import intent
from draftproof.core.errors import DraftproofError


def settings(place: Place, read: Reader | None, found: Gathering) -> Settings:
    """What the text says, by neutral path. Raises DP111."""
    if place.text.lstrip()[:1] == "{":
        return _settings(read_json(place))
    return _command(place, read, found)


def _settings(node: Node) -> dict[str, Any]:
    """What the object says, and nothing that it leaves to the defaults. Raises DP111 for what `core.intent` refuses."""
    said = {
        key.replace("-", "_"): part.plain() for key, part in node.members("the speculation object").items()
    }
    try:
        intent.parse_intent(changeable(node.plain()))
    except DraftproofError as error:
        key = error.field.partition(".")[0].partition("[")[0]
        place = next(
            (
                part.key_place or part.place
                for name, part in node.members("").items()
                if name.replace("-", "_") == key
            ),
            node.place,
        )
        raise place.refused(f"{error.field}: {error.found}", error.expected, error.remedy) from None
    return {f"{words.PREFIX}{path}": value for path, value in _neutral(said).items()}


def _neutral(said: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rule = said.get("rejection_sample_method")
    if rule is not None:
        found["verification"] = rule
    for key, value in said.items():
        if key == "proposers" and value is not None:
            found["parts"] = tuple(_part(part) for part in value)
        elif key in words.PATHS and value is not None and value != "auto":
            found[words.PATHS[key]] = words.RULES[value] if key == "verification" else value
        elif key == "method":
            found["method"] = value
    return found


def _part(said: Mapping[str, Any]) -> Speculation:
    inner = _neutral({key.replace("-", "_"): value for key, value in said.items()})
    return build("draftproof", {f"{words.PREFIX}{path}": value for path, value in inner.items()}).speculation


def _command(place: Place, read: Reader | None, gathering: Gathering) -> dict[str, Any]:
    line = take_start(place, gathering).words
    texts = [word.text for word in line]
    if texts[:1] == ["draftproof"]:
        line, texts = line[1:], texts[1:]
    if not texts or (texts[0] not in words.COMMANDS and not texts[0].startswith("-")):
        raise place.at(line[0].position if line else 0).refused(
            texts[0] if texts else "nothing",
            "`draftproof serve …`, `draftproof generate …` or a speculation object",
            "Give the command or the object.",
        )
    found: dict[str, Any] = {}
    if texts[0] in words.COMMANDS:
        found["extras.draftproof.launcher"] = texts[0]
        line = line[1:]
    given = read_options(place, line, words.TABLE)
    remark_variables(given, gathering)
    if given.positional:
        found["target"] = given.positional[0].text
    for name, item in given.given.items():
        if name in words.FLAGS:
            found[words.FLAGS[name][0]] = _value(place, item)
    config = given.given.get(words.CONFIG.name)
    if config is not None:
        found |= _settings(_object(place, config, read))
    rest = _rest(place, given)
    return found | ({"rest": rest} if rest else {})


def _value(place: Place, item: Given) -> Any:
    path = words.FLAGS[item.option.name][0]
    if path == "memory_bytes":
        return _bytes(place.at(item.position), str(item.value))
    if isinstance(item.value, int) and item.value <= 0:
        raise place.at(item.position).refused(item.value, f"{item.option.name} above 0", "Correct the value.")
    return item.value


def _bytes(place: Place, text: str) -> int:
    digits = text.strip().rstrip("kKmMgGiIbB ")
    unit = text.strip()[len(digits) :].strip().lower()
    try:
        amount = float(digits) if len(digits) <= 40 else 0.0
        found = round(amount * words.UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        found = 0
    if found <= 0:
        raise place.refused(f"--memory {text}", "an amount such as 4GiB", "Correct the value.")
    return found


def _object(place: Place, item: Given, read: Reader | None) -> Node:
    text = str(item.value)
    if text.lstrip().startswith("{"):
        return read_json(Place(place.engine, text, 0, words.CONFIG.name))
    if read is None:
        raise place.at(item.position).refused(
            text, "the object itself", "Give the file's content in place of its name."
        )
    return read_json(Place(place.engine, read(text), 0, text))


def _rest(place: Place, given: Options) -> tuple[str, ...]:
    if given.rest:
        word = given.rest[0]
        raise place.at(word.position).refused(
            word.text, "an option of draftproof", "`draftproof --help` lists them."
        )
    further = given.positional[1:]
    if further and not (len(further) == 1 and further[0].text == "-"):
        word = further[0]
        raise place.at(word.position).refused(word.text, "one model", "Quote it, or remove it.")
    known = {option.name for option in words.OTHERS}
    items = sorted(
        (item for name, item in given.given.items() if name in known), key=lambda item: item.position
    )
    return tuple(
        text
        for item in items
        for text in ([item.option.name] if item.value is True else [item.option.name, str(item.value)])
    )
