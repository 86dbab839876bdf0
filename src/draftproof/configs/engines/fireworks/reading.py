"""A Fireworks deployment → the neutral description. Called by the dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftproof.configs.engines.base import Reader, read_or_why
from draftproof.configs.engines.fireworks import words
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.told import remark_variables, take_start
from draftproof.configs.reading.jsontext import read_json
from draftproof.configs.reading.node import Node, given_twice
from draftproof.configs.reading.options import read_options, single
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.shell import Word


def gather(place: Place, found: Gathering, read: Reader | None) -> None:
    """Raises DP111 with line and column."""
    fields = _object(place) if place.text.lstrip().startswith("{") else _command(place, found, read)
    for field, (path, kind) in words.PLAIN.items():
        node = fields.pop(field, None)
        if node is not None and not _is_empty(node):
            found.say(path, _value(node, field, kind))
    precision = fields.pop(words.PRECISION, None)
    if precision is not None:
        name = precision.text(words.PRECISION)
        if name in words.PRECISIONS:
            found.say("dtype", words.PRECISIONS[name])
        else:
            found.own(words.PRECISION, name, around=True)
    _method(place, found, fields)
    for field, node in fields.items():
        found.own(field, node.plain(), around=True)


def _object(place: Place) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for key, node in read_json(place).members("the deployment").items():
        field = words.SPELLINGS.get(key, key)
        if field in found:
            raise given_twice(node.key_place or node.place, key)
        found[field] = node
    return found


def _command(place: Place, found: Gathering, read: Reader | None) -> dict[str, Node]:
    line = take_start(place, found)
    texts = tuple(word.text for word in line.words[:3])
    if not texts or texts[0].rpartition("/")[2] != "firectl" or texts[1:] not in words.COMMANDS:
        where = line.words[0].position if line.words else 0
        raise place.at(where).refused(
            texts[0] if texts else "nothing",
            "a JSON object, or firectl deployment create MODEL …",
            "Give one of these.",
        )
    options = read_options(place, _switches(place, line.words[3:]), words.TABLE)
    model = single(place, options, "one base model")
    if model is None:
        raise place.at(len(place.text)).refused("no model", "one base model", "Name the base model.")
    remark_variables(options, found)
    found.own("launcher", " ".join(texts), around=True)
    others = [
        text
        for option in words.OTHERS
        if (given := options.given.get(option.name))
        for text in ([option.name] if given.value is True else [option.name, str(given.value)])
    ]
    fields: dict[str, Node] = {}
    file = options.given.get(words.FILE.name)
    if file is not None:
        text, why = read_or_why(read, str(file.value))
        if text is None:
            found.remark(
                "unread", words.FILE.name, f"{why}: what it sets is not known here", found=str(file.value),
                position=file.position,
            )  # fmt: skip
            others += [words.FILE.name, str(file.value)]
        else:
            fields = _object(Place("fireworks", text, name=str(file.value)))
    found.say("rest", (*others, *(word.text for word in options.rest)))
    fields["baseModel"] = Node(model.text, place.at(model.position))
    for field, option in words.FLAGS.items():
        given = options.given.get(option.name)
        if given is not None:
            assert isinstance(given.value, str | int)
            fields[field] = Node(given.value, given.place)
    return fields


def _switches(place: Place, line: Sequence[Word]) -> list[Word]:
    """Go's switches: `--wait=true` is `--wait`, and `--wait=false` is nothing."""
    kept: list[Word] = []
    for word in line:
        name, equals, value = word.text.partition("=")
        option = words.TABLE.get(name)
        if option is None or option.kind != "flag" or not equals:
            kept.append(word)
        elif value in ("true", "false"):
            kept += [Word(name, word.position)] if value == "true" else []
        else:
            raise place.at(word.position).refused(
                word.text, f"{name}, or =true or =false", "Correct the value."
            )
    return kept


def _is_empty(node: Node) -> bool:
    """null, "" and 0 say what leaving out says."""
    return node.value is None or node.value == "" or (node.value == 0 and node.value is not False)


def _value(node: Node, field: str, kind: str) -> Any:
    if kind == "int":
        value = node.integer(field)
        if value < 0:
            raise node.refused(f"{field}: 0 or more", "Correct the value.")
        return value
    return node.boolean(field) if kind == "bool" else node.text(field)


def _method(place: Place, found: Gathering, fields: dict[str, Node]) -> None:
    off, mtp = _flag(fields, words.OFF), _flag(fields, words.MTP)
    said: Mapping[str, Any] = found.settings
    draft, look_up = "speculation.drafter" in said, "speculation.lookup.max_ngram" in said
    if draft and look_up:
        raise place.refused(
            "draftModel and ngramSpeculationLength",
            "one of the two: they exclude each other",
            "Leave one of them out.",
        )
    if off:
        for path in [path for path in said if path.startswith("speculation.")]:
            found.remark("ignored", path, "speculation is switched off", found=str(found.settings.pop(path)))
        found.say("speculation.method", "none")
        return
    found.say(
        "speculation.method", "draft_model" if draft else "ngram" if look_up else "mtp" if mtp else "auto"
    )
    if mtp and (draft or look_up):
        found.own(words.MTP, True)
    if (draft or look_up) and "speculation.depth" not in said:
        found.remark("refused", "draftTokenCount", "a draft model and look-up need it", found="nothing")
    if not (draft or look_up or mtp):
        found.remark(
            "inferred", "draftModel", "the base model's default draft model and token count act, if it has them",
            found="nothing",
            today=f"{words.FLAGS[words.OFF].name}, or {words.OFF}, for none",
        )  # fmt: skip


def _flag(fields: dict[str, Node], name: str) -> bool:
    node = fields.pop(name, None)
    return node is not None and node.value is not None and node.boolean(name)
