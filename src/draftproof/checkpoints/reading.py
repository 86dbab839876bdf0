"""Typed access to a configuration's values, with the refusals of the planner's geometry.

Used by `geometry`, `layers` and `parameters`; knows no key's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.core.errors import DraftproofError

_MAX_SIZE = 1 << 32


class Values:
    """A configuration's values over defaults. A key with null counts as left out, except where `defaults` has it:
    then null is what the file says. Faults become DP406 with the key's name."""

    def __init__(self, reference: str, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._reference = reference
        self._values = {**defaults, **config}

    def raw(self, key: str) -> Any:
        return self._values.get(key)

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def first(self, *keys: str) -> str | None:
        """The first of the keys that has a value."""
        return next((key for key in keys if self.has(key)), None)

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self._values.get(key)
        if value is None:
            value = default
        if type(value) is not int or not least <= value <= _MAX_SIZE:
            raise self.fault(key, "nothing" if value is None else value, f"a whole number from {least}")
        return value

    def counts(self, key: str, length: int, default: int | None = None) -> tuple[int, ...]:
        """A number for each of `length` layers: a list of them, or one for all."""
        value = self._values.get(key)
        if not isinstance(value, list):
            return (self.count(key, default),) * length
        if len(value) < length:
            raise self.fault(key, f"{len(value)} numbers", f"one for each of {length} layers")
        return tuple(Values(self._reference, {key: item}, {}).count(key) for item in value[:length])

    def flag(self, key: str) -> bool:
        value = self._values.get(key)
        if value is None:
            return False
        if type(value) is not bool:
            raise self.fault(key, value, "true or false")
        return value

    def applies(self, rule: bool | str) -> bool:
        return self.flag(rule) if isinstance(rule, str) else rule

    def fault(self, key: str, found: object, expected: str) -> DraftproofError:
        return DraftproofError(
            "DP406",
            f"{self._reference}: {key}",
            f"{str(found)[:80]}",
            expected,
            "Check the configuration; what memory needs is not guessed.",
        )
