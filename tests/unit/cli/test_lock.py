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
    assert main.run([*arguments, "--json"]) == 0
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
    assert main.run([*given[:4], "--out", str(out)]) == 0
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
