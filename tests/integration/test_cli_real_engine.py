"""The commands with the real engine on small generated checkpoints, in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.checkpoints import write_checkpoint, write_gguf

SOURCE = Path(__file__).resolve().parents[2] / "src"


def draftproof(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "draftproof", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, cwd=SOURCE)


def document(*arguments: str) -> dict[str, Any]:
    done = draftproof(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    parsed = json.loads(done.stdout)
    assert isinstance(parsed, dict)
    return parsed


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("model") / "tiny", context=2048))


def test_a_seed_gives_the_same_text_with_and_without_drafts(checkpoint: str, tmp_path: Path) -> None:
    base = (
        "generate",
        checkpoint,
        "--prompt",
        "def add(first, second):\n    return first",
        "--max-tokens",
        "48",
    )
    plain = document(*base)
    (tmp_path / "expected.txt").write_text(plain["text"])
    drafted = document(*base, "--speculative-config", '{"method": "auto", "num_speculative_tokens": 6}')
    prediction = ("--prediction-file", str(tmp_path / "expected.txt"))
    predicted = document(*base, *prediction)
    always = document(
        *base, *prediction, "--speculative-config", '{"method": "predicted", "adaptive": false}'
    )
    assert drafted["token_ids"] == predicted["token_ids"] == always["token_ids"] == plain["token_ids"]
    assert plain["speculation"]["proposed"] == 0
    assert (
        always["speculation"]["proposed"] > 0
    )  # by itself it drafts where that pays, and a pass of this model is free
    assert predicted["speculation"]["method"] == "predicted"


def test_a_gguf_file_streams_its_answer(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", types="Q8_0")
    done = draftproof(
        "generate", str(file), "-", "--raw", "--max-tokens", "16", stdin="for index in range(10):"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n")
    assert "self-test:" in done.stderr


def test_a_prompt_longer_than_the_context_is_dp302(checkpoint: str) -> None:
    done = draftproof("generate", checkpoint, "-", stdin="too long " * 2000)
    assert done.returncode == 2
    assert "DP302" in done.stderr
    assert done.stdout == ""


def test_what_is_no_model_is_dp401(tmp_path: Path) -> None:
    done = draftproof("generate", str(tmp_path), "--prompt", "x", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "DP401"
