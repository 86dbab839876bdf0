"""What drafting gives a request: expected tokens by depth, learnt from what was drafted and accepted.

The depth controller asks `steps` before a round and tells `learn` after it. Two kinds of drafter: one drafts as deep
as it is asked to, so its acceptance is kept by position; the other follows prices and drafts what seems worth it, so
what counts is how much it gains and drafts when it may. Knows no costs, no clock and no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

PRIOR_TAKEN, PRIOR_REFUSED, PRIOR_TAKEN_SHARE = 0.7, 0.1, 0.85
"""Acceptance of a position in stretches of text where drafts are taken and where not, and how likely a text begins with
the former, before anything was drafted."""
PRIOR_WEIGHT = 3.0
"""Observations of a method that these acceptances count for."""
METHOD_WEIGHT = 4.0
"""Observations of a request that what its method did for others counts for."""
DECAY, METHOD_DECAY = 0.96, 0.997
"""Weight that an older round keeps at each newer one: of the same request, of all requests of a method."""
SHARE_GAIN = 0.02
"""Weight of a round in what share of its rounds a method's drafts are taken."""
KEPT_FROM_SHORTER = 0.3
"""Weight that a method's record at a shorter context has where a longer one is new."""
FADE = 0.96
"""Weight that what is known of a position keeps at each round that does not draft so deep."""
BORDER = 0.4
"""First tokens accepted more often than that are those of stretches where drafts are taken."""
CHANGE, MOST_CHANGE = 0.005, 0.07
"""Chance that another stretch begins in a round, and at most since the last draft."""
SURPRISE = 0.2
"""Change of the chance that drafts are taken which should be thought about at once."""
YIELD_DECAY = 0.93
"""The same as `DECAY` for drafters that follow prices; their gains come in bursts, so nothing is a surprise."""
OWN_ROUNDS = 8.0
"""Rounds after which what other requests of such a drafter gained counts for almost nothing: a text that copies nothing
must not draft for long because the one before copied all."""


class Step(NamedTuple):
    """One more piece of depth: expected tokens gained, expected rows, and the depth it reaches."""

    gain: float
    rows: float
    depth: int


class _Positions:
    """Acceptance by position of one kind of stretch, each given that the one before was accepted."""

    __slots__ = ("_accepted", "_tried")

    def __init__(self, like: _Positions | None = None) -> None:
        self._tried: list[float] = [KEPT_FROM_SHORTER * tried for tried in like._tried] if like else []
        self._accepted: list[float] = (
            [KEPT_FROM_SHORTER * accepted for accepted in like._accepted] if like else []
        )

    def learn(self, drafted: int, accepted: int, decay: float, share: float) -> None:
        """Takes a round that was of this kind by `share`: positions up to the first rejection were tried.

        What is known of positions that nobody drafts fades as well: bad luck must not keep them from being tried.
        """
        decay = 1.0 - share * (1.0 - decay)
        num_tried = min(drafted, accepted + 1)
        missing = num_tried - len(self._tried)
        if missing > 0:
            self._tried.extend([0.0] * missing)
            self._accepted.extend([0.0] * missing)
        fade = 1.0 - share * (1.0 - FADE)
        for position, tried in enumerate(self._tried):
            kept = fade if position >= drafted else decay if position < num_tried else 1.0
            self._tried[position] = tried * kept + share * (position < num_tried)
            self._accepted[position] = self._accepted[position] * kept + share * (position < accepted)

    def of_method(self, depth: int, chance: float) -> list[float]:
        """Of positions 0 … depth - 1: where little was tried, as the position before; first of all `chance`."""
        chances = []
        for tried, accepted in zip(self._tried[:depth], self._accepted[:depth], strict=True):
            chance = (accepted + PRIOR_WEIGHT * chance) / (tried + PRIOR_WEIGHT)
            chances.append(chance)
        return chances + [chance] * (depth - len(chances))

    def of_request(self, usual: Sequence[float]) -> list[float]:
        """Starting from what is usual for its method."""
        chances = []
        shift = 0.0  # this request against its method, by the positions before
        for position, known in enumerate(usual):
            chance = min(0.99, max(0.01, known + shift))
            if position < len(self._tried):
                tried = self._tried[position]
                # What others showed counts less the more this request has shown itself.
                weight = METHOD_WEIGHT * max(0.05, 1.0 - (1.0 - DECAY) * tried)
                chance = (self._accepted[position] + weight * chance) / (tried + weight)
            shift = chance - known
            chances.append(chance)
        return chances


class MethodRecord:
    """What a method's drafts did over all requests; where a request starts from."""

    __slots__ = ("gain", "num_learnt", "refused", "rows", "taken", "taken_share")

    def __init__(self, like: MethodRecord | None = None) -> None:
        self.taken: _Positions = _Positions(like.taken if like else None)
        self.refused: _Positions = _Positions(like.refused if like else None)
        self.taken_share: float = like.taken_share if like else PRIOR_TAKEN_SHARE
        self.num_learnt = 0
        # Of a drafter that follows prices: optimistic, so that each gets its chance.
        self.gain: float = like.gain if like else 0.5
        self.rows: float = like.rows if like else 1.0

    def learn(self, drafted: int, accepted: int) -> None:
        """Takes one round of a request whose drafter follows prices."""
        self.gain += 0.02 * (accepted - self.gain)
        self.rows += 0.02 * (drafted - self.rows)

    def learn_chain(self, drafted: int, accepted: int, chance_taken: float) -> None:
        """Takes one round of another; `chance_taken` that it was in a stretch where drafts are taken."""
        is_taken = 2.0 * chance_taken - 1.0
        self.taken.learn(drafted, accepted, METHOD_DECAY, max(0.0, is_taken))
        self.refused.learn(drafted, accepted, METHOD_DECAY, max(0.0, -is_taken))
        self.num_learnt += 1
        gain = max(SHARE_GAIN, 1.0 / (self.num_learnt + PRIOR_WEIGHT))
        self.taken_share += gain * (chance_taken - self.taken_share)


class ChainRecord:
    """One request whose drafter goes as deep as it is asked to.

    Its text has stretches where drafts are taken and stretches where they are not. Acceptance is kept of either kind,
    with the chance that the present stretch is of the first: where one ends, what an earlier one showed is known
    again after a draft or two.
    """

    __slots__ = ("_chance_taken", "_chances", "_has_learnt", "_offered", "_refused", "_taken", "_yielded")

    def __init__(self) -> None:
        self._taken = _Positions()
        self._refused = _Positions()
        self._chance_taken = PRIOR_TAKEN_SHARE
        self._has_learnt = False
        self._chances: list[tuple[float, float]] = []
        """Acceptance of each position in either kind of stretch, as it was asked for last."""
        self._offered = 1.0
        self._yielded = 1.0

    @property
    def share_drafted(self) -> float:
        """Share of the rounds in which it might draft that it did."""
        return self._yielded / self._offered

    def steps(self, method: MethodRecord, depth: int) -> list[Step]:
        if not self._has_learnt:
            self._chance_taken = min(1.0 - MOST_CHANGE, max(MOST_CHANGE, method.taken_share))
        taken = self._taken.of_request(method.taken.of_method(depth, PRIOR_TAKEN))
        refused = self._refused.of_request(method.refused.of_method(depth, PRIOR_REFUSED))
        if depth:
            taken[0], refused[0] = max(BORDER, taken[0]), min(BORDER, refused[0])
        self._chances = list(zip(taken, refused, strict=True))
        share = self.share_drafted
        of_taken = self._chance_taken
        of_refused = 1.0 - of_taken
        steps = []
        for position, (chance, other) in enumerate(self._chances, 1):
            of_taken *= chance
            of_refused *= other
            steps.append(Step(share * (of_taken + of_refused), share, position))
        return steps

    def learn(
        self, method: MethodRecord, offered: int, drafted: int, accepted: int, rounds_since: int
    ) -> bool:
        """Takes one round in which it might draft, for itself and for its method, `rounds_since` it last did.

        True if another stretch seems to have begun.
        """
        self._offered = self._offered * DECAY + 1.0
        self._yielded = self._yielded * DECAY + (drafted > 0)
        if not drafted:
            return False
        before = self._chance_taken
        change = min(MOST_CHANGE, CHANGE * (1 + rounds_since))
        of_taken = before + change * (1.0 - 2.0 * before)
        of_refused = 1.0 - of_taken
        for position, (chance, other) in enumerate(self._chances[:drafted]):
            is_accepted = position < accepted
            of_taken *= _likelihood(chance, is_accepted)
            of_refused *= _likelihood(other, is_accepted)
            if not is_accepted:
                break
        self._has_learnt = True
        now = self._chance_taken = of_taken / (of_taken + of_refused)
        self._taken.learn(drafted, accepted, DECAY, max(0.0, before + now - 1.0))
        self._refused.learn(drafted, accepted, DECAY, max(0.0, 1.0 - before - now))
        method.learn_chain(drafted, accepted, (before + now) / 2)
        return abs(now - before) > SURPRISE


def _likelihood(chance: float, is_accepted: bool) -> float:
    """Of one outcome; none is so sure that a single one could say everything."""
    bounded = min(0.9, max(0.1, chance))
    return bounded if is_accepted else 1.0 - bounded


class PricedRecord:
    """One request whose drafter follows prices: it may draft up to the bound or not at all."""

    __slots__ = ("_drafted", "_gain", "_offered", "_rows")

    def __init__(self) -> None:
        self._gain = 0.0
        self._rows = 0.0
        self._drafted = 0.0
        self._offered = 0.0

    @property
    def share_drafted(self) -> float:
        """Share of the rounds in which it might draft that it did."""
        return self._drafted / self._offered if self._offered else 0.0

    def steps(self, method: MethodRecord, depth: int) -> list[Step]:
        usual = METHOD_WEIGHT * max(0.05, 1.0 - self._offered / OWN_ROUNDS)
        weight = self._offered + usual
        gain = (self._gain + usual * method.gain) / weight
        rows = (self._rows + usual * method.rows) / weight
        # What came before may have been deeper than what is left to draft now.
        return [Step(min(gain, depth), min(max(rows, 0.01), depth), depth)] if depth else []

    def learn(
        self, method: MethodRecord, offered: int, drafted: int, accepted: int, rounds_since: int
    ) -> bool:
        """Takes one round in which it might draft, for itself and for its method; True for its first ones."""
        method.learn(drafted, accepted)
        self._offered = self._offered * YIELD_DECAY + 1.0
        self._gain = self._gain * YIELD_DECAY + accepted
        self._rows = self._rows * YIELD_DECAY + drafted
        self._drafted = self._drafted * YIELD_DECAY + (drafted > 0)
        return self._offered < METHOD_WEIGHT
