"""The prediction from a file: its shape, what it will cost, and every reason not to send it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.configs.providers import DeploymentType, Known, PredictionRule, deployment_type
from draftproof.core.finding import Source
from draftproof.measure.probe.prediction import advise_prediction, excluded_parameters, share_kept
from draftproof.measure.workloads import load

FILE = load("edit").prompts[0].prediction or ""
OPENAI = deployment_type("openai", "api")
AZURE = deployment_type("azure-openai", "deployment")
FIREWORKS = deployment_type("fireworks", "serverless")
VLLM = deployment_type("vllm", "self-hosted")


def test_a_file_that_is_kept_may_be_sent() -> None:
    expected = FILE.replace("add_round", "record_round")
    advice = advise_prediction(FILE, OPENAI, "gpt-4o", {"temperature": 0, "model": "gpt-4o"}, expected)
    assert advice.prediction == {"type": "content", "content": FILE}
    assert advice.body == {"temperature": 0, "model": "gpt-4o", "prediction": advice.prediction}
    assert advice.against == ()
    assert not advice.blocked
    assert advice.known is Known.DOCUMENTED
    assert advice.share_kept is not None
    assert 0.95 < advice.share_kept < 1
    assert advice.num_chars == len(FILE)
    assert any("billed as completion tokens" in note for note in advice.notes)


@pytest.mark.parametrize(
    ("row", "model", "said"),
    [
        (None, "gpt-4o", "no deployment type was named"),
        (VLLM, "any", "not documented for vLLM"),
        (OPENAI, "gpt-5", "not for gpt-5"),
        (AZURE, "my-deployment", "whether that is served here is not known"),
    ],
)
def test_what_is_not_documented_is_said(row: DeploymentType | None, model: str, said: str) -> None:
    advice = advise_prediction(FILE, row, model)
    assert any(said in reason for reason in advice.against)


EXCLUDING: dict[str, list[Any]] = {
    "tools": [[{"type": "function"}]],
    "n": [2, 5],
    "logprobs": [True, 1],
    "presence_penalty": [0.1, 2],
    "frequency_penalty": [0.1, 2],
    "max_completion_tokens": [10],
    "audio": [{"voice": "x"}],
}
HARMLESS: dict[str, list[Any]] = {
    "tools": [[], None],
    "n": [1, None],
    "logprobs": [False, None],
    "presence_penalty": [0, -1, None],
    "frequency_penalty": [0, -0.5],
    "max_tokens": [10],
    "stream": [True],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in EXCLUDING.items() for value in values]
)
def test_parameters_that_exclude_it_block_it(name: str, value: Any) -> None:
    advice = advise_prediction(FILE, AZURE, "d", {name: value})
    assert advice.blocked
    assert any(name in reason for reason in advice.against)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in HARMLESS.items() for value in values]
)
def test_values_that_do_not_exclude_it_do_not(name: str, value: Any) -> None:
    assert not advise_prediction(FILE, AZURE, "d", {name: value}).blocked


def test_restrictions_are_those_of_the_deployment_type() -> None:
    request = {"tools": [{}], "n": 2}
    found = {
        row.provider: excluded_parameters(row.prediction, request)
        for row in (
            AZURE,
            deployment_type("cerebras", "public"),
            deployment_type("mistral", "api"),
            FIREWORKS,
        )
    }
    assert found == {
        "azure-openai": ("tools", "n > 1"),
        "cerebras": ("n > 1", "tools"),
        "mistral": ("n",),
        "fireworks": (),
    }


def test_small_overlap_and_small_files_are_reasons_against() -> None:
    advice = advise_prediction(FILE, OPENAI, "gpt-4o", expected="Something else entirely.\n" * 20)
    assert any("more tokens rejected than accepted" in reason for reason in advice.against)
    assert advice.rejected_tokens is not None
    assert advice.rejected_tokens > advice.num_tokens / 2
    assert any(
        "next to nothing" in reason for reason in advise_prediction("x = 1\n", OPENAI, "gpt-4o").against
    )


def test_a_bound_on_its_length_is_told() -> None:
    short = advise_prediction(FILE, FIREWORKS, "m", {"max_tokens": 20, "temperature": 0})
    assert any("bounded by max_tokens" in note for note in short.notes)
    enough = advise_prediction(FILE, FIREWORKS, "m", {"max_tokens": 100_000, "temperature": 0})
    assert not any("bounded by" in note for note in enough.notes)


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        ("text", {"type": "content", "content": "abc"}),
        ("parts", {"type": "content", "content": [{"type": "text", "text": "abc"}]}),
        ("string", "abc"),
    ],
)
def test_shapes(shape: Any, value: object) -> None:
    rule = PredictionRule(source=Source(name="s", read="2026-11"), shapes=(shape,))
    row = DeploymentType(provider="p", type="t", title="T", auth="bearer", prediction=rule)
    assert advise_prediction("abc", row).prediction == value


@given(text=st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_the_share_kept_is_a_share(text: str) -> None:
    assert share_kept(text, text) == (1.0 if text else 0.0)
    assert 0.0 <= share_kept(text, "other words") <= 1.0
    assert share_kept(FILE, text + "\n" + FILE) == pytest.approx(1.0)
