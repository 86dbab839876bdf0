"""Draft length follows what agreed before, and the estimate follows the request."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.proposers.evidence import CHEAP_PRICE, PRICE, PRIOR_AGREEMENT, Evidence, assumed_prices

SOME_CHEAP = assumed_prices(3, 40)
NONE_CHEAP = assumed_prices(0, 40)


def test_weak_agreement_drafts_little_and_strong_agreement_to_the_limit() -> None:
    evidence = Evidence()
    assert 1 <= evidence.num_worth(1, 16, SOME_CHEAP) <= 3
    assert evidence.num_worth(32, 16, SOME_CHEAP) == 16
    assert (
        evidence.num_worth(2, 16, NONE_CHEAP)
        < evidence.num_worth(2, 16, SOME_CHEAP)
        <= evidence.num_worth(12, 16, SOME_CHEAP)
    )


@given(st.integers(0, 80), st.integers(0, 40), st.integers(0, 8))
def test_never_beyond_the_limit_and_more_cheap_rows_never_shorten(
    length: int, limit: int, cheap: int
) -> None:
    evidence = Evidence()
    num_worth = evidence.num_worth(length, limit, assumed_prices(cheap, 40))
    assert 0 <= num_worth <= limit
    assert num_worth <= evidence.num_worth(length, limit, assumed_prices(cheap + 1, 40))


def test_a_request_that_never_copies_stops_drafting_and_one_that_does_starts_again() -> None:
    evidence = Evidence()
    for _ in range(100):
        evidence.learn(2, [7, 8], [1])
    assert evidence.chance(2) < CHEAP_PRICE
    assert evidence.num_worth(2, 8, SOME_CHEAP) == 0
    for _ in range(100):
        evidence.learn(2, [7, 8, 9], [7, 8, 9])
    assert evidence.num_worth(2, 8, SOME_CHEAP) == 8


def test_learning_counts_up_to_the_first_difference() -> None:
    evidence = Evidence()
    assert evidence.learn(3, [1, 2, 3, 4], [1, 2, 9, 4]) == 2
    assert evidence.chance(3) > PRIOR_AGREEMENT[3]
    assert evidence.chance(4) > PRIOR_AGREEMENT[4]
    assert evidence.chance(5) < PRIOR_AGREEMENT[5]
    assert evidence.chance(6) == PRIOR_AGREEMENT[6]
    assert evidence.learn(0, [], [1]) == 0
    assert evidence.learn(0, [1], []) == 0


def test_disagreeing_occurrences_shorten_the_draft() -> None:
    evidence = Evidence()
    assert evidence.num_worth(32, 16, NONE_CHEAP, [1.0] * 4 + [0.4] * 12) == 4
    assert evidence.num_worth(32, 16, NONE_CHEAP, [PRICE / 2]) == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))))
def test_chances_stay_probabilities(rounds: list[tuple[int, list[int], list[int]]]) -> None:
    evidence = Evidence()
    for length, guess, came in rounds:
        evidence.learn(length, guess, came)
    assert all(0 < evidence.chance(length) < 1 for length in range(40))
