"""Commands on GGUF models of a hub, named as llama.cpp names them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.checkpoints import write_gguf
from support.fake_hub import FakeHub, fake_hub

NAME = "some-org/tiny-GGUF"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    for kind in ("Q4_0", "Q8_0"):
        write_gguf(root / f"tiny-{kind}.gguf", types=kind, layers=2, vocab=320)
    write_gguf(root / "draft/small-F16.gguf", types="F16", layers=1, vocab=320)
    return root


@pytest.fixture
def hub(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with fake_hub({NAME: repository}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        yield server


def read_files(hub: FakeHub) -> set[str]:
    return {seen.path.rpartition("/")[2] for seen in hub.seen if "/resolve/" in seen.path}


@pytest.mark.parametrize(
    ("command", "files"),
    [
        (f"-hf {NAME}:Q4_0 -hfd {NAME}:F16", {"tiny-Q4_0.gguf", "small-F16.gguf"}),
        (f"-hf {NAME} -hfd {NAME}:F16", {"tiny-Q8_0.gguf", "small-F16.gguf"}),
        (f"-hf {NAME} --hf-file tiny-Q4_0.gguf -hfd {NAME}:F16", {"tiny-Q4_0.gguf", "small-F16.gguf"}),
    ],
    ids=["tags", "preferred", "file"],
)
def test_check_reads_what_llama_cpp_would_take(invoke, hub: FakeHub, command: str, files: set[str]) -> None:
    result = invoke("check", "--command", f"llama-server {command} --spec-type draft-simple", "--json")
    assert result.status in (0, 5), result.stderr
    assert read_files(hub) == files
    unchecked = " ".join(str(item) for item in result.document["not_checked"])
    assert "files" not in unchecked


def test_paths_of_the_serving_machine_are_not_asked_of_the_hub(invoke, hub: FakeHub) -> None:
    command = f"llama-server -m {NAME}/tiny-Q4_0.gguf -md models/draft/small.gguf --spec-type draft-simple"
    result = invoke("check", "--command", command, "--json")
    assert result.status in (0, 5), result.stderr
    assert hub.seen == []
    assert "not on this machine" in result.stdout


@pytest.mark.parametrize("target", [f"{NAME}:Q8_0", f"hf.co/{NAME}:q8_0", f"{NAME}/tiny-Q8_0.gguf"])
def test_targets_on_the_command_line(invoke, hub: FakeHub, target: str) -> None:
    speculation = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}')
    checked = invoke("check", target, *speculation, "--engine", "vllm", "--json")
    assert checked.status in (0, 5), checked.stderr
    planned = invoke("plan", target, *speculation, "--memory", "4GiB", "--context", "64", "--json")
    assert planned.status in (0, 5), planned.stderr
    assert read_files(hub) == {"tiny-Q8_0.gguf"}


@pytest.mark.parametrize("command", ["check", "plan", "lock"])
def test_several_models_are_asked_for(invoke, hub: FakeHub, command: str) -> None:
    options = {
        "check": ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}'),
        "plan": ("--memory", "4GiB"),
        "lock": ("--command", "llama-server -hf x/y"),
    }
    result = invoke(command, NAME, *options[command])
    said = " ".join((result.stdout + result.stderr).split())
    assert "3 GGUF models" in said
