"""`draftproof probe`: what it refuses before anything is sent, what it writes, and that a key never shows."""

import json
from pathlib import Path

import pytest

from draftproof.cli import output
from draftproof.measure.workloads import load
from support.fake_endpoint import MISBEHAVIOURS, Planted, serving

KEY = "sk-PLANTED-0123456789abcdef"
QUICK = ("--part", "observed", "--prompts", "1", "--max-tokens", "16", "--timeout", "1")


def texts(directory: Path) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in directory.rglob("*") if path.is_file())


def test_offline_prints_one_row_with_dates_and_what_is_not_documented(invoke) -> None:
    result = invoke("probe", "--offline", "--provider", "openai", "--deployment", "api", "--model", "gpt-4o")
    assert result.status == 0
    assert "read 2026-11" in result.stdout
    assert "not documented" in result.stdout
    document = invoke("probe", "--offline", "--provider", "openai", "--model", "gpt-5", "--json").document
    assert document["documented"]["prediction"] == "documented for other models"
    assert document["accepted"] is document["observed"] is None


def test_a_host_tells_the_provider_but_not_the_deployment_type(invoke) -> None:
    document = invoke("probe", "https://api.fireworks.ai", "--offline", "--json").document
    assert document["documented"]["deployment"] is None
    assert "fireworks/serverless" in document["documented"]["possible"]
    assert document["endpoint"]["guessed_provider"] == "fireworks"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), "DP001"),
        (("--offline",), "DP001"),
        (("--offline", "--deployment", "api"), "DP001"),
        (("--offline", "--provider", "nobody"), "DP120"),
        (("--offline", "--provider", "openai", "--deployment", "serverless"), "DP120"),
        (("http://127.0.0.1:1", "--part", "documented"), "DP001"),
        (("http://127.0.0.1:1", "--request", "x"), "DP001"),
        (("127.0.0.1:1", "--yes"), "DP121"),
        (("http://user:pw@127.0.0.1", "--yes"), "DP121"),
        (("http://127.0.0.1:1", "--yes", "--api-key-env", "NO_SUCH_KEY"), "DP126"),
        (("http://127.0.0.1:1", "--yes"), "DP122"),
        (("--prediction-file", "no/such"), "DP002"),
        (("--prediction-file", "no/such", "--provider", "fireworks"), "DP120"),
    ],
)
def test_mistakes(invoke, arguments: tuple[str, ...], code: str) -> None:
    result = invoke("probe", *arguments)
    assert (result.status, result.code) == (2, code)


def test_without_a_terminal_and_without_yes_it_refuses_with_the_estimate(invoke) -> None:
    with serving(Planted()) as server:
        result = invoke("probe", server.url)
        assert server.requests == []
    assert (result.status, result.code) == (2, "DP125")
    assert "prompt tokens" in result.stderr
    assert "rejected predicted tokens" in result.stderr


def test_beyond_the_budget_nothing_is_sent(invoke) -> None:
    with serving(Planted()) as server:
        result = invoke("probe", server.url, "--yes", "--budget", "100", "--price", "2.5", "10")
        assert server.requests == []
    assert (result.status, result.code) == (2, "DP125")
    assert "at your price" in result.stderr


@pytest.mark.parametrize(("answer", "sent"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_on_a_terminal_it_asks(invoke, monkeypatch: pytest.MonkeyPatch, answer: str, sent: bool) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda name: True)
    with serving(Planted()) as server:
        result = invoke("probe", server.url, *QUICK, stdin=answer.encode())
        assert bool(server.bodies) is sent
    assert result.status == (0 if sent else 2)
    assert "Send these requests?" in result.stderr


def test_the_three_parts_and_the_files(invoke, tmp_path: Path) -> None:
    with serving(Planted(key=KEY)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_KEY", KEY)
        result = invoke(
            "probe", server.url, "--api-key-env", "MY_KEY", "--yes", "--prompts", "2", "--out", str(tmp_path / "out"),
            "--provider", "vllm", "--json",
        )  # fmt: skip
    assert result.status == 0
    document = result.document
    assert document["documented"]["provider"] == "vllm"
    assert {row["name"] for row in document["accepted"]["parameters"]} >= {
        "prediction, text",
        "logprobs",
        "min_p",
    }
    assert document["observed"]["statements"]
    assert len(document["observed"]["streams"]) == 8
    assert document["spent"]["requests"] > 0
    assert document["endpoint"]["key_sent"] is True
    assert json.loads((tmp_path / "out" / "probe.json").read_text()) == document
    page = (tmp_path / "out" / "probe.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        "## Documented", "## Accepted", "## Observed",
    ]  # fmt: skip
    html = (tmp_path / "out" / "probe.html").read_text()
    assert all(f"<h2>{part}</h2>" in html for part in ("Documented", "Accepted", "Observed"))
    assert "PLANTED" not in result.stdout + result.stderr + texts(tmp_path)


def test_azure_s_path_version_and_header(invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    path = "/openai/deployments/team-4o/chat/completions"
    planted = Planted(path=path, api_version="2025-01-01-preview", key=KEY, auth_header="api-key")
    with serving(planted) as server:
        result = invoke(
            "probe", server.url, "--provider", "azure-openai", "--deployment", "deployment", "--model", "team-4o",
            "--api-key-env", "MY_KEY", "--yes", *QUICK, "--json",
        )  # fmt: skip
        headers = [headers for method, _, headers, _ in server.requests if method == "POST"]
    assert result.status == 0
    assert all("Authorization" not in header for header in headers)
    assert result.document["documented"]["prediction"].startswith("documented for named models")


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_key_never_shows_whatever_the_endpoint_does(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: int
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with serving(Planted(key=KEY, misbehave=MISBEHAVIOURS[name], misbehave_after=after)) as server:
        arguments = ("probe", server.url, "--api-key-env", "MY_KEY", "--yes", *QUICK, "--out", str(tmp_path))
        result = invoke(*arguments, "--json")
        sent = [headers.get("Authorization", "") for _, _, headers, _ in server.requests]
    assert any(KEY in header for header in sent)  # it was in use, and echoed by most
    assert result.status == (2 if after == 0 else 0)
    shown = result.stdout + result.stderr + texts(tmp_path)
    assert not [KEY[at : at + 8] for at in range(len(KEY) - 7) if KEY[at : at + 8] in shown]


def test_a_wrong_key_that_is_echoed_does_not_show(invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with serving(Planted(key="another")) as server:
        result = invoke("probe", server.url, "--model", "fake", "--api-key-env", "MY_KEY", "--yes", "--json")
    assert (result.status, result.document["error"]["code"]) == (2, "DP123")
    assert "Incorrect API key provided: [key]" in result.stderr
    assert "PLANTED" not in result.stdout + result.stderr


def test_a_prediction_from_a_file(invoke, tmp_path: Path) -> None:
    source = load("edit").prompts[0].prediction or ""
    (tmp_path / "a.py").write_text(source)
    (tmp_path / "b.py").write_text(source.replace("add_round", "record_round"))
    (tmp_path / "request.json").write_text(json.dumps({"model": "gpt-4o", "tools": [{}], "temperature": 0}))
    named = ("--provider", "azure-openai", "--deployment", "deployment", "--model", "d")
    result = invoke("probe", "--prediction-file", str(tmp_path / "a.py"), *named)
    assert result.status == 0
    assert json.loads(result.stdout) == {"prediction": {"type": "content", "content": source}}
    assert "whether that is served here is not known" in result.stderr
    document = invoke(
        "probe", "--prediction-file", str(tmp_path / "a.py"), *named, "--request", str(tmp_path / "request.json"),
        "--expected", str(tmp_path / "b.py"), "--json",
    ).document  # fmt: skip
    assert document["blocked"] is True
    assert document["request"]["prediction"]["content"] == source
    assert document["share_kept"] > 0.9


@pytest.mark.parametrize("text", ["[1]", "{", "[" * 100_000, '{"min_p": NaN}', '{"seed": 1e999}'])
def test_a_request_that_is_no_object_is_dp002(invoke, tmp_path: Path, text: str) -> None:
    (tmp_path / "request.json").write_text(text)
    (tmp_path / "a.py").write_text("x")
    result = invoke(
        "probe", "--prediction-file", str(tmp_path / "a.py"), "--request", str(tmp_path / "request.json")
    )
    assert (result.status, result.code) == (2, "DP002")
