"""Depths, thresholds and schedules: against simulation, closed forms, and each other."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.configs.speculation import BatchRange
from draftproof.core.breakeven import acceptance_needed
from draftproof.core.errors import DraftproofError
from draftproof.planning.breakeven import (
    Costs,
    Curve,
    best,
    check_rates,
    conditional,
    depth_row,
    depth_rows,
    emitted_per_round,
    marginal,
    sensitivity,
)
from draftproof.planning.schedule import LoadPoint, choose, ranges

RATES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8)
COSTS = Costs(0.010, Curve(((1, 0.001), (8, 0.008))), Curve(((1, 0.010), (9, 0.014))), 0.0005)


def simulate(costs: Costs, rates: list[float], depth: int, rounds: int, seed: int) -> tuple[float, float]:
    """Tokens per round, and plain time ÷ speculative time, of rounds played out one by one."""
    chance, tokens, seconds = random.Random(seed), 0, 0.0
    for _ in range(rounds):
        accepted = 0
        while accepted < depth and chance.random() < rates[accepted]:
            accepted += 1
        tokens += accepted + 1
        seconds += costs.draft.at(depth) + costs.verify.at(depth + 1) + costs.coordination_s
    return tokens / rounds, tokens * costs.decode_s / seconds


@pytest.mark.parametrize("rates", [[0.9, 0.8, 0.7, 0.5], [0.3, 0.9, 0.9], [0.6] * 6, [1.0, 0.0, 0.5]])
def test_simulation_agrees(rates: list[float]) -> None:
    for depth in range(1, len(rates) + 1):
        row = depth_row(COSTS, depth, marginal(rates))
        tokens, speedup = simulate(COSTS, rates, depth, 20_000, seed=depth)
        # A round's tokens deviate by at most half of what they range over: 5 standard errors.
        assert row.breakeven.emitted_per_round == pytest.approx(
            tokens, abs=5 * (depth / 2) / 20_000**0.5 + 1e-9
        )
        assert row.speedup == pytest.approx(speedup, rel=0.03)


def test_the_best_depth_is_the_one_that_simulation_finds() -> None:
    rates = [0.9, 0.85, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05]
    chosen = best(depth_rows(COSTS, marginal(rates), 8))
    played = {depth: simulate(COSTS, rates, depth, 20_000, 7)[1] for depth in range(1, 9)}
    assert chosen is not None
    assert played[chosen.depth] >= max(played.values()) * 0.99


@given(RATES)
@settings(deadline=None)
def test_conditional_and_marginal_are_inverse(rates: list[float]) -> None:
    found = marginal(rates)
    assert list(found) == sorted(found, reverse=True)
    back = marginal(conditional(found))
    assert back == pytest.approx(found)


def test_what_leviathan_et_al_say_of_equal_shares() -> None:
    for rate in (0.3, 0.8):
        for depth in (1, 4, 7):
            expected = (1 - rate ** (depth + 1)) / (1 - rate)
            assert emitted_per_round(marginal([rate] * depth), depth) == pytest.approx(expected)


@given(st.integers(1, 16), st.floats(1.0, 17.0))
@settings(deadline=None)
def test_the_acceptance_that_is_needed_just_pays(depth: int, tokens: float) -> None:
    needed = acceptance_needed(tokens, depth)
    if needed is None:
        assert tokens > depth + 1
        return
    assert emitted_per_round(marginal([needed] * depth), depth) == pytest.approx(tokens, abs=1e-6)


@given(RATES, st.floats(0.2, 5.0))
@settings(deadline=None)
def test_speedups_do_not_depend_on_the_unit_of_time(rates: list[float], factor: float) -> None:
    scaled = Costs(
        COSTS.decode_s * factor,
        COSTS.draft.scaled(factor),
        COSTS.verify.scaled(factor),
        COSTS.coordination_s * factor,
    )
    for one, other in zip(
        depth_rows(COSTS, marginal(rates), len(rates)),
        depth_rows(scaled, marginal(rates), len(rates)),
        strict=True,
    ):
        assert one.speedup == pytest.approx(other.speedup)
        assert one.breakeven.pays == (
            one.speedup is not None and one.speedup > 1
        ) or one.speedup == pytest.approx(1)


def test_without_acceptance_there_are_thresholds_alone() -> None:
    rows = depth_rows(COSTS, None, 4)
    assert all(row.speedup is None and row.acceptance_needed is not None for row in rows)
    assert best(rows) is None
    dear = Costs(0.010, Curve(((1, 0.030),)), Curve(((1, 0.010),)))
    assert depth_rows(dear, None, 2)[0].acceptance_needed is None, "even full acceptance does not pay"


def test_curves_are_lines_between_points() -> None:
    curve = Curve(((1, 1.0), (3, 2.0), (5, 2.0)))
    assert [curve.at(count) for count in (1, 2, 3, 4, 5, 9)] == [1.0, 1.5, 2.0, 2.0, 2.0, 2.0]
    assert Curve(((1, 1.0), (3, 2.0))).at(5) == 3.0
    assert Curve(((2, 4.0),)).at(9) == 4.0


def test_sensitivity_moves_the_right_way() -> None:
    marginals = marginal([0.8, 0.7, 0.6, 0.5])
    base = best(depth_rows(COSTS, marginals, 4))
    assert base is not None
    assert base.speedup is not None
    for found in sensitivity(COSTS, marginals, 4):
        better = (found.change > 0) == (found.what in ("plain decoding", "acceptance"))
        assert (found.speedup > base.speedup) == better, found


@pytest.mark.parametrize(("rates", "is_marginal"), [([1.2], False), ([-0.1], True), ([0.5, 0.6], True)])
def test_rates_that_are_none_are_refused(rates: list[float], is_marginal: bool) -> None:
    with pytest.raises(DraftproofError, match="DP103"):
        check_rates("--acceptance", rates, is_marginal)


def point(batch: int, verify_ms: float, rate: float = 0.7, max_depth: int = 4) -> LoadPoint:
    """Plain decoding takes 10 ms; a pass over five rows `verify_ms`."""
    costs = Costs(0.010, Curve(((1, 0.0005), (4, 0.002))), Curve(((1, 0.010), (5, verify_ms / 1000))))
    return LoadPoint(batch, costs, marginal([rate] * 4), max_depth)


def test_a_sweep_becomes_a_schedule() -> None:
    points = [point(1, 11), point(8, 14), point(32, 60), point(64, 120)]
    chosen = choose(points)
    assert [each.depth for each in chosen][2:] == [0, 0]
    assert chosen[0].depth == 4
    found = ranges(chosen)
    assert found[0].low == 1
    assert found[-1] == BatchRange(low=9, high=None, depth=0), "between 8 and 32 the smaller of both depths"


def test_what_gains_less_than_the_hysteresis_is_not_changed() -> None:
    nearly = [point(1, 11), point(2, 15.5)]
    free = choose(nearly, hysteresis=0.0)
    held = choose(nearly, hysteresis=0.5)
    assert free[1].best_depth == held[1].best_depth != free[0].depth
    assert held[0].depth in (0, free[0].depth)
    assert held[1].depth == held[0].depth
    for one in free:
        assert one.depth == one.best_depth


@given(
    st.lists(st.floats(8, 100), min_size=1, max_size=6), st.floats(0, 1), st.floats(0, 0.3),
)  # fmt: skip
@settings(deadline=None)
def test_schedules_cover_every_batch_once_and_never_lose(
    verify_ms: list[float], rate: float, hysteresis: float
) -> None:
    points = [point(2**index, value, rate) for index, value in enumerate(verify_ms)]
    chosen = choose(points, hysteresis)
    assert all(each.speedup >= 1 for each in chosen)
    assert all(each.best_speedup <= each.speedup * (1 + hysteresis) + 1e-9 for each in chosen)
    found = ranges(chosen)
    assert found[0].low == 1
    assert (found[-1].high, found[-1].depth) == (None, 0), "what was not measured is not claimed"
    for one, other in pairwise(found):
        assert one.high is not None
        assert other.low == one.high + 1
        assert one.depth != other.depth
    for each in chosen:
        assert next(r.depth for r in found if r.low <= each.batch <= (r.high or 1 << 30)) == each.depth


def test_sweeps_must_ascend() -> None:
    with pytest.raises(DraftproofError, match="DP103"):
        choose([point(8, 11), point(2, 11)])
    with pytest.raises(DraftproofError, match="DP103"):
        choose([])
