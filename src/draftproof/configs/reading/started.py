"""Reads what starts a program, as people keep it: a command line, a small script, `docker run`, a Dockerfile, a
service of Compose, a container or Deployment of Kubernetes, a unit of systemd.

Called by the dialects and by `engines.told`. What stands around the program is taken off; its variables and its image
are kept, and what is not read is said. Nothing is executed, and no variable is replaced by its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from draftproof.configs.reading.images import read_image
from draftproof.configs.reading.jsontext import read_json
from draftproof.configs.reading.manifest import Split, is_manifest, is_yaml, read_manifest
from draftproof.configs.reading.node import Node
from draftproof.configs.reading.prefixes import after_prefix, program, without_interpreter_flags
from draftproof.configs.reading.refusal import Place, bounded
from draftproof.configs.reading.shell import Word, assignment, read_command, read_commands, second
from draftproof.configs.reading.start import Collected, Start
from draftproof.configs.reading.unit import is_unit, read_unit

PROGRAMS = {
    "vllm": "vllm", "vllm.entrypoints.openai.api_server": "vllm", "sglang": "sglang", "sglang.launch_server": "sglang",
    "trtllm-serve": "trtllm", "llama-server": "llamacpp", "llama-cli": "llamacpp", "draftproof": "draftproof",
    "firectl": "fireworks",
}  # fmt: skip
"""Program or module of Python → engine."""

_LINE_END = re.compile(r"(?<!\\)(?<!\\\r)\r?\n|\Z")
_DOCKERFILE = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:FROM|ARG|ENV|CMD|ENTRYPOINT)[ \t]")
_INSTRUCTION = re.compile(r"^[ \t]*(?P<name>[A-Z]+)[ \t]+", re.MULTILINE)
_PYTHON = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:from\s+[\w.]+\s+import\s|import\s+[\w.]+\s*(?:\n|as\s|,))")
_SHELLS = ("sh", "bash", "zsh", "dash", "ash")
_SPLIT_STRING = re.compile(r"-[iv]*S(.*)|--split-string(?:=(.*))?", re.DOTALL)
_SCRIPT = re.compile(r"-[a-z]*c")
_MAX_SHELLS = 16
_PREPARING = frozenset(
    (
        "set",
        "cd",
        "ulimit",
        "umask",
        "shopt",
        "trap",
        "echo",
        "mkdir",
        "module",
        "conda",
        "sleep",
        "nvidia-smi",
        "pip",
        "uv",
    )
)
"""Commands of a script that start nothing that is judged."""
_SOURCES = ("source", ".")


def read_start(place: Place) -> Start:
    """The program's words, its environment and image, and what was not read. Raises DP111 with the position."""
    bounded(place)
    found = Collected(place)
    return found.start(without_interpreter_flags(_read(place, found)))


def is_start(text: str) -> bool:
    """Whether the text is a manifest, a unit or a Dockerfile, by its form."""
    return is_unit(text) or bool(_DOCKERFILE.match(text)) or is_manifest(text)


def _read(place: Place, found: Collected) -> tuple[Word, ...]:
    text = place.text
    if is_unit(text):
        return _program(place, read_unit(place, found), found)
    if text.lstrip()[:1] == "[":
        return _program(place, _list(read_json(place)), found)
    if _DOCKERFILE.match(text):
        return _of_dockerfile(place, found)
    if is_manifest(text):
        return _program(place, read_manifest(place, found, _splitting(place), PROGRAMS), found)
    return _of_script(place, found)


def _splitting(place: Place) -> Split:
    def split(text: str, name: str, offset: int) -> tuple[Word, ...]:
        line = read_command(Place(place.engine, text, name=name))
        return tuple(_moved((*line.environment, *line.words), offset, len(place.text)))

    return split


def _moved(words: tuple[Word, ...], offset: int, end: int) -> Iterator[Word]:
    """Words of a text within the text: exact where nothing in it was escaped."""
    for word in words:
        variable = None if word.variable is None else min(offset + word.variable, end)
        yield Word(word.text, min(offset + word.position, end), word.quoted, variable)


def _of_script(place: Place, found: Collected) -> tuple[Word, ...]:
    """The words of the one command that is not preparation; what is exported before it is its environment."""
    if is_yaml(place.text):
        raise place.refused(
            "YAML that names no container",
            "a container with command: or args:, or what it starts",
            "Give the command itself; of a file of the engine's own flags `COMMAND --config FILE`.",
        )
    if _PYTHON.match(place.text):
        raise place.refused(
            "a script in Python",
            "the command that starts the engine",
            "Of vLLM give the arguments of LLM(…) as a JSON object; of Transformers and OpenVINO GenAI Python is read.",
        )
    words: tuple[Word, ...] = ()
    own: dict[str, tuple[str, Word]] = {}
    for line in read_commands(place):
        if words:
            raise second(place, (*line.environment, *line.words)[0])
        if not line.words:
            own |= {pair[0]: (pair[1], word) for word in line.environment if (pair := assignment(word))}
            continue
        first = line.words[0]
        if first.text == "export":
            _export(line.words[1:], own, found)
        elif first.text == "unset":
            for word in line.words[1:]:
                found.environment.pop(word.text, None)
        elif first.text in _SOURCES:
            name = line.words[1].text if len(line.words) > 1 else "nothing"
            found.leave("unread", first.text, name, "what it sets is not known here", first.position)
        elif first.text in _PREPARING and not _is_run(line.words):
            text = " ".join(word.text for word in line.words)
            found.leave("lost", first.text, text, "another command of the script", first.position)
        else:
            for word in line.environment:
                pair = assignment(word)
                assert pair is not None
                found.set(*pair, word)
            words = line.words
    for name, (value, word) in own.items():
        if words:
            found.leave("lost", name, value, "a variable of the shell that is not exported", word.position)
    if not words and own:
        return tuple(word for _, word in own.values())
    return _program(place, words, found)


def _is_run(words: tuple[Word, ...]) -> bool:
    return program(words[0]) in ("uv", "conda") and len(words) > 1 and words[1].text == "run"


def _export(words: tuple[Word, ...], own: dict[str, tuple[str, Word]], found: Collected) -> None:
    for word in words:
        pair = assignment(word)
        if pair is not None:
            found.set(*pair, word)
        elif word.text in own:
            value, where = own.pop(word.text)
            found.set(word.text, value, where)
        elif not word.text.startswith("-"):
            found.inherit(word.text, word.position)


def _program(place: Place, words: tuple[Word, ...], found: Collected) -> tuple[Word, ...]:
    """Without what starts the program."""
    at = 0
    while at < len(words) and (pair := assignment(words[at])) and not words[at].quoted:
        found.set(*pair, words[at])
        at += 1
    while at < len(words):
        if program(words[at]) in _SHELLS and (script := _script(words, at)) is not None:
            return _inner(place, script, program(words[at]), found)
        if program(words[at]) == "env" and (split := _split_string(place, words, at)) is not None:
            return _program(place, split, found)
        further = after_prefix(words, at, found)
        if further is None:
            break
        at = further
        if found.entrypoint is not None:
            entry, found.entrypoint, found.around = found.entrypoint, None, ()
            found.leave(
                "lost", "--entrypoint", entry.text, "a translation keeps the command alone", entry.position
            )
            return _program(place, (entry, *words[at:]), found)
    return words[at:]


def _split_string(place: Place, words: tuple[Word, ...], at: int) -> tuple[Word, ...] | None:
    """The words of `env -S 'A=1 program …' …`, or None."""
    match = _SPLIT_STRING.fullmatch(words[at + 1].text) if at + 1 < len(words) else None
    if match is None:
        return None
    said = match[1] or match[2] or ""
    after = at + 2
    if not said and after < len(words):
        said, after = words[after].text, after + 1
    inner = _splitting(place)(said, "env -S", words[at + 1].position)
    return (*inner, *words[after:])


def _script(words: tuple[Word, ...], at: int) -> Word | None:
    """The script of `bash -e -c SCRIPT`, or None."""
    flags = at + 1
    while flags < len(words) and words[flags].text.startswith("-"):
        flags += 1
    if flags == at + 1 or flags != len(words) - 1 or not _SCRIPT.fullmatch(words[flags - 1].text):
        return None
    return words[flags]


def _inner(place: Place, script: Word, shell: str, found: Collected) -> tuple[Word, ...]:
    found.depth += 1
    if found.depth > _MAX_SHELLS:
        raise place.at(script.position).refused(
            "shells within shells", "one command", "Give the command alone."
        )
    seen = len(found.unread)
    words = _read(Place(place.engine, script.text, name=f"{shell} -c"), found)
    for index in range(seen, len(found.unread)):
        found.unread[index] = replace(found.unread[index], position=script.position)
    return tuple(_moved(words, script.position + 1, len(place.text)))


def _list(node: Node) -> tuple[Word, ...]:
    if not isinstance(node.value, tuple):
        raise node.refused("a list of arguments", "Write one argument an entry.")
    return tuple(Word(part.text("an argument"), part.place.position, quoted=True) for part in node.value)


def _instruction_end(text: str, position: int) -> int:
    end = _LINE_END.search(text, position)
    assert end is not None
    return end.start()


def _cut(place: Place, start: int, end: int) -> Place:
    """A part of the text with blanks before it, so that its positions are those of the text."""
    blank = re.sub(r"[^\n]", " ", place.text[:start])
    return Place(place.engine, blank + place.text[start:end], name=place.name)


def _of_dockerfile(place: Place, found: Collected) -> tuple[Word, ...]:
    """Of the last stage: image, ENV, ENTRYPOINT and CMD."""
    said: dict[str, tuple[int, int]] = {}
    others: list[str] = []
    position = 0
    while (match := _INSTRUCTION.search(place.text, position)) is not None:
        position = _instruction_end(place.text, match.end())
        name, text = match["name"], place.text[match.end() : position]
        if name == "FROM":
            said.clear()
            image = next((word for word in text.split() if not word.startswith("--")), "")
            found.image = read_image(image) if "$" not in image else None
            if "$" in image:
                found.leave("unread", name, image, "engine and version are in a variable", match.end())
        elif name in ("CMD", "ENTRYPOINT"):
            said[name] = (match.end(), position)
        elif name == "ENV":
            _env(place, text, match.end(), found)
        elif name not in others:
            others.append(name)
    if others:
        found.leave("lost", "Dockerfile", ", ".join(others), "how the image is made: not read")
    entry, command = said.get("ENTRYPOINT"), said.get("CMD")
    spans = [span for span in (entry, command) if span is not None]
    if any(_is_list(place, span) for span in spans) or len(spans) == 2:
        listed = [span for span in spans if _is_list(place, span)]
        if entry is not None and entry not in listed:  # the shell form passes CMD over
            return _of_script(_cut(place, *entry), found)
        words = [word for span in listed for word in _list(read_json(_cut(place, *span)))]
        for span in spans:
            if span not in listed:
                words += read_command(_cut(place, *span)).words
        return _program(place, tuple(words), found)
    return _of_script(_cut(place, *spans[0]), found) if spans else ()


def _is_list(place: Place, span: tuple[int, int]) -> bool:
    return place.text[span[0] : span[1]].lstrip().startswith("[")


def _env(place: Place, text: str, position: int, found: Collected) -> None:
    line = read_command(Place(place.engine, text, name="ENV"))
    for word in line.environment:
        pair = assignment(word)
        assert pair is not None
        found.set(*pair, Word(word.text, position, variable=None if word.variable is None else position))
    if line.words and not line.environment:  # ENV NAME VALUE
        name, _, value = text.strip().partition(" ")
        found.set(name, value.strip(), Word(value, position, variable=position if "$" in value else None))
