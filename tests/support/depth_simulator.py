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
from draftproof.proposers.base import Offer, Source

CHAIN, PRICED = Source(follows_prices=False), Source(follows_prices=True)

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


@dataclass(frozen=True)
class LookUps:
    """Text for a drafter that follows prices: in a `share` of the rounds it finds something of that chance per token.

    `confidence` is what the drafter takes a chance for: its power, so that 1 is right and less is overconfident.
    """

    finds: tuple[tuple[float, float], ...]
    confidence: float = 1.0

    def num_drafted(self, chance: float, budget: int, prices: Sequence[float]) -> int:
        believed = chance**self.confidence
        worths = [
            sum(believed**at for at in range(1, n + 1)) - prices[n]
            for n in range(min(budget + 1, len(prices)))
        ]
        return max(range(len(worths)), key=lambda n: worths[n])

    def rounds(self, budget: int, prices: Sequence[float]) -> list[tuple[float, int, float]]:
        """Share, tokens drafted and expected tokens emitted, of each kind of round."""
        kinds = [(share, self.num_drafted(chance, budget, prices), chance) for share, chance in self.finds]
        nothing = 1.0 - sum(share for share, _ in self.finds)
        return [(nothing, 0, 1.0)] + [(share, n, expected(chance, n, 0)) for share, n, chance in kinds]


COPYING = LookUps(((0.1, 0.3), (0.1, 0.7), (0.6, 0.95)))
CHATTING = LookUps(((0.4, 0.25), (0.1, 0.5), (0.03, 0.9)))

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
                controller.add(req_id, "drafter", world.depth, sources=(CHAIN,), is_adaptive=True)
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
            result.trials.append(
                any(source.is_trial for r in controller._requests.values() for source in r.sources)
            )
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
            controller.observe(cost, {("drafter", 0): draft_s}, outcomes)
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


def run_look_ups(
    world: World, texts: Sequence[tuple[int, Mapping[str, LookUps]]], controller: DepthController, seed: int
) -> list[tuple[float, float, float]]:
    """Look-up drafters on `texts` (tokens in all, and what each request's text is like).

    Per text the rate reached, the best possible and that of plain decoding, in tokens per second: by expected tokens
    and costs of the very rounds that were decided. The best knows all costs and drafts what is worth it at its rate.
    """
    rng = random.Random(seed)
    contexts: dict[str, int] = {}
    rates = []
    for num_tokens, requests in texts:
        for req_id in [req_id for req_id in contexts if req_id not in requests]:
            controller.end(req_id)
            del contexts[req_id]
        for req_id in requests:
            if req_id not in contexts:
                contexts[req_id] = world.start_context
                controller.add(req_id, "look-up", world.depth, sources=(PRICED,), is_adaptive=True)
        spent = tokens = 0.0
        emitted = 0
        batch = len(requests)
        while emitted < num_tokens:
            context = sum(contexts.values()) / batch
            plan = controller.plan([Decoding(r, world.depth, contexts[r]) for r in requests])
            outcomes = []
            rows = batch
            for text, (req_id, budget, prices) in zip(
                requests.values(), zip(requests, plan.budgets, plan.prices, strict=True), strict=True
            ):
                drafted = accepted = 0
                draw = rng.random()
                for share, chance in text.finds:
                    if draw < share:
                        drafted = text.num_drafted(chance, budget, prices) if budget and prices else 0
                        break
                    draw -= share
                else:
                    chance = 0.0
                while accepted < drafted and rng.random() < chance:
                    accepted += 1
                rows += drafted
                tokens += expected(chance, drafted, 0)
                emitted += accepted + 1
                contexts[req_id] += accepted + 1
                outcomes.append(Outcome(req_id, drafted, accepted))
            pass_s = world.passes(rows, batch, context)
            draft_s = world.drafter.cost(plan.budgets)
            spent += pass_s + draft_s
            noisy_s = world.noise.of(draft_s, rng) if draft_s else 0.0
            cost = RoundCost(
                draft_s=noisy_s,
                verify_s=world.noise.of(pass_s, rng),
                num_decode_rows=rows,
                batch=batch,
                context=context,
            )
            controller.observe(cost, {("look-up", 0): noisy_s}, outcomes)
        rates.append(
            (
                tokens / spent,
                best_look_up_rate(world, list(requests.values())),
                batch / world.passes(batch, batch, 0),
            )
        )
    return rates


def best_look_up_rate(world: World, texts: Sequence[LookUps]) -> float:
    """Tokens per second where every request drafts what gains most at that very rate; all may also be plain."""
    batch = len(texts)
    plain = rate = batch / world.passes(batch, batch, 0)
    for _ in range(50):
        rows, tokens = float(batch), 0.0
        for text in texts:
            base = round(rows)
            prices = [
                rate * (world.passes(base + n, batch, 0) - world.passes(base, batch, 0))
                for n in range(world.depth + 1)
            ]
            kinds = text.rounds(world.depth, prices)
            rows += sum(share * n for share, n, _ in kinds)
            tokens += sum(share * gained for share, _, gained in kinds)
        if batch == 1:
            kinds = texts[0].rounds(world.depth, prices)
            pass_s = sum(share * world.passes(1 + n, 1, 0) for share, n, _ in kinds)
        else:
            low = int(rows)
            pass_s = world.passes(low, batch, 0) + (rows - low) * (
                world.passes(low + 1, batch, 0) - world.passes(low, batch, 0)
            )
        rate = tokens / (pass_s + world.drafter.cost([1] * batch))
    return max(plain, rate)


@dataclass(frozen=True)
class Stretch:
    """So many tokens of text in which look-up finds this and the drafter behind it is right with this chance."""

    num_tokens: int
    look_up: LookUps
    drafter: float


NOTHING_FOUND = LookUps(())
FREE = LookUps(((0.15, 0.3), (0.05, 0.6)))
"""What look-up finds in text that copies nothing."""
COPIED = LookUps(((0.9, 0.95),))
"""And in text that is copied."""


@dataclass
class CascadeWorld:
    """Look-up, and behind it a drafter that reads the text first, at so many seconds per token."""

    text: Sequence[Stretch]
    """Over and over."""
    drafter: Drafter
    passes: PassCost = field(default_factory=lambda: streamed(0.030, 1, 0.05))
    look_up: Drafter = LOOK_UP
    reading_s: float = 0.0
    tail: int = 128
    """Tokens that the drafter reads at most."""
    noise: Noise = field(default_factory=Noise)

    @property
    def sources(self) -> tuple[Source, Source]:
        return PRICED, Source(follows_prices=False, depth=4, reads=self.reading_s > 0.0)


def run_cascade(
    world: CascadeWorld, which: Sequence[int], controller: DepthController, num_tokens: int, seed: int
) -> float:
    """Seconds per token of one request of so many tokens with the sources `which` of (look-up, drafter).

    By expected tokens and costs of the rounds that were decided, of each stretch by itself: luck with one does not
    count for another.
    """
    rng = random.Random(seed)
    sources = [world.sources[source] for source in which]
    spent: dict[int, float] = {}
    tokens: dict[int, float] = {}
    shares: dict[int, int] = {}
    controller.add("r", tuple(which), 16, sources=sources, is_adaptive=True)
    emitted, lag, place, left = 0, world.tail, 0, world.text[0].num_tokens
    while emitted < num_tokens:
        text = world.text[place]
        lag = min(lag, world.tail)
        lags = [lag * source.reads for source in sources]
        plan = controller.plan([Decoding("r", 16, 100 + emitted, lags)])
        offers = plan.offers[0] or [Offer(plan.budgets[0], plan.prices[0] or ())] * len(which)
        drafted, chance, last = 0, 0.0, 0
        draft_s, reading = {}, {}
        for at, (source, offer) in enumerate(zip(which, offers, strict=True)):
            if drafted or not offer.budget:
                continue
            last = at
            if source == 0:
                draft_s[which, at] = world.look_up.cost([offer.budget])
                draw = rng.random()
                for share, found in text.look_up.finds:
                    if draw < share:
                        drafted, chance = text.look_up.num_drafted(found, offer.budget, offer.prices), found
                        break
                    draw -= share
            else:
                drafted, chance = offer.budget, text.drafter
                draft_s[which, at] = world.drafter.cost([offer.budget])
                if lag > 4:
                    reading[which, at] = lag, lag * world.reading_s
                lag = 0
        accepted = 0
        while accepted < drafted and rng.random() < chance:
            accepted += 1
        pass_s = world.passes(1 + drafted, 1, 100 + emitted)
        read_s = sum(seconds for _, seconds in reading.values())
        spent[place] = spent.get(place, 0.0) + pass_s + read_s + sum(draft_s.values())
        tokens[place] = tokens.get(place, 0.0) + expected(chance, drafted, 0)
        shares[place] = shares.get(place, 0) + accepted + 1
        noisy_s = {key: world.noise.of(seconds, rng) for key, seconds in draft_s.items()}
        cost = RoundCost(
            draft_s=sum(noisy_s.values()) + read_s,
            verify_s=world.noise.of(pass_s, rng),
            num_decode_rows=1 + drafted,
            batch=1,
            context=100 + emitted,
        )
        controller.observe(cost, noisy_s, [Outcome("r", drafted, accepted, last)], reading)
        emitted += accepted + 1
        lag += 1 if which[last] == 1 and drafted else accepted + 1  # its own drafts it knows
        left -= accepted + 1
        if left <= 0:
            place = (place + 1) % len(world.text)
            left = world.text[place].num_tokens
    controller.end("r")
    return sum(shares[at] * spent[at] / tokens[at] for at in spent) / sum(shares.values())
