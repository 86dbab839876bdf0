"""Layer 1 of `docs/exactness.md`, the other half: the check that the right rules pass catches the wrong
ones."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from draftproof.verify import oracle
from exactness import wrong_rules

DOCS = Path(__file__).parents[2] / "docs" / "exactness.md"


@pytest.mark.parametrize("name", wrong_rules.CATALOGUE)
def test_the_wrong_rule_is_caught_and_the_right_one_is_exact(name: str) -> None:
    wrong, right = wrong_rules.CATALOGUE[name]
    assert set(deviations(right)) == {0}
    assert max(deviations(wrong)) > Fraction(1, 1000)


@cache
def deviations(build: wrong_rules.Build) -> list[Fraction]:
    return [oracle.deviation(*build(case)) for case in wrong_rules.CASES]


def test_the_chain_rule_in_exchangeable_parts_is_the_oracle_as_long_as_no_part_is_exchanged() -> None:
    for case in wrong_rules.CASES:
        setup = wrong_rules.chains.with_rule(wrong_rules.chains.chain())(case)
        assert oracle.deviation(*setup) == 0
        emitted = [
            oracle.mean_emitted(case.p, setup.drafter, rule) for rule in (setup.rule, oracle.rejection)
        ]
        assert emitted[0] == emitted[1]


def test_the_documentation_lists_the_catalogue() -> None:
    """Each entry of the page is the rule's name and its docstring, in the order of the catalogue."""
    listed = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("- `")]
    expected = [
        f"- `{name}`: {one_line(wrong.__doc__)}" for name, (wrong, _) in wrong_rules.CATALOGUE.items()
    ]
    assert listed == expected
    assert len(expected) >= 20


def one_line(docstring: str | None) -> str:
    assert docstring
    return " ".join(docstring.split())
