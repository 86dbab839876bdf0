"""Predicted outputs: the cursor follows, and finds back after every kind of edit."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.core.params import SamplingParams
from draftproof.proposers.base import SequenceView
from draftproof.proposers.predicted import PredictedProposer
from draftproof.verify.types import Verdict

GREEDY = SamplingParams(temperature=0.0)
PROMPT = [1, 2, 3]
TEXT = list(range(100, 300))


def replay(prediction: Sequence[int], output: Sequence[int], depth: int = 8) -> tuple[int, int, int]:
    """Rounds, proposed and accepted when `output` is what the target says."""
    proposer = PredictedProposer(depth)
    sequence = SequenceView("r", list(PROMPT), len(PROMPT), GREEDY, prediction=prediction, depth=depth)
    proposer.begin(sequence)
    sequence.token_ids.append(output[0])
    num_rounds = num_proposed = num_accepted = 0
    done = 1
    while done < len(output):
        tokens = proposer.propose([sequence], [min(depth, len(output) - done)]).tokens.tolist()
        agreed = 0
        while agreed < len(tokens) and tokens[agreed] == output[done + agreed]:
            agreed += 1
        run = list(output[done : done + agreed + 1])
        sequence.token_ids.extend(run)
        done += len(run)
        path = tuple(range(1, agreed + 1))
        proposer.commit([sequence], [Verdict(path, tuple(tokens[:agreed]), run[-1])])
        num_rounds += 1
        num_proposed += len(tokens)
        num_accepted += agreed
    proposer.end(sequence)
    return num_rounds, num_proposed, num_accepted


def test_an_exact_prediction_is_followed_to_its_end_at_full_depth() -> None:
    num_rounds, num_proposed, num_accepted = replay(TEXT, TEXT)
    assert num_proposed == num_accepted
    assert num_rounds == -(-(len(TEXT) - 1) // 9)


@pytest.mark.parametrize(
    "output",
    [
        pytest.param([*TEXT[:50], 7, *TEXT[50:]], id="token inserted"),
        pytest.param(TEXT[:50] + list(range(10, 50)) + TEXT[50:], id="passage inserted"),
        pytest.param(TEXT[:50] + TEXT[51:], id="token deleted"),
        pytest.param(TEXT[:50] + TEXT[90:], id="passage deleted"),
        pytest.param([*TEXT[:50], 7, *TEXT[51:]], id="token replaced"),
        pytest.param([*TEXT[:50], 7, 8, 9, *TEXT[60:]], id="passage replaced"),
        pytest.param([7, 8, 9, *TEXT], id="opening before the text"),
        pytest.param(TEXT[5:], id="beginning deleted"),
        pytest.param(TEXT[100:] + TEXT[:100], id="halves exchanged"),
        pytest.param(TEXT + TEXT, id="said twice"),
        pytest.param(TEXT + list(range(10, 20)), id="goes on after the prediction"),
    ],
)
def test_finds_back_after_an_edit(output: list[int]) -> None:
    num_rounds, _, num_accepted = replay(TEXT, output)
    num_new = sum(token < 100 for token in output)
    # The rest costs full-depth rounds, plus a handful around the edit.
    assert num_rounds <= (len(output) - num_new) / 9 + num_new + 8
    assert num_accepted >= 0.75 * (len(output) - num_new)


def test_nearest_place_ahead_is_taken_where_text_repeats() -> None:
    """The same line occurs ten times; after an edit in one of them the next one must follow, not the last."""
    lines = [[500, 501, 502, 600 + number, 503] for number in range(10)]
    prediction = [token for line in lines for token in line]
    output = list(prediction)
    output[23] = 7
    _, num_proposed, num_accepted = replay(prediction, output)
    assert num_accepted >= 0.75 * len(output)
    assert num_proposed - num_accepted <= 16


def test_boundary_tokens_that_differ_are_stepped_over() -> None:
    """A tokenizer may join the text's first and last characters with their neighbours: other ids there."""
    num_rounds, _, _ = replay(TEXT, [8, *TEXT[1:-1], 9])
    assert num_rounds <= len(TEXT) / 9 + 5


def test_an_output_that_has_nothing_to_do_with_the_prediction_drafts_nothing() -> None:
    num_rounds, num_proposed, _ = replay(TEXT, list(range(1000, 1400)))
    assert num_rounds == 399
    assert num_proposed == 0


def test_chance_agreement_is_soon_distrusted() -> None:
    """An output over the prediction's own words in another order: single tokens are found again and again."""
    rng = random.Random(3)
    output = [rng.choice(TEXT[:12]) for _ in range(600)]
    _, num_proposed, _ = replay(TEXT[:12] * 3, output)
    assert num_proposed <= 0.5 * len(output) + 60


def test_requests_without_a_prediction_are_left_alone() -> None:
    proposer = PredictedProposer(8)
    sequence = SequenceView("r", [1, 2], 2, GREEDY, depth=8)
    proposer.begin(sequence)
    assert proposer.propose([sequence], [8]).num_nodes == 0
    proposer.commit([sequence], [Verdict((), (), 5)])
    proposer.end(sequence)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=40),
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.integers(1, 9),
)
def test_any_prediction_and_output_run_through(prediction: list[int], output: list[int], depth: int) -> None:
    num_rounds, num_proposed, num_accepted = replay(tuple(prediction), output, depth)
    assert num_rounds + num_accepted >= len(output) - 1
    assert num_accepted <= num_proposed <= num_rounds * depth
