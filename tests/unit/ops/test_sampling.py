"""Row processing against a slow reference written from the definitions; bits that no neighbour can change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.core.params import SamplingParams
from draftproof.ops.sampling import (
    UNLIKELY,
    SamplingState,
    greedy_tokens,
    probabilities,
    row_error,
    tokens_along_path,
    usable_rows,
)

VOCAB = 13
EOS = frozenset({0})
INF = math.inf


def reference(
    logits: Sequence[float], params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> list[float]:
    """Logits after masks, bias and penalties, of a row that follows `prompt` and `output`."""
    result = list(logits)
    end_ids = params.stop_token_ids | (frozenset() if params.ignore_eos else EOS)
    for token in range(len(result)):
        if params.allowed_token_ids is not None and token not in params.allowed_token_ids:
            result[token] = -INF
        if token in params.bad_token_ids:
            result[token] = -INF
        for sequence in params.bad_token_sequences:
            if token == sequence[-1] and [*output, token][-len(sequence) :] == list(sequence):
                result[token] = -INF
        if token in end_ids and len(output) < params.min_tokens:
            result[token] = -INF
        result[token] += params.logit_bias.get(token, 0.0)
        if token in output or token in prompt:
            factor = params.repetition_penalty
            result[token] = result[token] / factor if result[token] > 0 else result[token] * factor
        times = list(output).count(token)
        result[token] -= params.frequency_penalty * times + params.presence_penalty * (times > 0)
    return result


def reference_probs(logits: Sequence[float], params: SamplingParams) -> list[float]:
    """The distribution of a sampled row; `logits` come from `reference`, filters follow their definitions."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    kept = [token for token in order if logits[token] > -INF]

    def normalised(tokens: list[int]) -> dict[int, float]:
        weights = {token: math.exp((logits[token] - max(logits)) / params.temperature) for token in tokens}
        return {token: weight / math.fsum(weights.values()) for token, weight in weights.items()}

    probs = normalised(kept)
    kept = [token for token in kept if probs[token] >= params.min_p * probs[kept[0]]]
    kept = kept[: params.top_k] if params.top_k else kept
    probs = normalised(kept)
    nucleus: list[int] = []
    for token in kept:
        if params.top_p == 1 or math.fsum(probs[before] for before in nucleus) < params.top_p:
            nucleus.append(token)
    probs = normalised(nucleus)
    return [probs.get(token, 0.0) for token in range(len(logits))]


TOKEN = st.integers(0, VOCAB - 1)
TOKENS = st.lists(TOKEN, max_size=6)
# Few distinct values, so that equal logits are common.
LOGITS = st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0, 2.25]), min_size=VOCAB, max_size=VOCAB)
CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "min_tokens": st.integers(0, 6),
    "repetition_penalty": st.sampled_from([0.5, 1.3, 2.0]),
    "presence_penalty": st.sampled_from([-0.7, 0.3, 2.0]),
    "frequency_penalty": st.sampled_from([-0.4, 0.9]),
    "logit_bias": st.dictionaries(TOKEN, st.sampled_from([-100.0, -1.5, 0.75, 4.0]), max_size=3),
    "allowed_token_ids": st.sets(TOKEN, min_size=8),
    "bad_token_ids": st.sets(TOKEN, max_size=3),
    "bad_token_sequences": st.lists(st.lists(TOKEN, min_size=1, max_size=3), max_size=4),
    "stop_token_ids": st.sets(TOKEN, max_size=2),
    "ignore_eos": st.booleans(),
}
# Values at which rounding cannot turn a comparison: the logits' differences are never close to them.
FILTERS: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.sampled_from([0.3, 0.7, 1.0, 1.7]),
    "top_k": st.integers(1, VOCAB + 2),
    "top_p": st.sampled_from([0.0313, 0.5171, 0.8333, 0.9713]),
    "min_p": st.sampled_from([0.0137, 0.1713, 0.7117]),
}


def parameters(**fixed: Any) -> st.SearchStrategy[SamplingParams]:
    """Parameters with any subset of changes and filters, and those that are given."""
    optional = {name: values for name, values in (CHANGES | FILTERS).items() if name not in fixed}
    return st.fixed_dictionaries({}, optional=optional).map(
        lambda drawn: SamplingParams(**_satisfiable(drawn), **fixed)
    )


def _satisfiable(values: dict[str, Any]) -> dict[str, Any]:
    single = {sequence[0] for sequence in values.get("bad_token_sequences", []) if len(sequence) == 1}
    if values.get("allowed_token_ids", {-1}) <= values.get("bad_token_ids", set()) | single:
        del values["allowed_token_ids"]
    return values


def state_of(
    params: SamplingParams, prompt: Sequence[int] = (1,), output: Sequence[int] = ()
) -> SamplingState:
    end_ids = params.stop_token_ids | (frozenset() if params.ignore_eos else EOS)
    state = SamplingState(params, prompt, end_ids)
    state.commit(output)
    return state


def process_one(state: SamplingState, logits: Sequence[float], prefix: Sequence[int] = ()) -> torch.Tensor:
    return state.process(torch.tensor([logits], dtype=torch.float32), [prefix])[0]


@settings(deadline=None, max_examples=300)
@given(parameters(), LOGITS, TOKENS, TOKENS, TOKENS)
def test_sampled_rows_equal_the_reference(
    params: SamplingParams, logits: list[float], prompt: list[int], output: list[int], prefix: list[int]
) -> None:
    changed = reference(logits, params, prompt, output + prefix)
    processed = process_one(state_of(params, prompt, output), logits, prefix)
    if max(changed) == -INF:
        assert usable_rows(processed[None]) == [False]
        return
    expected = torch.tensor(reference_probs(changed, params), dtype=torch.float64)
    actual = probabilities(processed[None])[0]
    assert torch.equal(actual > 0, expected > 0)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=300)
@given(parameters(), LOGITS, TOKENS, TOKENS, TOKENS)
def test_likely_tokens_keep_their_proportions(
    params: SamplingParams, logits: list[float], prompt: list[int], output: list[int], prefix: list[int]
) -> None:
    """What is missing is what UNLIKELY and, because it counts without that, the nucleus leave out."""
    state = state_of(params, prompt, output)
    exact = process_one(state, logits, prefix)
    ids, probs = state.likely(torch.tensor(logits, dtype=torch.float32), prefix)
    if not usable_rows(exact[None])[0]:
        assert len(ids) == len(probs) == 0
        return
    assert (ids.dtype, probs.dtype) == (torch.int64, torch.float64)
    expected = probabilities(exact[None])[0]
    assert bool((ids.diff() > 0).all())
    assert bool((expected[ids] > 0).all())
    assert float(expected[ids].max()) == float(expected.max())
    kept = float(expected[ids].sum())
    torch.testing.assert_close(probs * kept, expected[ids], rtol=1e-9, atol=0)
    assert kept >= params.top_p * (1 - VOCAB * UNLIKELY) - 1e-12


@settings(deadline=None, max_examples=100)
@given(parameters(temperature=0.0), LOGITS, TOKENS)
def test_the_likeliest_token_of_a_greedy_row_is_its_own(
    params: SamplingParams, logits: list[float], output: list[int]
) -> None:
    state = state_of(params, (1,), output)
    exact = process_one(state, logits)
    ids, probs = state.likely(torch.tensor(logits, dtype=torch.float32), ())
    assert (len(ids) > 0) == usable_rows(exact[None])[0]
    assert not len(ids) or float(exact[ids[probs.argmax()]]) == float(exact.max())


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 100.0])
def test_likely_tokens_at_any_temperature(temperature: float) -> None:
    logits = torch.tensor([0.5, -torch.inf, 2.0, 1.5])
    ids, probs = state_of(SamplingParams(temperature=temperature)).likely(logits, ())
    assert ids.tolist() == ([2] if temperature < 1 else [0, 2, 3])
    torch.testing.assert_close(probs, torch.softmax(logits[ids].double() / temperature, 0))


@settings(deadline=None, max_examples=300)
@given(parameters(temperature=0.0), LOGITS, TOKENS, TOKENS, TOKENS)
def test_greedy_rows_equal_the_reference(
    params: SamplingParams, logits: list[float], prompt: list[int], output: list[int], prefix: list[int]
) -> None:
    changed = reference(logits, params, prompt, output + prefix)
    processed = process_one(state_of(params, prompt, output), logits, prefix)
    torch.testing.assert_close(
        processed.double(), torch.tensor(changed, dtype=torch.float64), rtol=1e-12, atol=1e-12
    )
    if max(changed) > -INF:
        # By the processed values: sums in another order may round equal values apart.
        best = processed.tolist().index(max(processed.tolist()))
        assert greedy_tokens(processed[None]).tolist() == [best]


@settings(deadline=None, max_examples=200)
@given(parameters(), LOGITS, TOKENS, st.lists(TOKENS, max_size=4), TOKENS)
def test_a_draft_prefix_counts_as_output_to_the_last_bit(
    params: SamplingParams, logits: list[float], prompt: list[int], runs: list[list[int]], prefix: list[int]
) -> None:
    """The row behind a draft, the row after that draft was committed, and any way to commit: equal bits."""
    output = [token for run in runs for token in run]
    in_runs = state_of(params, prompt)
    for run in runs:
        in_runs.commit(run)
    behind_draft = process_one(in_runs, logits, prefix)
    in_runs.commit(prefix)
    assert torch.equal(behind_draft, process_one(in_runs, logits))
    assert torch.equal(behind_draft, process_one(state_of(params, prompt, output + prefix), logits))


# 32768 elements is where PyTorch starts to share out the work of one operation among threads.
@pytest.mark.parametrize("vocab", [1, 2, 15, 33, 1000, 4099, 40009])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"temperature": 0.7},
        {"temperature": 1.3, "top_p": 0.9},
        {"temperature": 0.8, "top_k": 20, "top_p": 0.8},
        {"top_k": 5, "repetition_penalty": 1.2, "logit_bias": {0: 1.5}},
        {"min_p": 0.05, "presence_penalty": 0.5, "frequency_penalty": 0.1},
    ],
)
def test_bits_of_a_row_do_not_depend_on_other_rows(vocab: int, values: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn((7, vocab), generator=generator) * 4
    prefixes = [[0] * (row % 3) for row in range(7)]
    state = state_of(SamplingParams(**values), [0], [0, 0])
    together = state.process(logits, prefixes)
    probs = probabilities(together)
    for first, last in [(0, 1), (3, 4), (6, 7), (1, 3), (2, 7)]:
        part = state.process(logits[first:last], prefixes[first:last])
        assert torch.equal(part, together[first:last])
        assert torch.equal(probabilities(part), probs[first:last])
    apart = torch.empty((vocab, 7)).T.copy_(logits)  # the same rows, elsewhere in memory and not contiguous
    assert torch.equal(state.process(apart, prefixes), together)
    assert torch.equal(torch.stack([probabilities(row[None])[0] for row in together]), probs)
    torch.testing.assert_close(probs.sum(dim=1), torch.ones(7, dtype=torch.float64), rtol=0, atol=1e-12)


def test_a_greedy_request_without_changes_gets_its_logits_back_uncopied() -> None:
    logits = torch.randn(3, VOCAB)
    state = state_of(SamplingParams(temperature=0.0, top_p=0.5, top_k=3, min_p=0.1))
    assert state.leaves_logits
    assert state.process(logits, [(), (1,), (1, 2)]) is logits


def test_min_tokens_concern_a_greedy_request_only_until_they_are_reached() -> None:
    state = state_of(SamplingParams(temperature=0.0, min_tokens=2), output=[5])
    logits = torch.zeros(2, VOCAB)
    assert not state.leaves_logits
    assert state.process(logits, [(), (5,)])[:, 0].tolist() == [-INF, 0.0]
    state.commit([5])
    assert state.leaves_logits


@pytest.mark.parametrize(
    "changing",
    [
        {"allowed_token_ids": [1]},
        {"bad_token_ids": [1]},
        {"bad_token_sequences": [[1, 2]]},
        {"logit_bias": {1: 1.0}},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": 0.1},
        {"min_tokens": 1},
    ],
)
def test_whatever_changes_logits_takes_a_greedy_request_off_the_fast_path(changing: dict[str, Any]) -> None:
    assert not state_of(SamplingParams(temperature=0.0, **changing)).leaves_logits


def test_logits_are_never_written_to() -> None:
    logits = torch.randn(2, VOCAB)
    before = logits.clone()
    state_of(SamplingParams(top_k=2, bad_token_ids=[1], frequency_penalty=1.0), output=[2]).process(
        logits, [(), (2,)]
    )
    assert torch.equal(logits, before)


def test_equal_logits_are_cut_at_the_lowest_ids() -> None:
    flat = [0.0] * VOCAB
    by_rank = process_one(state_of(SamplingParams(top_k=4)), flat)
    by_mass = process_one(state_of(SamplingParams(top_p=4 / VOCAB - 1e-9)), flat)
    for processed in (by_rank, by_mass):
        assert torch.isfinite(processed).nonzero().flatten().tolist() == [0, 1, 2, 3]
    assert torch.isfinite(process_one(state_of(SamplingParams(min_p=1.0)), flat)).all()
    assert greedy_tokens(torch.tensor([[1.0, 3.0, 3.0]])).tolist() == [1]


@pytest.mark.parametrize("values", [{"top_p": 0.3}, {"top_p": 0.95}, {"top_p": 1 - 1e-9}, {"top_k": 300}])
@pytest.mark.parametrize("spread", [0.1, 2.0, 8.0])
def test_filters_over_a_large_vocabulary_equal_sorting_all_of_it(
    values: dict[str, Any], spread: float
) -> None:
    logits = torch.randn(9000, generator=torch.Generator().manual_seed(7)) * spread
    logits = (logits * 64).round() / 64  # many equal ones
    kept = torch.isfinite(process_one(state_of(SamplingParams(**values)), logits.tolist()))
    order = np.argsort(-logits.numpy(), kind="stable")
    probs = torch.softmax(logits.double() - logits.double().max(), dim=0).numpy()[order]
    num_kept = values.get("top_k") or int(np.count_nonzero(np.cumsum(probs) - probs < values["top_p"]))
    assert set(kept.nonzero().flatten().tolist()) == set(order[:num_kept].tolist())


def test_min_p_comes_before_top_p() -> None:
    """p = (.5, .3, .2): min-p leaves .5 and .3, of which .5 is .625. The other way round two would remain."""
    logits = [math.log(0.5), math.log(0.3), math.log(0.2)]
    processed = process_one(state_of(SamplingParams(min_p=0.5, top_p=0.6)), logits)
    assert torch.isfinite(processed).tolist() == [True, False, False]


def test_bias_comes_before_the_repetition_penalty() -> None:
    state = state_of(SamplingParams(temperature=0.0, logit_bias={1: 2.0}, repetition_penalty=2.0), prompt=[1])
    assert process_one(state, [0.0, 1.0])[1] == 1.5


def test_top_k_sees_differences_that_float32_cannot_hold() -> None:
    """Penalties act in float64; candidates found in float32 must not lose one of two nearly equal logits."""
    logits = [1e6, 1e6, 1e6, 0.0]
    params = SamplingParams(top_k=1, logit_bias={0: -2e-4, 1: -1e-4, 2: -3e-4})
    assert torch.isfinite(process_one(state_of(params), logits)).tolist() == [False, True, False, False]


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 100.0])
def test_no_temperature_overflows(temperature: float) -> None:
    probs = probabilities(
        process_one(state_of(SamplingParams(temperature=temperature)), [3e38, -3e38, 0.0])[None]
    )
    assert probs.tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize("broken", [math.nan, INF])
@pytest.mark.parametrize("values", [{"temperature": 0.0}, {"top_k": 2, "top_p": 0.5}, {"bad_token_ids": [2]}])
def test_a_row_that_is_not_finite_is_told_apart_and_disturbs_no_other(
    broken: float, values: dict[str, Any]
) -> None:
    clean = torch.randn((3, VOCAB), generator=torch.Generator().manual_seed(1))
    logits = clean.clone()
    logits[1, 3] = broken
    state = state_of(SamplingParams(**values))
    assert usable_rows(logits) == [True, False, True]
    processed = state.process(logits, [()] * 3)
    assert usable_rows(processed) == [True, False, True]
    undisturbed = state.process(clean, [()] * 3)
    assert torch.equal(processed[[0, 2]], undisturbed[[0, 2]])
    assert torch.isfinite(probabilities(processed)).all()
    errors = [row_error(raw, row) for raw, row in zip(logits, processed, strict=True)]
    assert [error and error.code for error in errors] == [None, "DP501", None]


def test_parameters_that_leave_nothing_at_a_row_are_an_error_of_that_row() -> None:
    params = SamplingParams(
        allowed_token_ids=frozenset({1, 2}), bad_token_ids=frozenset({2}), bad_token_sequences=((1, 1),)
    )
    logits = torch.zeros(2, VOCAB)
    processed = state_of(params).process(logits, [(), (1,)])
    errors = [row_error(raw, row) for raw, row in zip(logits, processed, strict=True)]
    assert [error and error.code for error in errors] == [None, "DP202"]
    assert probabilities(processed)[1].tolist() == [1.0] + [0.0] * (VOCAB - 1)


def test_an_infinitely_unlikely_token_is_no_fault() -> None:
    logits = torch.tensor([[0.0, -INF, 1.0]])
    assert usable_rows(logits) == [True]
    processed = state_of(
        SamplingParams(repetition_penalty=2.0, frequency_penalty=1.0, top_p=0.99), output=[1]
    )
    assert probabilities(processed.process(logits, [()]))[0, 1] == 0.0


@settings(deadline=None)
@given(st.data(), st.integers(0, 8))
def test_tokens_along_path_asks_only_for_rows_that_the_target_reaches(
    data: st.DataObject, num_nodes: int
) -> None:
    own = data.draw(st.lists(st.integers(1, 3), min_size=num_nodes + 1, max_size=num_nodes + 1))
    drafted = data.draw(st.lists(st.integers(1, 3), min_size=num_nodes, max_size=num_nodes))
    parents = [data.draw(st.integers(0, node)) for node in range(num_nodes)]
    asked: dict[int, tuple[int, ...]] = {}

    def choose(row: int, prefix: tuple[int, ...]) -> int:
        asked[row] = prefix
        return own[row]

    tokens = tokens_along_path(drafted, parents, choose)
    for row in range(num_nodes + 1):
        path, node = [], row
        while node:
            path.append(node)
            node = parents[node - 1]
        path.reverse()
        reached = all(own[parents[node - 1]] == drafted[node - 1] for node in path)
        assert (row in asked) == reached
        assert tokens[row] == (own[row] if reached else 0)
        if reached:
            assert asked[row] == tuple(drafted[node - 1] for node in path)


def test_penalties_over_a_long_history_equal_counting_it_anew() -> None:
    rng = np.random.default_rng(3)
    prompt, output = rng.integers(0, 500, 3000).tolist(), rng.integers(300, 900, 3000).tolist()
    params = SamplingParams(
        temperature=0.0, repetition_penalty=1.1, frequency_penalty=0.25, presence_penalty=0.5
    )
    logits = rng.normal(size=1000).astype(np.float32).tolist()
    state = state_of(params, prompt)
    for start in range(0, 3000, 7):
        state.commit(output[start : start + 7])
    expected = torch.tensor(reference(logits, params, prompt, output), dtype=torch.float64)
    torch.testing.assert_close(process_one(state, logits), expected, rtol=1e-12, atol=1e-12)
