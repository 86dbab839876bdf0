"""`draftproof check`: findings with evidence and remedy, exit status 5 for errors, and what was not checked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from support.known_pairs import write_model
from support.rules.building import QWEN, SPECIAL, TOKENS
from support.rules.eagle import eagle, eagle3
from support.tiny_views import write_view


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_view(tmp_path / "target", {**QWEN, "num_hidden_layers": 8}, tokens=TOKENS, special=SPECIAL)


def write_head(path: Path, third: bool = True) -> Path:
    head = eagle3() if third else eagle()
    return write_view(path, head.config, tensors=head.tensors, values=head.values)


DRAFTED = ("--speculative-config", '{"method": "draft_model", "num_speculative_tokens": 2}')
NAMED_NOTHING = ("--speculative-config", '{"method": "draft_model", "model": "./nothing"}')


def codes(document: dict) -> set[str]:
    return {finding["code"] for finding in document["findings"]}


def alarms(document: dict) -> list[str]:
    return [
        f"{finding['code']} {finding['detail']}"
        for finding in document["findings"]
        if finding["severity"] != "info"
    ]


@pytest.mark.parametrize("name", ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"])
def test_chat_templates_are_compared_wherever_they_are_written(
    invoke, target: Path, tmp_path: Path, name: str
) -> None:
    drafter = write_view(
        tmp_path / "drafter", {**QWEN, "num_hidden_layers": 2}, tokens=TOKENS, special=SPECIAL
    )

    def write(directory: Path, name: str, text: str) -> None:
        (directory / name).write_text(text if name.endswith("jinja") else json.dumps({"chat_template": text}))

    speculation = ("--speculative-config", '{"method": "draft_model", "num_speculative_tokens": 3}')
    write(target, "chat_template.jinja", "{{ messages }} ours")
    for text, differs in (("{{ messages }}\nours", False), ("{{ messages }} theirs", True)):
        write(drafter, name, text)
        result = invoke(
            "check", str(target), "--draft", str(drafter), *speculation, "--engine", "vllm", "--json"
        )
        assert ("VOCAB-07" in codes(result.document)) == differs


def test_an_error_ends_in_status_5_with_evidence_and_remedy(invoke, target: Path, tmp_path: Path) -> None:
    head = write_head(tmp_path / "head")
    command = (
        f"python3 -m sglang.launch_server --model-path {target} --speculative-algorithm EAGLE "
        f"--speculative-draft-model-path {head} --speculative-num-steps 3 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 4"
    )
    result = invoke("check", "--command", command, "--engine", "sglang==0.5.23")
    assert result.status == 5
    assert "EAGLE-01" in result.stdout
    assert "accept length is exactly 1.00" in " ".join(result.stdout.split())
    assert "fc.weight" in result.stdout
    assert "Write --speculative-algorithm EAGLE3." in result.stdout
    assert "read 2026-11" in result.stdout
    right = command.replace("EAGLE ", "EAGLE3 ")
    assert invoke("check", "--command", right, "--engine", "sglang==0.5.23").status == 0


def test_the_document_has_findings_checked_and_not_checked(invoke, target: Path, tmp_path: Path) -> None:
    head = write_head(tmp_path / "head")
    config = json.dumps({"method": "eagle3", "model": str(head), "num_speculative_tokens": 3})
    result = invoke("check", str(target), "--speculative-config", config, "--engine", "vllm", "--json")
    document = result.document
    assert document["engine"] == {
        "name": "vllm", "version": "0.33.0", "version_from": None, "read_version": "0.33.0",
    }  # fmt: skip
    assert "EAGLE-08" in document["checked"]
    assert not set(document["checked"]) & {item["code"] for item in document["not_checked"]}
    assert all(item["reason"] for item in document["not_checked"])
    for finding in document["findings"]:
        assert finding["evidence"]
        assert finding["source"]["read"]


def test_without_a_version_the_one_that_was_read_is_named(invoke, target: Path) -> None:
    config = '{"method": "ngram", "num_speculative_tokens": 4}'
    text = invoke("check", str(target), "--speculative-config", config, "--engine", "vllm").stdout
    assert "version not given: rules of the version read, 0.33.0, were applied" in text
    assert "--engine vllm==" in text
    named = invoke("check", str(target), "--speculative-config", config, "--engine", "vllm==0.33.0").stdout
    assert "version not given" not in named


def test_another_version_is_not_guessed(invoke, target: Path) -> None:
    config = '{"method": "ngram", "num_speculative_tokens": 4}'
    arguments = ("check", str(target), "--speculative-config", config, "--require", "min_p", "--json")
    document = invoke(*arguments, "--engine", "vllm==0.9.1").document
    reasons = {item["code"]: item["reason"] for item in document["not_checked"]}
    assert reasons["REQUEST-01"].startswith("not known for vllm 0.9.1")
    assert "VERSION-01" in codes(document)
    read = invoke(*arguments, "--engine", "vllm/vllm-openai:v0.33.0")
    assert read.status == 5
    assert "REQUEST-01" in codes(read.document)
    assert read.document["engine"]["version_from"] == "image tag"


def test_traffic_tells_which_parameters_are_used(invoke, target: Path, tmp_path: Path) -> None:
    lines = [
        {"messages": [{"role": "user", "content": "a"}], "min_p": 0.1},
        {"messages": [{"role": "user", "content": "b"}], "tools": [{"type": "function"}]},
        {"messages": [{"role": "user", "content": "c"}]},
    ]
    file = tmp_path / "requests.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    config = '{"method": "ngram", "num_speculative_tokens": 4}'
    result = invoke(
        "check", str(target), "--speculative-config", config, "--engine", "vllm", "--traffic", str(file)
    )
    assert result.status == 5
    assert "min_p (1 of 3 requests)" in result.stdout


class _Endpoint(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"version": "0.33.0"}' if self.path == "/version" else b"{}"
        self.send_response(200 if self.path == "/version" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_running_endpoint_tells_its_version(invoke, target: Path, endpoint: str) -> None:
    config = '{"method": "ngram", "num_speculative_tokens": 4}'
    document = invoke(
        "check", str(target), "--speculative-config", config, "--url", endpoint + "/v1", "--json"
    ).document
    assert document["engine"]["version"] == "0.33.0"
    assert document["engine"]["version_from"] == f"{endpoint}/version"
    refused = invoke("check", str(target), "--speculative-config", config, "--url", "http://127.0.0.1:9")
    assert refused.status == 2
    assert "DP411" in refused.stderr


def test_a_cascade_is_judged_part_by_part(invoke, target: Path, tmp_path: Path) -> None:
    head = write_head(tmp_path / "head")
    parts = [{"method": "ngram"}, {"method": "draft_model", "model": str(head)}]
    config = json.dumps({"method": "cascade", "proposers": parts})
    result = invoke("check", str(target), "--speculative-config", config, "--engine", "draftproof", "--json")
    assert result.status == 5
    assert "EAGLE-03" in codes(result.document)
    assert result.document["methods"] == ["ngram", "draft_model"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--speculative-config", "{}", "--command", "vllm serve x"), "DP001"),
        (("--speculative-config", '{"method": "ngram"}', "--engine", "nothing"), "DP110"),
        (("--speculative-config", '{"method": "ngram"}', "--engine", "vllm==x.y"), "DP112"),
        (("--command", "vllm serve x --spec-method ngram --spec-tokens 3", "--require", "min_q"), "DP001"),
        (("--command", "start-my-engine --fast"), "DP001"),
    ],
)
def test_bad_usage_has_its_code(invoke, target: Path, arguments: tuple[str, ...], code: str) -> None:
    result = invoke("check", str(target), *arguments)
    assert result.status == 2
    assert code in result.stderr


# The documented starting examples: none of them is an alarm.


def test_golden_vllm_draft_model(invoke, tmp_path: Path) -> None:
    target = write_model("Qwen/Qwen3-4B-Thinking-2507", tmp_path)
    drafter = write_model("Qwen/Qwen3-0.6B", tmp_path)
    config = json.dumps({"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 5, "method": "draft_model"})
    document = invoke(
        "check", str(target), "--draft", str(drafter), "--engine", "vllm==0.33.0", "--json", "--command",
        f"vllm serve Qwen/Qwen3-4B-Thinking-2507 --speculative-config '{config}'",
    ).document  # fmt: skip
    assert alarms(document) == []


def test_golden_vllm_mtp_and_the_same_on_another_target(invoke, tmp_path: Path) -> None:
    config = '{"method": "mtp", "num_speculative_tokens": 1}'
    mimo = write_model("XiaomiMiMo/MiMo-7B-Base", tmp_path)
    good = invoke("check", str(mimo), "--engine", "vllm==0.33.0", "--speculative-config", config, "--json")
    assert alarms(good.document) == []
    qwen = write_model("Qwen/Qwen3-8B", tmp_path)
    bad = invoke("check", str(qwen), "--engine", "vllm==0.33.0", "--speculative-config", config, "--json")
    assert bad.status == 5
    assert "MTP-02" in codes(bad.document)


SGLANG = (
    "python3 -m sglang.launch_server --model Qwen/Qwen2.5-7B-Instruct --speculative-algorithm {} "
    "--speculative-draft-model-path Qwen/Qwen2.5-1.5B-Instruct --speculative-num-steps 4 --speculative-eagle-topk {} "
    "--speculative-num-draft-tokens {} --mem-fraction-static 0.7 --cuda-graph-max-bs-decode 8"
)


def test_golden_sglang_standalone(invoke, tmp_path: Path) -> None:
    target = write_model("Qwen/Qwen2.5-7B-Instruct", tmp_path)
    drafter = write_model("Qwen/Qwen2.5-1.5B-Instruct", tmp_path)
    result = invoke(
        "check", str(target), "--draft", str(drafter), "--engine", "sglang==0.5.23", "--json",
        "--command", SGLANG.format("STANDALONE", 1, 5),
    )  # fmt: skip
    assert result.status == 0
    [alarm] = alarms(result.document)  # documented, and refused by the source: a warning with both facts
    assert alarm.startswith("VOCAB-02 SGLang asks for equal sizes, and vocab_size differs by 128.")
    assert "documentation" in alarm
    assert "ValueError" in alarm


def test_topk_4_under_overlap_is_a_warning_with_both_facts(invoke) -> None:
    result = invoke("check", "--engine", "sglang==0.5.23", "--command", SGLANG.format("STANDALONE", 4, 16))
    assert "FLAG-07" in result.stdout
    assert "documentation says that overlap needs topk 1" in " ".join(result.stdout.split())
    assert "no such check" in " ".join(result.stdout.split())


def test_removed_flags_of_vllm_are_named(invoke) -> None:
    command = "vllm serve Qwen/Qwen3-8B --speculative-model Qwen/Qwen3-0.6B --num-speculative-tokens 5"
    result = invoke("check", "--engine", "vllm==0.33.0", "--command", command, "--json")
    assert result.status == 5
    removed = [finding for finding in result.document["findings"] if finding["code"] == "FLAG-01"]
    assert {seen["key"] for finding in removed for seen in finding["evidence"]} >= {
        "--speculative-model",
        "--num-speculative-tokens",
    }


_PAST = {
    "vllm": "vllm serve Qwen/Qwen3-8B --speculative-model Qwen/Qwen3-0.6B --num-speculative-tokens 5",
    "sglang": "python -m sglang.launch_server --model Qwen/Qwen3-8B --speculative-algorithm NGRAM "
    "--cuda-graph-max-bs 8",
    "llamacpp": "llama-server -m /q.gguf -md /d.gguf --spec-type draft-simple --draft-max 16",
}


@pytest.mark.parametrize(
    ("engine", "version", "removed"),
    [
        ("vllm", "0.6.3", False),
        ("vllm", "0.11.0", False),
        ("vllm", "0.33.0", True),
        ("sglang", "0.4.9", False),
        ("sglang", "0.5.23", True),
        ("llamacpp", "b5000", False),
        ("llamacpp", "b11434", True),
    ],
)
def test_flags_of_the_past_are_no_fault_of_the_past(invoke, engine: str, version: str, removed: bool) -> None:
    command = ("check", "--engine", f"{engine}=={version}", "--command", _PAST[engine], "--json")
    assert ("FLAG-01" in codes(invoke(*command).document)) == removed


@pytest.mark.parametrize(
    ("command", "engine", "version"),
    [
        (
            "docker run --gpus all -v /srv/vllm-openai:/m vllm/vllm-openai:v0.32.0 Qwen/Qwen3-8B",
            "vllm",
            "0.32.0",
        ),
        ("sudo docker run --ipc=host vllm/vllm-openai:latest --model Qwen/Qwen3-8B", "vllm", None),
    ],
)
def test_the_image_of_a_command_tells_engine_and_version(
    invoke, command: str, engine: str, version: str | None
) -> None:
    document = invoke(
        "check", "--command", f"{command} --spec-method ngram --spec-tokens 4", "--json"
    ).document
    assert document["engine"]["name"] == engine
    assert document["engine"]["version_from"] == (None if version is None else "image tag")
    if version is not None:
        assert document["engine"]["version"] == version


def test_a_path_of_the_serving_machine_does_not_end_the_check(invoke) -> None:
    command = "llama-server -m /models/large.gguf -md /models/small.gguf --draft-max 16"
    result = invoke("check", "--command", command, "--json")
    assert result.status == 5
    assert "FLAG-01" in codes(result.document)
    assert any(
        "/models/large.gguf is not on this machine" in item["reason"]
        for item in result.document["not_checked"]
    )
    assert invoke("check", "/models/large.gguf", "--command", command).status == 2


def test_what_an_engine_refuses_at_start_is_an_error(invoke) -> None:
    command = (
        "python -m sglang.launch_server --model Qwen/Qwen3-8B --speculative-algorithm EAGLE3 "
        "--speculative-draft-model-path AngelSlim/Qwen3-8B_eagle3 --speculative-num-draft-tokens 4"
    )
    result = invoke("check", "--command", command, "--engine", "sglang==0.5.23", "--json")
    assert result.status == 5
    assert "FLAG-13" in codes(result.document)


def test_a_deployment_record_tells_what_drifted(invoke, target: Path, tmp_path: Path) -> None:
    lock = tmp_path / "lock.json"
    config = '{"method": "ngram", "num_speculative_tokens": 4}'
    assert invoke("lock", str(target), "--speculative-config", config, "--out", str(lock)).status == 0
    assert invoke("check", "--lock", str(lock)).status == 0
    changed = json.loads((target / "config.json").read_text(encoding="utf-8"))
    (target / "config.json").write_text(json.dumps({**changed, "hidden_size": 32}), encoding="utf-8")
    result = invoke("check", "--lock", str(lock), "--json")
    assert result.status == 5
    assert "LOCK-01" in codes(result.document)
    assert "config.json" in invoke("check", "--lock", str(lock)).stdout


def test_a_record_is_compared_with_the_files_and_the_configuration_that_are_named(
    invoke, target: Path, tmp_path: Path
) -> None:
    lock = str(tmp_path / "lock.json")
    config = '{"method": "ngram", "num_speculative_tokens": 4}'
    assert invoke("lock", str(target), "--speculative-config", config, "--out", lock).status == 0
    moved = tmp_path / "moved"
    shutil.copytree(target, moved)
    assert invoke("check", str(moved), "--lock", lock).status == 0
    same = invoke("check", str(moved), "--speculative-config", config, "--lock", lock, "--json")
    assert same.status == 0
    assert "LOCK-06" not in codes(same.document)
    assert same.document["lock"] == lock
    assert "ECON-03" in same.document["checked"]
    deeper = config.replace("4", "6")
    result = invoke("check", str(moved), "--speculative-config", deeper, "--lock", lock, "--json")
    assert result.status == 5
    [finding] = [finding for finding in result.document["findings"] if finding["code"] == "LOCK-06"]
    [seen] = finding["evidence"]
    assert (seen["key"], seen["found"], seen["expected"]) == ("speculation.depth", "6", "4")
    (moved / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert "LOCK-03" in codes(invoke("check", str(moved), "--lock", lock, "--json").document)
    assert invoke("check", str(tmp_path / "nowhere"), "--lock", lock).code == "DP401"
    assert invoke("check", str(target), "--draft", str(moved), "--lock", lock).code == "DP001"


def test_a_record_says_target_and_engine_of_a_configuration_that_names_neither(
    invoke, target: Path, tmp_path: Path
) -> None:
    lock = str(tmp_path / "lock.json")
    config = '{"method": "ngram", "num_speculative_tokens": 4}'
    for engine, given in (
        ("draftproof", (str(target), "--speculative-config", config)),
        ("vllm", (str(target), "--command", f"vllm serve --speculative-config '{config}'")),
    ):
        assert invoke("lock", *given, "--out", lock, "--force").status == 0
        for said, status in ((config, 0), (config.replace("4", "6"), 5)):
            result = invoke("check", "--lock", lock, "--speculative-config", said, "--json")
            assert (result.status, result.document["engine"]["name"]) == (status, engine)
            assert ("LOCK-06" in codes(result.document)) == (status == 5)
            assert "ECON-03" in result.document["checked"]  # the target's files were read


@pytest.mark.parametrize(
    "configuration",
    [
        ("--command", "vllm serve some/model"),
        ("--command", "vllm serve some/model --spec-method ngram --spec-tokens 4"),
        ("--engine", "vllm", "--speculative-config", '{"method": "suffix"}'),
        ("--engine", "llamacpp", "--command", "llama-server -m m.gguf --spec-type ngram-simple"),
    ],
)
def test_a_drafter_that_the_configuration_has_no_use_for(
    invoke, target: Path, tmp_path: Path, configuration: tuple[str, ...]
) -> None:
    head = write_head(tmp_path / "head")
    result = invoke("check", str(target), "--draft", str(head), *configuration)
    assert (result.status, result.code) == (2, "DP001")
    assert "--draft" in result.stderr


def test_the_configuration_names_the_drafter_and_the_option_says_where_it_lies(
    invoke, target: Path, tmp_path: Path
) -> None:
    """vLLM guesses the method from the name in the configuration, whatever the folder here is called."""
    for folder, name, method in (
        ("one-eagle3", "some/thing", "draft_model"),
        ("two", "some/thing-eagle3", "eagle3"),
    ):
        head = write_head(tmp_path / folder)
        config = json.dumps({"model": name, "num_speculative_tokens": 3})
        told = []
        for given in (
            ("--engine", "vllm==0.33.0", "--speculative-config", config),
            ("--command", f"vllm serve m --speculative-config '{config}'", "--engine", "vllm==0.33.0"),
        ):
            result = invoke("check", str(target), "--draft", str(head), *given, "--json")
            assert result.document["methods"] == [method]
            told.append((result.status, codes(result.document)))
        assert told[0] == told[1]


def test_what_is_remarked_of_a_command_is_remarked_of_the_object_alone(invoke, target: Path) -> None:
    for config in (
        '{"method": "qwen3_next_mtp", "num_speculative_tokens": 1}',
        '{"method": "[ngram]", "num_speculative_tokens": 1}',
    ):
        told = []
        for given in (
            ("--command", f"vllm serve m --speculative-config '{config}'"),
            ("--speculative-config", config),
        ):
            result = invoke("check", str(target), "--engine", "vllm==0.33.0", *given, "--json")
            told.append([found for found in result.document["findings"] if found["code"].startswith("FLAG")])
        assert told[0] == told[1] != []


@pytest.mark.parametrize(
    ("command", "given", "field"),
    [
        ("check", ("{target}", "--draft", "./nothing"), "--draft"),
        ("check", ("./nothing", "--draft", "{target}"), "TARGET"),
        ("check", ("{target}", "--engine", "vllm", "--draft", "./nothing", *DRAFTED), "--draft"),
        ("check", ("{target}", "--engine", "draftproof", *NAMED_NOTHING), "speculation.model"),
        ("check", ("{target}", "--traffic", "nothing.jsonl"), "--traffic"),
        ("advise", ("{target}", "--workload", "nothing.jsonl"), "--workload"),
        ("plan", ("{target}", "--memory", "1GiB", "--draft", "./nothing", *DRAFTED), "--draft"),
        ("plan", ("{target}", "--memory", "1GiB", *NAMED_NOTHING), "speculation.model"),
        ("lock", ("{target}", "--draft", "./nothing", *DRAFTED), "--draft"),
        ("lock", ("./nothing", "--command", "vllm serve m"), "TARGET"),
    ],
)
def test_what_is_not_there_is_named_by_what_the_user_wrote(
    invoke, target: Path, command: str, given: tuple[str, ...], field: str
) -> None:
    result = invoke(command, *(str(target) if word == "{target}" else word for word in given), "--json")
    assert (result.status, result.document["error"]["field"]) == (2, field)


@pytest.mark.parametrize(
    ("name", "is_ollama"), [("llama3.2", True), ("qwen2.5:7b", True), ("./x", False), ("x.gguf", False)]
)
def test_a_name_of_ollamas_is_told_apart_from_a_path(invoke, name: str, is_ollama: bool) -> None:
    for command in (("check", name), ("advise", name), ("models", "show", name)):
        error = invoke(*command, "--json").document["error"]
        assert error["code"] == "DP401"
        assert ("ollama show --modelfile" in error["remedy"]) == is_ollama


def test_where_a_server_listens_is_no_drift(invoke, target: Path, tmp_path: Path) -> None:
    lock = str(tmp_path / "lock.json")
    command = f"vllm serve {target} --spec-method ngram --spec-tokens 4 --port 80 --api-key a-secret-of-mine --seed 3"
    assert invoke("lock", "--command", command, "--engine", "vllm==0.33.0", "--out", lock).status == 0
    moved = command.replace("80", "81").replace("mine", "yours")
    for other, has_drifted in ((moved, False), (command.replace("--seed 3", "--seed 4"), True)):
        result = invoke("check", "--command", other, "--engine", "vllm==0.33.0", "--lock", lock, "--json")
        assert ("LOCK-06" in codes(result.document)) == has_drifted


@pytest.mark.parametrize(
    ("changed", "has_drifted"),
    [
        (("-p 8000:8000", "-p 8001:8000 --name other"), False),
        (("--seed 3 --trust-remote-code", "--trust-remote-code --seed=3"), False),
        (("--ssl-keyfile a", "--ssl-keyfile b --uds /run/x"), False),
        (("docker run", "sudo podman run -d"), False),
        (("v0.33.0", "v0.32.0"), True),
        (("--seed 3", "--seed 4"), True),
        (("--trust-remote-code", ""), True),
        (("--middleware a --middleware b", "--middleware b --middleware a"), True),
    ],
)
def test_how_a_container_is_started_is_no_drift(
    invoke, target: Path, tmp_path: Path, changed: tuple[str, str], has_drifted: bool
) -> None:
    lock = str(tmp_path / "lock.json")
    command = (
        f"docker run -p 8000:8000 vllm/vllm-openai:v0.33.0 --model {target} --spec-method ngram --spec-tokens 4 "
        "--seed 3 --trust-remote-code --ssl-keyfile a --middleware a --middleware b"
    )
    assert invoke("lock", "--command", command, "--out", lock).status == 0
    other = command.replace(*changed)
    assert other != command
    result = invoke("check", "--command", other, "--lock", lock, "--json")
    assert ("LOCK-06" in codes(result.document)) == has_drifted


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (
            "docker run -e VLLM_USE_V2_MODEL_RUNNER=$X vllm/vllm-openai:v0.33.0",
            "VLLM_USE_V2_MODEL_RUNNER: $X is",
        ),
        ("VLLM_USE_V2_MODEL_RUNNER=$X vllm serve", "VLLM_USE_V2_MODEL_RUNNER: $X is"),
        ("vllm serve", None),
    ],
)
def test_what_a_variable_holds_is_not_judged(invoke, written: str, reason: str | None) -> None:
    config = json.dumps(
        {
            "method": "draft_model",
            "model": "d",
            "num_speculative_tokens": 4,
            "rejection_sample_method": "block",
        }
    )
    document = invoke(
        "check",
        "--command",
        f"{written} m --speculative-config '{config}'",
        "--engine",
        "vllm==0.33.0",
        "--json",
    ).document
    reasons = [item["reason"] for item in document["not_checked"]]
    assert (
        any(reason in item for item in reasons)
        if reason
        else not any("is a variable" in item for item in reasons)
    )


def test_a_value_outside_of_the_text_is_told_where_it_is_the_engines_own(invoke) -> None:
    command = (
        "docker run -e HF_TOKEN -e HF_HOME=$HOME -e VLLM_CACHE_ROOT --env-file x vllm/vllm-openai:v0.33.0 m "
        "--port $PORT --spec-method ngram --spec-tokens 3"
    )
    document = invoke("check", "--command", command, "--json").document
    told = {
        item["evidence"][0]["key"]: item["severity"]
        for item in document["findings"]
        if item["code"] == "FLAG-14"
    }
    assert told == {"VLLM_CACHE_ROOT": "info", "--env-file": "warning"}


@pytest.mark.parametrize(
    ("version", "name", "code"),
    [
        ("0.33.0", "VLLM_ATTENTION_BACKEND", "FLAG-03"),
        ("0.33.0", "VLLM_USE_V1", "FLAG-03"),
        ("0.33.0", "VLLM_LOGGING_LEVEL", None),
        ("0.33.0", "VLLM_USE_V2_MODEL_RUNNER", None),
        ("0.33.0", "MY_VLLM_NOTE", None),
        ("0.9.2", "VLLM_USE_V1", None),  # whose variables were not read
    ],
)
def test_variables_that_vllm_does_not_have(invoke, version: str, name: str, code: str | None) -> None:
    for command in (
        f"{name}=1 vllm serve m --spec-method ngram --spec-tokens 3",
        f"docker run -e {name}=1 vllm/vllm-openai:v{version} m --spec-method ngram --spec-tokens 3",
    ):
        document = invoke("check", "--command", command, "--engine", f"vllm=={version}", "--json").document
        told = {item["code"] for item in document["findings"] if item["evidence"][0]["key"] == name}
        assert told == ({code} if code else set())


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("vllm", 'model: some/m\nspeculative-config: \'{"method": "ngram", "num_speculative_tokens": 3}\'\n'),
        ("vllm", "model: some/m\nspeculative-config:\n  method: ngram\n  num_speculative_tokens: 3\n"),
        ("sglang", "model-path: some/m\nspeculative-algorithm: NGRAM\nspeculative-num-draft-tokens: 4\n"),
    ],
)
def test_the_engines_own_file_of_flags(invoke, tmp_path: Path, engine: str, text: str) -> None:
    file = tmp_path / "a file.yaml"
    file.write_text(text, encoding="utf-8")
    result = invoke("check", "--engine", engine, "--config", str(file), "--json")
    assert (result.document["target"], result.document["methods"]) == ("some/m", ["ngram"])


LOSSY = "vllm serve org/m --speculative-config '" + json.dumps(
    {"method": "ngram", "num_speculative_tokens": 3, "rejection_sample_method": "fly"}
) + "'"  # fmt: skip


def test_what_a_user_allows_is_listed_and_does_not_count(invoke) -> None:
    assert invoke("check", "--command", LOSSY).status == 5
    result = invoke("check", "--command", LOSSY, "--allow", "flag-10", "--json")
    assert result.status == 0
    [finding] = [finding for finding in result.document["findings"] if finding["allowed"]]
    assert (finding["code"], finding["severity"]) == ("FLAG-10", "error")
    assert result.document["allowed_unused"] == []
    text = invoke("check", "--command", LOSSY, "--allow", "FLAG-10,ECON-04").stdout
    assert "1 allowed" in text
    assert "allowed   FLAG-10" in text
    assert "leave --allow ECON-04 out" in text


def test_allowing_one_thing_allows_no_other(invoke) -> None:
    command = LOSSY.replace('"num_speculative_tokens": 3, ', "")
    assert invoke("check", "--command", command, "--allow", "FLAG-10").status == 5


def test_a_records_drift_can_be_allowed(invoke, target: Path, tmp_path: Path) -> None:
    lock = str(tmp_path / "lock.json")
    assert (
        invoke("lock", str(target), "--speculative-config", '{"method": "ngram"}', "--out", lock).status == 0
    )
    (target / "config.json").write_text("{}", encoding="utf-8")
    assert invoke("check", "--lock", lock).status == 5
    assert invoke("check", "--lock", lock, "--allow", "LOCK-01").status == 0


def trtllm(folder: Path, kind: str, drafter: str, *more: str) -> Path:
    lines = [f"decoding_type: {kind}", "max_draft_len: 4", f"speculative_model: {drafter}", *more]
    file = folder / "speculative.yaml"
    file.write_text("speculative_config:\n" + "".join(f"  {line}\n" for line in lines), encoding="utf-8")
    return file


def test_golden_tensorrt_llm_eagle3(invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = trtllm(tmp_path, "Eagle3", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B")
    target = write_model("meta-llama/Llama-3.1-8B-Instruct", tmp_path)
    drafter = write_model("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", tmp_path)
    arguments = ("check", str(target), "--draft", str(drafter), "--engine", "trtllm", "--json")
    assert alarms(invoke(*arguments, "--config", str(file)).document) == []
    monkeypatch.chdir(tmp_path)
    command = "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --config speculative.yaml"
    assert alarms(invoke(*arguments, "--command", command).document) == []


def test_an_old_head_under_tensorrt_llms_alias(invoke, target: Path, tmp_path: Path) -> None:
    head = write_head(tmp_path / "head", third=False)
    for kind in ("Eagle", "Eagle3"):
        file = trtllm(tmp_path, kind, str(head))
        result = invoke("check", str(target), "--config", str(file), "--engine", "trtllm", "--json")
        assert result.status == 5
        assert "EAGLE-02" in codes(result.document)


def test_the_removed_path_of_two_models_while_draft_target_stays(
    invoke, target: Path, tmp_path: Path
) -> None:
    file = trtllm(tmp_path, "Eagle3", "org/head", "eagle3_one_model: false")
    gone = invoke("check", str(target), "--config", str(file), "--engine", "trtllm", "--json")
    assert gone.status == 5
    assert "FLAG-01" in codes(gone.document)
    file = trtllm(tmp_path, "Draft_Target", "org/small")
    stays = invoke("check", str(target), "--config", str(file), "--engine", "trtllm", "--json")
    assert alarms(stays.document) == []


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@127.0.0.1:9", "http://127.0.0.1:9/?key=secret", "http://127.0.0.1:9/#secret", "", "http://",
        "127.0.0.1:9", "file:///secret", "http://127.0.0.1:99999", "http://[::1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("beside", [("--speculative-config", '{"method": "ngram"}'), ("--lock", "lock.json")])
def test_what_is_no_address_is_not_asked_and_its_secrets_are_not_shown(
    invoke, url: str, beside: tuple[str, str]
) -> None:
    result = invoke("check", *beside, "--url", url)
    assert (result.status, result.code) == (2, "DP121")
    assert ":secret" not in result.stderr
    assert "=secret" not in result.stderr


@pytest.mark.parametrize("host", [f"{'a' * 300}.example", "xn--"])
def test_names_that_no_host_can_have(invoke, host: str) -> None:
    config = '{"method": "ngram"}'
    result = invoke("check", "--engine", "vllm", "--speculative-config", config, "--url", f"http://{host}/")
    assert (result.status, result.code) == (2, "DP411")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--lock", "lock.json", "--require", "lora"), "DP001"),
        (("--lock", "lock.json", "--engine", "vllm"), "DP001"),
        (("--allow", "FLAG-99"), "DP001"),
        (("--lock", "lock.json", "--api-key-env", "DRAFTPROOF_NO_SUCH_KEY"), "DP126"),
        (("--command", "vllm serve m", "--api-key-env", "HOME"), "DP001"),
    ],
)
def test_what_would_be_ignored_is_refused(invoke, arguments: tuple[str, ...], code: str) -> None:
    result = invoke("check", *arguments)
    assert (result.status, result.code) == (2, code)


DONE_ONCE = """
import collections, sys
opened = collections.Counter()
sys.addaudithook(lambda event, arguments: opened.update([str(arguments[0])]) if event == "open" else None)
from draftproof.cli.main import run
status = run(sys.argv[2:])
needless = {"torch", "transformers", "numpy", "httpx", "concurrent.futures", "importlib.metadata"} & set(sys.modules)
assert not needless, needless
again = {path: count for path, count in opened.items() if path.startswith(sys.argv[1]) and count > 1}
assert not again, again
sys.exit(status)
"""


def test_checking_a_pair_loads_nothing_needless_and_opens_each_file_once(
    target: Path, tmp_path: Path
) -> None:
    drafter = write_view(tmp_path / "drafter", QWEN, tokens=TOKENS, special=SPECIAL)
    speculation = json.dumps({"method": "draft_model", "model": str(drafter), "num_speculative_tokens": 4})
    words = ["check", str(target), "--draft", str(drafter), "--speculative-config", speculation, "--json"]
    program = [sys.executable, "-c", DONE_ONCE, str(tmp_path), *words]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 5), done.stderr
    assert "VOCAB-01" in json.loads(done.stdout)["checked"]


@pytest.mark.parametrize(
    ("words", "needless"),
    [
        (["check", "--command", "vllm serve org/m"], ["checkpoints.geometry", "configs.pairs"]),
        (["check", "{target}", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 2}'],
         ["checkpoints.gguf", "configs.traffic", "configs.pairs"]),
        (["plan", "{target}", "--memory", "1GiB", "--context", "64"], ["checkpoints.gguf", "configs.pairs"]),
    ],
)  # fmt: skip
def test_what_a_command_has_no_use_for_is_not_imported(
    target: Path, words: list[str], needless: list[str]
) -> None:
    program = (
        "import json, sys; from draftproof.cli.main import run; run(sys.argv[2:]);"
        "print([name for name in json.loads(sys.argv[1]) if 'draftproof.' + name in sys.modules], file=sys.stderr)"
    )
    arguments = [json.dumps(needless), *(word.replace("{target}", str(target)) for word in words)]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.stdout
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


def test_the_version_of_an_installed_engine_is_judged(
    tmp_path: Path, invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("vllm", "openvino_genai"):
        (tmp_path / package).mkdir()
        (tmp_path / f"{package}-9.8.7.dist-info").mkdir()
        name = package.replace("_", "-")
        (tmp_path / f"{package}-9.8.7.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 9.8.7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for engine in ("vllm", "openvino"):
        speculation = '{"method": "ngram", "num_speculative_tokens": 2}'
        judged = invoke("check", "org/m", "--engine", engine, "--speculative-config", speculation, "--json")
        told = judged.document["engine"]
        assert (told["version"], told["version_from"]) == ("9.8.7", "package metadata")


def test_required_names_are_listed_once(invoke) -> None:
    listed = invoke("check", "some/model", "--require", "novel", "--json").document["error"]["expected"]
    names = listed.removeprefix("one of ").split(", ")
    assert len(names) == len(set(names)) > 10
