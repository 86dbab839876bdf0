"""`draftproof translate`: where the text comes from, what is printed where, and what impossible looks like."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

NGRAM = '{"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 4, "prompt_lookup_min": 4}'


def test_artifact_on_standard_output_account_on_standard_error(invoke) -> None:
    result = invoke("translate", "--from", "vllm", "--to", "draftproof", NGRAM)
    assert result.status == 0
    assert json.loads(result.stdout)["prompt_lookup_max"] == 4
    kinds = [
        line.split()[0] for line in result.stderr.splitlines() if line.strip() and not line.startswith(" ")
    ]
    assert kinds.count("kept") == 4
    assert "removed" not in kinds


def test_the_document(invoke) -> None:
    text = f"vllm serve m --num-speculative-tokens 3 --speculative-config '{NGRAM}'"
    result = invoke("translate", "--from", "vllm", "--to", "vllm", "--json", text)
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    assert document["from"] == {"engine": "vllm", "version": "0.33.0"}
    assert [part["name"] for part in document["artifacts"]] == ["command"]
    assert document["deployment"]["speculation"]["lookup"] == {"min_ngram": 4, "max_ngram": 4}
    assert document["remarks"][0]["effect"] == "removed"
    assert document["remarks"][0]["source"]["read"] == "2026-11"
    assert {note["kind"] for note in document["notes"]} == {"kept"}


def test_impossible_is_an_error_with_the_account(invoke) -> None:
    result = invoke("translate", "--from", "draftproof", "--to", "vllm", "--json", '{"method": "predicted"}')
    assert result.status == 2
    document = json.loads(result.stdout)
    assert document["error"]["code"] == "DP113"
    assert document["artifacts"] == []
    assert {note["setting"]: note["kind"] for note in document["notes"]}["speculation.method"] == "impossible"
    assert "DP113" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--from", "vllm", "--to", "nowhere", NGRAM], "DP110"),
        (["--from", "vllm", "--to", "draftproof", "vllm serve 'open"], "DP111"),
        (["--from", "vllm", "--to", "draftproof", "--from-version", "last year's", NGRAM], "DP112"),
        (["--from", "vllm", "--to", "draftproof", "--to-version", "0", NGRAM], "DP112"),
        (["--from", "vllm", "--to", "draftproof", "--file", "no-such-file"], "DP002"),
        (["--from", "vllm", "--to", "draftproof", "@no-such-file"], "DP002"),
        (["--from", "vllm", "--to", "draftproof", "@a", "--file", "b"], "DP001"),
        (["--from", "vllm", NGRAM], "DP001"),
    ],
)
def test_mistakes_have_codes(invoke, arguments: list[str], code: str) -> None:
    result = invoke("translate", "--json", *arguments)
    assert result.status == 2
    assert json.loads(result.stdout)["error"]["code"] == code


def test_text_from_files_and_standard_input(invoke, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(NGRAM, encoding="utf-8")
    asked = ("translate", "--from", "vllm", "--to", "draftproof")
    wanted = invoke(*asked, NGRAM).stdout
    assert invoke(*asked, "--file", str(path)).stdout == wanted
    assert invoke(*asked, f"@{path}").stdout == wanted
    assert invoke(*asked, stdin=NGRAM.encode()).stdout == wanted
    assert invoke(*asked, "-", stdin=NGRAM.encode()).stdout == wanted
    assert invoke(*asked, stdin=b"\xff").status == 2
    assert invoke(*asked, stdin=b" " * (1 << 21)).status == 2


def test_versions_that_were_not_read_are_named(invoke) -> None:
    result = invoke("translate", "--from", "vllm", "--to", "draftproof", "--from-version", "0.31.0", NGRAM)
    assert result.status == 0
    assert "unread" in result.stderr
    assert "0.31.0" in result.stderr


def test_it_answers_without_loading_anything_heavy() -> None:
    program = (
        "import sys\n"
        "from draftproof.cli.main import run\n"
        f"status = run(['translate', '--from', 'vllm', '--to', 'draftproof', {NGRAM!r}])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'tokenizers', 'gguf', 'jinja2', 'httpx'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_printed_is_read_again_files_and_all(invoke) -> None:
    text = "vllm serve some/model --spec-method ngram --spec-tokens 5"
    printed = invoke("translate", "--from", "vllm", "--to", "trtllm", text).stdout
    command, file = printed.split("# --- file config.yaml ---\n")
    assert command == "trtllm-serve some/model --config config.yaml\n"
    assert file.startswith("speculative_config:\n")
    asked = ("translate", "--from", "trtllm", "--to", "trtllm", "--json")
    speculation = invoke(*asked, stdin=printed.encode()).document["deployment"]["speculation"]
    assert speculation == {"method": "ngram", "depth": 5, "lookup": {"max_ngram": 5}}
    assert invoke(*asked, stdin=printed.replace("\n", "\r\n").encode()).document["deployment"][
        "speculation"
    ] == (speculation)
    again = invoke("translate", "--from", "trtllm", "--to", "trtllm", stdin=printed.encode())
    assert again.stdout == printed


SECRET = "a-secret-of-mine"
SECRETS = {
    "vllm": (
        f"HF_TOKEN={SECRET} vllm serve m --spec-method ngram --spec-tokens 5 --api-key {SECRET} --hf-token={SECRET}",
        f"docker run -e HF_TOKEN={SECRET} vllm/vllm-openai:v0.33.0 --model m -sc.method ngram "
        f"-sc.num_speculative_tokens 5 --api-key {SECRET}",
        f'{{"model": "m", "hf_token": "{SECRET}", "speculative_config": {{"method": "suffix"}}}}',
    ),
    "sglang": (
        f"HF_TOKEN={SECRET} python -m sglang.launch_server --model-path m --speculative-algorithm NGRAM "
        f"--speculative-num-draft-tokens 6 --api-key {SECRET}",
    ),
    "llamacpp": (
        f"llama-server -m m.gguf --spec-type ngram-simple --api-key {SECRET} --hf-token {SECRET} -hft {SECRET}",
    ),
}


@pytest.mark.parametrize(
    ("engine", "text"), [(name, text) for name, texts in SECRETS.items() for text in texts]
)
@pytest.mark.parametrize("other", [*SECRETS, "draftproof"])
def test_secrets_stand_in_what_is_ready_to_paste_alone(invoke, engine: str, text: str, other: str) -> None:
    asked = ("translate", "--from", engine, "--to", other, text)
    result = invoke(*asked)
    assert SECRET not in result.stderr
    assert (SECRET in result.stdout) == (engine == other)
    document = invoke(*asked, "--json").document
    written = document.pop("artifacts")
    assert SECRET not in json.dumps(document)
    assert (SECRET in json.dumps(written)) == (engine == other)
