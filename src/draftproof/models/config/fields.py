"""Typed access to a configuration's values. Used by the parsers of this package; knows no key's meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.core.errors import DraftproofError

_MAX_SIZE = 1 << 24
_MAX_NUMBER = 1e300


class Fields:
    """Values by key; faults become DP406 with the key's full name. A key with `null` counts as left out."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self._values = values
        self._place = place

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def raw(self, key: str) -> Any:
        return self._values.get(key)

    def count(self, key: str, default: int | None = None, limit: int = _MAX_SIZE) -> int:
        value = self._get(key, default)
        if type(value) is not int or not 0 < value <= limit:
            raise self.fault(key, value, f"a whole number from 1 to {limit}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if type(value) not in (int, float) or not 0 < value < _MAX_NUMBER:
            raise self.fault(key, value, "a number above 0 that a float can hold")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._get(key, default)
        if type(value) is not bool:
            raise self.fault(key, value, "true or false")
        return value

    def numbers(self, key: str, length: int) -> tuple[float, ...]:
        """A list of `length` numbers above 0."""
        values = self._get(key, None)
        if not isinstance(values, list) or len(values) != length:
            raise self.fault(key, f"{str(values)[:60]}", f"{length} numbers")
        return tuple(Fields({key: value}, self._place).number(key) for value in values)

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is None and default is None:
            raise self.fault(key, "nothing", "a value")
        return default if value is None else value

    def fault(self, key: str, found: object, expected: str) -> DraftproofError:
        return unsupported(f"{self._place}{key}", found, expected)


def unsupported(field: str, found: object, expected: str) -> DraftproofError:
    return DraftproofError(
        "DP406",
        field,
        found,
        expected,
        "Use another checkpoint of the model, or a version that supports this.",
    )


def token_ids(value: Any, vocab_size: int, field: str) -> list[int]:
    """One id, a list of them or nothing."""
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise unsupported(field, value, f"token ids below {vocab_size}")
    return ids
