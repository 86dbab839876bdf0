"""`draftproof pairs`: what is known with source and date, what is not, and hints that claim nothing."""

import json
from pathlib import Path

import pytest

from draftproof.configs.pairs import load_catalogue
from support.checkpoints import write_checkpoint


def test_known_pairs_come_with_source_and_date(invoke) -> None:
    result = invoke("pairs", "Qwen/Qwen3-8B")
    assert result.status == 0
    assert "RedHatAI/Qwen3-8B-speculator.eagle3" in result.stdout
    assert f"read {load_catalogue().date}" in result.stdout
    document = invoke("pairs", "Qwen/Qwen3-8B", "--json").document
    assert document["known_as"] == {
        "name": "Qwen/Qwen3-8B", "stated": "Qwen/Qwen3-8B", "where": "as you named it",
    }  # fmt: skip
    assert len(document["pairs"]) == len(load_catalogue().of_target("Qwen/Qwen3-8B"))
    assert all(pair["sources"][0]["read"] for pair in document["pairs"])


def test_filters_by_engine_and_method_say_what_they_leave_out(invoke) -> None:
    document = invoke("pairs", "Qwen/Qwen3-8B", "--engine", "vllm", "--method", "eagle3", "--json").document
    assert document["pairs"]
    assert all("vllm" in pair["engines"] and pair["method"] == "eagle3" for pair in document["pairs"])
    text = invoke("pairs", "Qwen/Qwen3-8B", "--engine", "fireworks").stdout
    assert "none known for fireworks" in text
    assert f"{len(load_catalogue().of_target('Qwen/Qwen3-8B'))} more" in text


def test_none_known_is_said_plainly(invoke, tmp_path: Path) -> None:
    catalogue = load_catalogue()
    directory = write_checkpoint(tmp_path / "model")
    for target in ("nobody/nothing-42", str(directory)):
        text = invoke("pairs", target).stdout
        assert f"none known (catalogue of {catalogue.date}, {len(catalogue.pairs)} pairs)" in text
    document = invoke("pairs", str(directory), "--json").document
    assert (document["known_as"], document["pairs"], document["same_shape"]) == (None, [], [])


def test_a_fine_tune_that_states_its_parent_is_told_that_this_is_a_claim(invoke, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"_name_or_path": "Qwen/Qwen3-8B"}), encoding="utf-8")
    text = invoke("pairs", str(tmp_path)).stdout
    assert "Qwen/Qwen3-8B (config.json, _name_or_path)" in text
    assert "unproven" in text


def test_same_shape_and_similar_names_are_hints(invoke, tmp_path: Path) -> None:
    config = {
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 36, "vocab_size": 151936,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = invoke("pairs", str(tmp_path)).stdout
    assert "none known" in text
    assert "does not say which it is" in text
    assert "not taken for it: Qwen/Qwen3-8B" in invoke("pairs", "Qwen/Qwen3-8b-x").stdout


def test_a_drafter_is_told_whom_it_serves(invoke) -> None:
    result = invoke("pairs", "RedHatAI/Qwen3-8B-speculator.eagle3")
    assert "known as a drafter itself, of Qwen/Qwen3-8B" in result.stdout
    document = invoke("pairs", "RedHatAI/Qwen3-8B-speculator.eagle3", "--json").document
    assert document["drafter_of"] == ["Qwen/Qwen3-8B"]


@pytest.mark.parametrize("target", ["no-such-thing", "./no/such", "no/such/thing", "", "smollm2-135m"])
def test_what_is_neither_file_nor_hub_id_is_dp401(invoke, target: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("DRAFTPROOF_HOME", str(tmp_path))
    result = invoke("pairs", target)
    assert (result.status, result.code) == (2, "DP401")
