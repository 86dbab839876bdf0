"""Reads YAML as PyYAML's safe loader does (YAML 1.1), with positions and bounds, and says where 1.1 surprises.

Called by dialects of engines that read YAML files with that loader. Built on its event stream: nothing is constructed
but plain values, aliases cannot cycle and count each time they are used, duplicate and merge keys are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import yaml

from draftproof.configs.reading.node import Budget, Node, given_twice
from draftproof.configs.reading.refusal import Place

MAX_YAML_CHARS = 65_536
_CORE = "tag:yaml.org,2002:"
_COMMENT = re.compile(r"(?:^|(?<=\s))#", re.MULTILINE)
_EXPONENT = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+")
_MAX_DIGITS = 40


@dataclass(frozen=True, slots=True)
class Surprise:
    """A plain scalar that means something else than it looks like."""

    position: int
    written: str
    read: str


@dataclass(frozen=True, slots=True)
class YamlText:
    """`comment`: where the first comment stands, or None."""

    node: Node
    comment: int | None
    surprises: tuple[Surprise, ...]


def read_yaml(place: Place) -> YamlText:
    """The one document in `place.text`; an empty text is null. Raises DP111 with the position."""
    if len(place.text) > MAX_YAML_CHARS:
        raise place.at(MAX_YAML_CHARS).refused(
            f"{len(place.text)} characters",
            f"at most {MAX_YAML_CHARS} characters",
            "Give the configuration alone.",
        )
    try:
        return _Yaml(place).read()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise place.at(mark.index if mark else 0).refused(
            error.problem or "text that is no YAML", "YAML", "Correct the YAML."
        ) from None
    except yaml.reader.ReaderError as error:
        raise place.at(error.position).refused(error.reason, "YAML", "Remove the character.") from None


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being read."""

    place: Place
    key_place: Place | None
    anchor: str | None
    is_list: bool
    depth: int
    parts: list[Node] = field(default_factory=list)
    members: dict[str, Node] = field(default_factory=dict)
    key: str | None = None
    key_at: Place | None = None


class _Yaml:
    def __init__(self, place: Place) -> None:
        self.place = place
        self._resolver: Any = yaml.resolver.Resolver()
        self._constructor = yaml.constructor.SafeConstructor()
        self._budget = Budget()
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        """Anchor → node, nodes in it, levels in it."""
        self._sizes: dict[int, tuple[int, int]] = {}
        self._open: list[_Open] = []
        self._spans: list[tuple[int, int]] = []
        self._surprises: list[Surprise] = []
        self._root: Node | None = None

    def read(self) -> YamlText:
        documents = 0
        for event in yaml.parse(self.place.text, Loader=yaml.SafeLoader):
            start, end = event.start_mark, event.end_mark
            assert start is not None
            assert end is not None
            here = self.place.at(start.index)
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise here.refused("a second document", "one document", "Give one configuration.")
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event.anchor or "", here)
            elif isinstance(event, yaml.ScalarEvent):
                self._spans.append((start.index, end.index))
                self._scalar(event, here)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._start(event, here)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end()
        node = self._root if self._root is not None else Node(None, self.place)
        return YamlText(node, self._first_comment(), tuple(self._surprises))

    def _start(self, event: Any, here: Place) -> None:
        is_list = isinstance(event, yaml.SequenceStartEvent)
        if event.tag not in (None, "!", _CORE + ("seq" if is_list else "map")):
            raise here.refused(f"the tag {event.tag}", "plain values", "Remove the tag.")
        depth = len(self._open)
        self._budget.take(here, depth)
        parent = self._open[-1] if self._open else None
        if parent is not None and not parent.is_list and parent.key is None:
            raise here.refused("a key that is no text", "keys of text", "Correct the YAML.")
        self._open.append(_Open(here, parent.key_at if parent else None, event.anchor, is_list, depth))

    def _end(self) -> None:
        done = self._open.pop()
        value: Any = tuple(done.parts) if done.is_list else MappingProxyType(done.members)
        node = Node(value, done.place, done.key_place)
        inner = [self._sizes.get(id(part), (1, 0)) for part in (done.parts or done.members.values())]
        size = (1 + sum(part[0] for part in inner), 1 + max((part[1] for part in inner), default=0))
        self._sizes[id(node)] = size
        if done.anchor:
            self._anchors[done.anchor] = (node, *size)
        self._add(node)

    def _alias(self, anchor: str, here: Place) -> None:
        if anchor not in self._anchors:
            raise here.refused(
                f"*{anchor}, which names nothing complete before it",
                "a value without cycles",
                "Write the value out.",
            )
        node, count, levels = self._anchors[anchor]
        for _ in range(min(count, 1_000_000)):
            self._budget.take(here, len(self._open) + levels)
        parent = self._open[-1] if self._open else None
        if parent is not None and not parent.is_list and parent.key is None:
            raise here.refused("an alias as a key", "keys of text", "Write the key out.")
        again = Node(node.value, node.place, parent.key_at if parent else None)
        self._sizes[id(again)] = (count, levels)
        self._add(again)

    def _scalar(self, event: Any, here: Place) -> None:
        self._budget.take(here, len(self._open))
        value = self._value(event, here)
        parent = self._open[-1] if self._open else None
        if parent is not None and not parent.is_list and parent.key is None:
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise here.refused(
                    f"the key {event.value}, which YAML 1.1 reads as {value}",
                    "a key of text",
                    "Put it into quotes.",
                )
            key = str(value)
            if key in parent.members:
                raise given_twice(here, key)
            parent.key, parent.key_at = key, here
            return
        node = Node(value, here, parent.key_at if parent else None)
        if event.anchor:
            self._anchors[event.anchor] = (node, 1, 0)
        self._add(node)

    def _add(self, node: Node) -> None:
        if not self._open:
            self._root = node
            return
        parent = self._open[-1]
        if parent.is_list:
            parent.parts.append(node)
        else:
            assert parent.key is not None
            parent.members[parent.key] = node
            parent.key = parent.key_at = None

    def _value(self, event: Any, here: Place) -> bool | int | float | str | None:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._resolver.resolve(yaml.ScalarNode, event.value, event.implicit)
        kind = tag.removeprefix(_CORE)
        if kind == "str":
            if event.style is None and _EXPONENT.fullmatch(event.value):
                self._surprises.append(Surprise(here.position, event.value, "text, for want of a point"))
            return str(event.value)
        if kind not in ("int", "float", "bool", "null"):
            what = {"timestamp": "a date", "merge": "a merge key"}.get(kind, f"the tag {tag}")
            raise here.refused(
                f"{event.value}, {what}", "a plain value", "Put it into quotes, or write it out."
            )
        if len(event.value) > _MAX_DIGITS:
            raise here.refused(
                event.value, f"at most {_MAX_DIGITS} characters of a number", "Correct the value."
            )
        try:
            made = self._constructor.construct_object(yaml.ScalarNode(tag, event.value, event.start_mark))
        except (ValueError, KeyError, IndexError):
            raise here.refused(event.value, f"a value of {kind}", "Correct the value.") from None
        if isinstance(made, float) and (made != made or made in (float("inf"), float("-inf"))):
            raise here.refused(event.value, "a finite number", "Correct the value.")
        if event.style is None and _is_surprise(event.value, made):
            self._surprises.append(Surprise(here.position, event.value, str(made).lower()))
        assert made is None or isinstance(made, bool | int | float | str)
        return made

    def _first_comment(self) -> int | None:
        """The first # that begins a comment: outside of scalars, after blank or line start."""
        spans = iter(self._spans)
        span = next(spans, None)
        for match in _COMMENT.finditer(self.place.text):
            while span is not None and span[1] <= match.start():
                span = next(spans, None)
            if span is None or not span[0] <= match.start() < span[1]:
                return match.start()
        return None


def _is_surprise(written: str, made: object) -> bool:
    """yes, no, on, off; octal, sexagesimal and underscored numbers."""
    if isinstance(made, bool):
        return written.lower() not in ("true", "false")
    if isinstance(made, int | float):
        digits = written.lstrip("+-")
        return (
            ":" in written
            or "_" in written
            or (isinstance(made, int) and len(digits) > 1 and digits[0] == "0" and digits.isdecimal())
        )
    return False


def plain_yaml(value: Any) -> str:
    """`value` as a YAML document in block style, keys in order. Read back it is the same value."""
    text = str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120))
    if "\x85" in text:  # PyYAML breaks a line there, and reads a blank
        text = str(yaml.safe_dump(value, sort_keys=False, width=120))
    return text
