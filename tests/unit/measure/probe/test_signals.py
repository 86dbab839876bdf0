"""Signals of answers and metrics: what is kept, what is not, and that no document is too strange."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.measure.probe.answer import Answer
from draftproof.measure.probe.client import Client
from draftproof.measure.probe.endpoint import parse_endpoint
from draftproof.measure.probe.secret import ApiKey
from draftproof.measure.probe.signals import answer_signals, metric_samples

KEY = "sk-PLANTED-0123456789"
CLIENT = Client(endpoint=parse_endpoint("http://fake", None, None, None), key=ApiKey(KEY))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["usage", "spec", "draft_n", "choices", "delta", "x", "accepted"]), inner
        )
    ),
    max_leaves=25,
)


@given(document=st.dictionaries(st.sampled_from(["usage", "timings", "choices", "spec"]), JSON))
@settings(max_examples=150, deadline=None)
def test_no_document_is_too_strange(document: dict[str, Any]) -> None:
    answer = Answer(body=document)
    for signal in answer_signals(answer, CLIENT):
        json.dumps({"value": signal.value}, allow_nan=False)
    assert isinstance(answer.content, str)


def test_deep_and_wide_documents_are_bounded() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = {"draft": deep}
    wide = {f"draft_{at}": at for at in range(100_000)}
    assert answer_signals(Answer(body={"a": deep}), CLIENT) == ()
    assert len(answer_signals(Answer(body={"a": wide}), CLIENT)) <= 4000


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("fireworks-speculation-acceptance", True),
        ("fireworks-server-time-to-first-token", True),
        ("x-spec-decode", True),
        ("x-accepted-tokens", True),
        ("accept-ranges", False),
        ("set-cookie", False),
        ("x-request-id", False),
        ("special", False),
    ],
)
def test_headers_that_are_kept(name: str, kept: bool) -> None:
    signals = answer_signals(Answer(headers={name: "1"}), CLIENT)
    assert bool(signals) is kept


def test_what_is_kept_has_no_key_and_texts_of_answers_are_not() -> None:
    body = {"draft_by": f"Bearer {KEY}", "choices": [{"message": {"content": "draft accepted"}}]}
    [signal] = answer_signals(Answer(body=body, headers={"x-spec": KEY}), CLIENT)[:1]
    assert signal.value == "Bearer [key]"
    everything = str(answer_signals(Answer(body=body, headers={"x-spec": KEY}), CLIENT))
    assert "PLANTED" not in everything
    assert "draft accepted" not in everything


def test_samples_of_metrics() -> None:
    text = """# HELP vllm:spec_decode_num_drafts_total x
vllm:spec_decode_num_drafts_total{engine="0"} 5.0
llamacpp:spec_decode_num_draft_tokens_total 1e3
sglang:spec_accept_length 2.5 1700000000
trtllm_spec_decode_num_accepted_tokens_total NaN
process_cpu_seconds_total 3
spec_broken{a="}" x
spec_inf +Inf
"""
    assert metric_samples(text) == {
        'vllm:spec_decode_num_drafts_total{engine="0"}': 5.0,
        "llamacpp:spec_decode_num_draft_tokens_total": 1000.0,
        "sglang:spec_accept_length": 2.5,
    }


@given(text=st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_no_page_of_metrics_is_too_strange(text: str) -> None:
    assert all(isinstance(value, float) for value in metric_samples(text + "\nspec_a 1\n").values())
