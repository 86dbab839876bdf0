"""Reads Python text that configures an engine: assignments, calls and literals. Nothing is ever evaluated.

Called by dialects of engines that are libraries. A text is a few statements, keyword arguments alone, or a dictionary.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from draftproof.configs.reading.node import Budget, Node, given_twice
from draftproof.configs.reading.refusal import Place, cut

MAX_PYTHON_CHARS = 65_536
_ARGUMENTS = re.compile(r"\s*(?:\*\*\w+\s*,\s*)?[A-Za-z_]\w*\s*=(?!=)")
_WRAP = "_("
_LINES = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Code:
    """An expression that is no literal: a variable, an attribute, a formula. Its value is not in the text."""

    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Call:
    """`name` as written with its dots; `stars`: what is unpacked into it, as `inputs` of `**inputs`."""

    name: str
    arguments: tuple[Argument, ...]
    keywords: Mapping[str, Argument]
    place: Place
    stars: tuple[str, ...] = ()

    @property
    def last_name(self) -> str:
        return self.name.rpartition(".")[2]


Argument = Node | Code | Call


@dataclass(slots=True)
class Script:
    """Calls that stand alone or are assigned, in order, and what names and attributes were assigned last."""

    calls: list[Call] = field(default_factory=list)
    assigned: dict[str, Argument] = field(default_factory=dict)
    comment: int | None = None

    def called(self, last_name: str) -> Call | None:
        return next((call for call in reversed(self.calls) if call.last_name == last_name), None)

    def value(self, argument: Argument | None) -> Argument | None:
        """What a variable stands for, where the text assigns it."""
        if isinstance(argument, Code):
            return self.assigned.get(argument.text, argument)
        return argument

    def attributes(self, name: str) -> dict[str, Argument]:
        """What was assigned to `name.…`, by what follows the dot."""
        start = f"{name}."
        return {key[len(start) :]: value for key, value in self.assigned.items() if key.startswith(start)}


def read_python(place: Place) -> Script:
    """Raises DP111 with the position for text that is no Python, or more than assignments and calls."""
    if len(place.text) > MAX_PYTHON_CHARS:
        raise place.at(MAX_PYTHON_CHARS).refused(
            f"{len(place.text)} characters", f"at most {MAX_PYTHON_CHARS} characters", "Give the call alone."
        )
    if _ARGUMENTS.match(place.text):
        tree = _parsed(place, place.text, quiet=True)
        wrapped = _parsed(place, f"{_WRAP}{place.text}\n)", quiet=True) if tree is None else None
        if wrapped is not None:
            return _Reader(place, len(_WRAP)).script(wrapped)
    tree = _parsed(place, place.text)
    assert tree is not None
    return _Reader(place, 0).script(tree)


def _parsed(place: Place, text: str, quiet: bool = False) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        if quiet:
            return None
        offset = _Offsets(text).of(error.lineno or 1, None, error.offset)
        raise place.at(offset).refused(error.msg, "Python text", "Correct the Python.") from None
    except (ValueError, UnicodeError):
        if quiet:
            return None
        bad = next((at for at, char in enumerate(text) if char == "\0" or "\ud800" <= char <= "\udfff"), 0)
        raise place.at(bad).refused(
            "a character that Python does not take", "Python text", "Remove it."
        ) from None
    except (RecursionError, MemoryError):
        if quiet:
            return None
        raise place.refused("text that is nested too deeply", "a call", "Give the call alone.") from None


class _Offsets:
    """Line and column, as Python counts them, to offsets in the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in _LINES.finditer(text))]

    def of(self, line: int, byte: int | None, char: int | None = None) -> int:
        start = self._starts[min(line, len(self._starts)) - 1]
        end = self._starts[line] if line < len(self._starts) else len(self._text)
        if byte is not None:
            return start + len(
                self._text[start:end].encode("utf-8", "surrogatepass")[:byte].decode("utf-8", "ignore")
            )
        return min(max(start, start + (char or 1) - 1), len(self._text))


class _Reader:
    """`shift`: characters in front of the text that the user did not write."""

    def __init__(self, place: Place, shift: int) -> None:
        self._place, self._shift = place, shift
        self._source = f"{_WRAP}{place.text}\n)" if shift else place.text
        self._offsets = _Offsets(self._source)
        self._budget = Budget()

    def script(self, tree: ast.Module) -> Script:
        script = Script()
        for statement in tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
                continue
            if isinstance(statement, ast.Expr):
                self._keep(script, self._argument(statement.value, 0))
            elif isinstance(statement, ast.Assign):
                value = self._argument(statement.value, 0)
                self._keep(script, value)
                for target in statement.targets:
                    name = _dotted(target)
                    if name is None:
                        raise self._at(target).refused(
                            "this assignment", "NAME = VALUE", "Give plain assignments."
                        )
                    script.assigned[name] = value
            else:
                raise self._at(statement).refused(
                    type(statement).__name__.lower(), "assignments and calls", "Give the calls alone."
                )
        script.comment = self._comment()
        return script

    def _keep(self, script: Script, value: Argument) -> None:
        if isinstance(value, Call):
            script.calls.append(value)
        elif isinstance(value, Node) and isinstance(value.value, Mapping):
            script.calls.append(Call("", (), value.value, value.place))

    def _at(self, part: Any) -> Place:
        offset = self._offsets.of(part.lineno, part.col_offset) - self._shift
        return self._place.at(min(max(offset, 0), len(self._place.text)))

    def _argument(self, part: ast.expr, depth: int) -> Argument:
        here = self._at(part)
        self._budget.take(here, depth)
        if isinstance(part, ast.Call):
            return self._call(part, here, depth)
        if isinstance(part, ast.Constant) and isinstance(part.value, bool | int | float | str | None):
            return Node(self._finite(part.value, here), here)
        if (
            isinstance(part, ast.UnaryOp)
            and isinstance(part.op, ast.USub)
            and isinstance(part.operand, ast.Constant)
        ):
            value = part.operand.value
            if isinstance(value, int | float) and not isinstance(value, bool):
                return Node(self._finite(-value, here), here)
        if isinstance(part, ast.List | ast.Tuple):
            parts = [self._argument(inner, depth + 1) for inner in part.elts]
            if all(isinstance(inner, Node) for inner in parts):
                return Node(tuple(inner for inner in parts if isinstance(inner, Node)), here)
        if isinstance(part, ast.Dict):
            return self._dictionary(part, here, depth)
        return Code(_dotted(part) or cut(ast.get_source_segment(self._source, part) or ""), here)

    def _finite(self, value: Any, here: Place) -> Any:
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            raise here.refused("an infinite number", "a finite number", "Correct the value.")
        if isinstance(value, int) and value.bit_length() > 64:
            raise here.refused("a number of more than 64 bits", "a number", "Correct the value.")
        return value

    def _call(self, part: ast.Call, here: Place, depth: int) -> Call:
        name = _dotted(part.func)
        if name is None:
            raise here.refused(
                "a call of an expression", "a call by name", "Give the calls alone, one after the other."
            )
        keywords: dict[str, Argument] = {}
        stars: list[str] = []
        for keyword in part.keywords:
            value = self._argument(keyword.value, depth + 1)
            if keyword.arg is None:
                stars.append(value.text if isinstance(value, Code) else "…")
            else:
                keywords[keyword.arg] = value
        arguments = tuple(
            self._argument(inner, depth + 1) for inner in part.args if not isinstance(inner, ast.Starred)
        )
        return Call(name, arguments, MappingProxyType(keywords), here, tuple(stars))

    def _dictionary(self, part: ast.Dict, here: Place, depth: int) -> Node:
        found: dict[str, Node] = {}
        for key, inner in zip(part.keys, part.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                raise here.refused("a key that is no text", "keys of text", "Write the keys in quotes.")
            at, value = self._at(key), self._argument(inner, depth + 1)
            if key.value in found:
                raise given_twice(at, key.value)
            if not isinstance(value, Node):
                raise value.place.refused(
                    "a value that is no literal", "a literal", "Write the value itself."
                )
            found[key.value] = Node(value.value, value.place, at)
        return Node(MappingProxyType(found), here)

    def _comment(self) -> int | None:
        """Where the first comment stands. `#` in a literal does not count."""
        import io
        import tokenize

        try:
            for token in tokenize.generate_tokens(io.StringIO(self._source).readline):
                if token.type == tokenize.COMMENT:
                    return max(self._offsets.of(token.start[0], None, token.start[1] + 1) - self._shift, 0)
        except (tokenize.TokenError, SyntaxError):
            return None
        return None


def _dotted(part: ast.expr) -> str | None:
    """`a.b.c` of names and attributes, else None."""
    names: list[str] = []
    while isinstance(part, ast.Attribute):
        names.append(part.attr)
        part = part.value
    return ".".join([part.id, *reversed(names)]) if isinstance(part, ast.Name) else None
