"""Depth by measured time, in a world of known costs: how much is lost against the best fixed depth of each phase.

Everything is simulated (`support.depth_simulator`): no clock, no engine. Losses are expectations over the rounds that
the controller decided, averaged over seeds, so the bounds are not a matter of luck.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import mean

import pytest

from draftproof.core.cost import RoundCost
from draftproof.core.objective import Objective
from draftproof.engine.allocation import Found, Round
from draftproof.engine.controller import (
    FIRST_WAIT,
    LONGEST_WAIT_ALONE,
    TRIAL_PRICE,
    Decoding,
    DepthController,
    Outcome,
)
from draftproof.proposers.base import Offer, Source
from support.depth_simulator import (
    CHAIN,
    CHATTING,
    COPIED,
    COPYING,
    FREE,
    LOOK_UP,
    NOTHING_FOUND,
    PRICED,
    Acceptance,
    CascadeWorld,
    Drafter,
    LookUps,
    Noise,
    PassCost,
    Phase,
    PhaseResult,
    Stretch,
    World,
    run,
    run_cascade,
    run_look_ups,
    stepped,
    streamed,
    total_loss,
)

SEEDS = range(6)
QUIET = Noise()
NOISY = Noise(spread=0.15, pauses=0.01)
NOISES = pytest.mark.parametrize("noise", [QUIET, NOISY], ids=["quiet", "noisy"])


def requests(acceptance: Acceptance, number: int = 1, name: str = "r") -> dict[str, Acceptance]:
    return {f"{name}{index}": acceptance for index in range(number)}


def runs(world: World, objective: Objective = "throughput") -> list[list[PhaseResult]]:
    return [run(world, DepthController(objective), seed) for seed in SEEDS]


def settled(results: Sequence[Sequence[PhaseResult]], phase: int, skip: int = 60) -> float:
    return mean(phases[phase].loss(skip, without_trials=True) for phases in results)


@NOISES
@pytest.mark.parametrize("acceptance", [0.02, 0.15])
@pytest.mark.parametrize("number", [1, 8])
def test_nothing_to_gain_stays_plain(acceptance: float, number: int, noise: Noise) -> None:
    results = runs(World([Phase(800 * number, requests(acceptance, number))], noise=noise))
    assert mean(phase.loss_to_plain() for [phase] in results) < 0.02
    for [phase] in results:
        assert phase.loss_to_plain() < 0.03
        assert mean(max(depths) == 0 for depths in phase.depths[60:]) > 0.8


@NOISES
@pytest.mark.parametrize("acceptance", [0.6, 0.8, 0.95])
@pytest.mark.parametrize(
    "passes", [streamed(), streamed(row=0.3), stepped()], ids=["streamed", "dear", "stepped"]
)
def test_something_to_gain_is_gained(acceptance: float, passes: PassCost, noise: Noise) -> None:
    results = runs(World([Phase(1500, requests(acceptance))], passes=passes, noise=noise))
    assert settled(results, 0) < (0.03 if noise is QUIET else 0.04)
    assert mean(total_loss(phases) for phases in results) < 0.05


def test_free_drafts_stop_before_the_row_that_costs() -> None:
    world = World([Phase(1500, requests(0.85))], passes=stepped(), drafter=Drafter(start=0.0002), noise=NOISY)
    results = runs(world)
    assert settled(results, 0) < 0.03
    assert mean(mean(depth == 3 for [depth] in phase.depths[60:]) for [phase] in results) > 0.9


@pytest.mark.parametrize("good", [0.9, 0.8])
def test_phases_of_the_text_are_noticed(good: float) -> None:
    phases = [Phase(400, requests(acceptance)) for acceptance in (good, 0.1) * 3]
    world = World(phases, noise=Noise(0.1, 0.01))
    results = [run(world, DepthController("throughput"), seed) for seed in range(16)]
    assert mean(total_loss(each) for each in results) < 0.035
    for index in (1, 3, 5):  # given up within a few rounds, and what is tried costs little
        assert mean(each[index].loss_to_plain() for each in results) < 0.03
    later = mean(each[index].loss() for each in results for index in (2, 4))
    assert later < 0.045, "a good phase after a bad one"


def test_phases_of_some_length_lose_less_than_three_per_cent() -> None:
    phases = [Phase(1500, requests(acceptance)) for acceptance in (0.9, 0.1) * 2]
    results = runs(World(phases, noise=Noise(0.1, 0.01)))
    assert mean(total_loss(each) for each in results) < 0.02
    assert all(mean(each[index].loss() for each in results) < 0.03 for index in range(4))


def test_load_steps_up_and_down() -> None:
    phases = [Phase(600, requests(0.8)), Phase(5000, requests(0.8, 16)), Phase(600, requests(0.8))]
    results = runs(World(phases, passes=streamed(row=0.08), noise=Noise(0.1, 0.01)))
    assert all(settled(results, index, skip=30) < 0.035 for index in range(3))
    assert mean(each[1].loss_to_plain() for each in results) < 0.04, "sixteen times the rows pay nothing here"
    # The first request is known, and so is one request at a time: nothing has to be learnt again.
    assert mean(mean(depth for [depth] in each[2].depths[:10]) for each in results) > 1.5


def test_cheap_rows_at_a_large_batch_are_used() -> None:
    world = World([Phase(12000, requests(0.8, 16))], passes=streamed(row=0.01), noise=Noise(0.1, 0.01))
    results = runs(world)
    assert settled(results, 0) < 0.04
    assert mean(phase.loss_to_plain() for [phase] in results) < -0.2


def test_a_drafter_that_fails_beyond_some_context_is_given_up_there() -> None:
    def acceptance(length: int) -> float:
        return 0.85 if length < 1024 else 0.02

    results = runs(World([Phase(2000, requests(acceptance))], noise=Noise(0.1, 0.01)))
    assert mean(total_loss(each) for each in results) < 0.03
    assert mean(depth > 0 for [phase] in results for [depth] in phase.depths[30:200]) > 0.9
    for [phase] in results:
        assert mean(depth > 0 for [depth] in phase.depths[-800:]) < 0.09


def test_one_predictable_request_among_others() -> None:
    """The others are left alone, and the one drafts only where that serves the batch."""
    mixed = {**requests(0.95, 1, "good"), **requests(0.05, 3, "bad")}
    world = World([Phase(3000, mixed)], drafter=LOOK_UP, passes=streamed(row=0.02), noise=Noise(0.1, 0.01))
    results = runs(world)
    assert settled(results, 0) < 0.03
    depths = [[mean(each) for each in zip(*phase.depths[60:], strict=True)] for [phase] in results]
    assert all(good > 3 for good, *_ in depths)
    assert mean(mean(bad) for _, *bad in depths) < 0.6


def test_latency_drafts_no_more_than_throughput_where_others_wait() -> None:
    mixed = {**requests(0.9, 1, "good"), **requests(0.02, 7, "bad")}
    world = World([Phase(3000, mixed)], drafter=LOOK_UP, passes=streamed(row=0.05), noise=Noise(0.05))

    def rows(objective: Objective) -> float:
        return mean(mean(sum(depths) for depths in phase.depths[60:]) for [phase] in runs(world, objective))

    assert rows("latency") < rows("throughput")


@pytest.mark.parametrize(("bound_s", "drafts"), [(0.0115, False), (1.0, True)])
def test_a_bound_on_time_per_token_is_kept(bound_s: float, drafts: bool) -> None:
    """A predictable request would lengthen the rounds of those that have no time to spare."""
    mixed = {**requests(0.95, 1, "good"), **requests(0.0, 3, "bad")}
    world = World([Phase(3000, mixed)], passes=streamed(row=0.1), drafter=LOOK_UP, noise=Noise(0.02))
    for seed in SEEDS:
        [phase] = run(world, DepthController("latency", slo_tpot_s=bound_s), seed)
        late = [seconds for seconds in phase.seconds[60:] if seconds > bound_s]
        assert len(late) / len(phase.seconds[60:]) < 0.1
        depth = mean(depths[0] for depths in phase.depths[60:])
        assert depth > 6 if drafts else depth < 2


def test_a_machine_that_slows_down_and_recovers_changes_little() -> None:
    world = World(
        [Phase(3000, requests(0.8))],
        noise=Noise(0.1, 0.01),
        speed=lambda now: 1.6 if int(now / 3) % 2 else 1.0,
    )
    assert mean(total_loss(each) for each in runs(world)) < 0.04


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("confidence", [1.0, 0.6], ids=["calibrated", "overconfident"])
def test_look_ups_never_lose_and_copies_gain(batch: int, confidence: float) -> None:
    def rates(text: LookUps) -> tuple[float, float]:
        """Rate reached ÷ plain, on average and in the worst run."""
        world = World([], passes=streamed(0.005, 1, 0.08), drafter=LOOK_UP, noise=NOISY, depth=16)
        text = LookUps(text.finds, confidence)
        texts = [(600 * batch, {f"r{index}": text for index in range(batch)})]
        reached = [run_look_ups(world, texts, DepthController(), seed)[0] for seed in SEEDS]
        return mean(rate / plain for rate, _, plain in reached), min(
            rate / plain for rate, _, plain in reached
        )

    average, worst = rates(CHATTING)
    assert average > 0.98
    assert worst > 0.97
    average, _ = rates(COPYING)
    assert average > {1: 2.5, 4: 1.5, 16: 1.05}[batch]


class Driven:
    """One controller, driven round by round with costs of our choice."""

    def __init__(self) -> None:
        self.controller = DepthController()

    def add(self, req_id: str, *, is_adaptive: bool = True) -> None:
        self.controller.add(req_id, "m", 4, sources=(CHAIN,), is_adaptive=is_adaptive)

    def round(self, *req_ids: str, accepted: int = 0, limit: int = 4, draft_s: float = 0.003) -> list[int]:
        budgets = self.controller.plan([Decoding(req_id, limit, 100) for req_id in req_ids]).budgets
        outcomes = [
            Outcome(req_id, budget, min(budget, accepted))
            for req_id, budget in zip(req_ids, budgets, strict=True)
        ]
        draft_s *= max(budgets)
        rows = len(req_ids) + sum(budgets)
        cost = RoundCost(
            draft_s=draft_s, verify_s=0.01, num_decode_rows=rows, batch=len(req_ids), context=100
        )
        self.controller.observe(cost, {("m", 0): draft_s}, outcomes)
        return budgets


def test_trials_come_later_and_later_and_a_success_at_once() -> None:
    driven = Driven()
    driven.add("r")
    rounds = [driven.round("r")[0] for _ in range(1500)]
    tried = [at for at, depth in enumerate(rounds) if depth and at > 10]
    gaps = [after - before for before, after in pairwise(tried)]
    assert tried[0] < 20 + 4 * FIRST_WAIT
    assert max(gaps) <= 3 * LONGEST_WAIT_ALONE
    assert mean(gaps[-3:]) > gaps[0]
    assert sum(rounds[100:]) * 0.3 < 0.025 * 1400, "trials cost less than two and a half rounds in a hundred"
    good = [driven.round("r", accepted=4)[0] for _ in range(2 * LONGEST_WAIT_ALONE + 20)]
    assert good[-1] == 4
    first = next(at for at, depth in enumerate(good) if depth)
    assert good.index(4) - first < 15


def test_a_fixed_depth_is_fixed_and_bounds_hold() -> None:
    driven = Driven()
    driven.add("fixed", is_adaptive=False)
    driven.add("adaptive")
    for _ in range(100):
        fixed, adaptive, plain = driven.round("fixed", "adaptive", "plain")
        assert (fixed, plain) == (4, 0)
        assert 0 <= adaptive <= 4
    for limit in (3, 2, 1, 0):
        assert max(driven.round("fixed", "adaptive", limit=limit, accepted=4)) <= limit
    assert driven.controller.reason("fixed") is None
    assert driven.controller.reason("plain") is None


def test_a_pause_of_the_machine_at_the_first_draft_spoils_nothing() -> None:
    driven = Driven()
    driven.add("r")
    for number in range(6):
        driven.round("r", accepted=4, draft_s=3.0 if number == 1 else 0.0005)
    assert mean(driven.round("r", accepted=4, draft_s=0.0005)[0] for _ in range(60)) > 3


def test_decisions_are_told_in_words() -> None:
    driven = Driven()
    driven.add("r")
    assert driven.controller.reason("r") is None
    for _ in range(60):
        driven.round("r", accepted=4, draft_s=0.0005)
    reason = driven.controller.reason("r") or ""
    assert reason.startswith("settled at depth 4: expected ")
    assert reason.endswith("× plain at batch 1")
    for _ in range(60):
        driven.round("r", accepted=0)
    reason = driven.controller.reason("r") or ""
    assert reason.startswith("settled at depth 0: expected ")
    driven.controller.end("r")
    assert driven.controller.num_requests == 0
    assert driven.controller.reason("r") is None


def test_prices_rise_with_rows_and_with_load() -> None:
    def prices(batch: int) -> list[float]:
        controller = DepthController()
        names = [f"r{index}" for index in range(batch)]
        for name in names:
            controller.add(name, "m", 8, sources=(PRICED,), is_adaptive=True)
        found: list[float] | None = None
        for number in range(40):
            plan = controller.plan([Decoding(name, 8, 100) for name in names])
            outcomes = [
                Outcome(name, min(budget, number % 9), min(budget, number % 9))
                for name, budget in zip(names, plan.budgets, strict=True)
            ]
            rows = batch + sum(outcome.drafted for outcome in outcomes)
            cost = RoundCost(verify_s=0.01 + 0.001 * rows, num_decode_rows=rows, batch=batch, context=100)
            controller.observe(cost, {}, outcomes)
            found = plan.prices[0] or found
        assert found is not None
        return found

    alone, crowded = prices(1), prices(8)
    assert alone[0] == crowded[0] == 0.0
    assert all(after >= before for before, after in pairwise(alone))
    assert crowded[1] > alone[1] > 0.0


def test_many_methods_are_kept_within_bounds() -> None:
    controller = DepthController()
    for number in range(500):
        controller.add("r", f"method {number}", 4, sources=(CHAIN,), is_adaptive=True)
        for _ in range(4):
            plan = controller.plan([Decoding("r", 4, 100)])
            rows = 1 + plan.budgets[0]
            cost = RoundCost(draft_s=1e-3, verify_s=0.01, num_decode_rows=rows, batch=1, context=100)
            controller.observe(cost, {(f"method {number}", 0): 1e-3}, [Outcome("r", plan.budgets[0], 0)])
        controller.end("r")
    assert len(controller._methods._records) <= 64
    assert len(controller._methods._numbers) <= 64
    assert len(controller.costs._drafting) <= 64


def cost_of(batch: int, rows: int, verify_s: float, draft_s: float = 0.0) -> RoundCost:
    return RoundCost(
        draft_s=draft_s,
        verify_s=verify_s,
        proposed=rows - batch,
        emitted=batch,
        num_decode_rows=rows,
        batch=batch,
        context=100.0,
    )


def test_near_their_end_requests_still_get_prices() -> None:
    """What a request drafted when it had more left does not make its rows negative now."""
    controller = DepthController()
    ids = [f"r{index}" for index in range(4)]
    for req_id in ids:
        controller.add(req_id, "look-up", 16, sources=(PRICED,), is_adaptive=True)
    left = 300
    while left > 1:
        plan = controller.plan([Decoding(req_id, min(16, left - 1), 100) for req_id in ids])
        assert all(prices is None or prices[0] == 0.0 for prices in plan.prices)
        assert all(budget <= left - 1 for budget in plan.budgets)
        drafted = [min(budget, 10) for budget in plan.budgets]
        rows = len(ids) + sum(drafted)
        outcomes = [Outcome(req_id, number, number) for req_id, number in zip(ids, drafted, strict=True)]
        controller.observe(
            cost_of(len(ids), rows, 0.01 * (1 + 0.005 * rows)), {("look-up", 0): 1e-5}, outcomes
        )
        left -= 1 + max(drafted)


def test_a_neighbour_of_fixed_depth_does_not_keep_others_from_drafting() -> None:
    controller = DepthController()
    controller.add("fixed", "one", 4, sources=(CHAIN,), is_adaptive=False)
    controller.add("adaptive", "two", 4, sources=(CHAIN,), is_adaptive=True)
    budgets = []
    for _ in range(900):
        plan = controller.plan([Decoding("fixed", 4, 100), Decoding("adaptive", 4, 100)])
        budgets.append(plan.budgets[1])
        rows = 2 + sum(plan.budgets)
        outcomes = [
            Outcome("fixed", plan.budgets[0], plan.budgets[0]),
            Outcome("adaptive", budgets[-1], budgets[-1]),
        ]
        controller.observe(
            cost_of(2, rows, 0.01 * (1 + 0.01 * rows)), {("one", 0): 1e-4, ("two", 0): 1e-4}, outcomes
        )
    assert mean(budget > 0 for budget in budgets[300:]) > 0.95


def test_under_a_bound_the_reason_tells_speed_and_not_the_score() -> None:
    controller = DepthController(slo_tpot_s=0.005)
    controller.add("r", "draft", 4, sources=(CHAIN,), is_adaptive=True)
    for _ in range(60):
        depth = controller.plan([Decoding("r", 4, 100)]).budgets[0]
        controller.observe(cost_of(1, 1 + depth, 0.01), {("draft", 0): 1e-5}, [Outcome("r", depth, depth)])
    reason = controller.reason("r")
    assert reason is not None
    assert 1.0 < float(reason.split("expected ")[1].split("×")[0]) <= 5.0


def test_many_other_methods_do_not_make_a_running_ones_cost_forgotten() -> None:
    controller = DepthController()
    controller.add("r", "slow", 4, sources=(CHAIN,), is_adaptive=True)
    for number in range(200):
        controller.add(f"x{number}", f"method {number}", 4, sources=(CHAIN,), is_adaptive=True)
        controller.end(f"x{number}")
    drafted = 0
    for _ in range(200):  # a drafted token costs as much as five passes
        depth = controller.plan([Decoding("r", 4, 100)]).budgets[0]
        drafted += depth
        cost = cost_of(1, 1 + depth, 0.01, 0.05 * depth)
        controller.observe(cost, {("slow", 0): 0.05 * depth}, [Outcome("r", depth, depth // 2)])
    assert drafted < 30


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("source", [CHAIN, PRICED], ids=["chain", "priced"])
def test_where_nothing_is_to_be_gained_little_is_decided(
    batch: int, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deciding costs time: nobody drafts and nothing is learnt, so whole batches are thought about seldom."""
    decided = 0

    def counted(self: Round, best: Callable[[Round], Found] = Round.best) -> Found:
        nonlocal decided
        decided += 1
        return best(self)

    monkeypatch.setattr(Round, "best", counted)
    controller = DepthController()
    ids = [f"r{index}" for index in range(batch)]
    for req_id in ids:
        controller.add(req_id, "m", 8, sources=(source,), is_adaptive=True)
    tried = set()
    for number in range(600):
        budgets = controller.plan([Decoding(req_id, 8, 100) for req_id in ids]).budgets
        if number == 100:
            decided = 0
        elif number > 100:
            tried |= {req_id for req_id, budget in zip(ids, budgets, strict=True) if budget}
        outcomes = [Outcome(req_id, min(1, budget), 0) for req_id, budget in zip(ids, budgets, strict=True)]
        rows = batch + sum(outcome.drafted for outcome in outcomes)
        cost = cost_of(batch, rows, 0.01 * (1 + 0.1 * rows), 1e-4 * (rows - batch))
        controller.observe(cost, {("m", 0): cost.draft_s}, outcomes)
    assert decided <= 500 / 12
    assert tried == set(ids), "everybody gets another chance"


def test_requests_that_end_do_not_make_a_plain_decision_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """One ends, another's prompt is computed, it begins to decode: one decision for the newcomer, none before it."""
    decided: list[int] = []
    best = Round.best

    def counted(self: Round) -> Found:
        decided.append(len(self.emitted))
        return best(self)

    monkeypatch.setattr(Round, "best", counted)
    controller = DepthController()
    ids = [f"r{index}" for index in range(16)]
    for req_id in ids:
        controller.add(req_id, "m", 8, sources=(PRICED,), is_adaptive=True)

    def rounds(number: int, rows_beside: int = 0) -> None:
        for _ in range(number):
            budgets = controller.plan([Decoding(req_id, 8, 100) for req_id in ids], rows_beside).budgets
            outcomes = [Outcome(req_id, min(1, b), 0) for req_id, b in zip(ids, budgets, strict=True)]
            rows = len(ids) + sum(outcome.drafted for outcome in outcomes)
            cost = cost_of(len(ids), rows, 0.01 * (1 + 0.1 * rows + 0.05 * rows_beside))
            controller.observe(replace(cost, num_prefill_rows=rows_beside), {("m", 0): 1e-5}, outcomes)

    rounds(200)
    decided.clear()
    for number in range(50):
        controller.end(ids.pop(0))
        rounds(2, rows_beside=100)
        ids.append(f"n{number}")
        controller.add(ids[-1], "m", 8, sources=(PRICED,), is_adaptive=True)
        rounds(3)
    assert 15 not in decided[5:]
    assert len(decided) < 1.4 * 50
    decided.clear()
    del ids[3:]
    rounds(1)
    assert decided == [3], "where most have ended it is another load"


def test_prompt_rows_beside_it_do_not_make_a_draft_worth_more() -> None:
    """A token that is drafted beside prompt rows saves a later round, which has none."""

    def drafted(num_prefill_rows: int) -> int:
        controller = DepthController("throughput")
        ids = [f"r{index}" for index in range(8)]
        for req_id in ids:
            controller.add(req_id, "m", 8, sources=(PRICED,), is_adaptive=True)
        total = 0
        for number in range(300):
            rows_beside = num_prefill_rows if number % 2 else 0
            plan = controller.plan([Decoding(req_id, 8, 100) for req_id in ids], rows_beside)
            outcomes = [
                Outcome(req_id, min(1, budget), min(1, budget) * ((number + index) % 6 == 0))
                for index, (req_id, budget) in enumerate(zip(ids, plan.budgets, strict=True))
            ]
            rows = 8 + sum(outcome.drafted for outcome in outcomes)
            cost = replace(
                cost_of(8, rows, 0.01 * (1 + 0.05 * rows)),
                prefill_s=0.01 * 0.05 * rows_beside,
                num_prefill_rows=rows_beside,
            )
            controller.observe(cost, {("m", 0): 1e-5}, outcomes)
            total += rows - 8 if number % 2 and number > 50 else 0
        return total

    assert drafted(256) <= 2 * drafted(0)


def test_prices_are_what_rows_cost_although_decisions_give_them_the_benefit_of_the_doubt() -> None:
    controller = DepthController()
    ids = [f"r{index}" for index in range(4)]
    for req_id in ids:
        controller.add(req_id, "m", 8, sources=(PRICED,), is_adaptive=True)
    for number in range(60):
        controller.plan([Decoding(req_id, 8, 100) for req_id in ids])
        drafted = 1 if number in (2, 3) else 0
        outcomes = [Outcome(req_id, drafted if req_id == "r0" else 0, drafted) for req_id in ids]
        controller.observe(cost_of(4, 4 + drafted, 0.01 * (1 + 0.1 * drafted)), {("m", 0): 1e-5}, outcomes)
    controller._news = 1.0
    prices = next(prices for prices in plan_until_priced(controller, ids) if prices is not None)
    assert prices[1] == pytest.approx(4 * 0.1, rel=0.2)


def plan_until_priced(controller: DepthController, ids: Sequence[str]) -> list[list[float] | None]:
    for _ in range(200):
        plan = controller.plan([Decoding(req_id, 8, 100) for req_id in ids])
        if any(plan.prices):
            return plan.prices
        controller.observe(cost_of(4, 4, 0.01), {("m", 0): 1e-5}, [Outcome(req_id, 0, 0) for req_id in ids])
    raise AssertionError("nobody is asked")


def test_time_for_prompts_earns_no_trials() -> None:
    def tried(prefill_s: float) -> int:
        controller = DepthController()
        ids = [f"r{index}" for index in range(16)]
        for req_id in ids:
            controller.add(req_id, "m", 8, sources=(PRICED,), is_adaptive=True)
        number = 0
        for _ in range(800):
            rows_beside = 256 if prefill_s else 0
            plan = controller.plan([Decoding(req_id, 8, 100) for req_id in ids], rows_beside)
            outcomes = [Outcome(req_id, min(1, b), 0) for req_id, b in zip(ids, plan.budgets, strict=True)]
            rows = 16 + sum(outcome.drafted for outcome in outcomes)
            number += rows - 16
            cost = replace(
                cost_of(16, rows, 0.01 * (1 + 0.05 * rows)), prefill_s=prefill_s, num_prefill_rows=rows_beside
            )
            controller.observe(cost, {("m", 0): 1e-5}, outcomes)
        return number

    assert tried(0.2) <= 1.5 * tried(0.0)


def test_what_another_text_copied_does_not_keep_one_drafting_that_copies_nothing() -> None:
    controller = DepthController()

    def round(req_id: str, accepts: bool) -> int:
        [budget] = controller.plan([Decoding(req_id, 16, 100)]).budgets
        drafted = min(budget, 12 if accepts else 2)
        cost = cost_of(1, 1 + drafted, 0.01 * (1 + 0.04 * drafted), 1e-4 * (budget > 0))
        controller.observe(cost, {("m", 0): cost.draft_s}, [Outcome(req_id, drafted, drafted * accepts)])
        return drafted

    for req_id, accepts in (("copies", True), ("does not", False)):
        controller.add(req_id, "m", 16, sources=(PRICED,), is_adaptive=True)
        drafted = [round(req_id, accepts) for _ in range(30)]
        assert drafted[0] or accepts, "it gets its chance"
        assert (controller.reason(req_id) or "").startswith("settled at depth 0") is not accepts
        controller.end(req_id)


def test_a_trial_of_a_look_up_is_priced_so_that_it_drafts_only_what_it_is_sure_of() -> None:
    controller = DepthController()
    controller.add("r", "m", 8, sources=(PRICED,), is_adaptive=True)
    priced = []
    for number in range(200):
        plan = controller.plan([Decoding("r", 8, 100)])
        drafted = min(1, plan.budgets[0]) if number < 60 else 0
        if number >= 60 and plan.budgets[0] and plan.prices[0]:
            priced.append(plan.prices[0])
        controller.observe(
            cost_of(1, 1 + drafted, 0.01 * (1 + 0.02 * drafted), 1e-4 * (plan.budgets[0] > 0)),
            {("m", 0): 1e-4 * (plan.budgets[0] > 0)},
            [Outcome("r", drafted, 0)],
        )
    assert len(priced) > 100, "to ask costs one hundredth of a round, and that is saved in every round"
    assert all(prices[1] >= TRIAL_PRICE for prices in priced)


def test_what_a_trial_costs_beside_its_draft_makes_trials_rarer() -> None:
    """A look-up may be quicker than the work around it."""

    def num_trials(around_s: float) -> int:
        controller, tried = DepthController(), 0
        controller.add("r", "look-up", 16, sources=(PRICED,), is_adaptive=True)
        for number in range(2000):
            offered = controller.plan([Decoding("r", 16, number)]).budgets[0]
            tried += offered > 0
            draft_s, extra_s = (2e-5, around_s) if offered else (0.0, 0.0)
            cost = replace(cost_of(1, 1, 2e-3, draft_s), coordination_s=1e-4 + extra_s)
            controller.observe(cost, {("look-up", 0): draft_s}, [Outcome("r", 0, 0)])
        return tried

    assert num_trials(0.0) > 2 * num_trials(8e-5) > 0


DRAFTERS = {"cheap": Drafter(start=0.001, per_step=0.009), "dear": Drafter(start=0.002, per_step=0.024)}
EDITED = Stretch(60, COPIED, 0.9)


@pytest.mark.parametrize("reading_s", [0.0, 0.0012], ids=["knows the text", "reads the text"])
@pytest.mark.parametrize(
    ("text", "drafter", "least"),
    [
        ([Stretch(100, COPIED, 0.1)], "cheap", 0.97),
        ([Stretch(100, FREE, 0.1)], "cheap", 0.97),
        ([Stretch(100, NOTHING_FOUND, 0.8)], "cheap", 0.98),
        ([Stretch(100, COPIED, 0.9)], "cheap", 0.97),
        ([EDITED, Stretch(20, FREE, 0.75)], "cheap", 0.97),
        ([Stretch(80, COPIED, 0.9), Stretch(80, FREE, 0.75)], "cheap", 1.02),
        ([EDITED, Stretch(20, FREE, 0.75)], "dear", 0.97),
        ([Stretch(100, NOTHING_FOUND, 0.8)], "dear", 0.97),
    ],
    ids=["useless", "both useless", "look-up useless", "both good", "edit", "in turns", "dear", "dear alone"],
)
def test_look_up_and_a_drafter_together_lose_little_against_the_better(
    text: list[Stretch], drafter: str, least: float, reading_s: float
) -> None:
    world = CascadeWorld(text, DRAFTERS[drafter], reading_s=reading_s, noise=Noise(0.1, 0.01))

    def speed(*which: int) -> float:
        return 1.0 / mean(run_cascade(world, which, DepthController(), 1500, seed) for seed in SEEDS)

    together, alone = speed(0, 1), max(speed(0), speed(1))
    assert together > (least if reading_s == 0.0 else least - 0.025) * alone, "to read the text is a bet"


def test_the_drafter_alone_may_be_left_out_and_that_is_told() -> None:
    """Where look-up copies, and has no draft now and then, a dear drafter behind it drafts nothing."""
    controller = DepthController()
    sources = PRICED, Source(follows_prices=False, depth=4)
    controller.add("r", "m", 16, sources=sources, is_adaptive=True)
    asked = []
    for number in range(400):
        plan = controller.plan([Decoding("r", 16, 100)])
        offers = plan.offers[0] or [Offer(0, ())] * 2
        finds = number % 4 > 0 and len(offers[0].prices) > 1
        drafted = min(4, offers[0].budget) if finds else offers[1].budget
        last = 0 if finds or not offers[1].budget else 1
        draft_s = {("m", 0): 1e-4, ("m", 1): 0.02 * drafted * last}
        controller.observe(
            cost_of(1, 1 + drafted, 0.02, sum(draft_s.values())),
            draft_s,
            [Outcome("r", drafted, drafted * (1 - last), last)],
        )
        asked.append(last)
    assert mean(asked[20:]) < 0.05
    reason = controller.reason("r") or ""
    assert reason.startswith("settled at depth up to 16, then 0: expected ")
    assert reason.endswith("× plain at batch 1")
    assert ", then 0." in reason


def test_a_drafter_that_has_to_read_waits_for_text_that_look_up_does_not_know() -> None:
    def first_round(num_copied: int, lag: int) -> int:
        """Rounds without a draft of look-up after so many with one, until the drafter behind may draft."""
        controller = DepthController()
        sources = PRICED, Source(follows_prices=False, depth=4, reads=True)
        controller.add("r", "m", 16, sources=sources, is_adaptive=True)
        for number in range(200):
            plan = controller.plan([Decoding("r", 16, 100, [0, lag])])
            offers = plan.offers[0] or [Offer(0, ())] * 2
            if offers[1].budget:
                return number - num_copied
            drafted = min(4, offers[0].budget) if number < num_copied else 0
            controller.observe(
                cost_of(1, 1 + drafted, 0.02, 1e-4), {("m", 0): 1e-4}, [Outcome("r", drafted, drafted)]
            )
        raise AssertionError("it never drafts")

    assert first_round(30, 0) <= 0 < first_round(30, 60) < first_round(30, 120) < 30
    assert abs(first_round(0, 120) - first_round(60, 120)) < 4


def test_a_look_up_must_be_worth_what_the_drafter_behind_it_gives() -> None:
    def instead(accepted: int) -> float:
        controller, found = DepthController(), [0.0]
        sources = PRICED, Source(follows_prices=False, depth=4)
        controller.add("r", "m", 16, sources=sources, is_adaptive=True)
        for number in range(80):
            plan = controller.plan([Decoding("r", 16, 100)])
            offers = plan.offers[0] or [Offer(0, ())] * 2
            drafted, last = (4, 0) if number % 2 and offers[0].budget else (offers[1].budget, 1)
            draft_s = {("m", 0): 1e-4, ("m", 1): 2e-3 * drafted * last}
            outcome = Outcome("r", drafted, min(drafted, accepted if last else 4), last)
            controller.observe(cost_of(1, 1 + drafted, 0.02, sum(draft_s.values())), draft_s, [outcome])
            found = offers[0].prices or found
        return -found[0]

    assert instead(4) > instead(1) + 0.5
    assert instead(1) > instead(0) == 0.0
