"""Reads what starts a program, as people keep it: a command line, the arguments of a container, a unit of systemd.

Called by the dialects of engines that are started by a command. What stands around the program (sudo, env, nohup, a
shell that is given the command) is taken off; of a container and a unit command, arguments and environment are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from draftproof.configs.reading.jsontext import read_json
from draftproof.configs.reading.node import Node
from draftproof.configs.reading.refusal import Place, bounded
from draftproof.configs.reading.shell import CommandLine, Word, read_command
from draftproof.configs.reading.unit import is_unit, read_unit

_IMAGE_LINE = re.compile(r"\s*(?:CMD|ENTRYPOINT)\s+(?=\[)")
_CONTAINER = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:-\s|(?:command|args|entrypoint)\s*:)")
_PREFIXES: Mapping[str, tuple[str, ...]] = {
    "sudo": ("-u", "--user", "-g", "--group"), "env": ("-u", "--unset", "-C", "--chdir"), "exec": ("-a",), "nohup": (),
    "time": ("-f", "-o"), "nice": ("-n",), "command": (), "numactl": ("-N", "-C", "-m", "-p", "-i"),
}  # fmt: skip
"""Programs that start another one → their options that take a value as a word of its own."""
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SHELLS = ("sh", "bash", "zsh")


def read_start(place: Place) -> CommandLine:
    """The program's environment and words. Raises DP111 with the position."""
    bounded(place)
    text = place.text
    if is_unit(text):
        return _program(place, read_unit(place))
    image = _IMAGE_LINE.match(text)
    start = image.end() if image else 0
    if text[start:].lstrip()[:1] == "[":
        return _program(place, CommandLine((), _list(read_json(place, start))))
    if _CONTAINER.match(text):
        from draftproof.configs.reading.yamltext import read_yaml

        return _program(place, _of_container(read_yaml(place).node))
    return _program(place, read_command(place))


def _program(place: Place, line: CommandLine) -> CommandLine:
    """Without what starts the program."""
    environment, words, at = list(line.environment), line.words, 0
    while at < len(words):
        name = words[at].text.rpartition("/")[2]
        if name in _SHELLS and len(words) == at + 3 and re.fullmatch(r"-[a-z]*c", words[at + 1].text):
            script = words[at + 2]
            inner = read_start(Place(place.engine, script.text, name=f"{name} {words[at + 1].text}"))
            start, end = script.position + 1, len(place.text)  # exact where the quotes are single ones
            moved = (Word(word.text, min(start + word.position, end), word.quoted) for word in inner.words)
            return CommandLine((*environment, *inner.environment), tuple(moved))
        if name not in _PREFIXES:
            break
        at += 1
        while at < len(words) and words[at].text.startswith("-"):
            at += 2 if words[at].text in _PREFIXES[name] else 1
        while at < len(words) and (match := _VARIABLE.fullmatch(words[at].text)):
            environment.append((match[1], match[2]))
            at += 1
    return CommandLine(tuple(environment), words[at:])


def _list(node: Node) -> tuple[Word, ...]:
    if not isinstance(node.value, tuple):
        raise node.refused("a list of arguments", "Write one argument an entry.")
    return tuple(Word(part.text("an argument"), part.place.position, quoted=True) for part in node.value)


def _of_container(node: Node) -> CommandLine:
    if isinstance(node.value, tuple):
        return CommandLine((), _list(node))
    members = node.members("a container")
    words = [
        word for key in ("entrypoint", "command", "args") if key in members for word in _list(members[key])
    ]
    environment = []
    said = members.get("env")
    for entry in said.value if said is not None and isinstance(said.value, tuple) else ():
        inner = entry.members("a variable")
        if "name" in inner and "value" in inner:
            environment.append((inner["name"].text("a name"), inner["value"].text("a value")))
    return CommandLine(tuple(environment), tuple(words))
