"""Reads what starts vLLM: a command line, a list of arguments, a speculation object, or the arguments of `LLM(…)`.

Called by the dialect. Flags that say nothing about what this product judges go to `rest` unread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from draftproof.configs.engines.account import changeable
from draftproof.configs.engines.base import Reader
from draftproof.configs.engines.flag_file import FlagFile, take_file
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.told import remark_variables, take_start
from draftproof.configs.engines.vllm import arguments, facts, options, variables
from draftproof.configs.engines.vllm.config_reading import read_config
from draftproof.configs.engines.vllm.history import remark_removed
from draftproof.configs.reading.jsontext import read_json
from draftproof.configs.reading.node import Node
from draftproof.configs.reading.options import Given, Option, Options, begun, is_option, read_options, single
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.shell import Word
from draftproof.configs.reading.start import Start
from draftproof.core.errors import DraftproofError

_ENTRY_POINT = "vllm.entrypoints.openai.api_server"
_CONFIG = "--speculative-config"
_HUMAN = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)([kKmMgGtT]?)")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def gather(place: Place, found: Gathering, read: Reader | None) -> None:
    """Raises DP111 with line and column."""
    start = place.text.lstrip()[:1]
    if not start:
        raise place.refused(
            "nothing", "a command, a list of arguments or a JSON object", "Give the configuration."
        )
    if start == "{":
        rest = _read_object(read_json(place), found)
    else:
        begin = take_start(place, found)
        _remark_variables(begin, found)
        rest = _read_words(place, begin, read, found)
    found.say("rest", rest)


def _remark_variables(begin: Start, found: Gathering) -> None:
    """vLLM warns at start of variables that it does not have, and goes on without them."""
    if found.version not in variables.READ:
        return
    for name, value in begin.environment.items():
        if name.startswith("VLLM_") and name not in variables.NAMES:
            found.remark(
                "ignored",
                name,
                f"vLLM {found.version} has no such variable: it warns of it and goes on; a plugin may read it",
                found=value,
                today=variables.TODAY.get(name),
            )


def _read_object(node: Node, found: Gathering) -> tuple[str, ...]:
    """A speculation object, or the arguments of `LLM(…)` as one; returns what is carried along, as flags."""
    members = {name.replace("-", "_"): part for name, part in node.members("vLLM").items()}
    if "speculative_config" not in members:
        read_config(node.members("vLLM"), found, node)
        return ()
    switches = {name.replace("-", "_"): path for path, name in options.SWITCHES.items()}
    rest: list[str] = []
    for name, part in members.items():
        flag = "--" + name.replace("_", "-")
        if part.value is None:
            continue
        if name == "speculative_config":
            read_config(part.members(name), found, part)
        elif flag in options.FIELDS:
            path, option = options.FIELDS[flag]
            found.settings[path] = _field(path, option, part)
        elif name in switches:
            found.settings[switches[name]] = part.boolean(name)
        else:
            rest += _as_flag(flag, part)
    return tuple(rest)


def _as_flag(flag: str, node: Node) -> list[str]:
    if isinstance(node.value, bool):
        return [flag if node.value else f"--no-{flag.removeprefix('--')}"]
    return [flag, node.value if isinstance(node.value, str) else json.dumps(changeable(node.plain()))]


def _field(path: str, option: Option, node: Node) -> Any:
    if path in options.HUMAN:
        return node.integer(option.name)
    if option.kind == "int":
        return node.integer(option.name)
    return node.number(option.name) if option.kind == "float" else node.text(option.name)


def _read_words(place: Place, begin: Start, read: Reader | None, found: Gathering) -> tuple[str, ...]:
    is_serve = all(word.text != _ENTRY_POINT for word in begin.words)
    words, file = take_file(place, _after_program(place, begin, found), read, _truth, found)
    words, config = _undotted(place, words)
    given = read_options(place, words, _TABLE, abbreviated="--")
    if file is not None:
        config = _put_under(file, given, config)
    _read_target(place, given, found, is_serve, warns=is_serve and begin.image is None)
    unnamed: list[str] = []
    for name, item in given.given.items():
        path = options.FIELDS[name][0] if name in options.FIELDS else "target"
        if path.startswith("target.") and "target" not in found.settings:
            unnamed += [name, str(item.value)]
        elif path != "target":
            _set_field(item, found)
    for path, flag in options.SWITCHES.items():
        _set_switch(place, path, flag, given, found)
    _read_speculation(place, given, config, found)
    for item in given.overridden:
        found.remark(
            "ignored", item.option.name, "given again later in the line, which counts", found=str(item.value)
        )
    return (*unnamed, *_carried(given, found))


def _truth(flag: str, is_true: bool) -> list[str]:
    """A false switch is its `--no-` form where it has one, and nothing else."""
    other = "--no-" + flag.removeprefix("--").replace("_", "-")
    return [flag] if is_true else [other] if other in _TABLE else []


def _put_under(file: FlagFile, given: Options, dotted: Node | None) -> Node | None:
    """Adds to `given` what the file says and the command line does not; returns the dotted keys of both."""
    words, more = _undotted(file.place, file.words)
    theirs = read_options(file.place, words, _TABLE, abbreviated="--")
    for stray in theirs.positional:
        raise file.place.at(stray.position).refused(stray.text, "a flag's value", "Write true for a switch.")
    for name, item in theirs.given.items():
        plain = name.removeprefix("--").removeprefix("no-")
        if not {name, f"--{plain}", f"--no-{plain}"} & set(given.given):
            given.given[name] = item
    given.rest = [*theirs.rest, *given.rest]
    given.overridden += theirs.overridden
    if more is None or dotted is None:
        return more or dotted
    return Node(MappingProxyType({**more.members(_CONFIG), **dotted.members(_CONFIG)}), dotted.place)


def _carried(given: Options, found: Gathering) -> tuple[str, ...]:
    """Flags that say nothing of what is judged here, with their values and in their order."""
    groups: list[tuple[int, list[str]]] = []
    for word in given.rest:
        if not is_option(word.text):
            groups[-1][1].append(word.text)
            continue
        groups.append((word.position, [word.text]))
        name = word.text.partition("=")[0]
        if "." not in name and not name.startswith("-O"):  # -O3: a level of optimisation
            found.stray(name, _TABLE, engine="vLLM", is_complete=found.version in arguments.READ)
    for item in given.given.values():
        if item.option.name in _CARRIED:
            values = (
                item.value if isinstance(item.value, tuple) else () if item.value is True else (item.value,)
            )
            groups.append((item.position, [item.option.name, *map(str, values)]))
    return tuple(text for _, texts in sorted(groups) for text in texts)


def _after_program(place: Place, begin: Start, found: Gathering) -> Sequence[Word]:
    """The arguments behind `vllm serve`, `python -m …api_server`, `serve` or an image; or flags alone."""
    words, around = begin.words, begin.around
    texts = [word.text for word in words]
    if around:
        found.own("launcher", around, around=True)
    if texts and texts[0].startswith("-"):
        return words
    for index, text in enumerate(texts):
        if (text == _ENTRY_POINT and index and texts[index - 1] == "-m") or (
            text == "serve" and (index == 0 or texts[index - 1].rpartition("/")[2] == "vllm")
        ):
            if around:
                found.own("launcher", (*around, *texts[: index + 1]), around=True)
            return words[index + 1 :]
        if text.startswith("-") and text != "-m":
            break
    if begin.image is not None and begin.image.engine == "vllm":  # its entry point is `vllm serve`
        return words
    position = words[0].position if words else 0
    raise place.at(position).refused(
        texts[0] if texts else "nothing",
        "`vllm serve …`, its arguments, or a JSON object",
        "Give the command that starts the server.",
    )


def _undotted(place: Place, words: Sequence[Word]) -> tuple[list[Word], Node | None]:
    """Dashes for underscores in names; `--speculative-config.key value` gathered into an object, under any spelling."""
    left: list[Word] = []
    members: dict[str, Node] = {}
    start, spelling = 0, ""
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, value = word.text.partition("=")
        stem, dot, key = name.partition(".")
        if name.startswith("--"):
            stem = stem.replace("_", "-")
            word = replace(word, text=stem + dot + key + equals + value)
        if not (dot and _is_config(stem)):
            left.append(word)
            continue
        if spelling not in ("", stem):
            raise place.at(word.position).refused(
                name,
                f"{spelling} before every key",
                f"Write {_CONFIG} always: vLLM keeps one spelling's keys alone.",
            )
        spelling = stem
        if not equals:
            if index == len(words):
                raise place.at(word.position).refused(name, f"{name} VALUE", "Give the value.")
            value = words[index].known(place)
            index += 1
        word.known(place)
        start = start or word.position
        members[key] = _loose(place.at(word.position), value)
    config = Node(MappingProxyType(members), place.at(start)) if members else None
    return left, config


def _is_config(stem: str) -> bool:
    """The option's name, its alias, or a beginning that no other option has."""
    known = _TABLE.get(stem)
    if known is not None or not stem.startswith("--"):
        return known is not None and known.name == _CONFIG
    return set(begun(stem, _TABLE)) == {_CONFIG}


def _loose(place: Place, raw: str) -> Node:
    """The value of a dotted key: JSON where it is some, else text."""
    try:
        return Node(read_json(Place(place.engine, raw)).value, place, place)
    except DraftproofError:
        return Node(raw, place, place)


def _read_target(place: Place, given: Options, found: Gathering, is_serve: bool, warns: bool) -> None:
    """`is_serve`: `vllm serve` puts what --model says before the flags, where one name has room; `warns`: and says that
    it will not do so for ever, which an image's user does not see."""
    flagged = given.given.get("--model")
    named = single(place, given, "one model before the flags", flagged is not None)
    remark_variables(given, found)
    if named is not None:
        found.settings["target"] = named.text
    if flagged is None:
        return
    of_file = flagged.place.name is not None
    if named is not None and is_serve and not of_file:
        raise place.at(named.position).refused(
            f"{named.text} beside --model {flagged.value}", "one model", "Leave one of them out."
        )
    if named is not None and is_serve:
        found.remark(
            "ignored", "--model", "the model is named before the flags too", found=str(flagged.value)
        )
        return
    found.settings["target"] = str(flagged.value)
    if named is not None:
        found.remark("ignored", "arguments", "the older entry point goes by --model", found=named.text)
    elif warns and not of_file:
        found.remark(
            "deprecated",
            "--model",
            "with `vllm serve` it warns",
            found=str(flagged.value),
            today="vllm serve MODEL",
        )


def _set_field(item: Given, found: Gathering) -> None:
    path, _ = options.FIELDS[item.option.name]
    value: Any = item.value
    here = item.place
    if path in options.HUMAN:
        if str(value).strip().lower() in ("auto", "-1"):
            found.settings[f"extras.vllm.{path}"] = "auto"
            return
        value = _human(here, item.option.name, str(value).strip())
    if isinstance(value, int | float) and value <= 0:
        raise here.refused(f"{item.option.name} {value}", f"{item.option.name} above 0", "Correct the value.")
    if path == "memory_fraction" and value > 1:
        raise here.refused(f"{item.option.name} {value}", "a fraction up to 1", "Correct the value.")
    found.settings[path] = value


def _human(place: Place, name: str, raw: str) -> int:
    """8192, 8k = 8,000, 8K = 8,192; decimals with the small letters only."""
    match = _HUMAN.fullmatch(raw)
    unit = match[2] if match else ""
    if match is None or ("." in match[1] and (not unit or unit.isupper())):
        raise place.refused(
            f"{name} {raw}", f"{name} with a number such as 8192, 8k or 8K", "Correct the value."
        )
    base = 1024 if unit.isupper() else 1000
    return int(float(match[1]) * base ** _POWERS[unit.lower()]) if unit else int(match[1])


def _set_switch(place: Place, path: str, flag: str, given: Options, found: Gathering) -> None:
    yes, no = given.given.get(f"--{flag}"), given.given.get(f"--no-{flag}")
    if yes is not None or no is not None:
        last = max((item for item in (yes, no) if item is not None), key=lambda item: item.position)
        found.settings[path] = last is yes


def _read_speculation(place: Place, given: Options, dotted: Node | None, found: Gathering) -> None:
    config = dotted
    item = given.given.get(_CONFIG)
    if item is not None:
        if dotted is not None:
            found.remark(
                "ignored", _CONFIG, "the dotted keys come after it and take its place", found=str(item.value)
            )
        else:
            config = read_json(Place("vllm", str(item.value), 0, _CONFIG))
    members = {} if config is None or config.value is None else dict(config.members(_CONFIG))
    for flag, key in options.SHORTCUTS.items():
        if flag in given.given:
            shortcut = given.given[flag]
            here = shortcut.place
            if key in members or key.replace("_", "-") in members:
                raise here.refused(flag, f"{flag} or the key {key} of {_CONFIG}", "Leave one of them out.")
            members[key] = Node(_typed(here, key, shortcut.value), here, here)
    for flag, removed in facts.REMOVED_FLAGS.items():
        if flag in given.given:
            old = given.given[flag]
            here = old.place
            remark_removed(found, flag, str(old.value), removed)
            if removed.key and removed.key not in members:
                members[removed.key] = Node(_typed(here, removed.key, old.value), here, here)
    if members:
        whole = config or Node(None, next(iter(given.given.values())).place)
        read_config(members, found, whole)


def _typed(place: Place, key: str, value: object) -> Any:
    """A flag's text as the key's kind: whole numbers are numbers."""
    text = str(value)
    if (
        text.isascii()
        and text.isdecimal()
        and len(text) <= 18
        and key not in ("model", "method", "quantization")
    ):
        return json.loads(text.lstrip("0") or "0")
    return text


_OTHERS = (
    *(Option(flag, "flag") for flag in sorted(arguments.SWITCHES)),
    *(Option(flag, carried=True) for flag in sorted(arguments.VALUES)),
    *(Option(flag, "list", carried=True) for flag in sorted(arguments.LISTS)),
)
_CARRIED = frozenset(option.name for option in _OTHERS)
_TABLE: Mapping[str, Option] = {
    spelling: option
    for option in (
        *(option for _, option in options.FIELDS.values()),
        *(Option(f"--{start}{flag}", "flag") for flag in options.SWITCHES.values() for start in ("", "no-")),
        *options.SPECULATIVE,
        *(Option(flag, removed=True) for flag in facts.REMOVED_FLAGS),
        *_OTHERS,
    )
    for spelling in (option.name, *option.aliases)
}
