"""The comparison of engines: tables and dialects say the same."""

from __future__ import annotations

import pytest

from draftproof.configs.compared import methods_page, sayable
from draftproof.configs.registry import DIALECTS
from draftproof.configs.rules.facts.methods import METHODS, MethodFact
from draftproof.configs.rules.facts.reports import REPORTS

NOT_IN_A_CONFIGURATION = {
    "custom": "code of the user's",
    "cascade": "its parts are described one by one",
    "early_exit": "the layer is a key of Transformers' own",
}
IN_THE_REQUEST = {("fireworks", "predicted")}
WRITTEN = [
    fact
    for fact in METHODS
    if fact.gone is None
    and fact.method not in NOT_IN_A_CONFIGURATION
    and (fact.reading.engine, fact.method) not in IN_THE_REQUEST
]


@pytest.mark.parametrize("fact", WRITTEN, ids=lambda fact: f"{fact.reading.engine}-{fact.method}")
def test_a_method_of_the_table_is_one_that_the_dialect_writes_and_reads(fact: MethodFact) -> None:
    found = list(sayable(fact))
    assert found
    assert {deployment.speculation.method for deployment in found} == {fact.method}


def test_every_engine_is_compared() -> None:
    assert {report.reading.engine for report in REPORTS} == set(DIALECTS)
    assert {fact.reading.engine for fact in METHODS} == set(DIALECTS)
    page = methods_page()
    for engine in DIALECTS:
        assert f"### To {engine}\n" in page
    for line in page.splitlines():
        if line.startswith("| "):
            assert line.count("|") >= 4
            assert "|  |" not in line
