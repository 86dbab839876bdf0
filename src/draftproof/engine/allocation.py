"""One round's question: which requests should draft how many tokens, given what rows cost and what drafts give?

Built and asked by the depth controller, once per decision. Arithmetic only; costs are relative to one another.

All requests share one pass, and its cost depends on its rows, not on whose they are. So rows go to the likeliest
tokens first, whosever they are, and of all numbers of rows the one is taken that serves the objective best. Steps
in the cost curve need no special care: every number of rows is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from draftproof.engine.acceptance import Step

LOST = 1e-3
"""Stands for the share of requests that keep a bound where none does."""

DraftingCost = Callable[[int, int, int], float]
"""(method, number of requests, depth) → cost of a round's drafting."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A request whose depth is to be decided: its place in the batch, its method, and what depth gives it."""

    index: int
    method: int
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Aim:
    """What is to be best: `latency` (mean time per token over requests), else tokens per second of the batch.

    most_per_token   cost per token that as few requests as possible are to exceed; None: there is no bound
    """

    latency: bool = True
    most_per_token: float | None = None


@dataclass(slots=True)
class Found:
    """depths by place in the batch; scores are tokens per cost, comparable only within one round.

    alternative   the best score of any allocation that drafts at all; None where nothing can be drafted
    """

    depths: dict[int, int]
    score: float
    plain: float
    alternative: float | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """Expected tokens of each request, rows and cost of the round, and its score."""

    emitted: Sequence[float]
    rows: float
    cost: float
    score: float


@dataclass(slots=True)
class Round:
    """emitted   expected tokens of each request of the batch before anything is decided, 1 for plain ones
    passes       cost of a pass by rows; allocations of more rows than it knows are not looked at
    rows         expected rows before anything is decided
    least_row    least cost of another row: beside prompt rows none is free

    Prompt rows are there whatever is drafted, and a token drafted now saves none of them later: they count for nothing.
    """

    emitted: Sequence[float]
    passes: Sequence[float]
    rows: float
    least_row: float
    drafting: DraftingCost
    aim: Aim
    asking: list[Asking] = field(default_factory=list)

    def best(self) -> Found:
        found = self._walks(self.asking)
        methods = {ask.method for ask in self.asking}
        if len(methods) > 1:
            # A method whose drafting costs too much must not hide another one behind it.
            for method in methods:
                for chosen in (True, False):
                    found = _better(
                        found, self._walks([a for a in self.asking if (a.method == method) is chosen])
                    )
        return found

    def _walks(self, asking: Sequence[Asking]) -> Found:
        found = self._walk(asking)
        if self.aim.most_per_token is not None:
            # Most tokens may come of one order of rows, and most requests within the bound of the other.
            found = _better(found, self._walk(asking, latency=True))
        if len(asking) > 1:
            # A step of drafting costs the same for one request as for all: better none of a depth than a few.
            worse = 0
            for most_steps in range(1, max(len(ask.steps) for ask in asking)):
                capped = [replace(ask, steps=ask.steps[:most_steps]) for ask in asking]
                better = _better(found, self._walk(capped))
                worse = worse + 1 if better is found else 0
                found = better
                if worse == 2:
                    break
        return found

    def outlook(self, depths: dict[int, int]) -> Outlook:
        """What a given allocation leads to; a request that is not named drafts nothing."""
        state = _State(self)
        for ask in self.asking:
            depth = depths.get(ask.index, 0)
            for step in ask.steps:
                if step.depth > depth:
                    break
                state.take(ask, step)
        return Outlook(state.emitted, state.rows, state.cost(), state.score())

    def cost(self, rows: float) -> float:
        """Of the pass alone, at a fractional number of rows."""
        cost = self._pass_cost(rows)
        if self.least_row:
            cost = max(cost, self._pass_cost(self.rows) + (rows - self.rows) * self.least_row)
        return cost

    def _pass_cost(self, rows: float) -> float:
        low = min(int(rows), len(self.passes) - 2)
        return self.passes[low] + (rows - low) * (self.passes[low + 1] - self.passes[low])

    def _walk(self, asking: Sequence[Asking], latency: bool = False) -> Found:
        state = _State(self)
        plain = state.score()
        best, best_at, alternative = plain, 0, None
        order = self._order(asking, latency or self.aim.latency)
        for taken, (_, _, ask, step) in enumerate(order, 1):
            if state.rows + step.rows > len(self.passes) - 1:
                break
            state.take(ask, step)
            score = state.score()
            if alternative is None or score > alternative:
                alternative = score
            if score > best:
                best, best_at = score, taken
        depths = {ask.index: step.depth for _, _, ask, step in order[:best_at]}
        return Found(depths, best, plain, alternative)

    def _order(self, asking: Sequence[Asking], latency: bool) -> list[tuple[float, int, Asking, Step]]:
        """All steps, those that gain most per row first; those of one request in their order."""
        steps: list[tuple[float, int, Asking, Step]] = []
        for ask in asking:
            emitted = self.emitted[ask.index]
            least = float("inf")
            for step in ask.steps:
                gain = 1.0 / emitted - 1.0 / (emitted + step.gain) if latency else step.gain
                emitted += step.gain
                least = min(least, gain / step.rows)
                steps.append((-least, len(steps), ask, step))
        steps.sort(key=lambda item: item[0])
        return steps


def _better(found: Found, other: Found) -> Found:
    known = [each.alternative for each in (found, other) if each.alternative is not None]
    found.alternative = other.alternative = max(known, default=None)
    return other if other.score > found.score else found


class _State:
    """A partial allocation and its score, kept up step by step."""

    __slots__ = (
        "_depths",
        "_drafting",
        "_inverse",
        "_numbers",
        "_round",
        "_starts",
        "_sum",
        "emitted",
        "rows",
    )

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self.emitted = list(round_.emitted)
        self._sum = sum(self.emitted)
        self._inverse = sum(1.0 / emitted for emitted in self.emitted)
        self.rows = round_.rows
        # What proposers cost that are not asked for anything is paid in any case.
        methods = {ask.method for ask in round_.asking}
        self._starts = {method: round_.drafting(method, 0, 0) for method in methods}
        self._drafting = dict(self._starts)
        self._numbers: dict[int, set[int]] = {method: set() for method in methods}
        self._depths: dict[int, int] = dict.fromkeys(methods, 0)

    def take(self, ask: Asking, step: Step) -> None:
        before = self.emitted[ask.index]
        after = self.emitted[ask.index] = before + step.gain
        self._sum += step.gain
        self._inverse += 1.0 / after - 1.0 / before
        self.rows += step.rows
        members = self._numbers[ask.method]
        if ask.index not in members or step.depth > self._depths[ask.method]:
            members.add(ask.index)
            depth = self._depths[ask.method] = max(self._depths[ask.method], step.depth)
            self._drafting[ask.method] = self._round.drafting(ask.method, len(members), depth)

    def cost(self) -> float:
        return self._round.cost(self.rows) + sum(self._drafting.values())

    def score(self) -> float:
        cost = self.cost()
        aim = self._round.aim
        num = len(self.emitted)
        if aim.most_per_token is not None:
            needed = cost / aim.most_per_token
            kept = sum(emitted >= needed for emitted in self.emitted) / num
            # One request that misses the bound outweighs what the others gain; if all miss it, the most is made of it.
            return max(kept, LOST) ** 16 * self._sum / cost
        if aim.latency:
            return num * num / (self._inverse * cost)
        return self._sum / cost
