"""Pipeline stages: what an engine refuses at its start is an error, what may run is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import rule
from draftproof.core.finding import Severity
from support.rules.building import Build
from support.rules.combo import DOUBTFUL_STAGES, REFUSED_STAGES


@pytest.mark.parametrize(
    ("build", "severity"),
    [(build, Severity.ERROR) for build in REFUSED_STAGES]
    + [(build, Severity.WARNING) for build in DOUBTFUL_STAGES],
)
def test_one_finding_of_the_severity(build: Build, severity: Severity, tmp_path: Path) -> None:
    [finding] = judge(build(tmp_path), [rule("COMBO-01")]).findings
    assert finding.severity == severity
