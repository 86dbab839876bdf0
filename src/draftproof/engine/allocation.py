"""One round's question: which requests should draft how many tokens, given what rows cost and what drafts give?

Built and asked by the depth controller, once per decision. Arithmetic only; costs are relative to one another.

All requests share one pass, and its cost depends on its rows, not on whose they are. So rows go to the likeliest
tokens first, whosever they are, and of all numbers of rows the one is taken that serves the objective best. Steps
in the cost curve need no special care: every number of rows is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from draftproof.engine.acceptance import Step

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

    most_per_token   cost per token that a request must not exceed to count at all; None: they all count
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
    extra        cost that the round has anyway, prompt rows for example
    least_row    least cost of another row: beside prompt rows none is free
    """

    emitted: Sequence[float]
    passes: Sequence[float]
    rows: float
    extra: float
    least_row: float
    drafting: DraftingCost
    aim: Aim
    asking: list[Asking] = field(default_factory=list)

    def best(self) -> Found:
        found = self._walk(self.asking)
        methods = {ask.method for ask in self.asking}
        if len(methods) > 1:
            # A method whose drafting costs too much must not hide another one behind it.
            for method in methods:
                for chosen in (True, False):
                    some = [ask for ask in self.asking if (ask.method == method) is chosen]
                    other = self._walk(some)
                    if other.score > found.score:
                        found = other
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
        return cost + self.extra

    def _pass_cost(self, rows: float) -> float:
        low = min(int(rows), len(self.passes) - 2)
        return self.passes[low] + (rows - low) * (self.passes[low + 1] - self.passes[low])

    def _walk(self, asking: Sequence[Asking]) -> Found:
        state = _State(self)
        plain = state.score()
        best, best_at, alternative = plain, 0, None
        order = self._order(asking)
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

    def _order(self, asking: Sequence[Asking]) -> list[tuple[float, int, Asking, Step]]:
        """All steps, those that gain most per row first; those of one request in their order."""
        steps: list[tuple[float, int, Asking, Step]] = []
        for ask in asking:
            emitted = self.emitted[ask.index]
            least = float("inf")
            for step in ask.steps:
                if self.aim.latency:
                    worth = (1.0 / emitted - 1.0 / (emitted + step.gain)) / step.rows
                else:
                    worth = step.gain / step.rows
                emitted += step.gain
                least = min(least, worth)
                steps.append((-least, len(steps), ask, step))
        steps.sort(key=lambda item: item[0])
        return steps


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
            # Who misses the bound counts a little, so that the most can be made of a lost case.
            needed = cost / aim.most_per_token
            kept = sum(emitted for emitted in self.emitted if emitted >= needed)
            return (kept + 1e-3 * num * num / self._inverse) / cost
        if aim.latency:
            return num * num / (self._inverse * cost)
        return self._sum / cost
