"""Reads a unit of systemd as systemd does: comments within continued lines, resets, its quotes and escapes.

Called by `started`. No shell is at work, so that `>`, `|` and `#` are arguments. What systemd would fill in
(`${NAME}`, `%i`) stays as it is written, and the word knows it. After systemd's conf-parser.c, extract-word.c and
systemd.service(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from draftproof.configs.reading.refusal import Place, bounded, without_zero
from draftproof.configs.reading.shell import Word
from draftproof.configs.reading.start import Collected

_FIRST = re.compile(
    r"(?:[ \t\ufeff]*(?:[#;][^\n]*)?\r?\n)*[ \t\ufeff]*"
    r"(?:\[[A-Z][A-Za-z]*\][ \t]*(?:\r?\n|\Z)|(?P<key>[A-Z][A-Za-z]+)[ \t]*=)"
)
_STARTS = re.compile(r"^[ \t]*ExecStart[ \t]*=", re.MULTILINE)
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")
_SETTING = re.compile(r"[\s\ufeff]*(?P<key>[A-Za-z][A-Za-z0-9-]*)[ \t]*=[ \t]*")
_SECTION = re.compile(r"[\s\ufeff]*(?:\[[^\]]*\]\s*)?\Z")
_EXECUTABLE_PREFIX = re.compile(r"[-@:+!|]*")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{3})|(.))", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_KEPT = "\\\"';"
_SPECIFIER = re.compile(r"%(?:%|([A-Za-z]))")
_ELSEWHERE = {"EnvironmentFile": "a file of variables", "PassEnvironment": "variables of the system"}
_VARIABLE = re.compile(r"\$\{|\A\$[A-Za-z_]")


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of a unit, continued lines joined; `position` of the value, character by character that of the text."""

    key: str
    value: str
    position: int


def is_unit(text: str) -> bool:
    """Whether the text starts as a unit does, or is a part of one that says ExecStart."""
    found = _FIRST.match(text)
    return found is not None and (found["key"] is None or _STARTS.search(text) is not None)


def read_unit(place: Place, collected: Collected) -> tuple[Word, ...]:
    """The words of the last ExecStart; the variables of Environment and what is not read go to `collected`.

    Raises DP111 for a unit without a command or with two, and for lines that systemd would pass over."""
    bounded(place)
    environment: dict[str, Word] = {}
    others: list[str] = []
    start: Setting | None = None
    for setting in settings(place):
        if setting.key == "ExecStart":
            start = setting if setting.value else None
        elif setting.key == "Environment":
            if not setting.value:
                environment.clear()
            for word in _words(place, setting):
                name, equals, value = word.text.partition("=")
                if equals:
                    environment[name] = _filled(word, value)
        elif setting.key in _ELSEWHERE:
            why = f"{_ELSEWHERE[setting.key]}: what it sets is not known here"
            collected.leave("unread", setting.key, setting.value, why, setting.position)
        else:
            others.append(setting.key)
    if start is None:
        raise place.refused("a unit without ExecStart", "ExecStart=COMMAND", "Give the command.")
    prefix = _EXECUTABLE_PREFIX.match(start.value)
    assert prefix is not None
    end = prefix.end()
    words = tuple(_arguments(place, Setting("ExecStart", start.value[end:], start.position + end), prefix[0]))
    for name, word in environment.items():
        collected.set(name, word.text, word)
    if others:
        collected.leave(
            "lost", "unit", ", ".join(others), "how it runs: a translation keeps command and variables"
        )
    return words


def settings(place: Place) -> Iterator[Setting]:
    """Every setting in its order. Raises DP111 for a line that is none: systemd would go on without it."""
    for line, start in _logical_lines(place.text):
        found = _SETTING.match(line)
        if found is not None:
            yield Setting(found["key"], line[found.end() :].rstrip(), start + found.end())
        elif not _SECTION.fullmatch(line):
            at = start + len(line) - len(line.lstrip())
            raise place.at(at).refused(
                line.strip(),
                "NAME=VALUE: systemd passes over such a line",
                "End the line before it with a backslash, and no blank behind it, if the command goes on.",
            )


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Lines with those that continue them, and where they start; comments and continuations are blanks in them."""
    joined, start = "", 0
    for match in _LINE.finditer(text):
        line = match[0]
        if line.lstrip(" \t\r\n\ufeff")[:1] in ("#", ";"):
            joined += " " * len(line) if joined else ""
            continue
        start = start if joined else match.start()
        content = line.rstrip("\r\n")
        if (len(content) - len(content.rstrip("\\"))) % 2:
            joined += content[:-1].ljust(len(line))
            continue
        yield joined + content, start
        joined = ""
    if joined:
        yield joined, start


def _arguments(place: Place, command: Setting, prefix: str) -> Iterator[Word]:
    for index, word in enumerate(_words(place, command)):
        if word.text == ";" and not word.quoted:
            raise place.at(word.position).refused(
                ";", "one command without further ones", "Give the command alone."
            )
        if index == 1 and "@" in prefix:  # the name that the program is told
            continue
        text = word.text
        if ":" not in prefix:
            if _VARIABLE.search(text.replace("$$", "")):
                yield replace(word, variable=word.position)
                continue
            text = text.replace("$$", "$")
        yield _filled(word, text)


def _filled(word: Word, text: str) -> Word:
    """`word` with `text`, which knows whether systemd fills a specifier in."""
    if any(found[1] for found in _SPECIFIER.finditer(text)):
        return replace(word, text=text, variable=word.position)
    return replace(word, text=text.replace("%%", "%"))


def _words(place: Place, setting: Setting) -> Iterator[Word]:
    text, position = setting.value, 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        word, position = _one_word(place, setting, position)
        yield word


def _one_word(place: Place, setting: Setting, start: int) -> tuple[Word, int]:
    text, position = setting.value, start
    parts: list[str] = []
    quote, quoted = "", False
    while position < len(text) and (quote or not text[position].isspace()):
        char = text[position]
        if char == "\\" and (escape := _ESCAPE.match(text, position)):
            parts.append(_unescaped(escape))
            without_zero(place.at(setting.position + position), parts[-1])
            position, quoted = escape.end(), True
            continue
        if char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote, quoted, opened = char, True, position
        else:
            parts.append(char)
        position += 1
    if quote:
        raise place.at(setting.position + opened).refused(
            "a quote that is not closed", "a closing quote", "Close it."
        )
    return Word("".join(parts), setting.position + start, quoted), position


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1] or escape[2]:
        return chr(int(escape[1], 16) if escape[1] else int(escape[2], 8))
    return _ESCAPED.get(escape[3], escape[3] if escape[3] in _KEPT else escape[0])
