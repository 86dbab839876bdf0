"""`draftproof lock` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.cli import main
from support.checkpoints import write_checkpoint

SPECULATION = '{"method": "ngram", "num_speculative_tokens": 4}'


def test_it_writes_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, out = write_checkpoint(tmp_path / "target"), tmp_path / "deployed.json"
    arguments = ["lock", str(target), "--speculative-config", SPECULATION, "--out", str(out)]
    assert main.run(arguments) == 0
    shown = capsys.readouterr().out
    assert "nothing shows that this deployment pays" in shown
    document = json.loads(out.read_text())
    assert document["engine"]["name"] == "draftproof"
    assert document["deployment"]["speculation"] == {"method": "ngram", "depth": 4}
    assert main.run([*arguments, "--force", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == str(out)
    assert told["record"]["target"]["files"] == document["target"]["files"]


def test_a_command_of_another_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, out = write_checkpoint(tmp_path / "target"), tmp_path / "deployed.json"
    text = tmp_path / "start.sh"
    text.write_text(
        "vllm serve main-model --spec-method ngram --spec-tokens 5 --api-key sk-a-secret-of-mine\n"
    )
    given = ["lock", str(target), "--command", f"@{text}", "--engine", "vllm==0.33.0", "--out", str(out)]
    assert main.run(given) == 0
    assert json.loads(out.read_text())["engine"]["version"] == "0.33.0"
    assert "a-secret-of-mine" not in out.read_text() + capsys.readouterr().out
    assert main.run([*given[:4], "--out", str(out), "--force"]) == 0
    assert json.loads(out.read_text())["engine"]["name"] == "vllm"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "DP001"),
        (["--command", "vllm serve m", "--speculative-config", SPECULATION], "DP001"),
        (["--speculative-config", SPECULATION], "DP001"),
        (["nowhere", "--speculative-config", SPECULATION], "DP401"),
        (["--command", "something else"], "DP110"),
        (["--command", "vllm serve m", "--engine", "other"], "DP110"),
        (["--command", "@/nowhere/at/all"], "DP002"),
        (["{target}", "--speculative-config", SPECULATION, "--verdict", "/nowhere.json"], "DP002"),
        (["{target}", "--speculative-config", SPECULATION, "--out", "/nowhere/lock.json"], "DP002"),
    ],
)
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: str
) -> None:
    target = write_checkpoint(tmp_path / "target")
    given = [str(target) if word == "{target}" else word for word in arguments]
    assert main.run(["lock", *given]) == 2
    assert code in capsys.readouterr().err


def test_a_record_that_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, out = write_checkpoint(tmp_path / "target"), tmp_path / "deployed.json"
    out.write_text("decided long ago")
    arguments = ["lock", str(target), "--speculative-config", SPECULATION, "--out", str(out)]
    assert main.run(arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert out.read_text() == "decided long ago"
    assert main.run([*arguments, "--force"]) == 0
    assert json.loads(out.read_text())["engine"]["name"] == "draftproof"


def test_a_record_that_comes_while_files_are_read_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, out = write_checkpoint(tmp_path / "target"), tmp_path / "deployed.json"
    monkeypatch.setattr("draftproof.cli.lock._require_place", lambda out, force: out.write_text("another's"))
    assert main.run(["lock", str(target), "--speculative-config", SPECULATION, "--out", str(out)]) == 2
    assert "there already" in capsys.readouterr().err
    assert out.read_text() == "another's"


@pytest.mark.parametrize("place", ["nowhere/x.json", "."])
def test_a_place_that_takes_no_record_is_named_as_it_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    target = write_checkpoint(tmp_path / "target")
    monkeypatch.chdir(tmp_path)
    assert main.run(["lock", str(target), "--speculative-config", SPECULATION, "--out", place]) == 2
    assert f"{place}: " in capsys.readouterr().err


@pytest.mark.parametrize("named", [None, "named/elsewhere"])
def test_the_drafter_is_the_model_that_the_configuration_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str | None
) -> None:
    target, draft = (str(write_checkpoint(tmp_path / name)) for name in ("target", "draft"))
    speculation = {"method": "draft_model", "num_speculative_tokens": 4} | ({"model": named} if named else {})
    given = ["lock", target, "--draft", draft, "--speculative-config", json.dumps(speculation)]
    assert main.run([*given, "--out", str(tmp_path / "deployed.json"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)["record"]
    assert record["drafter"]["reference"] == draft
    assert record["deployment"]["speculation"]["drafter"]["name"] == (named or draft)


def test_a_measurement_of_a_model_of_another_name_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, report = write_checkpoint(tmp_path / "target"), tmp_path / "report.json"
    for model, is_told in ((str(target), False), ("/elsewhere/other.gguf", True)):
        said = {"engine": "draftproof", "model": {"model": model}, "cells": [{"verdict": "pays"}]}
        report.write_text(json.dumps(said))
        out = tmp_path / "deployed.json"
        given = ["lock", str(target), "--speculative-config", SPECULATION, "--verdict", str(report)]
        assert main.run([*given, "--out", str(out), "--force"]) == 0
        assert ("another name" in capsys.readouterr().out) == is_told
        assert json.loads(out.read_text())["verdict"]["model"] == model
