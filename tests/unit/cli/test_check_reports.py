"""Each reported fault that files can show, as a user would meet it: found, and nothing else alarms."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.reports import ROWS, Scene

SCENES = [(number, scene) for number, row in enumerate(ROWS, 1) for scene in row.scenes]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.mark.parametrize(
    ("number", "scene"), SCENES, ids=[f"{number}-{'-'.join(scene.codes)}" for number, scene in SCENES]
)
def test_the_fault_is_found_and_nothing_else_alarms(
    invoke, tmp_path: Path, number: int, scene: Scene
) -> None:
    result = invoke("check", *scene.write(tmp_path), "--json")
    assert result.status in (0, 5), result.stderr
    findings = result.document["findings"]
    assert set(scene.codes) <= {finding["code"] for finding in findings}
    beside = [
        f"{finding['code']} {finding['detail']}"
        for finding in findings
        if finding["severity"] != "info" and finding["code"] not in scene.codes
    ]
    assert not beside


def test_every_report_is_seen_or_says_why_not() -> None:
    assert len(ROWS) == 44
    assert all(row.scenes or row.unseen for row in ROWS)
    assert sum(bool(row.scenes) for row in ROWS) >= 30
