"""`draftproof advise`: its document, its text, workloads of all kinds, and mistakes."""

import json
import sys
from pathlib import Path

import pytest

from draftproof.cli.main import COMMANDS
from support.checkpoints import write_checkpoint, write_gguf

FILE = "".join(f"def function_{index}(value):\n    return value + {index}\n\n" for index in range(30))


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    records = [
        {"prompt": f"Edit.\n{FILE}", "output": FILE, "min_p": 0.1},
        {
            "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}],
            "seed": 1,
        },
        {"prompt": "No answer was kept."},
    ]
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return path


def test_the_document_holds_steps_in_order(invoke, tmp_path: Path, requests: Path) -> None:
    target = str(write_checkpoint(tmp_path / "model"))
    arguments = ("--workload", str(requests), "--memory", "24GiB", "--context", "4096", "--concurrency", "8")
    document = invoke("advise", target, *arguments, "--json").document
    assert document["engine"] == {"name": "draftproof", "version": None, "assumed": True}
    assert document["asked"] == {"memory_bytes": 24 << 30, "context": 4096, "concurrency": 8, "require": []}
    assert document["workload"]["parameters"] == {"min_p": 1, "seed": 1}
    assert document["workload"]["copied_from_prompts"]["num_requests"] == 2
    standings = [step["standing"] for step in document["steps"]]
    order = ["try", "possible", "ruled_out"]
    ranked = [order.index(step["standing"]) for step in document["steps"] if step["kind"] != "none"]
    assert ranked == sorted(ranked)
    assert "try" in standings
    for step in document["steps"]:
        assert step["standing"] != "ruled_out" or step["why_not"]


def test_text_and_document_agree_and_only_commands_that_exist_are_named(invoke, tmp_path: Path) -> None:
    target = str(write_gguf(tmp_path / "model.gguf", types="Q8_0"))
    text = invoke("advise", target, "--workload", "edit").stdout
    document = invoke("advise", target, "--workload", "edit", "--json").document
    assert text.index(document["steps"][0]["title"]) < text.index(document["steps"][1]["title"])
    commands = [step["command"].split() for entry in document["steps"] for step in entry["next"]]
    assert commands
    for words in commands:
        assert words[0] != "draftproof" or words[1] in COMMANDS
    assert "upper bound" in text


def test_a_hub_id_is_answered_from_the_catalogue_and_says_so(invoke) -> None:
    result = invoke("advise", "Qwen/Qwen3-8B")
    assert result.status == 0
    assert "the hub was not asked" in result.stdout
    assert "commands and rules are those of vllm" in result.stdout


def test_hosted_takes_any_model_name(invoke) -> None:
    text = invoke("advise", "gpt-4.1", "--role", "hosted").stdout
    assert "OpenAI API, Chat Completions" in text
    assert "Do nothing: leave requests as they are" in text


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("no/such/path.gguf",), "DP401"),
        (("Qwen/Qwen3-8B", "--engine", "llama"), "DP110"),
        (("Qwen/Qwen3-8B", "--engine", "openai"), "DP110"),
        (("gpt-4.1", "--role", "hosted", "--engine", "vllm"), "DP110"),
        (("Qwen/Qwen3-8B", "--require", "wings"), "DP001"),
        (("Qwen/Qwen3-8B", "--workload", "nothing.jsonl"), "DP002"),
        (("Qwen/Qwen3-8B", "--memory", "much"), "DP001"),
        (("Qwen/Qwen3-8B", "--engine", "vllm==x.y"), "DP112"),
    ],
)
def test_mistakes_have_codes(invoke, arguments: tuple[str, ...], code: str) -> None:
    result = invoke("advise", *arguments)
    assert (result.status, result.code) == (2, code)


def test_neither_torch_nor_transformers_is_imported(tmp_path: Path) -> None:
    import subprocess

    target = write_checkpoint(tmp_path / "model")
    program = (
        "import sys; from draftproof.cli.main import run; "
        f"status = run(['advise', {str(target)!r}, '--workload', 'edit', '--engine', 'vllm']); "
        "sys.exit(status or bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0


def test_files_without_any_layer_are_answered(invoke, tmp_path: Path) -> None:
    """Declared prediction layers, and no layers whose cost theirs could be compared with."""
    import torch
    from safetensors.torch import save_file

    target = write_checkpoint(tmp_path / "model")
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    (target / "config.json").write_text(
        json.dumps(config | {"num_nextn_predict_layers": 1}), encoding="utf-8"
    )
    embedding = torch.zeros(config["vocab_size"], config["hidden_size"], dtype=torch.bfloat16)
    for tensors in ({"model.embed_tokens.weight": embedding}, {}):
        save_file(tensors, target / "model.safetensors")
        assert invoke("advise", str(target)).status == 0


@pytest.mark.parametrize("engine", ["draftproof", "llamacpp", "vllm", "sglang", "trtllm"])
def test_what_was_replayed_is_what_the_step_drafts(invoke, engine: str) -> None:
    document = invoke("advise", "some/model", "--engine", engine, "--workload", "edit", "--json").document
    [step] = [step for step in document["steps"] if step["kind"] == "look_up"]
    replayed = document["workload"]["copied_from_prompts"]["num_speculative"]
    assert step["num_speculative_tokens"] == replayed
    assert f"{replayed} proposed" in step["evidence"][0]["text"]


def test_an_application_runs_our_own_commands_itself_and_predictions_name_their_file(invoke) -> None:
    asked = ("advise", "some/model", "--role", "app", "--workload", "edit", "--json", "--engine")
    own, other = (invoke(*asked, engine).document["steps"] for engine in ("draftproof", "vllm"))
    assert not any("ask whoever" in entry["what"] for step in own for entry in step["next"])
    assert any("ask whoever runs vllm" in entry["what"] for step in other for entry in step["next"])
    [prediction] = [step for step in own if step["kind"] == "prediction"]
    generates = [
        entry["command"] for entry in prediction["next"] if entry["command"].startswith("draftproof generate")
    ]
    assert len(generates) == 2
    assert all("--prediction-file FILE" in command for command in generates)


def test_hosted_without_a_provider_lists_those_that_are_known(invoke) -> None:
    from draftproof.planning.advice.hosted import provider_names

    text = invoke("advise", "novel-9", "--role", "hosted").stdout
    assert all(name in text for name in provider_names())
    assert "--engine" in text


def test_the_next_step_with_a_provider_names_the_model(invoke) -> None:
    for engine, is_named in (("openai", True), ("azure-openai", False)):  # Azure has names of its own
        document = invoke(
            "advise", "gpt-4.1", "--role", "hosted", "--engine", engine, "--workload", "edit", "--json"
        ).document
        commands = [entry["command"] for step in document["steps"] for entry in step["next"]]
        assert commands
        assert all(("--model gpt-4.1" in command) == is_named for command in commands)
