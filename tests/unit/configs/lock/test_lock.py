"""Deployment records: what they hold, and what is told when something has drifted."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.configs.lock import drift as drift_module
from draftproof.configs.lock.checking import check_lock
from draftproof.configs.lock.drift import Now, drift
from draftproof.configs.lock.making import Subject, make_record, read_verdict
from draftproof.configs.lock.record import DeploymentRecord, read_record, template_digest, write_record
from draftproof.configs.registry import dialect
from draftproof.configs.rules.registry import statements_of
from draftproof.core.errors import DraftproofError
from draftproof.core.finding import Finding, Severity
from support.checkpoints import CHAT_TEMPLATE, write_checkpoint

COMMAND = (
    "vllm serve {target} --served-model-name main --api-key sk-not-to-be-kept --speculative-config "
    '\'{{"method": "draft_model", "model": "{drafter}", "num_speculative_tokens": 5}}\''
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "target", layers=2, vocab=320)
    write_checkpoint(tmp_path / "drafter", layers=1, vocab=320, seed=1)
    (tmp_path / "report.json").write_text(json.dumps({"cells": [{"verdict": "enable"}]}))
    return tmp_path


def record(place: Path, version: str | None = "0.33.0", engine: str = "vllm") -> DeploymentRecord:
    text = COMMAND.format(target=place / "target", drafter=place / "drafter")
    deployment = replace(dialect("vllm").parse(text).deployment, engine=engine)
    subject = Subject(deployment=deployment, text=text, version=version, verdict=place / "report.json")
    return make_record(subject)


def saved(place: Path, **changes: Any) -> Path:
    path = place / "draftproof.lock.json"
    write_record(path, replace(record(place), **changes))
    return path


def codes(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.code for finding in findings if finding.code != "LOCK-10"}


def hidden(findings: tuple[Finding, ...]) -> str:
    return "\n".join(finding.detail for finding in findings if finding.code == "LOCK-10")


def test_a_record_says_what_is_deployed(place: Path) -> None:
    path = saved(place)
    document = json.loads(path.read_text())
    assert "sk-not-to-be-kept" not in path.read_text()
    assert document["schema_version"] == 1
    assert document["engine"] == {
        "name": "vllm",
        "version": "0.33.0",
        "version_from": "as named for the record",
    }
    weights = (place / "target" / "model.safetensors").read_bytes()
    assert document["target"]["files"]["model.safetensors"] == hashlib.sha256(weights).hexdigest()
    assert document["target"]["chat_template"] == template_digest(CHAT_TEMPLATE)
    assert document["drafter"]["reference"] == str(place / "drafter")
    assert document["deployment"]["speculation"]["depth"] == 5
    assert document["arguments"][:2] == ["vllm", "serve"]
    assert document["verdict"]["verdicts"] == ["enable"]
    assert document["hardware"]["num_cores"] >= 1


def test_what_was_written_is_read(place: Path) -> None:
    first = record(place)
    path = place / "lock.json"
    write_record(path, first)
    second = read_record(path)
    assert json.loads(json.dumps(second.as_dict())) == json.loads(path.read_text())
    assert (second.target, second.drafter, second.verdict) == (first.target, first.drafter, first.verdict)
    assert sorted(item.name for item in place.iterdir()) == ["drafter", "lock.json", "report.json", "target"]


def test_nothing_drifted(place: Path) -> None:
    findings = check_lock(saved(place))
    assert codes(findings) == set()
    assert "no package of vllm is installed" in hidden(findings) or "no address" in hidden(findings)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("target/model.safetensors", "LOCK-01"),
        ("target/config.json", "LOCK-01"),
        ("drafter/model.safetensors", "LOCK-02"),
        ("drafter/tokenizer_config.json", "LOCK-03"),
        ("target/tokenizer_config.json", "LOCK-03"),
        ("report.json", "LOCK-08"),
    ],
)
def test_changed_files(place: Path, name: str, expected: str) -> None:
    path = saved(place)
    content = (place / name).read_bytes()
    changed = content[:-1] + bytes([content[-1] ^ 1]) if name.endswith(".safetensors") else content + b" "
    (place / name).write_bytes(changed)
    findings = check_lock(path)
    assert codes(findings) == {expected}
    found = next(finding for finding in findings if finding.code == expected)
    assert found.evidence[0].found == hashlib.sha256(changed).hexdigest()
    assert found.evidence[0].expected == hashlib.sha256(content).hexdigest()


def test_a_report_that_is_gone(place: Path) -> None:
    path = saved(place)
    (place / "report.json").unlink()
    assert codes(check_lock(path)) == {"LOCK-08"}


def test_what_is_not_here_is_not_called_unchanged(place: Path) -> None:
    path = saved(place)
    shutil.rmtree(place / "drafter")
    findings = check_lock(path)
    assert codes(findings) == set()
    assert "the drafter's files" in hidden(findings)


def test_other_hardware_and_versions(place: Path) -> None:
    lock = record(place)
    other = {**lock.hardware, "num_cores": 999}
    found = drift(lock, Now(hardware=other, engine_version="0.34.0"))
    assert codes(found) == {"LOCK-05", "LOCK-07"}
    assert [seen.key for finding in found for seen in finding.evidence] == ["version", "hardware.num_cores"]
    for same in ("0.33.0", "v0.33.0", "0.33.0+cu129"):
        assert drift(lock, Now(engine_version=same)) == ()


def test_every_code_that_drift_gives_is_listed() -> None:
    given = set(re.findall(r"LOCK-\d\d", inspect.getsource(drift_module)))
    assert given == {found.code for found in statements_of(["LOCK"])}


# Live endpoints


@contextmanager
def endpoint(pages: Mapping[str, Any]) -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            body = json.dumps(page).encode() if page is not None else b"{}"
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


VLLM_PAGES = {
    "/v1/models": {"data": [{"id": "main", "root": "/x/target"}]},
    "/version": {"version": "0.33.0"},
}


def test_a_vllm_that_shows_no_settings(place: Path) -> None:
    with endpoint(VLLM_PAGES) as url:
        findings = check_lock(saved(place), url + "/v1")
    assert codes(findings) == set()
    assert "VLLM_SERVER_DEV_MODE" in hidden(findings)


def test_another_model_and_version(place: Path) -> None:
    pages = {"/v1/models": {"data": [{"id": "other"}]}, "/version": {"version": "0.32.0"}}
    with endpoint(pages) as url:
        assert codes(check_lock(saved(place), url)) == {"LOCK-05", "LOCK-09"}


@pytest.mark.parametrize(("depth", "expected"), [(5, set()), (3, {"LOCK-06"}), (None, {"LOCK-06"})])
def test_settings_of_vllm(place: Path, depth: int | None, expected: set[str]) -> None:
    speculation = {"method": "draft_model", "num_speculative_tokens": depth}
    pages = VLLM_PAGES | {"/server_info": {"vllm_config": {"speculative_config": speculation}}}
    with endpoint(pages) as url:
        assert codes(check_lock(saved(place), url)) == expected


def test_settings_of_sglang(place: Path) -> None:
    arguments = (
        "--speculative-num-steps",
        "4",
        "--mem-fraction-static=0.70",
        "--admin-api-key",
        "[redacted]",
    )
    path = saved(place, engine=replace(record(place).engine, name="sglang"), arguments=arguments)
    info = {"version": "0.33.0", "speculative_num_steps": 4, "mem_fraction_static": 0.7, "admin_api_key": "x"}
    pages = {"/v1/models": {"data": [{"id": "target"}]}, "/server_info": info}
    with endpoint(pages) as url:
        assert codes(check_lock(path, url)) == set()
    info["speculative_num_steps"] = 3
    with endpoint(pages) as url:
        findings = check_lock(path, url)
    assert codes(findings) == {"LOCK-06"}
    assert [(seen.key, seen.found, seen.expected) for seen in findings[0].evidence] == [
        ("speculative_num_steps", "3", "4")
    ]


def test_settings_of_llamacpp(place: Path) -> None:
    path = saved(place, engine=replace(record(place).engine, name="llamacpp", version="b11434"))
    props: dict[str, Any] = {
        "build_info": "b11434-0c1e570",
        "model_path": "/somewhere/target",
        "chat_template": CHAT_TEMPLATE,
        "default_generation_settings": {"params": {"speculative.types": "draft-simple"}},
    }
    pages: dict[str, Any] = {"/v1/models": {"data": []}, "/props": props}
    with endpoint(pages) as url:
        findings = check_lock(path, url)
    assert codes(findings) == set()
    assert "draft length" in hidden(findings)
    props |= {"build_info": "b11500-1", "chat_template": "other"}
    props["default_generation_settings"]["params"]["speculative.types"] = "draft-mtp"
    with endpoint(pages) as url:
        assert codes(check_lock(path, url)) == {"LOCK-03", "LOCK-05", "LOCK-06"}


def test_what_llamacpp_does_not_show_is_no_drift(place: Path) -> None:
    """A server built from sources: no build, no last end of line, and `none` whatever it was started with."""
    path = saved(place, engine=replace(record(place).engine, name="llamacpp", version="b11434"))
    props: dict[str, Any] = {
        "build_info": "b0-unknown",
        "model_path": "/somewhere/target",
        "chat_template": CHAT_TEMPLATE.removesuffix("\n"),
        "default_generation_settings": {"params": {"speculative.types": "none"}},
    }
    pages: dict[str, Any] = {
        "/v1/models": {"data": []},
        "/props": props,
        "/slots": [{"speculative": True}] * 2,
    }
    with endpoint(pages) as url:
        findings = check_lock(path, url)
    assert codes(findings) == set()
    assert "engine version" in hidden(findings)
    assert "the method of speculation" in hidden(findings)
    pages["/slots"] = [{"speculative": False}]
    with endpoint(pages) as url:
        assert codes(check_lock(path, url)) == {"LOCK-06"}


@pytest.mark.parametrize("slots", [{}, [], [1], [{"speculative": "yes"}], None])
def test_slots_that_say_nothing_of_speculation(place: Path, slots: object) -> None:
    path = saved(place, engine=replace(record(place).engine, name="llamacpp", version="b11434"))
    props = {"build_info": "b11434-1", "chat_template": CHAT_TEMPLATE, "model_path": "/somewhere/target"}
    with endpoint({"/v1/models": {"data": []}, "/props": props, "/slots": slots}) as url:
        assert codes(check_lock(path, url)) == set()


def test_an_endpoint_that_does_not_answer(place: Path) -> None:
    with pytest.raises(DraftproofError) as caught:
        check_lock(saved(place), "http://user:secret@127.0.0.1:1")
    assert (caught.value.code, "secret" in str(caught.value)) == ("DP411", False)


def test_hardware_of_another_machine_is_not_compared(place: Path) -> None:
    lock = record(place)
    found = drift(lock, Now(hidden={"hardware": "an endpoint does not show it"}))
    assert [(finding.code, finding.severity) for finding in found] == [("LOCK-10", Severity.INFO)]


# Files that are no records

REPLACEMENTS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.none(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_file_is_read_or_refused(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.getbasetemp() / "fuzzed"
    path = place / "lock.json"
    if not place.exists():
        write_checkpoint(place / "target", layers=1, vocab=320)
        write_checkpoint(place / "drafter", layers=1, vocab=320)
        (place / "report.json").write_text(json.dumps({"cells": [{"verdict": "enable"}]}))
        write_record(place / "good.json", record(place))
    document = json.loads((place / "good.json").read_text())
    part = data.draw(st.sampled_from([document, document["target"], document["engine"], document["verdict"]]))
    part[data.draw(st.sampled_from(sorted(part)))] = data.draw(REPLACEMENTS)
    content = json.dumps(document).encode()
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    path.write_bytes(content)
    try:
        check_lock(path)
    except DraftproofError as error:
        assert error.code in ("DP431", "DP401", "DP402", "DP407", "DP414", "DP411")  # noqa: PT017


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"\xff", b'{"kind": "draftproof deployment record"}', b"[" * 9999]
)
def test_files_that_are_no_records(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lock.json"
    path.write_bytes(content)
    with pytest.raises(DraftproofError) as caught:
        read_record(path)
    assert caught.value.code == "DP431"


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing", Path("/dev/zero")):
        with pytest.raises(DraftproofError) as caught:
            read_record(path)
        assert caught.value.code == "DP002"


@pytest.mark.parametrize(("measured", "is_taken"), [(None, True), ("vllm", True), ("draftproof", False)])
def test_a_measurement_of_another_engine_is_no_verdict_on_this_one(
    tmp_path: Path, measured: str | None, is_taken: bool
) -> None:
    path = tmp_path / "report.json"
    said = {} if measured is None else {"engine": measured}
    path.write_text(json.dumps({**said, "model": {"model": "/m/Qwen3"}, "cells": [{"verdict": "pays"}]}))
    if is_taken:
        assert read_verdict(path, "vllm").model == "/m/Qwen3"
        return
    with pytest.raises(DraftproofError) as caught:
        read_verdict(path, "vllm")
    assert caught.value.code == "DP432"


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("Qwen/Qwen3-8B", True),
        ("/models/qwen3-8b/", True),
        ("/c/hub/models--Qwen--Qwen3-8B/snapshots/0123abc", True),
        ("served-name", True),
        ("/models/Qwen3-8B.gguf", True),
        ("Qwen/Qwen3-0.6B", False),
        ("/c/hub/models--Qwen--Qwen3-4B/snapshots/Qwen3-8B-not", False),
    ],
)
def test_names_of_the_target(place: Path, name: str, is_known: bool) -> None:
    found = replace(
        record(place),
        deployment={"target": {"name": "Qwen/Qwen3-8B"}},
        arguments=("vllm", "serve", "x", "--served-model-name", "served-name"),
    )
    assert found.names_target(name) == is_known


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cells": 3}', '{"cells": [1]}', '{"cells": [{}]}'])
def test_verdicts_that_are_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(DraftproofError) as caught:
        read_verdict(path, "vllm")
    assert caught.value.code == "DP432"
