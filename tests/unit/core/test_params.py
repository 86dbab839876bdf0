from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.core.errors import DraftproofError
from draftproof.core.params import MAX_LOGPROBS, MAX_STOP_STRINGS, SamplingParams

OUT_OF_RANGE: list[tuple[str, Any]] = [
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", True),
    ("max_tokens", 1.5),
    ("max_tokens", "10"),
    ("min_tokens", -1),
    ("min_tokens", None),
    ("temperature", -0.1),
    ("temperature", 100.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", False),
    ("temperature", "hot"),
    ("temperature", 10**400),
    ("top_k", -1),
    ("top_k", 2.0),
    ("top_k", 10**5000),
    ("top_p", 0),
    ("top_p", 0.0),
    ("top_p", 1.01),
    ("top_p", math.nan),
    ("min_p", -0.01),
    ("min_p", 1.01),
    ("repetition_penalty", 0.0),
    ("repetition_penalty", 1e-300),
    ("repetition_penalty", math.inf),
    ("presence_penalty", 2.1),
    ("presence_penalty", -2.1),
    ("frequency_penalty", 2.1),
    ("frequency_penalty", -math.inf),
    ("logit_bias", {1: 101}),
    ("logit_bias", {1: math.nan}),
    ("logit_bias", {1: True}),
    ("logit_bias", {-1: 1.0}),
    ("logit_bias", {"a": 1.0}),
    ("logit_bias", [1, 2]),
    ("allowed_token_ids", "12"),
    ("allowed_token_ids", [1.0]),
    ("allowed_token_ids", [-1]),
    ("bad_token_ids", [True]),
    ("bad_token_ids", [[1]]),
    ("bad_token_ids", None),
    ("bad_token_sequences", [[]]),
    ("bad_token_sequences", [1]),
    ("bad_token_sequences", ["ab"]),
    ("bad_token_sequences", [[1, -2]]),
    ("seed", 2**63),
    ("seed", 0.5),
    ("seed", False),
    ("stop", "end"),
    ("stop", [""]),
    ("stop", [1]),
    ("stop", ["x"] * (MAX_STOP_STRINGS + 1)),
    ("stop_token_ids", [None]),
    ("ignore_eos", 1),
    ("logprobs", -1),
    ("logprobs", MAX_LOGPROBS + 1),
    ("logprobs", True),
    ("logprobs_mode", "cooked"),
    ("logprobs_mode", ["raw"]),
]


@pytest.mark.parametrize(
    ("name", "value"), OUT_OF_RANGE, ids=lambda value: repr(value)[:20] if value != 10**5000 else "huge"
)
def test_a_value_out_of_range_names_its_field(name: str, value: Any) -> None:
    with pytest.raises(DraftproofError) as caught:
        SamplingParams(**{name: value})
    assert caught.value.code == "DP201"
    assert caught.value.field.startswith(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 1),
        ("temperature", 0),
        ("temperature", 1e-9),
        ("temperature", 100),
        ("top_k", 0),
        ("top_p", 1e-9),
        ("top_p", 1),
        ("min_p", 1),
        ("repetition_penalty", 0.01),
        ("presence_penalty", -2),
        ("frequency_penalty", 2),
        ("logit_bias", {0: -100, 7: 100}),
        ("seed", -(2**63)),
        ("logprobs", 0),
        ("stop", ["x"] * MAX_STOP_STRINGS),
    ],
)
def test_the_ends_of_a_range_are_inside(name: str, value: Any) -> None:
    SamplingParams(**{name: value})


@pytest.mark.parametrize(
    "values",
    [
        {"min_tokens": 5, "max_tokens": 4},
        {"allowed_token_ids": []},
        {"allowed_token_ids": [1, 2], "bad_token_ids": [2], "bad_token_sequences": [[1]]},
    ],
)
def test_parameters_that_contradict_each_other(values: dict[str, Any]) -> None:
    with pytest.raises(DraftproofError) as caught:
        SamplingParams(**values)
    assert caught.value.code == "DP202"


def test_collections_are_stored_as_declared_and_make_equal_hashable_values() -> None:
    given_as_lists = SamplingParams(
        allowed_token_ids=[2, 1],
        bad_token_sequences=[[1, 2]],
        stop=["a"],
        logit_bias={3: 1},
        temperature=1,
    )
    declared = SamplingParams(
        allowed_token_ids=frozenset({1, 2}),
        bad_token_sequences=((1, 2),),
        stop=("a",),
        logit_bias={3: 1.0},
        temperature=1.0,
    )
    assert given_as_lists == declared
    assert hash(given_as_lists) == hash(declared)
    assert isinstance(given_as_lists.temperature, float)


def test_later_changes_of_the_callers_mapping_do_not_reach_the_parameters() -> None:
    bias = {1: 1.0}
    params = SamplingParams(logit_bias=bias)
    bias[1] = math.nan
    assert params.logit_bias == {1: 1.0}


def test_parse_reads_what_json_can_say() -> None:
    parsed = SamplingParams.parse(
        {
            "stop": "END",
            "logit_bias": {"17": -5},
            "seed": None,
            "top_p": 1,
            "bad_token_sequences": [[1, 2], [3]],
        }
    )
    assert parsed == SamplingParams(
        stop=("END",), logit_bias={17: -5.0}, bad_token_sequences=((1, 2), (3,)), seed=None
    )


@pytest.mark.parametrize("key", ["-1", "1.0", "", "１", "x", "+1"])
def test_parse_refuses_keys_that_are_no_token_ids(key: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        SamplingParams.parse({"logit_bias": {key: 1.0}})
    assert caught.value.code == "DP201"


def test_parse_names_the_nearest_known_key() -> None:
    with pytest.raises(DraftproofError) as caught:
        SamplingParams.parse({"temprature": 1.0})
    assert caught.value.code == "DP201"
    assert caught.value.field == "temprature"
    assert "'temperature'" in caught.value.remedy


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(sorted(SamplingParams.__dataclass_fields__)) | st.text(max_size=8)


@settings(deadline=None)
@given(st.dictionaries(NAMES, JSON, max_size=4))
def test_parse_of_any_object_gives_parameters_or_a_coded_error(values: dict[str, Any]) -> None:
    # Anything but a DraftproofError fails the test.
    with contextlib.suppress(DraftproofError):
        SamplingParams.parse(values)


@pytest.mark.parametrize(
    "values",
    [
        {"logit_bias": {10: 1.0}},
        {"allowed_token_ids": [10]},
        {"bad_token_ids": [10]},
        {"bad_token_sequences": [[1, 10]]},
        {"stop_token_ids": [10]},
    ],
)
def test_token_ids_outside_the_vocabulary(values: dict[str, Any]) -> None:
    params = SamplingParams(**values)
    params.validate_for(vocab_size=11, context_length=100)
    with pytest.raises(DraftproofError) as caught:
        params.validate_for(vocab_size=10, context_length=100)
    assert caught.value.code == "DP303"
    assert caught.value.found == "10"


@pytest.mark.parametrize(
    "values",
    [
        {"min_tokens": 100},
        {"bad_token_ids": list(range(10))},
        {"allowed_token_ids": [0], "min_tokens": 1},
        {"allowed_token_ids": [3, 4], "stop_token_ids": [3], "bad_token_ids": [4], "min_tokens": 1},
        {"bad_token_ids": list(range(1, 10)), "min_tokens": 1},
    ],
)
def test_parameters_that_a_model_cannot_fulfil(values: dict[str, Any]) -> None:
    params = SamplingParams(**values)
    with pytest.raises(DraftproofError) as caught:
        params.validate_for(vocab_size=10, context_length=100, eos_token_ids=frozenset({0}))
    assert caught.value.code == "DP202"


def test_eos_may_be_all_that_is_allowed_when_it_does_not_end_or_need_not_wait() -> None:
    eos = frozenset({0})
    SamplingParams(allowed_token_ids=frozenset({0})).validate_for(10, 100, eos)
    SamplingParams(allowed_token_ids=frozenset({0}), min_tokens=1, ignore_eos=True).validate_for(10, 100, eos)
