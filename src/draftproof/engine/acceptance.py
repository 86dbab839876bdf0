"""What drafting gives a request: expected tokens by depth, learnt from what was drafted and accepted.

The depth controller asks `steps` before a round and tells `learn` after it. Two kinds of drafter: one drafts as deep
as it is asked to, so its acceptance is kept by position; the other follows prices and drafts what seems worth it, so
what counts is how much it gains and drafts when it may. Knows no costs, no clock and no tokens.
"""

from __future__ import annotations

from typing import NamedTuple

PRIOR_ACCEPTANCE, PRIOR_WEIGHT = 0.7, 3.0
"""Acceptance of a position before anything was drafted, and how many observations of a method that counts for."""
METHOD_WEIGHT = 4.0
"""Observations of a request that what its method did for others counts for."""
DECAY, METHOD_DECAY = 0.96, 0.997
"""Weight that an older round keeps at each newer one: of the same request, of all requests of a method."""
KEPT_FROM_SHORTER = 0.3
"""Weight that a method's record at a shorter context has where a longer one is new."""
SURPRISE_DECAY, SURPRISE = 0.8, 7.0
"""Memory, and size in squared deviations, of a run of rounds that contradicts what was known."""
KEPT_AFTER_SURPRISE = 0.15
"""Weight of everything known after such a run, what others showed included: another phase of the text has begun."""
YIELD_DECAY = 0.93
"""The same as `DECAY` for drafters that follow prices; their gains come in bursts, so nothing is a surprise."""


class Step(NamedTuple):
    """One more piece of depth: expected tokens gained, expected rows, and the depth it reaches."""

    gain: float
    rows: float
    depth: int


class MethodRecord:
    """What a method's drafts did over all requests, by position; where a request starts from."""

    __slots__ = ("_accepted", "_tried", "gain", "rows")

    def __init__(self, like: MethodRecord | None = None) -> None:
        self._tried: list[float] = []
        self._accepted: list[float] = []
        # Of a drafter that follows prices: optimistic, so that each gets its chance.
        self.gain, self.rows = 0.5, 1.0
        if like is not None:
            self._tried = [KEPT_FROM_SHORTER * tried for tried in like._tried]
            self._accepted = [KEPT_FROM_SHORTER * accepted for accepted in like._accepted]
            self.gain, self.rows = like.gain, like.rows

    def learn(self, drafted: int, accepted: int) -> None:
        _count(self._tried, self._accepted, drafted, accepted, METHOD_DECAY)
        self.gain += 0.02 * (accepted - self.gain)
        self.rows += 0.02 * (drafted - self.rows)

    def conditional(self, depth: int) -> list[float]:
        """Acceptance of positions 0 … depth - 1, each given that the one before was accepted."""
        chances = []
        chance = PRIOR_ACCEPTANCE
        for position in range(depth):
            if position < len(self._tried):
                chance = (self._accepted[position] + PRIOR_WEIGHT * chance) / (
                    self._tried[position] + PRIOR_WEIGHT
                )
            chances.append(chance)
        return chances


class ChainRecord:
    """One request whose drafter goes as deep as it is asked to."""

    __slots__ = (
        "_accepted",
        "_deviation",
        "_offered",
        "_survivals",
        "_tried",
        "_trust",
        "_variance",
        "_yielded",
    )

    def __init__(self) -> None:
        self._tried: list[float] = []
        self._accepted: list[float] = []
        self._survivals: list[float] = []
        self._deviation = 0.0
        self._variance = 0.0
        self._trust = 1.0
        self._offered = 1.0
        self._yielded = 1.0

    def steps(self, method: MethodRecord, depth: int) -> list[Step]:
        self._survivals = self._estimate(method, depth)
        share = self._yielded / self._offered
        return [Step(share * s, share, at + 1) for at, s in enumerate(self._survivals)]

    def learn(self, offered: int, drafted: int, accepted: int) -> bool:
        """Takes one round in which it might draft; True if the text seems to have changed."""
        self._offered = self._offered * DECAY + 1.0
        self._yielded = self._yielded * DECAY + (drafted > 0)
        if not drafted:
            return False
        is_surprised = self._is_surprised(min(drafted, len(self._survivals)), accepted)
        if is_surprised:
            self._tried = [KEPT_AFTER_SURPRISE * t for t in self._tried]
            self._accepted = [KEPT_AFTER_SURPRISE * a for a in self._accepted]
            self._deviation = self._variance = 0.0
            self._trust = KEPT_AFTER_SURPRISE
        self._trust += (1.0 - DECAY) * (1.0 - self._trust)
        _count(self._tried, self._accepted, drafted, accepted, DECAY)
        return is_surprised

    def _estimate(self, method: MethodRecord, depth: int) -> list[float]:
        survivals = []
        survival = 1.0
        shift = 0.0  # this request against its method, by the positions before
        for position, usual in enumerate(method.conditional(depth)):
            chance = min(0.99, max(0.01, usual + shift))
            if position < len(self._tried):
                tried = self._tried[position]
                # What others showed counts less the more this request has shown itself.
                weight = self._trust * METHOD_WEIGHT * max(0.05, 1.0 - (1.0 - DECAY) * tried)
                chance = (self._accepted[position] + weight * chance) / (tried + weight)
            shift = chance - usual
            survival *= chance
            survivals.append(survival)
        return survivals

    def _is_surprised(self, drafted: int, accepted: int) -> bool:
        """Whether the last rounds accepted so much more or less than expected that chance does not explain it."""
        survivals = self._survivals[:drafted]
        expected = sum(survivals)
        square = sum((2 * at + 1) * survival for at, survival in enumerate(survivals))
        self._deviation = SURPRISE_DECAY * self._deviation + (accepted - expected)
        self._variance = SURPRISE_DECAY**2 * self._variance + max(0.02, square - expected**2)
        return self._deviation**2 > SURPRISE * self._variance


class PricedRecord:
    """One request whose drafter follows prices: it may draft up to the bound or not at all."""

    __slots__ = ("_gain", "_offered", "_rows")

    def __init__(self) -> None:
        self._gain = 0.0
        self._rows = 0.0
        self._offered = 0.0

    def steps(self, method: MethodRecord, depth: int) -> list[Step]:
        weight = self._offered + METHOD_WEIGHT
        gain = (self._gain + METHOD_WEIGHT * method.gain) / weight
        rows = (self._rows + METHOD_WEIGHT * method.rows) / weight
        # What came before may have been deeper than what is left to draft now.
        return [Step(min(gain, depth), min(max(rows, 0.01), depth), depth)] if depth else []

    def learn(self, offered: int, drafted: int, accepted: int) -> bool:
        """Takes one round in which it might draft; True for its first ones."""
        self._offered = self._offered * YIELD_DECAY + 1.0
        self._gain = self._gain * YIELD_DECAY + accepted
        self._rows = self._rows * YIELD_DECAY + drafted
        return self._offered < METHOD_WEIGHT


def _count(
    tried: list[float], accepted: list[float], num_drafted: int, num_accepted: int, decay: float
) -> None:
    """Adds a round: positions up to the first rejection were tried; positions that were not keep their weight."""
    num_tried = min(num_drafted, num_accepted + 1)
    missing = num_tried - len(tried)
    if missing > 0:
        tried.extend([0.0] * missing)
        accepted.extend([0.0] * missing)
    for position in range(num_tried):
        tried[position] = tried[position] * decay + 1.0
        accepted[position] = accepted[position] * decay + (position < num_accepted)
