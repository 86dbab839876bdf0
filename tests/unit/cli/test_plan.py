"""`draftproof plan`: the table, the document, the chart, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.checkpoints import write_checkpoint, write_gguf
from support.plans import DRAFT, TARGET, write_config

LOOK_UP = '{"method": "ngram", "num_speculative_tokens": 4}'
CHAIN = '{"method": "draft_model", "num_speculative_tokens": 5}'


@pytest.fixture
def models(tmp_path: Path) -> tuple[str, str]:
    return write_config(tmp_path / "target", TARGET), write_config(tmp_path / "draft", DRAFT)


def test_the_table_says_what_takes_what_and_what_it_costs(invoke, models: tuple[str, str]) -> None:
    target, draft = models
    result = invoke(
        "plan",
        target,
        "--draft",
        draft,
        "--speculative-config",
        CHAIN,
        "--memory",
        "24GiB",
        "--engine",
        "vllm==0.33.0",
    )
    assert result.status == 0
    text = result.stdout
    for part in ("target weights", "drafter weights", "logits to verify", "assumption", "left for the cache"):
        assert part in text
    assert "without speculation:" in text
    assert "smallest fraction that works for 1 request of 8,192 tokens:" in text
    assert text.count("price:") >= 6
    assert "assumed, not known: graphs" in text


def test_the_document_has_the_same_numbers(invoke, models: tuple[str, str]) -> None:
    target, draft = models
    document = invoke(
        "plan", target, "--draft", draft, "--speculative-config", CHAIN, "--memory", "24GiB", "--engine", "vllm",
        "--context", "4096", "--concurrency", "4", "--json",
    ).document  # fmt: skip
    assert document["speculation"]["drafter"]["num_layers"] == 16
    assert document["context"] == 4096
    assert document["max_num_seqs"] == document["smallest"]["requests"] == 4
    at = next(point for point in document["curve"] if point["context"] == 4096)
    assert document["requests"] == {"without": at["without"], "speculative": at["speculative"]}
    assert document["requests"]["speculative"] < document["requests"]["without"]
    held = sum(item["bytes"] for item in document["items"])
    assert document["cache_bytes"] == int(24 * 2**30 * 0.92) - held
    assert all(knob["price"] for knob in document["knobs"])


def test_a_version_that_was_not_read_is_said(invoke, models: tuple[str, str]) -> None:
    result = invoke("plan", models[0], "--memory", "24GiB", "--engine", "vllm==0.12.0")
    assert "not known for 0.12.0" in result.stdout


def test_memory_that_is_too_small_is_told_with_what_would_do(invoke, models: tuple[str, str]) -> None:
    result = invoke("plan", models[0], "--memory", "8GiB", "--engine", "vllm")
    assert result.status == 0
    assert "are missing before a single token is cached" in result.stdout
    assert "no fraction of 8.00 GiB works" in result.stdout
    assert (
        invoke("plan", models[0], "--memory", "8GiB", "--engine", "vllm", "--json").document["fits"] is False
    )


def test_charts_go_to_the_terminal_or_to_a_file(invoke, models: tuple[str, str], tmp_path: Path) -> None:
    assert "█" in invoke("plan", models[0], "--memory", "24GiB", "--chart", "-").stdout
    file = tmp_path / "chart.svg"
    result = invoke("plan", models[0], "--memory", "24GiB", "--chart", str(file))
    assert (result.status, result.stderr) == (0, f"chart: {file}\n")
    assert ElementTree.parse(file).getroot().tag.endswith("svg")
    nowhere = invoke("plan", models[0], "--memory", "24GiB", "--chart", str(tmp_path / "no" / "chart.svg"))
    assert (nowhere.status, nowhere.code) == (2, "DP002")


def test_files_of_both_kinds_are_planned_alike(invoke, tmp_path: Path) -> None:
    directory, file = write_checkpoint(tmp_path / "hf"), write_gguf(tmp_path / "model.gguf")
    found = [
        invoke("plan", str(path), "--memory", "1GiB", "--context", "64", "--json").document
        for path in (directory, file)
    ]
    assert found[0]["cache_bytes_per_token"] == found[1]["cache_bytes_per_token"]
    assert found[0]["target"]["num_parameters"] == found[1]["target"]["num_parameters"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("no/such/model", "--memory", "1GiB"), "DP401"),
        (("--memory", "1GiB"), "DP001"),
        (("TARGET",), "DP001"),
        (("TARGET", "--memory", "much"), "DP001"),
        (("TARGET", "--memory", "1GiB", "--engine", "novel"), "DP110"),
        (("TARGET", "--memory", "1GiB", "--draft", "TARGET"), "DP001"),
        (
            (
                "TARGET",
                "--memory",
                "1GiB",
                "--engine",
                "vllm",
                "--speculative-config",
                '{"method": "draft_model", "model": "TARGET"}',
            ),
            "DP103",
        ),
        (("TARGET", "--memory", "1GiB", "--kv-dtype", "fp3"), "DP001"),
        (("--memory", "1GiB", "--engine", "sglang", "--command", "vllm serve TARGET"), "DP001"),
        (
            (
                "--memory",
                "1GiB",
                "--command",
                f"vllm serve TARGET --speculative-config '{LOOK_UP}'",
                "--speculative-config",
                LOOK_UP,
            ),
            "DP001",
        ),
    ],
)
def test_bad_input_has_its_code(
    invoke, models: tuple[str, str], arguments: tuple[str, ...], code: str
) -> None:
    result = invoke("plan", *(argument.replace("TARGET", models[0]) for argument in arguments))
    assert (result.status, result.code) == (2, code)


TOO_MUCH = {
    "--concurrency": "1000000000000000000",
    "--max-batched-tokens": "1000000000000000",
    "--context": "99999999999",
    "--draft-window": "99999999999",
    "--memory": "999999999999999999999999GiB",
    "--runtime-bytes": "2000000GiB",
}
TOO_MUCH_IN_A_COMMAND = (
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--max-model-len",
    "--tensor-parallel-size",
)


@pytest.mark.parametrize("option", TOO_MUCH)
def test_numbers_beyond_every_machine_are_refused(option: str, invoke, models: tuple[str, str]) -> None:
    given = {"--memory": "24GiB"} | {option: TOO_MUCH[option]}
    result = invoke("plan", models[0], *(word for pair in given.items() for word in pair))
    assert (result.status, result.code) == (2, "DP001")
    assert option in result.stderr


@pytest.mark.parametrize("flag", TOO_MUCH_IN_A_COMMAND)
def test_they_are_in_a_command_line_too(flag: str, invoke, models: tuple[str, str]) -> None:
    command = f"vllm serve {models[0]} {flag} 1000000000000000000"
    result = invoke("plan", models[0], "--memory", "24GiB", "--command", command)
    assert (result.status, result.code in ("DP001", "DP111")) == (2, True)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_devices_that_do_not_divide_the_heads_are_remarked(
    engine: str, invoke, models: tuple[str, str]
) -> None:
    def warned(devices: str) -> bool:
        arguments = ("--memory", "24GiB", "--engine", engine, "--tensor-parallel", devices)
        document = invoke("plan", models[0], *arguments, "--json").document
        return any("do not divide 32 attention heads" in warning for warning in document["warnings"])

    assert {devices: warned(devices) for devices in ("1", "8", "3", "1000")} == {
        "1": False, "8": False, "3": True, "1000": True,
    }  # fmt: skip


@pytest.mark.parametrize("speculation", [None, LOOK_UP, '{"method": "self", "num_speculative_tokens": 3}'])
@pytest.mark.parametrize(
    "option",
    [
        ("--draft", "TARGET"),
        ("--draft-kv-dtype", "fp8"),
        ("--draft-window", "64"),
        ("--draft-tensor-parallel", "2"),
    ],
)
def test_options_of_a_drafter_need_one(
    invoke, models: tuple[str, str], speculation: str | None, option: tuple[str, str]
) -> None:
    given = () if speculation is None else ("--speculative-config", speculation)
    value = option[1].replace("TARGET", models[0])
    result = invoke("plan", models[0], "--memory", "24GiB", *given, option[0], value)
    in_json = option[0] == "--draft" and given  # as its model, which the method does not have
    assert (result.status, result.code) == (2, "DP111" if in_json else "DP001")
    assert in_json or option[0] in result.stderr


def test_a_drafter_beside_a_command_without_one_is_refused(invoke, models: tuple[str, str]) -> None:
    command = f"vllm serve {models[0]} --speculative-config '{LOOK_UP}'"
    result = invoke("plan", "--memory", "24GiB", "--command", command, "--draft", models[1])
    assert (result.status, result.code) == (2, "DP001")
    assert "--draft" in result.stderr


def test_the_command_tells_the_engine_and_its_speculation_may_be_given_beside_it(
    invoke, models: tuple[str, str]
) -> None:
    command = ("--command", f"vllm serve {models[0]}", "--speculative-config", LOOK_UP)
    for engine in ((), ("--engine", "vllm==0.33.0")):
        document = invoke("plan", "--memory", "24GiB", *command, *engine, "--json").document
        assert document["engine"] == "vllm"
        assert document["speculation"]["method"] == "ngram"


def test_neither_torch_nor_transformers_is_imported(models: tuple[str, str]) -> None:
    program = (
        "import sys\nfrom draftproof.cli.main import run\n"
        f"assert run(['plan', {models[0]!r}, '--memory', '24GiB', '--engine', 'vllm', '--json']) == 0\n"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp", "draftproof"])
def test_what_fits_is_what_was_asked_for_and_the_memory_that_is_named_would_do(
    invoke, models: tuple[str, str], engine: str
) -> None:
    asked = ("plan", models[0], "--engine", engine, "--context", "4096", "--concurrency", "9", "--json")
    least = invoke(*asked, "--memory", "3GiB").document["smallest"]["memory_bytes"]
    for memory, fits in ((least, True), (least * 9 // 10, False)):
        document = invoke(*asked, "--memory", str(memory)).document
        assert document["fits"] is (document["requests"]["speculative"] >= 9) is fits
    text = invoke(*asked[:-1], "--memory", str(least)).stdout
    assert "would do" not in text


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_where_nothing_fits_the_settings_that_make_it_fit_are_named(
    invoke, models: tuple[str, str], engine: str
) -> None:
    asked = ("plan", models[0], "--engine", engine, "--context", "4096")
    least = invoke(*asked, "--memory", "80GiB", "--json").document["smallest"]["memory_bytes"]
    short = (*asked, "--memory", str(least * 3 // 4))
    document = invoke(*short, "--json").document
    assert document["requests"]["speculative"] == 0
    knobs = {knob["name"]: knob for knob in document["knobs"]}
    devices = int(knobs["tensor parallelism"]["change"].split()[2])
    for name in ("tensor parallelism", "target weights"):
        assert knobs[name]["requests_after"] > 0
    for fewer, fits in ((devices, True), (devices // 2, False)):
        again = invoke(*short, "--tensor-parallel", str(fewer), "--json").document
        assert bool(again["requests"]["speculative"]) is fits
    text = invoke(*short).stdout
    assert knobs["tensor parallelism"]["flag"] in text
    assert "0 to 0" not in text


def test_no_single_setting_is_enough_is_said(invoke, models: tuple[str, str]) -> None:
    text = invoke("plan", models[0], "--engine", "llamacpp", "--memory", "64MiB").stdout
    assert "no single setting makes room" in text


def test_a_context_beyond_the_models_positions_is_marked(invoke, models: tuple[str, str]) -> None:
    asked = ("plan", models[0], "--engine", "vllm", "--memory", "80GiB", "--context")
    longest = invoke(*asked, "64", "--json").document["target"]["context_length"]
    document = invoke(*asked, str(2 * longest), "--json").document
    beyond = {point["context"] for point in document["curve"] if point["beyond_model"]}
    assert beyond == {point["context"] for point in document["curve"] if point["context"] > longest} != set()
    assert any(f"{longest:,} tokens" in warning for warning in document["warnings"])
    assert f"beyond the model's {longest:,} positions" in invoke(*asked, str(2 * longest)).stdout
    assert not any(
        point["beyond_model"] for point in invoke(*asked, str(longest), "--json").document["curve"]
    )


def test_the_command_shows_every_stage(invoke, tmp_path: Path) -> None:
    target = write_config(tmp_path, TARGET)
    arguments = ("plan", target, "--memory", "24GiB", "--engine", "vllm", "--pipeline-parallel", "2")
    text = invoke(*arguments, "--tensor-parallel", "2").stdout
    assert "4 devices in 2 stages" in text
    assert "stage 1: layers 0 to 15" in text
    assert "stage 2: layers 16 to 31" in text
    document = invoke(*arguments, "--stage-layers", "12,20", "--json").document
    assert document["pipeline_parallel"] == 2
    assert [stage["num_layers"] for stage in document["stages"]] == [12, 20]
    assert document["stage"] == 2
    assert document["requests"]["speculative"] == min(stage["requests"] for stage in document["stages"])
    alone = invoke("plan", target, "--memory", "24GiB", "--engine", "vllm", "--json").document
    assert [stage["num_layers"] for stage in alone["stages"]] == [32]
    assert invoke(*arguments, "--stage-layers", "12,x").status == 2
