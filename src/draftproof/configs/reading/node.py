"""A read text as a tree whose every part knows where it stood. Made by the readers, walked by the dialects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from draftproof.configs.reading.refusal import Place, cut, without_zero

MAX_DEPTH = 32
MAX_NODES = 20_000


@dataclass(frozen=True, slots=True)
class Node:
    """`value` is a scalar, a tuple of nodes or a mapping of them; `place` is where it stands, `key_place` its key."""

    value: bool | int | float | str | tuple[Node, ...] | Mapping[str, Node] | None
    place: Place
    key_place: Place | None = None

    def __post_init__(self) -> None:
        if isinstance(self.value, str):
            without_zero(self.place, self.value)
        elif isinstance(self.value, Mapping):
            for key, part in self.value.items():
                without_zero(part.key_place or self.place, key)

    @property
    def kind(self) -> str:
        for kind, name in (
            (bool, "true or false"),
            (int, "a whole number"),
            (float, "a number"),
            (str, "text"),
        ):
            if isinstance(self.value, kind):
                return name
        return "null" if self.value is None else "a list" if isinstance(self.value, tuple) else "an object"

    def plain(self) -> Any:
        """The value without places: tuples and read-only mappings below."""
        if isinstance(self.value, tuple):
            return tuple(part.plain() for part in self.value)
        if isinstance(self.value, Mapping):
            return MappingProxyType({key: part.plain() for key, part in self.value.items()})
        return self.value

    def refused(self, expected: str, remedy: str) -> Exception:
        """DP111 for a value that cannot stand here."""
        found = repr(self.value) if isinstance(self.value, str | int | float) else self.kind
        return self.place.refused(found, expected, remedy)

    def refused_key(self, key: str, expected: str, remedy: str) -> Exception:
        return (self.key_place or self.place).refused(key, expected, remedy)

    def members(self, what: str) -> Mapping[str, Node]:
        if not isinstance(self.value, Mapping):
            raise self.refused(f"{what}: an object", "Write keys and values.")
        return self.value

    def text(self, what: str) -> str:
        if not isinstance(self.value, str):
            raise self.refused(f"{what}: text", "Put it into quotes.")
        return self.value

    def integer(self, what: str) -> int:
        """A whole number; `4.0` counts, booleans and text do not."""
        if isinstance(self.value, float) and self.value.is_integer():
            return int(self.value)
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.refused(f"{what}: a whole number", "Correct the value.")
        return self.value

    def number(self, what: str) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.refused(f"{what}: a number", "Correct the value.")
        return float(self.value)

    def boolean(self, what: str) -> bool:
        if not isinstance(self.value, bool):
            raise self.refused(f"{what}: true or false", "Correct the value.")
        return self.value


class Budget:
    """Counts the nodes of one text, so that no text becomes a tree without bounds."""

    def __init__(self) -> None:
        self._left = MAX_NODES

    def take(self, place: Place, depth: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise place.refused(
                f"more than {MAX_NODES} values", "a configuration", "Give the configuration alone."
            )
        if depth > MAX_DEPTH:
            raise place.refused(
                f"nested deeper than {MAX_DEPTH}", "a configuration", "Give the configuration alone."
            )


def given_twice(place: Place, key: str) -> Exception:
    return place.refused(
        f"the key {cut(key)} a second time", "each key once", "Remove one: readers differ in which they take."
    )
