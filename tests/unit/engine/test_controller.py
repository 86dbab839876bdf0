"""Depth by measured time, in a world of known costs: how much is lost against the best fixed depth of each phase.

Everything is simulated (`support.depth_simulator`): no clock, no engine. Losses are expectations over the rounds that
the controller decided, averaged over seeds, so the bounds are not a matter of luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import pytest

from draftproof.core.objective import Objective
from draftproof.engine.controller import DepthController
from support.depth_simulator import (
    Acceptance,
    Drafter,
    Noise,
    Phase,
    PhaseResult,
    World,
    run,
    stepped,
    streamed,
    total_loss,
)

SEEDS = range(6)
QUIET = Noise()
NOISY = Noise(spread=0.15, pauses=0.01)


def requests(acceptance: Acceptance, number: int = 1, name: str = "r") -> dict[str, Acceptance]:
    return {f"{name}{index}": acceptance for index in range(number)}


def runs(world: World, objective: Objective = "throughput") -> list[list[PhaseResult]]:
    return [run(world, DepthController(objective), seed) for seed in SEEDS]


def settled(results: Sequence[Sequence[PhaseResult]], phase: int, skip: int = 60) -> float:
    return mean(phases[phase].loss(skip, without_trials=True) for phases in results)


@pytest.mark.parametrize("noise", [QUIET, NOISY], ids=["quiet", "noisy"])
@pytest.mark.parametrize("acceptance", [0.02, 0.15])
def test_nothing_to_gain_stays_plain(acceptance: float, noise: Noise) -> None:
    results = runs(World([Phase(800, requests(acceptance))], noise=noise))
    for [phase] in results:
        assert phase.loss_to_plain() < 0.02
        assert mean(depth == 0 for [depth] in phase.depths[30:]) > 0.95


@pytest.mark.parametrize("noise", [QUIET, NOISY], ids=["quiet", "noisy"])
@pytest.mark.parametrize("acceptance", [0.6, 0.8, 0.95])
@pytest.mark.parametrize(
    "passes", [streamed(), streamed(row=0.3), stepped()], ids=["streamed", "dear", "stepped"]
)
def test_something_to_gain_is_gained(acceptance: float, passes: object, noise: Noise) -> None:
    world = World([Phase(1500, requests(acceptance))], passes=passes, noise=noise)  # type: ignore[arg-type]
    results = runs(world)
    assert settled(results, 0) < 0.04
    assert mean(total_loss(phases) for phases in results) < 0.05


def test_free_drafts_stop_before_the_row_that_costs() -> None:
    world = World([Phase(1500, requests(0.85))], passes=stepped(), drafter=Drafter(start=0.0002), noise=NOISY)
    for [phase] in runs(world):
        assert mean(depth == 3 for [depth] in phase.depths[60:]) > 0.9
