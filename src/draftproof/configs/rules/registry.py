"""The families of rules, in the order in which they are judged and listed. A new family is one module and one row."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import cast

from draftproof.configs.rules.rule import Rule
from draftproof.core.errors import DraftproofError

FAMILIES: dict[str, str] = {
    "VOCAB": "draftproof.configs.rules.vocab",
    "EAGLE": "draftproof.configs.rules.eagle",
    "PAIR": "draftproof.configs.rules.pair",
    "MTP": "draftproof.configs.rules.mtp",
    "CONTEXT": "draftproof.configs.rules.context",
    "CACHE": "draftproof.configs.rules.cache",
    "FLAG": "draftproof.configs.rules.flag",
    "CONFIG": "draftproof.configs.rules.config",
    "COMBO": "draftproof.configs.rules.combo",
    "REQUEST": "draftproof.configs.rules.request",
    "QUANT": "draftproof.configs.rules.quant",
    "ECON": "draftproof.configs.rules.econ",
    "MEMORY": "draftproof.configs.rules.memory",
    "VERSION": "draftproof.configs.rules.version",
}
"""Family → module that holds its rules as `RULES`."""


def rules_of(families: Iterable[str] = tuple(FAMILIES)) -> tuple[Rule, ...]:
    """The rules of some families, else of all."""
    found: list[Rule] = []
    for family in families:
        found += cast("tuple[Rule, ...]", import_module(FAMILIES[family]).RULES)
    return tuple(found)


def rule(code: str) -> Rule:
    """One rule. Raises DP001 for a code that does not exist."""
    wanted = code.strip().upper()
    found = next((rule for rule in rules_of() if rule.code == wanted), None)
    if found is None:
        raise DraftproofError(
            "DP001", "CODE", code[:40], "a rule such as VOCAB-01", "`draftproof rules list` lists them."
        )
    return found
