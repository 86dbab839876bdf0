"""How long a draft is worth its rows: an estimate of agreement by how much text agreed before. One per request.

Look-up proposers draft what followed an earlier occurrence of the newest tokens. Whether that comes again depends
above all on how many tokens agree already: after two about half, after twenty nearly all. The estimate starts from
measured values and moves with what this request shows, so a request that never copies soon drafts little, and one
that copies drafts to the full depth. It learns from every guess, also from those that were too weak to be verified:
the text that came tells whether they would have been right. Deterministic: no clock, no randomness.
"""

from __future__ import annotations

from collections.abc import Sequence

PRIOR_AGREEMENT = (0.25, 0.3, 0.5, 0.65, 0.75, 0.82, 0.87, 0.9, 0.92, 0.95, 0.97, 0.985)
"""Share of guesses that came true after 0, 1, ... 8, 9 to 15, 16 to 31, 32 and more agreeing tokens."""
PRIOR_WEIGHT = 6.0
"""How many observations the prior counts for."""
CHEAP_PRICE = 0.08
"""What a token costs that hardly lengthens the pass, in tokens, where nothing was measured."""
PRICE = 0.5
"""What any other token costs there."""
DECAY = 0.97
"""Weight that an older observation keeps at each newer one of its class."""


INSTEAD = 1.0
"""What a drafter with weights is expected to gain over its price where nothing was measured, in tokens: as much as a
draft after two or three agreeing tokens."""


def assumed_prices(num_cheap: int, depth: int, instead: float = 0.0) -> list[float]:
    """`SequenceView.prices` where nothing was measured: the first `num_cheap` tokens cost little, the others more."""
    cheap = [min(tokens, num_cheap) for tokens in range(1, depth + 1)]
    return [-instead, *(CHEAP_PRICE * few + PRICE * (tokens - few) for tokens, few in enumerate(cheap, 1))]


ASSUMED_PRICES = tuple(assumed_prices(3, 128))
"""For one request alone, where four rows cost about as much as one."""


class Evidence:
    """Agreement estimates of one request, by class of agreeing length."""

    __slots__ = ("_agreed", "_seen")

    def __init__(self) -> None:
        self._agreed = [share * PRIOR_WEIGHT for share in PRIOR_AGREEMENT]
        self._seen = [PRIOR_WEIGHT] * len(PRIOR_AGREEMENT)

    def chance(self, length: int) -> float:
        """That the next token agrees after `length` did."""
        row = _row(length)
        return self._agreed[row] / self._seen[row]

    def num_worth(
        self, length: int, limit: int, prices: Sequence[float], shares: Sequence[float] = ()
    ) -> int:
        """Tokens worth drafting after `length` agreed, at most `limit`: so many as gain most over their price.

        `prices[d]` is what d drafted tokens cost, in tokens (what none lose, negative, for 0); more than it names are
        not drafted. `shares` are, per
        token, the part of the occurrences that it has on its side where they disagree.
        """
        survival, gain, num_worth = 1.0, 0.0, 0
        best = -prices[0] if prices else 0.0
        for drafted in range(min(limit, len(prices) - 1)):
            row = _row(length + drafted)
            survival *= self._agreed[row] / self._seen[row]
            if drafted < len(shares):
                survival *= shares[drafted]
            gain += survival
            if gain - prices[drafted + 1] > best:
                best, num_worth = gain - prices[drafted + 1], drafted + 1
        return num_worth

    def learn(self, length: int, guess: Sequence[int], came: Sequence[int]) -> int:
        """Compares a guess made after `length` agreeing tokens with the text that came; returns how many agreed."""
        for offset, (guessed, token) in enumerate(zip(guess, came, strict=False)):
            row = _row(length + offset)
            self._agreed[row] = self._agreed[row] * DECAY + (guessed == token)
            self._seen[row] = self._seen[row] * DECAY + 1.0
            if guessed != token:
                return offset
        return min(len(guess), len(came))


def _row(length: int) -> int:
    if length <= 8:
        return length
    return 9 if length < 16 else 10 if length < 32 else 11
