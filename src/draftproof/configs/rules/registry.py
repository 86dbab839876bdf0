"""The families of rules, in the order in which they are judged and listed. A new family is one module and one row.

LOCK is no family of rules: what differs from a deployment record is found by comparing, and only listed here."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import cast

from draftproof.configs.lock.codes import STATEMENTS as LOCK
from draftproof.configs.rules.rule import Rule, Statement
from draftproof.core.errors import DraftproofError

FAMILIES: dict[str, str] = {
    "VOCAB": "draftproof.configs.rules.vocab",
    "EAGLE": "draftproof.configs.rules.eagle",
    "PAIR": "draftproof.configs.rules.pair",
    "FORMAT": "draftproof.configs.rules.format",
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


def statements_of(families: Iterable[str] = (*FAMILIES, "LOCK")) -> tuple[Statement, ...]:
    """What every code of some families stands for, else of all that `check` can give."""
    found: list[Statement] = []
    for family in families:
        found += LOCK if family == "LOCK" else rules_of([family])
    return tuple(found)


def statement(code: str, field: str = "CODE") -> Statement:
    """What one code stands for. Raises DP001, naming `field`, for one that does not exist."""
    wanted = code.strip().upper()
    found = next((found for found in statements_of() if found.code == wanted), None)
    if found is None:
        raise DraftproofError(
            "DP001", field, code[:40], "a code such as VOCAB-01", "`draftproof rules list` lists them."
        )
    return found


def rule(code: str) -> Rule:
    """One rule. Raises DP001 for a code that is none."""
    found = statement(code)
    if not isinstance(found, Rule):
        raise DraftproofError(
            "DP001", "CODE", code[:40], "the code of a rule", "This one is judged elsewhere."
        )
    return found
