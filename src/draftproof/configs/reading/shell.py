"""Reads one command line as a POSIX shell would split it: quotes, escapes, continuations, comments, environment.

Called by the dialects of engines that are started by a command. What a shell would have to compute (variables,
substitutions, globs do not matter here) is refused with its position: its value is not in the text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from draftproof.configs.reading.refusal import Place, bounded

_BLANK_END = re.compile(r"\\[ \t]+\r?\n")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_BREAKS = " \t\r\n\ufeff"
_CONTROL = ";|&<>()"
_ESCAPED_IN_QUOTES = '$`"\\\n'
_OUTPUT = re.compile(
    r"(?:(?:[0-9]?>{1,2}\s*&[0-9]|(?:[0-9]|&)?>{1,2}\s*[^\s;|&<>()$`]+)\s*)*[;&]?\s*(?:#[^\n]*(?:\n\s*|\Z))*"
)
"""Redirections, and a sign behind which nothing follows."""
_TYPESET = {
    **dict.fromkeys("\u00a0\u202f\u2007\u200b\u2060", "a blank that is no ordinary one"),
    **dict.fromkeys("“”„‟‘’‚‛«»", "a typographic quote"),
    **dict.fromkeys("‐‑‒–—−", "a dash that is no hyphen"),
}


@dataclass(frozen=True, slots=True)
class Word:
    """One argument, unquoted, and the offset at which it starts."""

    text: str
    position: int
    quoted: bool = False
    """Whether any part of it was: a quoted dash or assignment is an argument like any other, but no comment."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    environment: tuple[tuple[str, str], ...]
    words: tuple[Word, ...]


def read_command(place: Place) -> CommandLine:
    """Splits `place.text`. Where its output goes and that it runs in the background is passed over.

    Raises DP111 for open quotes, variables, pipes, more than one command, and what word processors make of blanks,
    quotes and dashes.
    """
    bounded(place)
    words = _words(place)
    environment: list[tuple[str, str]] = []
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.text)
        if match is None:
            break
        environment.append((match[1], match[2]))
    return CommandLine(tuple(environment), tuple(words[len(environment) :]))


def write_command(words: Iterable[str], environment: Iterable[tuple[str, str]] = (), width: int = 100) -> str:
    """Quotes the words; starts a new line before an option once a line would grow beyond `width`."""
    lines: list[str] = []
    line = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment)
    for group in _with_values(list(words)):
        text = " ".join(shlex.quote(word) for word in group)
        if line and len(line) + 1 + len(text) > width:
            lines.append(line)
            line = "  " + text
        else:
            line = f"{line} {text}" if line else text
    return " \\\n".join([*lines, line])


def _with_values(words: list[str]) -> list[list[str]]:
    """Groups of an option with the words up to the next option."""
    groups: list[list[str]] = []
    for word in words:
        if groups and not (word.startswith("-") and len(word) > 1 and not word[1].isdigit()):
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def _words(place: Place) -> list[Word]:
    text = place.text
    words: list[Word] = []
    position, length = 0, len(text)
    while position < length:
        char = text[position]
        if char in _BREAKS:
            if char == "\n" and words:
                further = _next_command(text, position)
                if further is None:
                    break
                raise place.at(further).refused(
                    "a second line", "one command", "End a line with a backslash if the command goes on."
                )
            position += 1
        elif text.startswith(("\\\n", "\\\r\n"), position):
            position += 2 if text[position + 1] == "\n" else 3
        elif char == "#":
            end = _line_end(text, position)
            if text[position:end].rstrip("\r").endswith("\\") and end < length:
                raise place.at(position).refused(
                    "a comment that ends with a backslash",
                    "a command",
                    "Take the # away: a comment does not go on.",
                )
            position = end
        elif words and _OUTPUT.fullmatch(text, position):
            break
        elif not words and text.startswith("$ ", position):  # the prompt, copied along
            position += 1
        else:
            word, position = _one_word(place, position)
            words.append(word)
    return words


def _next_command(text: str, position: int) -> int | None:
    """Where a further command starts behind the line break at `position`, or None."""
    while position < len(text):
        if text[position] in _BREAKS:
            position += 1
        elif text[position] == "#":
            position = _line_end(text, position)
        else:
            return position
    return None


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _one_word(place: Place, start: int) -> tuple[Word, int]:
    text, length = place.text, len(place.text)
    parts: list[str] = []
    position, quoted = start, False
    while position < length and text[position] not in _BREAKS:
        char = text[position]
        if char == "'":
            end = text.find("'", position + 1)
            if end < 0:
                raise _open_quote(place, position)
            parts.append(text[position + 1 : end])
            position, quoted = end + 1, True
        elif char == '"':
            part, position = _double_quoted(place, position)
            parts.append(part)
            quoted = True
        elif text.startswith("```", position):
            raise place.at(position).refused(
                "a fence of Markdown", "the command alone", "Leave the fence out."
            )
        elif char in _TYPESET and (position == start or "dash" not in _TYPESET[char]):
            raise place.at(position).refused(
                f"{_TYPESET[char]} (U+{ord(char):04X})",
                "plain text",
                "Type it anew; a text processor changed it.",
            )
        elif char == "\\":
            if _BLANK_END.match(text, position):
                raise place.at(position).refused(
                    "a backslash with a blank behind it",
                    "a backslash at the end of the line",
                    "Take the blank away.",
                )
            if position + 1 >= length:
                raise place.at(position).refused(
                    "a backslash at the end", "a complete line", "Give the whole command."
                )
            if text[position + 1] == "\n":
                position += 2
            else:
                parts.append(text[position + 1])
                position += 2
        elif char in "$`":
            raise _computed(place, position)
        elif char in "&;" and _OUTPUT.fullmatch(text, position):
            break
        elif char in _CONTROL:
            raise place.at(position).refused(
                char,
                "one command without pipes, redirections and further commands",
                "Give the command alone.",
            )
        else:
            parts.append(char)
            position += 1
    return Word("".join(parts), start, quoted), position


def _double_quoted(place: Place, start: int) -> tuple[str, int]:
    text, length = place.text, len(place.text)
    parts: list[str] = []
    position = start + 1
    while position < length:
        char = text[position]
        if char == '"':
            return "".join(parts), position + 1
        if char in "$`":
            raise _computed(place, position)
        if char == "\\" and position + 1 < length and text[position + 1] in _ESCAPED_IN_QUOTES:
            parts.append(text[position + 1] if text[position + 1] != "\n" else "")
            position += 2
        else:
            parts.append(char)
            position += 1
    raise _open_quote(place, start)


def _open_quote(place: Place, position: int) -> Exception:
    return place.at(position).refused("a quote that is not closed", "a closing quote", "Close it.")


def _computed(place: Place, position: int) -> Exception:
    return place.at(position).refused(
        "a shell variable or substitution",
        "the value itself: it is not in the text",
        "Write the value instead, or put it into single quotes if it is meant as written.",
    )
