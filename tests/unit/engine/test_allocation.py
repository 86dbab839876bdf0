"""Rows over requests: the walk finds what trying everything finds."""

from __future__ import annotations

from itertools import accumulate, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.engine.acceptance import Step
from draftproof.engine.allocation import Aim, Asking, Round

chances = st.lists(st.floats(0.05, 0.99), min_size=0, max_size=3)


def chain(conditional: list[float]) -> list[Step]:
    survivals = accumulate(conditional, lambda survival, chance: survival * chance)
    return [Step(survival, 1.0, depth) for depth, survival in enumerate(survivals, 1)]


def round_of(requests: list[list[float]], increments: list[float], aim: Aim, step_cost: float = 0.0) -> Round:
    passes = list(accumulate([1.0, *increments, *[0.3] * 40]))
    return Round(
        emitted=[1.0] * len(requests),
        passes=passes,
        rows=float(len(requests)),
        least_row=0.0,
        drafting=lambda method, number, depth: step_cost * depth,
        aim=aim,
        asking=[Asking(index, 0, chain(conditional)) for index, conditional in enumerate(requests)],
    )


@settings(deadline=None, max_examples=150)
@given(
    st.lists(chances, min_size=1, max_size=3),
    st.lists(st.floats(0.0, 0.8), min_size=12, max_size=12),
    st.booleans(),
)
def test_the_best_allocation_is_found_whatever_rows_cost(
    requests: list[list[float]], increments: list[float], latency: bool
) -> None:
    round_ = round_of(requests, increments, Aim(latency))
    best = max(
        round_.outlook(dict(enumerate(depths))).score
        for depths in product(*(range(len(conditional) + 1) for conditional in requests))
    )
    found = round_.best()
    assert found.score == pytest.approx(best)
    assert round_.outlook(found.depths).score == pytest.approx(found.score)
    assert found.plain == pytest.approx(round_.outlook({}).score)


def test_a_dear_drafter_does_not_hide_a_free_one() -> None:
    round_ = round_of([[0.9], [0.5]], [0.0] * 12, Aim(latency=False))
    round_.asking = [Asking(0, 0, chain([0.9])), Asking(1, 1, chain([0.5]))]
    round_.drafting = lambda method, number, depth: 50.0 if method == 0 and depth else 0.0
    assert round_.best().depths == {1: 1}


def test_beside_prompt_rows_no_row_is_free() -> None:
    round_ = round_of([[0.1, 0.1]], [0.0] * 12, Aim(latency=False))
    assert round_.best().depths == {0: 2}
    round_.least_row = 0.5
    assert round_.best().depths == {}


def test_a_bound_counts_only_those_who_keep_it() -> None:
    requests = [[0.95, 0.95, 0.95], []]
    increments = [0.2] * 12
    assert round_of(requests, increments, Aim(latency=False)).best().depths == {0: 3}
    bounded = Aim(latency=False, most_per_token=1.45)  # two plain rows cost 1.4
    assert round_of(requests, increments, bounded).best().depths == {}
