"""Every rule speaks in its positive cases and keeps silent in its negative ones; the rule base is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import FAMILIES, rule, rules_of
from draftproof.core.errors import DraftproofError
from support.rules.building import Build
from support.rules.everything import FIXTURES, NEGATIVE, POSITIVE, ids


@pytest.mark.parametrize(("code", "build"), POSITIVE, ids=ids(POSITIVE))
def test_it_speaks(code: str, build: Build, tmp_path: Path) -> None:
    found = [finding for finding in judge(build(tmp_path), [rule(code)]).findings if finding.code == code]
    assert found
    for finding in found:
        assert finding.evidence
        assert finding.remedy
        assert finding.detail.endswith("."), finding.detail


@pytest.mark.parametrize(("code", "build"), NEGATIVE, ids=ids(NEGATIVE))
def test_it_looks_and_says_nothing(code: str, build: Build, tmp_path: Path) -> None:
    case = build(tmp_path)
    judged = judge(case, [rule(code)])
    assert judged.findings == ()
    assert judged.not_checked == ()
    assert judged.checked == (code,) or not rule(code).applies_to(case.engine, case.method)


def test_every_rule_has_cases_of_both_kinds() -> None:
    assert set(FIXTURES) == {found.code for found in rules_of()}
    for code, fixtures in FIXTURES.items():
        assert fixtures.positive, code
        assert fixtures.negative, code


def test_codes_are_unique_and_belong_to_their_family() -> None:
    codes = [found.code for found in rules_of()]
    assert len(codes) == len(set(codes))
    for family in FAMILIES:
        own = rules_of([family])
        assert [found.code for found in own] == [f"{family}-{n:02}" for n in range(1, len(own) + 1)]


def test_every_rule_says_what_people_need() -> None:
    for found in rules_of():
        assert found.title[0].isupper(), found.code
        assert not found.title.endswith("."), found.code
        for text in (found.about, found.remedy):
            assert text.endswith("."), found.code
        for source in (found.source, *(reading.source for reading in found.readings)):
            assert source.name, found.code
            assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])(-\d\d)?", source.read), found.code


def test_a_code_that_does_not_exist() -> None:
    assert rule("vocab-01").code == "VOCAB-01"
    with pytest.raises(DraftproofError, match="DP001"):
        rule("VOCAB-99")
