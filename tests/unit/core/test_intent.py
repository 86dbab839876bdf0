"""The speculation object: what is taken, what is refused with which code, and the round trip."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.core.errors import DraftproofError
from draftproof.core.intent import (
    FLOAT_RANGES,
    INT_RANGES,
    MAX_TEXT_CHARS,
    METHODS,
    Auto,
    Cascade,
    DraftModel,
    NGram,
    NoSpeculation,
    Predicted,
    SelfDraft,
    SpeculationIntent,
    Suffix,
    as_dict,
    parse_intent,
    to_json,
)
from draftproof.core.spellings import FOREIGN_KEYS, FOREIGN_METHODS, MODEL_KEYS, MODEL_METHODS, normal


def refused(obj: object) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        parse_intent(obj)  # type: ignore[arg-type]
    return caught.value


# ---- what is taken ---------------------------------------------------------------------------------------


def test_methods_with_their_defaults() -> None:
    assert parse_intent('{"method": "none"}') == NoSpeculation()
    assert parse_intent('{"method": "ngram"}') == NGram()
    assert parse_intent('{"method": "suffix"}') == Suffix()
    assert parse_intent('{"method": "predicted"}') == Predicted()
    assert parse_intent('{"method": "auto", "num_speculative_tokens": 4}') == Auto(num_speculative_tokens=4)


def test_vllm_keys_mean_what_they_mean_there() -> None:
    ngram = parse_intent('{"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4}')
    assert ngram == NGram(num_speculative_tokens=5, prompt_lookup_min=4, prompt_lookup_max=4)
    assert parse_intent({"method": "ngram", "prompt_lookup_min": 3}) == NGram(
        prompt_lookup_min=3, prompt_lookup_max=3
    )
    assert parse_intent({"method": "ngram", "prompt_lookup_min": None, "prompt_lookup_max": None}) == NGram()
    suffix = parse_intent({"method": "suffix", "suffix_decoding_max_spec_factor": 2})
    assert isinstance(suffix, Suffix)
    assert suffix.suffix_decoding_max_spec_factor == 2.0


def test_dashes_in_keys_are_underscores() -> None:
    assert parse_intent({"method": "ngram", "num-speculative-tokens": 3}) == NGram(num_speculative_tokens=3)


@pytest.mark.parametrize(("alias", "rule"), [("standard", "rejection"), ("block", "block")])
def test_vllm_alias_of_verification(alias: str, rule: str) -> None:
    intent = parse_intent({"method": "suffix", "rejection_sample_method": alias})
    assert isinstance(intent, Suffix)
    assert intent.verification == rule


def test_cascade_keeps_order_and_depth_is_the_largest() -> None:
    intent = parse_intent(
        """{"method": "cascade", "verification": "coupled", "proposers": [
        {"method": "predicted", "num_speculative_tokens": 24},
        {"method": "ngram", "prompt-lookup-max": 3}]}"""
    )
    assert intent == Cascade(
        proposers=(Predicted(num_speculative_tokens=24), NGram(prompt_lookup_min=3, prompt_lookup_max=3)),
        verification="coupled",
    )
    assert intent.num_speculative_tokens == 24


def test_depth_is_adaptive_unless_the_user_says_otherwise() -> None:
    assert parse_intent({"method": "auto", "adaptive": True}) == parse_intent({"method": "auto"}) == Auto()
    assert parse_intent({"method": "auto", "adaptive": False}) == Auto(adaptive=False)
    assert refused({"method": "auto", "adaptive": 1}).code == "DP103"
    assert refused({"method": "none", "adaptive": True}).code == "DP104"
    error = refused({"method": "cascade", "proposers": [{"method": "ngram", "adaptive": False}]})
    assert (error.code, error.field) == ("DP104", "proposers[0].adaptive")


def test_intents_are_frozen_and_hashable() -> None:
    intent = Cascade(proposers=(NGram(), Suffix()))
    assert len({intent, Cascade(proposers=(NGram(), Suffix())), Suffix()}) == 2
    with pytest.raises(FrozenInstanceError):
        intent.verification = "block"  # type: ignore[misc]


# ---- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["ngramm", "", "x" * 10_000, 3, None, ["ngram"], {"a": 1}, True])
def test_unknown_method(value: object) -> None:
    error = refused({"method": value})
    assert (error.code, error.field) == ("DP101", "method")
    for method in METHODS:
        assert method in error.expected


def test_missing_method_and_nearest_name() -> None:
    assert refused("{}").found == "no method"
    assert "ngram" in refused({"method": "ngramm"}).remedy
    assert "suffix_decoding_max_tree_depth" in refused({"method": "suffix", "max_tree_depth": 3}).remedy


def test_unknown_key_names_the_nearest() -> None:
    error = refused({"method": "ngram", "num_speculative_token": 5})
    assert (error.code, error.field) == ("DP102", "num_speculative_token")
    assert "num_speculative_tokens" in error.remedy


@pytest.mark.parametrize(
    ("method", "key", "value"),
    [
        ("suffix", "prompt_lookup_max", 3),
        ("ngram", "suffix_decoding_max_tree_depth", 8),
        ("none", "num_speculative_tokens", 5),
        ("cascade", "num_speculative_tokens", 5),
        ("none", "rejection_sample_method", "block"),
        ("auto", "proposers", []),
    ],
)
def test_key_of_another_method(method: str, key: str, value: object) -> None:
    error = refused({"method": method, key: value})
    assert (error.code, error.field) == ("DP104", key)


@pytest.mark.parametrize("key", sorted(INT_RANGES))
@pytest.mark.parametrize(
    "value", [True, False, "5", 5.0, -1, 10**9, pytest.param(10**5000, id="huge"), [], {}, "x"]
)
def test_int_keys_refuse_other_types_and_ranges(key: str, value: object) -> None:
    method = next(name for name, kind in METHODS.items() if key in kind.__dataclass_fields__)
    error = refused({"method": method, key: value})
    assert (error.code, error.field) == ("DP103", key)
    assert len(str(error)) < 500


@pytest.mark.parametrize("key", sorted(FLOAT_RANGES))
@pytest.mark.parametrize("value", [True, "0.5", -0.1, 1e300, float("nan"), float("inf"), [], 10**400])
def test_float_keys_refuse_other_types_and_ranges(key: str, value: object) -> None:
    error = refused({"method": "suffix", key: value})
    assert (error.code, error.field) == ("DP103", key)


@pytest.mark.parametrize("depth", [0, 129])
def test_depth_zero_or_absurd(depth: int) -> None:
    assert refused({"method": "auto", "num_speculative_tokens": depth}).code == "DP103"


def test_contradictions() -> None:
    assert refused({"method": "ngram", "prompt_lookup_min": 5, "prompt_lookup_max": 2}).code == "DP104"
    both = {"method": "ngram", "verification": "block", "rejection_sample_method": "block"}
    assert refused(both).code == "DP104"
    assert refused({"method": "ngram", "prompt_lookup_max": 3, "prompt-lookup-max": 3}).code == "DP104"
    assert refused('{"method": "ngram", "method": "suffix"}').code == "DP104"
    error = refused({"method": "auto", "draft_weights": "int4"})
    assert (error.code, error.field) == ("DP104", "draft_weights")
    assert parse_intent({"method": "auto", "draft_weights": "auto"}) == Auto()


@pytest.mark.parametrize("text", ["{", "{method: ngram}", "{'method': 'ngram'}", '{"method": "ngram",}', ""])
def test_text_that_is_no_json_is_told_how_to_write_it(text: str) -> None:
    error = refused(text)
    assert (error.code, error.field) == ("DP103", "speculation")
    assert "no JSON" in error.found
    assert """'{"method": "auto"}'""" in error.remedy


@pytest.mark.parametrize("value", [True, False, float("nan"), 0.5])
def test_values_are_shown_as_json_writes_them(value: object) -> None:
    assert refused({"method": "ngram", "num_speculative_tokens": value}).found == json.dumps(value)


def test_what_is_missing_is_called_nothing() -> None:
    assert refused({"method": "draft_model"}).found == "nothing"
    assert refused({"method": "cascade"}).found == "nothing"


@pytest.mark.parametrize("method", [method for method in METHODS if method != "none"])
def test_a_wrong_key_is_answered_with_every_key_that_is_right(method: str) -> None:
    listed = refused({"method": method, "nonsense": 1}).expected.partition(" only ")[2].split(", ")
    keys = {item.name for item in fields(METHODS[method])}
    assert set(listed) == keys | {"rejection_sample_method"}


@pytest.mark.parametrize("rule", ["Auto", "standard", 1, None, ["auto"]])
def test_verification_rules(rule: object) -> None:
    if rule is None:
        assert parse_intent({"method": "ngram", "verification": None}) == NGram()
        return
    assert refused({"method": "ngram", "verification": rule}).code == "DP103"


def test_alias_values_of_other_versions() -> None:
    assert refused({"method": "ngram", "rejection_sample_method": "strict"}).code == "DP105"
    assert refused({"method": "ngram", "rejection_sample_method": "synthetic"}).code == "DP103"
    assert refused({"method": "ngram", "rejection_sample_method": ["block"]}).code == "DP103"


@pytest.mark.parametrize(
    ("parts", "code", "field"),
    [
        ([], "DP103", "proposers"),
        ("ngram", "DP103", "proposers"),
        (None, "DP103", "proposers"),
        ([{"method": "ngram"}] * 9, "DP103", "proposers"),
        ([{"method": "ngram"}, 3], "DP103", "proposers[1]"),
        ([{"method": "ngram"}, {"method": "cascade"}], "DP104", "proposers[1].method"),
        ([{"method": "auto"}], "DP104", "proposers[0].method"),
        ([{"method": "nothing"}], "DP101", "proposers[0].method"),
        ([{"method": "mtp"}], "DP106", "proposers[0].method"),
        ([{"method": "self", "draft_weights": "int2"}], "DP103", "proposers[0].draft_weights"),
        ([{"method": "ngram", "num_speculative_tokens": 0}], "DP103", "proposers[0].num_speculative_tokens"),
        ([{"method": "ngram", "prompt_lookup_mix": 2}], "DP102", "proposers[0].prompt_lookup_mix"),
        ([{"method": "suffix", "verification": "block"}], "DP104", "proposers[0].verification"),
    ],
)
def test_cascade_parts(parts: object, code: str, field: str) -> None:
    error = refused({"method": "cascade", "proposers": parts})
    assert (error.code, error.field) == (code, field)


@pytest.mark.parametrize(
    "method",
    [
        "eagle",
        "eagle3",
        "mtp",
        "medusa",
        "mlp_speculator",
        "EAGLE3",
        "NEXTN",
        "deepseek_mtp",
        "qwen3_next_mtp",
        "glm4_moe_mtp",
        "draft-mtp",
        "dflash",
    ],
)
def test_methods_of_later_versions_and_other_engines(method: str) -> None:
    error = refused({"method": method, "model": "x"})
    assert (error.code, error.field) == ("DP106", "method")
    assert "suffix" in error.remedy


@pytest.mark.parametrize(
    ("method", "today"),
    [
        ("[ngram]", "ngram"),
        ("ngram_gpu", "ngram"),
        ("ngram-simple", "ngram"),
        ("NGRAM", "ngram"),
        ("SA", "suffix"),
        ("STANDALONE", "draft_model"),
        ("Draft_Target", "draft_model"),
        ("draft-simple", "draft_model"),
    ],
)
def test_methods_spelled_as_elsewhere(method: str, today: str) -> None:
    error = refused({"method": method})
    assert error.code == "DP105"
    assert f'"{today}"' in error.remedy


@pytest.mark.parametrize(
    ("key", "today"),
    [
        ("draft-max", "num_speculative_tokens"),
        ("--draft-max", "num_speculative_tokens"),
        ("spec-ngram-simple-size-n", "prompt_lookup_min"),
        ("ngram_prompt_lookup_max", "prompt_lookup_max"),
        ("speculative_num_draft_tokens", "one less"),
        ("max_matching_ngram_size", "prompt_lookup_max"),
        ("draftTokenCount", "num_speculative_tokens"),
        ("disable_by_batch_size", "leave it out"),
        ("speculative-algorithm", "method"),
        ("speculative_draft_model_path", "model"),
        ("assistant_model", "model"),
        ("quantization", "draft_weights"),
        ("use_heterogeneous_vocab", "mapped"),
    ],
)
def test_keys_spelled_as_elsewhere(key: str, today: str) -> None:
    error = refused({"method": "ngram", key: 4})
    assert error.code == "DP105"
    assert today in error.remedy


def test_keys_of_model_drafters() -> None:
    assert refused({"method": "ngram", "draft_sample_method": "greedy"}).code == "DP104"
    assert refused({"method": "draft_model", "model": "x", "max_model_len": 3}).code == "DP106"
    with_model = {"method": "draft_model", "model": "some/drafter", "draft_weights": "int4"}
    assert parse_intent(with_model) == DraftModel(model="some/drafter", draft_weights="int4")
    assert parse_intent({"method": "self"}) == SelfDraft()
    assert parse_intent({"method": "auto", "model": "self"}) == Auto(model="self")


@pytest.mark.parametrize("method", ["draft_model", "auto"])
@pytest.mark.parametrize("model", ["", 3, True, ["x"], "x" * 5000, "a\0b", "a\nb"])
def test_a_model_is_a_printable_name(method: str, model: object) -> None:
    error = refused({"method": method, "model": model})
    assert (error.code, error.field) == ("DP103", "model")
    assert len(str(error)) < 500


def test_a_draft_model_must_be_named() -> None:
    for obj in ({"method": "draft_model"}, {"method": "draft_model", "model": None}):
        error = refused(obj)
        assert (error.code, error.field, error.found) == ("DP103", "model", "nothing")
    parts = [{"method": "ngram"}, {"method": "draft_model"}]
    assert refused({"method": "cascade", "proposers": parts}).field == "proposers[1].model"
    with pytest.raises(DraftproofError, match="DP103"):
        DraftModel(model=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["draft_weights", "draft_sample_method"])
@pytest.mark.parametrize("value", ["int3", 4, True, [], ""])
def test_choices_of_drafters(key: str, value: object) -> None:
    assert refused({"method": "self", key: value}).code == "DP103"


def test_spelling_tables_hold_normal_forms_and_never_our_own_names() -> None:
    own = {name for kind in METHODS.values() for name in kind.__dataclass_fields__}
    for table in (FOREIGN_KEYS, MODEL_KEYS, FOREIGN_METHODS, MODEL_METHODS):
        assert all(name == normal(name) for name in table)
        assert not own & set(table)
        assert not set(METHODS) & set(table)
    assert all(spelling.today in METHODS for spelling in FOREIGN_METHODS.values())


# ---- broken text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "3",
        '"ngram"',
        "[]",
        "{",
        "[" * 60_000,
        '{"method":' * 6_000,
        '{"method": "suffix", "suffix_decoding_min_token_prob": NaN}',
        '{"method": "suffix", "suffix_decoding_min_token_prob": -Infinity}',
        '{"method": "suffix", "suffix_decoding_min_token_prob": 1e999}',
        '{"method": "ngram", "num_speculative_tokens": ' + "9" * 5_000 + "}",
        " " * (MAX_TEXT_CHARS + 1),
        '﻿{"method": "none"}',
        "{'method': 'none'}",
    ],
)
def test_broken_text_is_one_error_with_a_code(text: str) -> None:
    error = refused(text)
    assert error.code == "DP103"
    assert len(str(error)) < 600


@pytest.mark.parametrize("obj", [None, 3, [], ("method", "none"), b'{"method": "none"}'])
def test_other_python_values(obj: object) -> None:
    assert refused(obj).code == "DP103"


def test_keys_that_are_not_text() -> None:
    assert refused({3: 4, "method": "none"}).code == "DP103"


# ---- generated -------------------------------------------------------------------------------------------

_rules = st.sampled_from(["auto", "rejection", "block", "coupled"])
_depth = st.integers(1, 128)


def _ngrams(rules: st.SearchStrategy[str]) -> st.SearchStrategy[NGram]:
    bounds = st.tuples(st.integers(1, 32), st.integers(1, 32)).map(sorted)
    return st.builds(
        lambda depth, pair, rule: NGram(
            num_speculative_tokens=depth,
            prompt_lookup_min=pair[0],
            prompt_lookup_max=pair[1],
            verification=rule,
        ),
        _depth,
        bounds,
        rules,
    )


def _suffixes(rules: st.SearchStrategy[str]) -> st.SearchStrategy[Suffix]:
    return st.builds(
        Suffix,
        num_speculative_tokens=_depth,
        suffix_decoding_max_tree_depth=st.integers(1, 128),
        suffix_decoding_max_cached_requests=st.integers(0, 100_000),
        suffix_decoding_max_spec_factor=st.floats(0, 128),
        suffix_decoding_min_token_prob=st.floats(0, 1),
        verification=rules,
    )


_weights = st.sampled_from(["auto", "native", "int8", "int4"])
_models = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=20)


def _drafters(rules: st.SearchStrategy[str]) -> st.SearchStrategy[DraftModel | SelfDraft]:
    common = {
        "num_speculative_tokens": _depth,
        "draft_weights": _weights,
        "draft_sample_method": st.sampled_from(["auto", "greedy", "probabilistic"]),
        "verification": rules,
    }
    return st.builds(DraftModel, model=_models, **common) | st.builds(SelfDraft, **common)


_auto_rule = st.just("auto")
_parts = (
    _ngrams(_auto_rule)
    | _suffixes(_auto_rule)
    | _drafters(_auto_rule)
    | st.builds(Predicted, num_speculative_tokens=_depth)
)
intents: st.SearchStrategy[SpeculationIntent] = st.one_of(
    st.just(NoSpeculation()),
    _ngrams(_rules),
    _suffixes(_rules),
    st.builds(Predicted, num_speculative_tokens=_depth, verification=_rules),
    _drafters(_rules),
    st.builds(Auto, num_speculative_tokens=_depth, verification=_rules),
    st.builds(
        Auto, num_speculative_tokens=_depth, model=_models, draft_weights=_weights, verification=_rules
    ),
    st.builds(Cascade, proposers=st.lists(_parts, min_size=1, max_size=8).map(tuple), verification=_rules),
)


@settings(deadline=None, max_examples=200)
@given(intents)
def test_round_trip(intent: SpeculationIntent) -> None:
    assert parse_intent(to_json(intent)) == intent
    assert parse_intent(as_dict(intent)) == intent
    assert hash(parse_intent(to_json(intent))) == hash(intent)


_names = st.sampled_from([*METHODS, "mtp", "[ngram]", "x"]) | st.text(max_size=8)
_own_keys = {name for kind in METHODS.values() for name in kind.__dataclass_fields__}
_other_keys = ["rejection_sample_method", "adaptive", "num-speculative-tokens", "draft_max", "model"]
_keys = st.sampled_from([*sorted(_own_keys), *_other_keys]) | st.text(max_size=8)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["auto", "block", "standard", "coupled"])
)
_objects = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(_keys, inner, max_size=4)
        | st.builds(
            lambda name, rest: {"method": name, **rest}, _names, st.dictionaries(_keys, inner, max_size=4)
        )
    ),
    max_leaves=12,
)


def _parses_or_is_refused(obj: object) -> None:
    try:
        intent = parse_intent(obj)  # type: ignore[arg-type]
    except DraftproofError as error:
        refusal = error
    else:
        assert parse_intent(to_json(intent)) == intent
        return
    assert refusal.code in {"DP101", "DP102", "DP103", "DP104", "DP105", "DP106"}
    assert len(str(refusal)) < 1_500


@settings(deadline=None, max_examples=500)
@given(_objects)
def test_any_object_is_an_intent_or_a_coded_error(obj: object) -> None:
    _parses_or_is_refused(obj)
    _parses_or_is_refused(json.dumps(obj))


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=60) | st.text(alphabet='{}[]":,0159eE.-+tfn \\u"method"', max_size=60))
def test_any_text_is_an_intent_or_a_coded_error(text: str) -> None:
    _parses_or_is_refused(text)
