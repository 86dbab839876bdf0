"""The providers table: its schema, what it refuses to conclude, and that known facts are in it as they were read."""

import copy
import re
import tomllib
from importlib.resources import files

import pytest

from draftproof.configs.providers import (
    TOPICS,
    Known,
    deployment_type,
    deployment_types,
    provider_of_host,
    providers,
)
from draftproof.configs.providers.page import providers_page
from draftproof.configs.providers.table import parse_table
from draftproof.core.errors import DraftproofError

ROWS = deployment_types()


@pytest.fixture
def document() -> dict:
    text = files("draftproof.configs.providers").joinpath("table.toml").read_text(encoding="utf-8")
    return copy.deepcopy(tomllib.loads(text))


def test_the_asked_deployment_types_are_there() -> None:
    places = {(row.provider, row.type) for row in ROWS}
    assert {
        ("fireworks", "dedicated-default-draft"),
        ("fireworks", "dedicated-no-default-draft"),
        ("fireworks", "serverless"),
        ("together", "serverless"),
        ("together", "dedicated"),
        ("openai", "api"),
        ("azure-openai", "deployment"),
    } <= places
    assert {row.provider for row in ROWS} >= {
        "cerebras", "mistral", "baseten", "vertex", "bedrock", "coreweave", "groq",
        "vllm", "sglang", "trtllm", "llamacpp", "transformers", "draftproof",
    }  # fmt: skip


def test_every_fact_has_a_dated_source_and_every_source_is_used(document: dict) -> None:
    for row in ROWS:
        for fact in row.facts:
            assert fact.source.read >= "2026-11"
            assert fact.topic in TOPICS
    used = {fact["source"] for row in document["deployments"] for fact in row.get("facts", [])}
    used |= {row["prediction"]["source"] for row in document["deployments"] if "prediction" in row}
    assert used == set(document["sources"])


def test_nothing_carries_over_between_deployment_types() -> None:
    serverless = deployment_type("fireworks", "serverless")
    dedicated = deployment_type("fireworks", "dedicated-default-draft")
    without = deployment_type("fireworks", "dedicated-no-default-draft")
    assert dedicated.about("switch")
    assert not serverless.about("switch")
    assert not any("defaultDraftModel" in fact.names for fact in without.facts + serverless.facts)
    assert deployment_type("together", "serverless").about("switch") == ()
    assert deployment_type("coreweave", "serverless").facts == ()


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("gpt-4o", Known.DOCUMENTED),
        ("gpt-4o-2024-08-06", Known.OTHER_MODELS),
        ("gpt-5", Known.OTHER_MODELS),
        (None, Known.UNKNOWN_MODEL),
    ],
)
def test_nothing_carries_over_between_models(model: str | None, known: Known) -> None:
    row = deployment_type("openai", "api")
    assert row.prediction_for(model) is known
    assert row.holds(row.about("billing")[0], model) is known


def test_a_name_of_the_users_choice_says_nothing_of_the_model() -> None:
    assert deployment_type("azure-openai", "deployment").prediction_for("gpt-4o") is Known.UNKNOWN_MODEL
    assert deployment_type("groq", "api").prediction_for("llama-3.3-70b-versatile") is Known.NOT_DOCUMENTED


def test_rules_of_prediction_as_they_were_read() -> None:
    azure = deployment_type("azure-openai", "deployment")
    assert azure.api_version == "2025-01-01-preview"
    assert azure.prediction is not None
    assert set(azure.prediction.not_with) == {
        "tools", "audio", "n > 1", "logprobs", "presence_penalty > 0", "frequency_penalty > 0", "max_completion_tokens",
    }  # fmt: skip
    billed = {
        (row.provider, row.type): row.prediction.rejected_tokens for row in ROWS if row.prediction is not None
    }
    assert billed[("openai", "api")] == "billed"
    assert billed[("cerebras", "public")] == "billed"
    assert billed[("cerebras", "dedicated")] == "free"
    assert billed[("mistral", "api")] == "free"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.openai.com", "openai"),
        ("MyTeam.OpenAI.Azure.com", "azure-openai"),
        ("api.fireworks.ai", "fireworks"),
        ("api.openai.com.evil.example", None),
        ("notapi.openai.com", None),
        ("localhost", None),
    ],
)
def test_a_provider_is_guessed_from_a_host_alone_if_it_is_one_of_its_hosts(
    host: str, name: str | None
) -> None:
    found = provider_of_host(host)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(("provider", "type_"), [("opnai", "api"), ("openai", "dedicated")])
def test_what_the_table_does_not_have_is_dp120_with_what_it_has(provider: str, type_: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        deployment_type(provider, type_)
    assert caught.value.code == "DP120"
    assert "openai" in caught.value.expected or "api" in caught.value.expected


def _first(document: dict) -> dict:
    return document["deployments"][0]


BREAKAGES = {
    "unknown key of a row": lambda d: _first(d).update(speculates=True),
    "unknown key of a fact": lambda d: _first(d)["facts"][0].update(note="x"),
    "unknown topic": lambda d: _first(d)["facts"][0].update(topic="speed"),
    "empty fact": lambda d: _first(d)["facts"][0].update(says=" "),
    "source that is not listed": lambda d: _first(d)["facts"][0].update(source="hearsay"),
    "source without a date": lambda d: d["sources"]["openai-guide"].update(read="recently"),
    "source with a strange address": lambda d: d["sources"]["openai-guide"].update(url="ftp://x"),
    "row twice": lambda d: d["deployments"].append(_first(d)),
    "provider without a row": lambda d: d["providers"].update(nobody={"name": "Nobody"}),
    "models that are no list": lambda d: _first(d)["facts"][0].update(models="gpt-4o"),
    "unknown shape": lambda d: _first(d)["prediction"].update(shapes=["yaml"]),
    "unknown way of billing": lambda d: _first(d)["prediction"].update(rejected_tokens="maybe"),
    "unknown way to sign": lambda d: _first(d).update(auth="basic"),
    "path that is none": lambda d: _first(d).update(path="v1"),
    "unknown part": lambda d: d.update(extra={}),
    "fact that is no table": lambda d: _first(d).update(facts=["x"]),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_table_that_breaks_its_schema_does_not_load(name: str, document: dict) -> None:
    parse_table(document)
    BREAKAGES[name](document)
    with pytest.raises(ValueError, match=r"\S"):
        parse_table(document)


def test_the_page_has_every_row_and_says_what_is_not_documented() -> None:
    page = providers_page()
    for provider in providers():
        assert f"## {provider.title}\n" in page
    for row in ROWS:
        assert f"--provider {row.provider} --deployment {row.type}`" in page
        for fact in row.facts:
            assert fact.says in page
    assert page.count("not documented") > len(ROWS)
    cited = {int(number) for number in re.findall(r" \[(\d+)\]$", page, re.MULTILINE)}
    assert cited == set(range(1, len(re.findall(r"^\d+\. .*, read 20", page, re.MULTILINE)) + 1))
