"""`draftproof models`: the catalogue, fetching through a stand-in, and the contents of generated checkpoints."""

from pathlib import Path

import pytest

from draftproof.models import catalogue
from support.checkpoints import write_checkpoint, write_gguf


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which no model was fetched yet."""
    monkeypatch.setenv("DRAFTPROOF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_list_says_what_there_is_and_how_to_get_it(invoke) -> None:
    text = invoke("models", "list").stdout
    assert "smollm2-135m" in text
    assert "draftproof models pull smollm2-135m" in text
    [model] = invoke("models", "list", "--json").document["models"]
    assert model["name"] == catalogue.DEFAULT_MODEL
    assert model["available"] is False
    assert len(model["sha256"]) == 64
    assert set(model) == {"name", "description", "license", "num_bytes", "sha256", "path", "available"}


def test_pull_prints_where_the_model_lies(invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def resolve(name: str, progress: catalogue.Progress) -> Path:
        progress("downloading", 1, 2)
        return tmp_path / name

    monkeypatch.setattr(catalogue, "resolve", resolve)
    result = invoke("models", "pull", "smollm2-135m")
    assert result.status == 0
    assert result.stdout == f"{tmp_path / 'smollm2-135m'}\n"
    assert result.stderr == "downloading smollm2-135m\n"
    assert invoke("models", "pull", "smollm2-135m", "--json").document["name"] == "smollm2-135m"


@pytest.mark.parametrize(
    "arguments", [("pull", "gpt-5"), ("pull", "."), ("show", "no/such"), ("show", "smollm2-135m")]
)
def test_what_is_not_there_is_dp401(invoke, arguments: tuple[str, str]) -> None:
    result = invoke("models", *arguments)
    assert (result.status, result.code) == (2, "DP401")
    assert invoke("models", *arguments, "--json").document["error"]["code"] == "DP401"


def test_show_reads_both_formats_alike(invoke, tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path / "model")
    file = write_gguf(tmp_path / "model.gguf", types="Q8_0")
    a = invoke("models", "show", str(directory), "--json").document
    b = invoke("models", "show", str(file), "--json").document
    assert (a["format"], b["format"]) == ("safetensors", "gguf")
    assert "Q8_0" in b["tensor_types"]
    assert set(a["tensor_types"]) == {"F32"}
    differing = {"path", "format", "tensor_types"}
    assert {key: value for key, value in a.items() if key not in differing} == {
        key: value for key, value in b.items() if key not in differing
    }
    text = invoke("models", "show", str(directory)).stdout
    assert "2, hidden size 64, feed-forward 128" in text


def test_show_tells_windows_and_experts(invoke, tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, family="qwen3moe", experts=6, used_experts=2, window=40)
    document = invoke("models", "show", str(directory), "--json").document
    assert document["windows"] == {"num_layers": 2, "num_tokens": 40}
    assert document["experts"] == {"num_layers": 2, "num_experts": 6, "num_used": 2}
    text = invoke("models", "show", str(directory)).stdout
    assert "40 tokens in 2 layers" in text
    assert "2 of 6 in 2 layers" in text


def test_show_of_a_broken_file_is_a_mistake_not_a_fault(invoke, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "model.gguf")
    file.write_bytes(file.read_bytes()[:1000])
    result = invoke("models", "show", str(file))
    assert result.status == 2
    assert result.code == "DP402"
