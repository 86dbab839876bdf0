"""The reference: every rule of verification in exact fractions, as close to the papers as code can be.

Used by the exactness suite alone; slow on purpose. A drafter and a rule are ordinary programs that ask
`Chance` for random decisions by *name*. `enumerate_outcomes` runs such a program once for every way its
decisions can fall and adds up exact probabilities, so "the emitted text is distributed as the target's own"
is an equation and not a statistic. A name stands for one uniform number in [0, 1): asking twice by the same
name reads the same number, so that reused noise is as wrong here as it is in an engine. The names are the
keys of `ops.noise`.

Layer 2 runs these same programs on the tensor code's keyed noise and expects the same verdicts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Protocol, TypeVar

from draftproof.ops.noise import Purpose

Dist = tuple[Fraction, ...]
"""Probabilities over the vocabulary."""
Context = tuple[int, ...]
"""Emitted token ids; its length is the next output position."""
Model = Callable[[Context], Dist]
Name = tuple[Purpose, int, int, int]
"""(purpose, position, draw, index): see `ops.noise`. `pick` reads a whole stream and uses index 0."""
T = TypeVar("T")
_ONE = Fraction(1)


class Chance(Protocol):
    """Where programs get their random decisions from."""

    def below(self, name: Name, threshold: Fraction) -> bool:
        """Whether the uniform number called `name` lies below `threshold`."""
        ...

    def pick(self, name: Name, weights: Sequence[Fraction]) -> int:
        """An index drawn in proportion to `weights`."""
        ...


@dataclass(slots=True)
class _Decision:
    """One answer of a run: its possible outcomes as (index, start, stop) on the named number's known
    interval."""

    options: list[tuple[int, Fraction, Fraction]]
    width: Fraction
    chosen: int = 0


class _Script:
    """`Chance` for one run: repeats recorded decisions, then takes the first possible outcome each time."""

    def __init__(self, decisions: list[_Decision]) -> None:
        self._decisions = decisions
        self._num_asked = 0
        self._intervals: dict[Name, tuple[Fraction, Fraction]] = {}

    def below(self, name: Name, threshold: Fraction) -> bool:
        cut = min(max(threshold, Fraction(0)), _ONE)
        return self.pick(name, (cut, 1 - cut)) == 0

    def pick(self, name: Name, weights: Sequence[Fraction]) -> int:
        """Inverse CDF of the named number, of which an interval is known from earlier questions."""
        if self._num_asked == len(self._decisions):
            self._decisions.append(self._decision(name, weights))
        decision = self._decisions[self._num_asked]
        self._num_asked += 1
        index, start, stop = decision.options[decision.chosen]
        self._intervals[name] = (start, stop)
        return index

    def _decision(self, name: Name, weights: Sequence[Fraction]) -> _Decision:
        low, high = self._intervals.get(name, (Fraction(0), _ONE))
        options: list[tuple[int, Fraction, Fraction]] = []
        start = Fraction(0)
        for index, weight in enumerate(normalised(weights)):
            stop = start + weight
            if max(low, start) < min(high, stop):
                options.append((index, max(low, start), min(high, stop)))
            start = stop
        return _Decision(options, high - low)


def enumerate_outcomes(program: Callable[[Chance], T]) -> dict[T, Fraction]:
    """The exact distribution of what `program` returns."""
    outcomes: dict[T, Fraction] = {}
    decisions: list[_Decision] = []
    while True:
        result = program(_Script(decisions))
        probability = _ONE
        for decision in decisions:
            _, start, stop = decision.options[decision.chosen]
            probability *= (stop - start) / decision.width
        outcomes[result] = outcomes.get(result, Fraction(0)) + probability
        while decisions and decisions[-1].chosen + 1 == len(decisions[-1].options):
            decisions.pop()
        if not decisions:
            return outcomes
        decisions[-1].chosen += 1


# ---- drafts ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """A drafted token. `q` is None for a point mass. Siblings that share a `q_row` share `q` and were drawn
    from it one after the other, without replacement; siblings with rows of their own were drawn
    independently."""

    token: int
    parent_row: int
    q: Dist | None = None
    q_row: int = 0


Draft = tuple[Node, ...]
Drafter = Callable[[Chance, Context], Draft]
Rule = Callable[[Chance, Context, Draft, Model], Context]
"""(chance, context, draft, target) -> the emitted run."""


def path_of(draft: Draft, row: int) -> Context:
    """Tokens from the root's first child down to `row` (0 is the root)."""
    if row == 0:
        return ()
    node = draft[row - 1]
    return (*path_of(draft, node.parent_row), node.token)


def drawn_tree(q: Model, widths: Sequence[int], stop: Callable[[Context], bool] | None = None) -> Drafter:
    """Draws `widths[d]` siblings below every node of depth d, without replacement: the shape is fixed first.

    `stop(context and path)` may end a path before anything below it is drawn; it never sees what it would
    drop. A width beyond the support of q draws the support. All widths 1 is a chain.
    """

    def drafter(chance: Chance, context: Context) -> Draft:
        nodes: list[Node] = []
        level = [0]
        for width in widths:
            next_level: list[int] = []
            for row in level:
                here = (*context, *path_of(tuple(nodes), row))
                if stop is not None and stop(here):
                    continue
                left = q(here)
                for place in range(min(width, sum(mass > 0 for mass in left))):
                    token = chance.pick((Purpose.DRAFT, len(context), row, place), left)
                    nodes.append(Node(token, row, q(here), row))
                    next_level.append(len(nodes))
                    left = tuple(Fraction(0) if x == token else mass for x, mass in enumerate(left))
            level = next_level
        return tuple(nodes)

    return drafter


def drawn_chain(q: Model, depth: int, stop: Callable[[Context], bool] | None = None) -> Drafter:
    """A chain of `depth` tokens drawn from q."""
    return drawn_tree(q, [1] * depth, stop)


def point_mass_tree(guess: Callable[[Context], Sequence[int]], depth: int) -> Drafter:
    """Siblings proposed with certainty, a deterministic function of what stands before them."""

    def drafter(chance: Chance, context: Context) -> Draft:
        nodes: list[Node] = []
        level = [0]
        for _ in range(depth):
            next_level: list[int] = []
            for row in level:
                for token in guess((*context, *path_of(tuple(nodes), row))):
                    nodes.append(Node(token, row))
                    next_level.append(len(nodes))
            level = next_level
        return tuple(nodes)

    return drafter


def coupled_chain(q: Model, depth: int) -> Drafter:
    """A chain drawn from q with the target's own noise of each output position."""

    def drafter(chance: Chance, context: Context) -> Draft:
        path: Context = ()
        for _ in range(depth):
            here = (*context, *path)
            path = (*path, chance.pick((Purpose.TARGET, len(here), 0, 0), q(here)))
        return tuple(Node(token, row) for row, token in enumerate(path))

    return drafter


def through_map(q: Model, target_ids: Mapping[int, int], vocab: int) -> Model:
    """q over the target's vocabulary for a drafter with its own: tokens outside the map are masked before
    drawing, the rest renormalised, and q is zero wherever the drafter cannot go (Timor et al. 2025)."""

    def mapped(context: Context) -> Dist:
        weights = [Fraction(0)] * vocab
        for draft_id, mass in enumerate(q(context)):
            if draft_id in target_ids:
                weights[target_ids[draft_id]] += mass
        return normalised(weights)

    return mapped


# ---- quantities (the same names as in `rejection` and `block`) -------------------------------------------


def normalised(weights: Sequence[Fraction]) -> Dist:
    total = sum(weights, Fraction(0))
    assert total > 0, "a distribution without mass"
    return tuple(weight / total for weight in weights)


def point_mass(token: int, vocab: int) -> Dist:
    return tuple(Fraction(int(x == token)) for x in range(vocab))


def acceptance_probability(p_token: Fraction, q_token: Fraction) -> Fraction:
    return min(_ONE, p_token / q_token)


def excess(weight: Fraction, p: Dist, q: Dist) -> Dist:
    return tuple(max(weight * a - b, Fraction(0)) for a, b in zip(p, q, strict=True))


def residual(p: Dist, q: Dist) -> Dist:
    return normalised(excess(_ONE, p, q))


def without(distribution: Dist, token: int) -> Dist:
    return normalised([Fraction(0) if x == token else mass for x, mass in enumerate(distribution)])


def prefix_weight(previous: Fraction, p_token: Fraction, q_token: Fraction) -> Fraction:
    return min(previous * p_token / q_token, _ONE)


def stop_probability(weight: Fraction, excess_mass: Fraction) -> Fraction:
    """Sun et al. 2024, algorithm 2; 0 / 0 only where a longer prefix is accepted for certain."""
    denominator = excess_mass + 1 - weight
    return excess_mass / denominator if denominator > 0 else _ONE


# ---- rules -----------------------------------------------------------------------------------------------


def matching(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
    """Greedy and coupled: emit the target's own token, go on while it was drafted. Empty draft: plain
    decoding."""
    row, run = 0, ()  # type: int, Context
    while True:
        here = (*context, *run)
        token = chance.pick((Purpose.TARGET, len(here), 0, 0), target(here))
        run = (*run, token)
        children = [n + 1 for n, node in enumerate(draft) if (node.parent_row, node.token) == (row, token)]
        if not children:
            return run
        row = children[0]


def rejection(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
    """Leviathan et al. 2023, algorithm 1; siblings in draw order, p and q updated after each rejection."""
    row, run = 0, ()  # type: int, Context
    while True:
        p = target((*context, *run))
        taken: list[Node] = []  # siblings rejected so far
        for place, child in enumerate(n + 1 for n, node in enumerate(draft) if node.parent_row == row):
            node = draft[child - 1]
            q = point_mass(node.token, len(p)) if node.q is None else node.q
            for other in taken:
                if node.q is not None and other.q is not None and other.q_row == node.q_row:
                    q = without(q, other.token)
            accept = acceptance_probability(p[node.token], q[node.token])
            if chance.below((Purpose.ACCEPT, len(context), len(run), place), accept):
                row, run = child, (*run, node.token)
                break
            p = residual(p, q)
            taken.append(node)
        else:
            return (*run, chance.pick((Purpose.RECOVER, len(context) + len(run), 0, 0), p))


def block(chance: Chance, context: Context, draft: Draft, target: Model) -> Context:
    """Sun et al. 2024, algorithm 2. Chains only."""
    tokens = tuple(node.token for node in draft)
    p = [target((*context, *tokens[:row])) for row in range(len(draft) + 1)]
    q = [point_mass(n.token, len(p[0])) if n.q is None else n.q for n in draft]
    weight = [_ONE]
    for row, token in enumerate(tokens):
        weight.append(prefix_weight(weight[row], p[row][token], q[row][token]))
    num_accepted = 0
    for row in range(1, len(draft) + 1):
        if row == len(draft):
            accept = weight[row]
        else:
            accept = stop_probability(weight[row], sum(excess(weight[row], p[row], q[row]), Fraction(0)))
        if chance.below((Purpose.ACCEPT, len(context), row - 1, 0), accept):
            num_accepted = row
    if num_accepted == len(draft):
        weights = p[num_accepted]
    else:
        weights = excess(weight[num_accepted], p[num_accepted], q[num_accepted])
    next_token = chance.pick((Purpose.RECOVER, len(context) + num_accepted, 0, 0), weights)
    return (*tokens[:num_accepted], next_token)


# ---- whole texts -----------------------------------------------------------------------------------------


def decode(
    chance: Chance, target: Model, drafter: Drafter, rule: Rule, num_rounds: int, context: Context = ()
) -> Context:
    """What an engine emits in `num_rounds` rounds."""
    for _ in range(num_rounds):
        context = (*context, *rule(chance, context, drafter(chance, context), target))
    return context


def extended(outcomes: Mapping[Context, Fraction], target: Model, horizon: int) -> dict[Context, Fraction]:
    """The distribution of the first `horizon` tokens: longer texts cut, shorter ones continued by the
    target."""
    result: dict[Context, Fraction] = {}

    def grow(context: Context, probability: Fraction) -> None:
        if len(context) >= horizon:
            result[context[:horizon]] = result.get(context[:horizon], Fraction(0)) + probability
            return
        for token, mass in enumerate(target(context)):
            if mass > 0:
                grow((*context, token), probability * mass)

    for context, probability in outcomes.items():
        grow(context, probability)
    return result


def deviation(target: Model, drafter: Drafter, rule: Rule, horizon: int, num_rounds: int = 1) -> Fraction:
    """Total variation distance, over the first `horizon` tokens, between what is emitted and the target's
    own.

    Zero is losslessness for these distributions, as an equation.
    """
    emitted = enumerate_outcomes(lambda chance: decode(chance, target, drafter, rule, num_rounds))
    ours, own = extended(emitted, target, horizon), extended({(): _ONE}, target, horizon)
    distances = (abs(ours.get(x, Fraction(0)) - own.get(x, Fraction(0))) for x in {*ours, *own})
    return sum(distances, Fraction(0)) / 2


def mean_emitted(target: Model, drafter: Drafter, rule: Rule) -> Fraction:
    """Expected tokens of one round (acceptance length before any stop rule)."""
    emitted = enumerate_outcomes(lambda chance: decode(chance, target, drafter, rule, 1))
    return sum((len(run) * probability for run, probability in emitted.items()), Fraction(0))


def toy_model(seed: int, vocab: int, zeros: bool = True) -> Model:
    """A made-up model: for every context a distribution with small denominators, some tokens impossible."""

    @cache
    def model(context: Context) -> Dist:
        rng = random.Random(f"{seed} {context}")
        weights = [Fraction(rng.randint(0 if zeros else 1, 4)) for _ in range(vocab)]
        return normalised(weights) if any(weights) else point_mass(rng.randrange(vocab), vocab)

    return model
