"""No false alarm: pairs that people serve give no error and no warning, in any engine that their sources name."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.checkpoints.view import open_view
from draftproof.configs.pairs import load_catalogue
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.facts.methods import find_method
from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import rules_of
from draftproof.configs.speculation import Deployment, Method, ModelRef, Speculation
from draftproof.core.finding import Severity
from support.known_pairs import KnownPair, known_pairs, write_pair


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.mark.parametrize("pair", known_pairs(), ids=str)
def test_a_pair_that_works_raises_no_alarm(pair: KnownPair, folder: Path) -> None:
    target, drafter = write_pair(pair, folder)
    known = load_catalogue().find(pair.target, pair.drafter)
    method: Method = known[0].method if known else pair.method  # type: ignore[assignment]  # a name of ours
    engines = [name for entry in known for name in entry.engines] or ["vllm", "sglang"]
    refused = {name for entry in known for trouble in entry.trouble for name in trouble.refused_by}
    for engine in sorted({*engines} - refused):
        if find_method(engine, method) is None:
            continue
        speculation = Speculation(
            method=method,
            drafter=None if pair.drafter is None else ModelRef(name=pair.drafter),
            depth=known[0].depth if known and known[0].depth else 3,
        )
        judged = judge(
            Case(
                deployment=Deployment(
                    engine=engine, target=ModelRef(name=pair.target), speculation=speculation
                ),
                target_view=open_view(str(target)),
                drafter_view=None if drafter is None else open_view(str(drafter)),
            ),
            rules_of(),
        )
        alarms = [finding for finding in judged.findings if finding.severity is not Severity.INFO]
        assert not alarms, [f"{engine} {alarm.code} {alarm.detail}" for alarm in alarms]


def test_there_are_enough_of_them() -> None:
    assert len(known_pairs()) >= 40
