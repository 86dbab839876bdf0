"""`draftproof rules` and `draftproof methods`: the rule base as people and programs read it."""

from __future__ import annotations

from draftproof.configs.rules.facts.methods import METHODS
from draftproof.configs.rules.registry import statements_of


def test_all_rules_are_listed(invoke) -> None:
    result = invoke("rules", "list")
    assert result.status == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == [rule.code for rule in statements_of()]
    assert len(invoke("rules", "list", "--json").document["rules"]) == len(statements_of())


def test_filters_by_family_and_engine(invoke) -> None:
    lines = invoke("rules", "list", "--family", "eagle").stdout.splitlines()
    assert lines
    assert all(line.startswith("EAGLE-") for line in lines)
    engine = invoke("rules", "list", "--engine", "sglang", "--json").document["rules"]
    for rule in engine:
        read = [reading["engine"] for reading in rule["readings"]]
        assert not read or "sglang" in read
    assert invoke("rules", "list", "--family", "NOTHING").status == 2


def test_one_rule(invoke) -> None:
    text = invoke("rules", "show", "eagle-01").stdout
    assert text.startswith("EAGLE-01  An EAGLE-3 head is run as EAGLE-1/2")
    assert "pull request 21272" in text
    document = invoke("rules", "show", "MTP-01", "--json").document
    assert (document["code"], document["severity"], document["methods"]) == ("MTP-01", "error", ["mtp"])
    assert invoke("rules", "show", "EAGLE-99").status == 2
    assert "other tokens" in invoke("rules", "show", "lock-03").stdout


def test_methods_by_engine(invoke) -> None:
    text = invoke("methods", "--engine", "vllm").stdout
    assert text.startswith("vllm\n")
    assert "removed: >=0.33" in text
    document = invoke("methods", "--json").document["methods"]
    assert len(document) == len(METHODS)
    assert {entry["engine"] for entry in document} >= {"vllm", "sglang", "trtllm", "llamacpp", "transformers"}
    assert invoke("methods", "--engine", "nothing").status == 2


def test_an_engine_that_there_is_not(invoke) -> None:
    result = invoke("rules", "list", "--engine", "nosuch")
    assert (result.status, result.code) == (2, "DP110")
