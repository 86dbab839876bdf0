"""The same deployment in every form is the same to `check`, `plan`, `translate` and `lock`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftproof.configs.engines.told import told_by
from support.started import DEPLOYED, FORMS, WITH_IMAGE

ENGINES = tuple(DEPLOYED)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def judged(document: dict[str, Any]) -> list[str]:
    return sorted(
        f"{finding['code']} {finding['severity']} {finding['detail']}" for finding in document["findings"]
    ) + sorted(f"{item['code']} {item['reason']}" for item in document["not_checked"])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", FORMS)
def test_the_same_deployment_gives_the_same_findings(invoke, engine: str, form: str) -> None:
    item = DEPLOYED[engine]
    expected = invoke(
        "check", "--engine", f"{engine}=={item.version}", "--command", FORMS["command"](item), "--json"
    ).document
    assert expected["findings"]
    text = FORMS[form](item)
    told = invoke("check", "--command", text, "--json").document
    assert told["engine"]["name"] == engine
    if form in WITH_IMAGE:
        assert (told["engine"]["version"], told["engine"]["version_from"]) == (item.version, "image tag")
    named = invoke("check", "--engine", f"{engine}=={item.version}", "--command", text, "--json").document
    assert judged(named) == judged(expected)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", FORMS)
def test_every_command_tells_the_engine_alike(invoke, engine: str, form: str) -> None:
    item = DEPLOYED[engine]
    text = FORMS[form](item)
    told = told_by(text)
    assert (told.engine, told.version) == (engine, item.version if form in WITH_IMAGE else None)
    document = invoke("translate", "--to", engine, "--json", "--", text).document
    assert document["from"]["engine"] == engine
    kept = document["deployment"].get("extras", {}).get(f"{engine}.env", {})
    assert {**item.variables} == kept or engine == "sglang"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("form", FORMS)
def test_plan_and_lock_read_every_form(invoke, tmp_path: Path, engine: str, form: str) -> None:
    from support.rules.building import QWEN, SPECIAL, TOKENS
    from support.tiny_views import write_view

    target = write_view(tmp_path / "target", {**QWEN, "num_hidden_layers": 2}, tokens=TOKENS, special=SPECIAL)
    item = DEPLOYED[engine]
    words = {
        "vllm": ("m", "--max-model-len", "64"),
        "sglang": ("--model-path", "m", "--context-length", "64"),
    }
    text = FORMS[form](replace(item, arguments=words[engine]))
    plan = invoke("plan", str(target), "--memory", "4GiB", "--command", text, "--json")
    assert plan.document["engine"] == engine
    out = tmp_path / "lock.json"
    assert invoke("lock", str(target), "--command", text, "--out", str(out)).status == 0
    record = json.loads(out.read_text())
    assert record["engine"]["name"] == engine
    again = invoke("check", "--lock", str(out), str(target), "--command", text, "--json").document
    assert not [finding for finding in again["findings"] if finding["code"] in ("LOCK-05", "LOCK-06")]


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("speculative_config:\n  decoding_type: MTP\n", "trtllm"),
        (
            'speculative_config: {"decoding_type": "MTP"}\n',
            None,
        ),  # a key that begins no line may be anything's
        ("port: 80\nspeculative-config:\n  method: ngram\n", None),
    ],
)
def test_a_key_of_one_engines_file_tells_the_engine(text: str, engine: str | None) -> None:
    assert told_by(text).engine == engine
