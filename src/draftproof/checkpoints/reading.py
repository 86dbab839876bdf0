"""Typed access to a configuration's values, with the refusals of the planner's geometry.

Used by `geometry`, `layers` and `parameters`; knows no key's meaning.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from draftproof.core.errors import DraftproofError

_MAX_SIZE = 1 << 32
_MAX_FACTOR = 1 << 10
_MAX_DIGITS = 10
_NO_NAMES: Mapping[str, str] = {}


class Values:
    """A configuration's values over defaults. A key with null counts as left out, except where `defaults` has it:
    then null is what the file says. `names` are other names of keys (theirs → ours), which count where ours has no
    value. Faults become DP406 with the key's name as the file has it."""

    def __init__(
        self,
        reference: str,
        config: Mapping[str, Any],
        defaults: Mapping[str, Any],
        names: Mapping[str, str] = _NO_NAMES,
    ) -> None:
        self.reference = reference
        self._written = {
            ours: theirs
            for theirs, ours in names.items()
            if config.get(theirs) is not None and config.get(ours) is None
        }
        renamed = {ours: config[key] for ours, key in self._written.items()}
        self._values: ChainMap[str, Any] = ChainMap({**defaults, **config, **renamed})

    def changed(self, changes: Mapping[str, Any]) -> Values:
        """The same with other values for some keys. Costs as much as the changes, not as the configuration: it is
        done for every layer."""
        found = Values(self.reference, {}, {})
        found._written, found._values = self._written, self._values.new_child(dict(changes))
        return found

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

    def factor(self, key: str, default: float) -> float:
        """A finite number above 0."""
        value = self._values.get(key)
        if value is None:
            return default
        if type(value) not in (int, float) or not 0 < value <= _MAX_FACTOR:
            raise self.fault(key, value, f"a number above 0, at most {_MAX_FACTOR}")
        return float(value)

    def counts(self, key: str, length: int, default: int | None = None) -> tuple[int, ...]:
        """A number for each of `length` layers: a list of them, or one for all."""
        value = self._values.get(key)
        if not isinstance(value, list):
            return (self.count(key, default),) * length
        if len(value) < length:
            raise self.fault(key, f"{len(value)} numbers", f"one for each of {length} layers")
        return tuple(Values(self.reference, {key: item}, {}).count(key) for item in value[:length])

    def flag(self, key: str) -> bool:
        value = self._values.get(key)
        if value is None:
            return False
        if type(value) is not bool:
            raise self.fault(key, value, "true or false")
        return value

    def applies(self, rule: bool | str) -> bool:
        return self.flag(rule) if isinstance(rule, str) else rule

    def items(self, key: str, length: int) -> list[Any]:
        """A list with something for each of `length` layers; what is behind them is left out."""
        value = self._values.get(key)
        if not isinstance(value, list) or len(value) < length:
            raise self.fault(key, value, f"a list with something for each of {length} layers")
        return value[:length]

    def layers(self, key: str, num_layers: int, first: int = 0) -> frozenset[int]:
        """Numbers of layers, of which there are `num_layers` from `first` on: a list, or a string with commas; nothing
        where the key has no value."""
        value = self._values.get(key) or []
        told = [_whole(item) for item in value.split(",")] if isinstance(value, str) else value
        last = first + num_layers - 1
        if not isinstance(told, list) or not all(type(item) is int for item in told):
            raise self.fault(key, value, f"numbers of layers from {first} to {last}")
        outside = [item for item in told if not first <= item <= last]
        if outside:
            raise self.fault(key, outside[0], f"numbers of layers from {first} to {last}")
        return frozenset(told)

    def fault(self, key: str, found: object, expected: str) -> DraftproofError:
        return DraftproofError(
            "DP406",
            f"{self.reference}: {self._written.get(key, key)}",
            _shown(found),
            expected,
            "Check the configuration; what memory needs is not guessed.",
        )


def _whole(text: str) -> int | None:
    """A short whole number; None for anything else."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _MAX_DIGITS else None


def _shown(found: object) -> str:
    """The interpreter refuses to write long numbers."""
    try:
        return str(found)[:80]
    except ValueError:
        return "a number of thousands of digits"
