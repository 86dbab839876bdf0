"""N-gram look-up against a plain reading of the rule."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.core.params import SamplingParams
from draftproof.proposers.base import SequenceView
from draftproof.proposers.evidence import assumed_prices
from draftproof.proposers.ngram import MAX_CANDIDATES, NGramProposer
from draftproof.verify.types import Verdict

GREEDY = SamplingParams(temperature=0.0)


def view(text: list[int], depth: int = 8, num_cheap: int = 64) -> SequenceView:
    """With cheap rows without end evidence never shortens a draft that has any chance."""
    return SequenceView("r", text, len(text), GREEDY, depth=depth, prices=assumed_prices(num_cheap, 64))


def draft(text: list[int], budget: int = 8, min_size: int = 2, max_size: int = 4) -> list[int]:
    proposer = NGramProposer(8, min_size, max_size)
    sequence = view(text)
    proposer.begin(sequence)
    tokens: list[int] = proposer.propose([sequence], [budget]).tokens.tolist()
    return tokens


def expected_position(text: list[int], min_size: int, max_size: int) -> int | None:
    """Longest n-gram; among its occurrences the furthest agreement; among those the newest."""
    for size in range(max_size, min_size - 1, -1):
        found = [p for p in range(len(text) - 1, size - 1, -1) if text[p - size : p] == text[-size:]]
        if found and size < len(text):

            def agreeing(position: int) -> int:
                length = 0
                while length < position and text[position - 1 - length] == text[-1 - length]:
                    length += 1
                return min(length, 32)

            return max(found[:MAX_CANDIDATES], key=agreeing)
    return None


@settings(deadline=None, max_examples=300)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 3), st.integers(0, 3))
def test_drafts_what_followed_the_longest_ngram(text: list[int], min_size: int, more: int) -> None:
    position = expected_position(text, min_size, min_size + more)
    tokens = draft(text, min_size=min_size, max_size=min_size + more)
    if position is None:
        assert tokens == []
    else:
        assert tokens
        whole = text + [0] * 8
        for offset in range(8):
            if position + offset >= len(text):
                whole[position + offset] = whole[position + offset - (len(text) - position)]
        assert tokens == whole[position : position + len(tokens)]


def test_furthest_agreement_wins_over_the_newest() -> None:
    #       agrees over four tokens      agrees over two, newer
    text = [7, 8, 1, 2, 30, 31, 32, 33, 9, 9, 1, 2, 40, 41, 42, 43, 7, 8, 1, 2]
    assert draft(text, min_size=2, max_size=2)[:2] == [30, 31]


def test_nothing_before_means_nothing_drafted() -> None:
    assert draft([1, 2, 3, 4]) == []
    assert draft([5]) == []
    assert draft([5, 1, 5], min_size=2) == []


def test_budget_depth_and_own_depth_bound_the_draft() -> None:
    text = [*range(40), *range(20)]
    assert draft(text, budget=3) == [20, 21, 22]
    assert draft(text, budget=0) == []
    proposer = NGramProposer(5, 2, 4)
    sequence = view(text, depth=2)
    proposer.begin(sequence)
    assert proposer.propose([sequence], [16]).tokens.tolist() == [20, 21]
    sequence.depth = 16
    assert proposer.propose([sequence], [16]).tokens.tolist() == [20, 21, 22, 23, 24]


def test_weak_evidence_drafts_less_when_rows_are_dear() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 51, 1, 2]
    proposer = NGramProposer(8, 2, 4)
    sequence = view(text, num_cheap=3)
    proposer.begin(sequence)
    cheap = proposer.propose([sequence], [8]).num_nodes
    sequence.prices = assumed_prices(0, 8)
    assert proposer.propose([sequence], [8]).num_nodes < cheap <= 4


def test_a_request_that_does_not_copy_stops_being_verified() -> None:
    """Text in which every pair came before but never continues the same way."""
    proposer = NGramProposer(8, 2, 2)
    sequence = view([0], num_cheap=3)
    proposer.begin(sequence)
    drafted = []
    fresh = 1000
    for round_idx in range(200):
        batch = proposer.propose([sequence], [8])
        drafted.append(batch.num_nodes)
        came = [1, 2] if round_idx % 2 else [fresh]
        fresh += 1
        sequence.token_ids.extend(came)
        proposer.commit([sequence], [Verdict((), (), came[-1])])
    assert max(drafted[:20]) > 0
    assert sum(drafted[-50:]) == 0
