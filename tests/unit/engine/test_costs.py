"""The cost model learns curves from noisy times, forgets pauses, and follows the machine's speed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from draftproof.engine.costs import CostModel


def taught(
    cost: Callable[[int], float], rows: list[int], number: int = 60, spread: float = 0.0, pauses: float = 0.0
) -> CostModel:
    rng = random.Random(7)
    model = CostModel()
    for _ in range(number):
        for each in rows:
            seconds = cost(each) * math.exp(rng.gauss(0.0, spread))
            model.observe_pass(1, 100, each, 0, seconds + (0.2 if rng.random() < pauses else 0.0))
    return model


def ratio(model: CostModel, rows: int, batch: int = 1, context: float = 100) -> float:
    passes = model.passes(batch, context, max(rows, batch))
    return passes[rows] / passes[batch]


@pytest.mark.parametrize(("spread", "pauses"), [(0.0, 0.0), (0.15, 0.02)])
def test_steps_are_learnt_through_noise_and_pauses(spread: float, pauses: float) -> None:
    model = taught(lambda rows: 0.01 * (1 + 0.9 * ((rows - 1) // 4)), list(range(1, 13)), 80, spread, pauses)
    for rows in range(1, 13):
        assert ratio(model, rows) == pytest.approx(1 + 0.9 * ((rows - 1) // 4), rel=0.08)


def test_costs_never_fall_and_rows_between_cost_as_little_as_they_can() -> None:
    model = taught(lambda rows: 0.01 * (2 if rows >= 8 else 1), [1, 8])
    passes = model.passes(1, 100, 20)
    assert passes == sorted(passes)
    assert ratio(model, 7) < 1.1
    assert ratio(model, 8) == pytest.approx(2.0, rel=0.05)


def test_one_pause_at_a_rare_number_of_rows_is_not_believed() -> None:
    model = taught(lambda rows: 0.01, [1])
    model.observe_pass(1, 100, 5, 0, 0.5)
    assert ratio(model, 5) < 1.3
    for _ in range(3):
        model.observe_pass(1, 100, 5, 0, 0.02)
    assert ratio(model, 5) == pytest.approx(2.0, rel=0.1)


def test_a_slower_machine_makes_nothing_stale() -> None:
    model = taught(lambda rows: 0.01 * (1 + 0.1 * rows), [1, 2, 4, 8])
    before = ratio(model, 8)
    for _ in range(80):
        model.observe_pass(1, 100, 8, 0, 0.01 * 1.8 * 2)
    assert ratio(model, 8) == pytest.approx(before, rel=0.05)
    assert model.passes(1, 100, 8)[1] * model.scale == pytest.approx(0.011 * 2, rel=0.08)


def test_another_batch_and_context_start_from_what_is_known_and_learn_their_own() -> None:
    model = taught(lambda rows: 0.01 * (1 + 0.1 * (rows - 1)), [1, 2, 4, 8, 12, 16])
    assert ratio(model, 8, batch=4) == pytest.approx(1.7 / 1.3, rel=0.05)
    for _ in range(30):
        for rows in (4, 8):
            model.observe_pass(4, 5000, rows, 0, 0.02 * (1 + 0.3 * (rows - 4)))
    assert ratio(model, 8, batch=4, context=5000) == pytest.approx(2.2, rel=0.05)
    assert ratio(model, 8) == pytest.approx(1.7, rel=0.05)


def test_prompt_rows_have_a_price_of_their_own() -> None:
    model = taught(lambda rows: 0.01, [1])
    for _ in range(20):
        model.observe_pass(1, 100, 1, 50, 0.01 + 50 * 0.0004)
    assert model.prefill_row == pytest.approx(0.04, rel=0.1)
    assert ratio(model, 1) == 1.0
    model.observe_pass(0, 0.0, 0, 50, 0.02)
    assert model.prefill_row == pytest.approx(0.04, rel=0.1)


def test_drafting_is_a_start_and_so_much_a_step() -> None:
    model = taught(lambda rows: 0.01, [1])
    assert model.drafting(0, 1, 5) == 0.0
    assert not model.knows_drafting(0)
    for _ in range(10):
        for depth in (1, 3):
            model.observe_drafting(0, 1, depth, 0.001 + 0.002 * depth)
    assert model.knows_drafting(0)
    assert model.drafting(0, 1, 5) == pytest.approx(1.1, rel=0.05)
    assert model.drafting(0, 8, 5) == model.drafting(0, 1, 5), "nothing better is known of eight requests"
    for _ in range(10):
        for depth in (1, 3):
            model.observe_drafting(0, 8, depth, 0.004 + 0.002 * depth)
    assert model.drafting(0, 8, 5) == pytest.approx(1.4, rel=0.05)
    model.observe_drafting(0, 0, 0, 0.0001)
    assert model.drafting(0, 0, 0) == pytest.approx(0.01, rel=0.05)
    model.forget_method(0)
    assert model.drafting(0, 1, 5) == 0.0


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.02])
def test_rows_that_were_not_measured_go_on_as_flat_as_those_that_were(slope: float) -> None:
    """What is taken for dearer than it is would never be tried."""
    model = taught(lambda rows: 0.01 * (1 + slope * rows), [16, 20, 24, 28, 32], spread=0.02)
    assert ratio(model, 48, batch=16) < (1 + slope * 48) / (1 + slope * 16) * 1.05
    assert ratio(model, 48, batch=16) > (1 + slope * 32) / (1 + slope * 16) * 0.95


def test_rows_that_were_not_measured_are_taken_for_cheap_where_measured_ones_are_dear() -> None:
    model = taught(lambda rows: 0.01 * (1 + 0.5 * rows), [8, 10, 12, 14, 16])
    assert ratio(model, 24, batch=16) < 1.3 < 13 / 9
