"""Every option that takes a file: a named pipe or a device is refused at once with a code, and never waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.plans import TARGET, write_config

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")

ASKS = {
    "check --config": ("check", "--engine", "trtllm", "--config", "PIPE"),
    "check --speculative-config": ("check", "--engine", "vllm", "--speculative-config", "PIPE"),
    "check --command": ("check", "--engine", "vllm", "--command", "@PIPE"),
    "check --traffic": ("check", "--engine", "vllm", "--command", "vllm serve a/b", "--traffic", "PIPE"),
    "check --lock": ("check", "--lock", "PIPE"),
    "translate --file": ("translate", "--from", "vllm", "--to", "sglang", "--file", "PIPE"),
    "plan --speculative-config": ("plan", "TARGET", "--memory", "8GiB", "--speculative-config", "PIPE"),
    "breakeven --from": ("breakeven", "--from", "PIPE"),
    "breakeven --baseline": ("breakeven", "--from", "PIPE", "--baseline", "PIPE"),
    "lock": ("lock", "--engine", "vllm", "--command", "@PIPE"),
    "advise": ("advise", "TARGET", "--workload", "PIPE", "--engine", "vllm"),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("kind", ["pipe", "device", "link"])
def test_pipes_and_devices_are_refused(invoke, tmp_path: Path, ask: tuple[str, ...], kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    name = "/dev/zero" if kind == "device" else str(tmp_path / kind)
    target = write_config(tmp_path / "target", TARGET)
    result = invoke(*(part.replace("PIPE", name).replace("TARGET", target) for part in ask))
    assert result.status == 2
    assert result.code == "DP002"
    assert "no regular file" in result.stderr


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_pipe_that_a_command_names_is_unread(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("flags.yaml")
    command = {"vllm": "vllm serve a/b", "sglang": "python -m sglang.launch_server --model-path a/b"}[engine]
    result = invoke("translate", "--from", engine, "--to", "vllm", f"{command} --config flags.yaml")
    assert "no regular file" in result.stdout + result.stderr


def test_a_tilde_is_the_home_where_a_file_is_looked_up(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "flags.yaml").write_text("max-num-seqs: 7\n", encoding="utf-8")
    (tmp_path / "start").write_text("vllm serve ~/m --config ~/flags.yaml\n", encoding="utf-8")
    for command in ("vllm serve ~/m --config ~/flags.yaml", "@~/start"):
        result = invoke("translate", "--from", "vllm", "--to", "sglang", command)
        assert "--max-running-requests 7" in result.stdout
        assert "--model-path ~/m " in result.stdout
