"""Thresholds: against the closed form, and where nothing can pay."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.planning.advice.thresholds import needed_acceptance, pays_if


@given(st.integers(1, 12), st.floats(0.0, 0.95))
@settings(max_examples=150, deadline=None)
def test_at_the_threshold_a_round_emits_what_it_costs(depth: int, cost: float) -> None:
    needed = needed_acceptance(depth, cost)
    assert needed is not None
    emitted = sum(needed**position for position in range(depth + 1))
    assert emitted == pytest.approx(1 + depth * cost, rel=1e-6, abs=1e-6)


def test_a_drafter_as_large_as_the_target_cannot_pay() -> None:
    assert needed_acceptance(4, 1.0) is None
    assert pays_if(4, 1.2, has_experts=False) is None


def test_one_parallel_pass_costs_less_than_one_per_token() -> None:
    serial, parallel = needed_acceptance(8, 0.1), needed_acceptance(8, 0.1, passes=1)
    assert serial is not None
    assert parallel is not None
    assert parallel < serial


def test_it_is_said_that_nothing_was_measured_and_what_experts_do() -> None:
    plain, mixture = pays_if(1, 0.05, has_experts=False), pays_if(1, 0.05, has_experts=True)
    assert plain is not None
    assert mixture is not None
    assert "Not measured" in plain
    assert "0.05" in plain
    assert mixture.startswith(plain)
    assert "experts" in mixture
