"""A world for the depth controller: known costs, known acceptance, a virtual clock. No engine, no real time.

The controller sees noisy times and random outcomes; what it is judged by is expectation: of every round it decided,
the expected cost and tokens. So its loss against the best fixed depth of a phase is measured, not its luck.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from draftproof.core.cost import RoundCost
from draftproof.engine.controller import Decoding, DepthController, Outcome

Acceptance = float | Callable[[int], float]
"""Of each position given the one before; a number, or a function of the context's length."""
PassCost = Callable[[int, int, float], float]
"""(rows, batch, context) → seconds."""


def streamed(first: float = 0.010, free_rows: int = 4, row: float = 0.08, context: float = 0.0) -> PassCost:
    """Weights are streamed: rows are free up to `free_rows`, then each costs its share of the first."""

    def cost(rows: int, batch: int, length: float) -> float:
        return first * (1 + row * max(0, rows - free_rows)) * (1 + context * batch * length / 1000)

    return cost


def stepped(first: float = 0.010, tile: int = 4, step: float = 0.9) -> PassCost:
    """Rows come in tiles: the first of each costs, the rest is free."""
    return lambda rows, batch, length: first * (1 + step * ((rows - 1) // tile))


@dataclass(frozen=True)
class Drafter:
    """Costs in seconds: per round in which it is asked, per request asked, per step of depth."""

    start: float = 0.0
    per_request: float = 0.0
    per_step: float = 0.0

    def cost(self, depths: Sequence[int]) -> float:
        asked = [depth for depth in depths if depth]
        if not asked:
            return 0.0
        return self.start + self.per_request * len(asked) + self.per_step * max(asked)


MODEL_DRAFTER = Drafter(start=0.0003, per_step=0.0026)
LOOK_UP = Drafter(per_request=0.0001)


@dataclass(frozen=True)
class Phase:
    """Until so many tokens were emitted in all. `requests`: acceptance by request id; who is missing has ended."""

    num_tokens: int
    requests: Mapping[str, Acceptance]


@dataclass(frozen=True)
class Noise:
    """`spread` of the log of each time; `pauses` is the share of rounds that take `pause_s` longer."""

    spread: float = 0.0
    pauses: float = 0.0
    pause_s: float = 0.1

    def of(self, seconds: float, rng: random.Random) -> float:
        seconds *= math.exp(rng.gauss(0.0, self.spread))
        return seconds + (self.pause_s if rng.random() < self.pauses else 0.0)


@dataclass
class World:
    phases: Sequence[Phase]
    passes: PassCost = field(default_factory=streamed)
    drafter: Drafter = MODEL_DRAFTER
    noise: Noise = field(default_factory=Noise)
    depth: int = 8
    start_context: int = 100
    speed: Callable[[float], float] = lambda now: 1.0
    """How slow the machine is at a time."""

    def seconds(self, depths: Sequence[int], context: float) -> float:
        rows = len(depths) + sum(depths)
        return self.passes(rows, len(depths), context) + self.drafter.cost(depths)


def expected(acceptance: Acceptance, depth: int, context: int) -> float:
    """Tokens that a round is expected to emit."""
    chance = acceptance(context) if callable(acceptance) else acceptance
    return sum(chance**position for position in range(depth + 1))


@dataclass
class PhaseResult:
    """Per round: expected seconds and expected tokens of each request, and what the best fixed depths give."""

    phase: Phase
    depths: list[list[int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    tokens: list[list[float]] = field(default_factory=list)
    best_rates: list[float] = field(default_factory=list)
    plain_rates: list[float] = field(default_factory=list)
    trials: list[bool] = field(default_factory=list)

    def loss(self, skip: int = 0, without_trials: bool = False) -> float:
        """Time per token ÷ that of the best fixed depths, less one, after the first `skip` rounds."""
        return self._against(self.best_rates, skip, without_trials)

    def loss_to_plain(self, skip: int = 0) -> float:
        return self._against(self.plain_rates, skip, False)

    def _against(self, rates: list[float], skip: int, without_trials: bool) -> float:
        spent = ideal = 0.0
        for at in range(skip, len(self.seconds)):
            if without_trials and self.trials[at]:
                continue
            spent += self.seconds[at]
            ideal += sum(self.tokens[at]) / rates[at]
        return spent / ideal - 1.0


def total_loss(results: Sequence[PhaseResult]) -> float:
    """Of the whole scenario, against the best fixed depths of each phase."""
    spent = sum(sum(result.seconds) for result in results)
    ideal = sum(spent_ / (1 + result.loss()) for result in results for spent_ in [sum(result.seconds)])
    return spent / ideal - 1.0


def run(world: World, controller: DepthController, seed: int) -> list[PhaseResult]:
    """The whole scenario; asserts that the controller keeps to what it is given."""
    rng = random.Random(seed)
    now = 0.0
    contexts: dict[str, int] = {}
    results = []
    for phase in world.phases:
        for req_id in [req_id for req_id in contexts if req_id not in phase.requests]:
            controller.end(req_id)
            del contexts[req_id]
        for req_id in phase.requests:
            if req_id not in contexts:
                contexts[req_id] = world.start_context
                controller.add(req_id, "drafter", world.depth, follows_prices=False, is_adaptive=True)
        result = PhaseResult(phase)
        results.append(result)
        best: dict[tuple[int, ...], tuple[float, float]] = {}
        emitted = 0
        while emitted < phase.num_tokens:
            decoding = [Decoding(req_id, world.depth, contexts[req_id]) for req_id in phase.requests]
            depths = controller.plan(decoding).budgets
            assert all(0 <= depth <= world.depth for depth in depths)
            context = sum(contexts.values()) / len(contexts)
            # Fixed depths are looked up anew where context changes what they give.
            key = tuple(length // 256 for length in contexts.values())
            if key not in best:
                best[key] = best_rates(world, phase, contexts)
            result.best_rates.append(best[key][0])
            result.plain_rates.append(best[key][1])
            result.trials.append(any(request.is_trial for request in controller._requests.values()))
            result.depths.append(depths)
            result.seconds.append(world.seconds(depths, context))
            result.tokens.append(
                [
                    expected(acceptance, depth, contexts[req_id])
                    for (req_id, acceptance), depth in zip(phase.requests.items(), depths, strict=True)
                ]
            )
            outcomes = []
            for (req_id, acceptance), depth in zip(phase.requests.items(), depths, strict=True):
                chance = acceptance(contexts[req_id]) if callable(acceptance) else acceptance
                accepted = 0
                while accepted < depth and rng.random() < chance:
                    accepted += 1
                outcomes.append(Outcome(req_id, depth, accepted))
                contexts[req_id] += accepted + 1
                emitted += accepted + 1
            rows = len(depths) + sum(depths)
            slow = world.speed(now)
            verify_s = world.noise.of(world.passes(rows, len(depths), context) * slow, rng)
            draft_s = world.noise.of(world.drafter.cost(depths) * slow, rng) if any(depths) else 0.0
            now += verify_s + draft_s
            cost = RoundCost(
                draft_s=draft_s, verify_s=verify_s, num_decode_rows=rows, batch=len(depths), context=context
            )
            controller.observe(cost, {"drafter": draft_s}, outcomes)
    return results


def best_rates(world: World, phase: Phase, contexts: Mapping[str, int]) -> tuple[float, float]:
    """Tokens per second of the best fixed depths (equal for requests of equal acceptance), and of none."""
    acceptances = [a(contexts[r]) if callable(a) else a for r, a in phase.requests.items()]
    kinds = sorted(set(acceptances))
    context = sum(contexts.values()) / len(contexts)

    def rate(by_kind: Sequence[int]) -> float:
        depths = [by_kind[kinds.index(acceptance)] for acceptance in acceptances]
        tokens = sum(expected(a, depth, 0) for a, depth in zip(acceptances, depths, strict=True))
        return tokens / world.seconds(depths, context)

    assert len(kinds) <= 2, "a grid over more kinds takes too long"
    rates = [rate(by_kind) for by_kind in product(range(world.depth + 1), repeat=len(kinds))]
    return max(rates), rate([0] * len(kinds))
