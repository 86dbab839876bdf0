"""Splits command lines as a POSIX shell does: quotes, escapes, continuations, comments, environment.

Called by `started`. Nothing is computed: a word with a variable or a substitution stays as it is written and knows
where the variable stands, for its value is not in the text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from draftproof.configs.reading.refusal import Place, bounded

_BLANK_END = re.compile(r"\\[ \t]+\r?\n")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_BREAKS = " \t\r\n\ufeff"
_CONTROL = ";|&<>()"
_ESCAPED_IN_QUOTES = '$`"\\\n'
_FILE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|\$\([^()\n]*\)|\$\{[^{}\n]*\}|[^\s;|&<>(){}`'\"])++"
_OUTPUT = re.compile(
    rf"(?:(?:[0-9]?>{{1,2}}\s*&[0-9]|(?:[0-9]|&)?>{{1,2}}\s*{_FILE})\s*+)*+"
    rf"(?:\|&?\s*tee(?:\s++{_FILE})*+\s*+)?[;&]?\s*+(?:#[^\n]*(?:\n\s*|\Z))*"
)
"""Redirections, a copy by `tee`, and a sign behind which nothing follows."""
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]|(?=['\"]))")
_MAX_NESTED = 32
_HOME = re.compile(r"~[A-Za-z0-9._-]*(?:/|\Z)")
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
    variable: int | None = None
    """The offset of the first variable or substitution in it: `text` is then not what the program gets."""

    def known(self, place: Place) -> str:
        """The text. Raises DP111 where a variable stands in it."""
        if self.variable is not None:
            raise place.at(self.variable).refused(
                f"{self.text}: a shell variable or substitution",
                "the value itself: it is not in the text",
                "Write the value instead, or put it into single quotes if it is meant as written.",
            )
        return self.text


@dataclass(frozen=True, slots=True)
class CommandLine:
    """`environment`: assignments in front of the words, as words."""

    environment: tuple[Word, ...]
    words: tuple[Word, ...]


def read_command(place: Place) -> CommandLine:
    """The one command in `place.text`. Raises DP111 for a second one, and what `read_commands` raises."""
    lines = read_commands(place)
    first = next(lines, CommandLine((), ()))
    for further in lines:
        raise second(place, (further.environment or further.words)[0])
    return first


def second(place: Place, word: Word) -> Exception:
    """DP111 for a command behind the one that counts."""
    return place.at(word.position).refused(
        f"{word.text}: a second line or command",
        "one command",
        "End a line with a backslash if the command goes on; give one command alone.",
    )


def read_commands(place: Place) -> Iterator[CommandLine]:
    """The commands that a line break, `;` or `&&` parts. Where output goes and that one runs in the background is
    passed over.

    Raises DP111 for open quotes, pipes and other control, and what word processors make of blanks, quotes and dashes.
    """
    bounded(place)
    position: int | None = 0
    while position is not None:
        words, position = _words(place, position)
        count = 0
        while count < len(words) and assignment(words[count]) is not None:
            count += 1
        if words:
            yield CommandLine(tuple(words[:count]), tuple(words[count:]))


def assignment(word: Word) -> tuple[str, str] | None:
    """Name and value of NAME=VALUE."""
    match = _ASSIGNMENT.fullmatch(word.text)
    return None if match is None else (match[1], match[2])


def write_command(words: Iterable[str], environment: Iterable[tuple[str, str]] = (), width: int = 100) -> str:
    """Quotes the words, but not a leading tilde, which a shell replaces; starts a new line before an option once a line
    would grow beyond `width`."""
    lines: list[str] = []
    line = " ".join(f"{name}={_quoted(value)}" for name, value in environment)
    for group in _with_values(list(words)):
        text = " ".join(_quoted(word) for word in group)
        if line and len(line) + 1 + len(text) > width:
            lines.append(line)
            line = "  " + text
        else:
            line = f"{line} {text}" if line else text
    return " \\\n".join([*lines, line])


def _quoted(word: str) -> str:
    home = _HOME.match(word)
    if home is None:
        return shlex.quote(word)
    rest = word[home.end() :]
    return home[0] + (shlex.quote(rest) if rest else "")


def _with_values(words: list[str]) -> list[list[str]]:
    """Groups of an option with the words up to the next option."""
    groups: list[list[str]] = []
    for word in words:
        if groups and not (word.startswith("-") and len(word) > 1 and not word[1].isdigit()):
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def _words(place: Place, position: int) -> tuple[list[Word], int | None]:
    """The words of the command at `position`, and where the next one starts."""
    text = place.text
    words: list[Word] = []
    length = len(text)
    while position < length:
        char = text[position]
        if char in _BREAKS:
            if char == "\n" and words:
                return words, _next_command(text, position)
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
        elif words and (ends := _ends_command(text, position)):
            return words, position + ends
        elif not words and text.startswith("$ ", position):  # the prompt, copied along
            position += 1
        else:
            word, position = _one_word(place, position)
            words.append(word)
    return words, None


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


def _ends_command(text: str, position: int) -> int:
    """Length of the sign behind which another command follows, or 0."""
    if text.startswith("&&", position):
        return 2
    return int(text[position] == ";" and not text.startswith(";;", position))


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _one_word(place: Place, start: int) -> tuple[Word, int]:
    text, length = place.text, len(place.text)
    parts: list[str] = []
    position, quoted = start, False
    variable: int | None = None
    brace: int | None = None
    is_parted = False
    while position < length and text[position] not in _BREAKS:
        char = text[position]
        if char == "'":
            end = text.find("'", position + 1)
            if end < 0:
                raise _open_quote(place, position)
            parts.append(text[position + 1 : end])
            position, quoted = end + 1, True
        elif char == '"':
            part, position, inner = _double_quoted(place, position)
            parts.append(part)
            quoted = True
            variable = inner if variable is None else variable
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
            if text.startswith(("\n", "\r\n"), position + 1):
                position += 2 if text[position + 1] == "\n" else 3
            else:
                parts.append(text[position + 1])
                position += 2
        elif char in "$`":
            end = _computed_end(place, position)
            if end > position + 1 or _VARIABLE.match(text, position):
                variable = position if variable is None else variable
            parts.append(text[position:end])
            position = end
        elif char in "&;" and (_OUTPUT.fullmatch(text, position) or _ends_command(text, position)):
            break
        elif char in _CONTROL:
            raise place.at(position).refused(
                char,
                "one command without pipes, redirections and further commands",
                "Give the command alone.",
            )
        else:
            if char == "{":
                brace, is_parted = position, False
            elif char == "," or text.startswith("..", position):
                is_parted = True
            elif char == "}" and brace is not None and is_parted:
                raise place.at(brace).refused(
                    text[brace : position + 1],
                    "no braces outside of quotes: a shell makes several words of them",
                    "Put the word into single quotes, or write the words out.",
                )
            parts.append(char)
            position += 1
    return Word("".join(parts), start, quoted, variable), position


def _double_quoted(place: Place, start: int) -> tuple[str, int, int | None]:
    """The text, where it ends, and where its first variable stands."""
    text, length = place.text, len(place.text)
    parts: list[str] = []
    position = start + 1
    variable: int | None = None
    while position < length:
        char = text[position]
        if char == '"':
            return "".join(parts), position + 1, variable
        if char in "$`":
            end = position + 1 if text.startswith(('$"', "$'"), position) else _computed_end(place, position)
            if end > position + 1:
                variable = position if variable is None else variable
            parts.append(text[position:end])
            position = end
        elif text.startswith(("\\\n", "\\\r\n"), position):
            position += 2 if text[position + 1] == "\n" else 3
        elif char == "\\" and position + 1 < length and text[position + 1] in _ESCAPED_IN_QUOTES:
            parts.append(text[position + 1])
            position += 2
        else:
            parts.append(char)
            position += 1
    raise _open_quote(place, start)


def _open_quote(place: Place, position: int) -> Exception:
    return place.at(position).refused("a quote that is not closed", "a closing quote", "Close it.")


def _computed_end(place: Place, start: int) -> int:
    """Where the variable or substitution at `start` ends; one behind the sign where it is neither.

    Brackets are counted, in quotes or not: nothing in it is read. Raises DP111 for one that is not closed."""
    text = place.text
    if text[start] == "`":
        end = text.find("`", start + 1)
        if end < 0:
            raise place.at(start).refused("a substitution that is not closed", "a closing `", "Close it.")
        return end + 1
    pair = {"(": "()", "{": "{}"}.get(text[start + 1 : start + 2])
    if pair is None:
        match = _VARIABLE.match(text, start)
        return match.end() if match else start + 1
    depth = 0
    for bracket in re.compile(f"[{re.escape(pair)}]").finditer(text, start + 1):
        depth += 1 if bracket[0] == pair[0] else -1
        if depth == 0:
            return bracket.end()
        if depth > _MAX_NESTED:
            break
    raise place.at(start).refused("a substitution that is not closed", f"a closing {pair[1]}", "Close it.")
