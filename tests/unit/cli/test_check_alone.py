"""`draftproof check TARGET [--draft D]` without a configuration: the files alone, for every engine with the method."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.configs.rules.facts.methods import METHODS
from support.rules.building import QWEN, SPECIAL, TOKENS, Checkpoint
from support.rules.eagle import MODEL, eagle, eagle3
from support.tiny_views import write_view


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_view(tmp_path / "target", {**QWEN, "num_hidden_layers": 8}, tokens=TOKENS, special=SPECIAL)


def written(path: Path, files: Checkpoint) -> str:
    tokens = TOKENS if files is MODEL else None
    return str(
        write_view(
            path, files.config, tensors=files.tensors, values=files.values, tokens=tokens, special=SPECIAL
        )
    )


@pytest.mark.parametrize(
    ("files", "method"), [(MODEL, "draft_model"), (eagle(), "eagle"), (eagle3(), "eagle3")]
)
def test_the_drafters_files_tell_the_method(
    invoke, target: Path, tmp_path: Path, files: Checkpoint, method: str
) -> None:
    document = invoke(
        "check", str(target), "--draft", written(tmp_path / "drafter", files), "--json"
    ).document
    assert document["methods"] == [method]
    engines = [row["name"].split()[0] for row in document["engines"]]
    assert engines == list(dict.fromkeys(fact.reading.engine for fact in METHODS if fact.method == method))
    assert all(row["written"] for row in document["engines"])
    assert not any(code.startswith(("FLAG", "CONFIG", "COMBO", "MEMORY")) for code in document["checked"])


def test_what_concerns_one_engine_is_said_of_it(invoke, target: Path, tmp_path: Path) -> None:
    padded = Checkpoint({**MODEL.config, "vocab_size": 20}, tensors=MODEL.tensors)
    drafter = write_view(
        tmp_path / "d", padded.config, tensors=padded.tensors, tokens=TOKENS, special=SPECIAL
    )
    result = invoke("check", str(target), "--draft", str(drafter), "--json")
    rows = {row["name"].split()[0]: row for row in result.document["engines"]}
    assert "VOCAB-02" in rows["vllm"]["errors"]
    assert rows["llamacpp"]["errors"] == []
    assert result.status == 0  # one engine that runs the pair is enough
    padding = [found["engines"] for found in result.document["findings"] if found["code"] == "VOCAB-02"]
    concerned = {name.split()[0] for names in padding for name in names}
    assert "vllm" in concerned
    assert "llamacpp" not in concerned
    text = invoke("check", str(target), "--draft", str(drafter)).stdout
    good = [row["name"] for row in result.document["engines"] if not row["errors"]]
    assert f"no error in {len(good)} of {len(rows)} engines: {', '.join(good)}" in " ".join(text.split())
    _, *groups = text.split("\n── ")
    told = {group.partition(":")[0] for group in groups if "VOCAB-02  " in group}
    assert told == {", ".join(names) for names in padding}
    assert invoke("check", str(target), "--draft", str(drafter), "--engine", "vllm").status == 5


def test_a_pair_that_runs_nowhere_is_an_error(invoke, target: Path, tmp_path: Path) -> None:
    head = written(tmp_path / "head", eagle3(width=3 * 96))
    result = invoke("check", str(target), "--draft", head, "--json")
    assert result.status == 5
    assert all("EAGLE-05" in row["errors"] for row in result.document["engines"])
    text = invoke("check", str(target), "--draft", head).stdout
    assert f"no error in 0 of {len(result.document['engines'])} engines\n" in text
    [everywhere] = [group for group in text.split("\n── ") if group.startswith("every engine:")]
    assert "EAGLE-05" in everywhere


@pytest.mark.parametrize("draft", [[], ["--draft", "org/head"]])
def test_files_that_cannot_be_read_are_no_clean_check(invoke, draft: list[str]) -> None:
    result = invoke("check", "Qwen/Qwen3-8B", *draft)
    assert result.status == 2
    assert result.code is not None


def test_beside_a_configuration_they_are_named(invoke) -> None:
    result = invoke("check", "--command", "vllm serve Qwen/Qwen3-8B --spec-method ngram --spec-tokens 5")
    assert "not read  the target's files" in result.stdout
    assert result.stdout.index("not read") < result.stdout.index("found")


def test_a_target_alone(invoke, target: Path, tmp_path: Path) -> None:
    text = invoke("check", str(target)).stdout
    assert "draftproof advise" in text
    assert "nothing could be checked without a drafter or a configuration" in text
    assert "nothing found" not in text
    assert "0 rules" not in text
    mtp = write_view(tmp_path / "mtp", {**QWEN, "num_nextn_predict_layers": 1}, tensors={"a.weight": (2, 2)})
    result = invoke("check", str(mtp), "--json")
    assert result.document["methods"] == ["mtp"]
    assert result.status == 5
    assert {row["errors"][0] for row in result.document["engines"]} == {"MTP-01"}


def test_requests_are_judged_where_they_are_named(invoke, target: Path, tmp_path: Path) -> None:
    drafter = written(tmp_path / "drafter", MODEL)
    arguments = ("check", str(target), "--draft", drafter, "--engine", "vllm", "--require", "min_p", "--json")
    assert "REQUEST-01" in {finding["code"] for finding in invoke(*arguments).document["findings"]}


def test_a_drafter_that_does_not_tell_its_kind(invoke, target: Path, tmp_path: Path) -> None:
    bare = write_view(tmp_path / "bare", QWEN)
    result = invoke("check", str(target), "--draft", str(bare))
    assert (result.status, result.code) == (2, "DP001")
    assert "--command" in result.stderr
