"""Values of engines' own settings that change memory: how they are read. Called by the rules and `assemble`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftproof.configs.own import own_key
from draftproof.configs.speculation import Deployment, Value
from draftproof.core.errors import DraftproofError
from draftproof.planning.setup import EngineMemory

_LARGEST = 1 << 24


def ratio(most: float = 1e6) -> Callable[[Value], float]:
    """A number above 0."""

    def read(value: Value) -> float:
        number = float(value) if isinstance(value, str | int | float) else 0.0
        if not 0 < number <= most:
            raise ValueError(f"a number above 0, at most {most:g}")
        return number

    return read


def count(value: Value) -> int:
    number = int(value) if isinstance(value, str | int) else 0
    if not 0 < number <= _LARGEST:
        raise ValueError(f"a whole number from 1 to {_LARGEST}")
    return number


def one_of(*words: str) -> Callable[[Value], str]:
    def read(value: Value) -> str:
        if value not in words:
            raise ValueError(", ".join(words))
        return str(value)

    return read


def switch(value: Value) -> bool:
    return value not in (False, "false", "False", "0", 0)


def read_own(deployment: Deployment, rules: EngineMemory) -> dict[str, Any]:
    """What the deployment says for the keys that `rules` reads. Raises DP001 for a value that the engine would not
    take."""
    found = {}
    for key, read in rules.reads.items():
        said = own_key(deployment, key)
        if said is None or said.value is None:
            continue
        try:
            found[key] = read(said.value)
        except ValueError as error:
            expected = (
                str(error) if "literal" not in str(error) and "convert" not in str(error) else "a number"
            )
            raise DraftproofError(
                "DP001", key, str(said.value)[:80], expected, "Write it as the engine takes it."
            ) from error
    return found
