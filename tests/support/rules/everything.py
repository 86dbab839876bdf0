"""The fixtures of all families, as the tests of the rule base go through them."""

from __future__ import annotations

from importlib import import_module

from draftproof.configs.rules.registry import FAMILIES
from support.rules.building import Build, Fixtures

FIXTURES: dict[str, Fixtures] = {}
for _family in FAMILIES:
    FIXTURES |= import_module(f"support.rules.{_family.lower()}").FIXTURES

POSITIVE = [(code, build) for code, fixtures in FIXTURES.items() for build in fixtures.positive]
NEGATIVE = [(code, build) for code, fixtures in FIXTURES.items() for build in fixtures.negative]


def ids(rows: list[tuple[str, Build]]) -> list[str]:
    return [f"{code}-{number}" for number, (code, _) in enumerate(rows)]
