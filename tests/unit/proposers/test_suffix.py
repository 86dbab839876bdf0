"""Suffix decoding: majority, bounds by matched length and share, the pool and its scopes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof.core.intent import Suffix
from draftproof.core.params import SamplingParams
from draftproof.proposers.base import SequenceView
from draftproof.proposers.evidence import assumed_prices
from draftproof.proposers.suffix import SuffixProposer

GREEDY = SamplingParams(temperature=0.0)
INTENT = Suffix(suffix_decoding_max_spec_factor=8.0)


def view(text: list[int], num_prompt: int | None = None, scope: str = "", req_id: str = "r") -> SequenceView:
    return SequenceView(
        req_id,
        list(text),
        len(text) if num_prompt is None else num_prompt,
        GREEDY,
        scope=scope,
        depth=16,
        prices=assumed_prices(64, 16),
    )


def draft(proposer: SuffixProposer, sequence: SequenceView, budget: int = 16) -> list[int]:
    proposer.begin(sequence)
    tokens: list[int] = proposer.propose([sequence], [budget]).tokens.tolist()
    return tokens


def finish(proposer: SuffixProposer, output: list[int], scope: str = "") -> None:
    """A request that ran and ended with this output."""
    sequence = view([99, *output], num_prompt=1, scope=scope, req_id="earlier")
    proposer.begin(sequence)
    proposer.end(sequence)


def test_the_majority_of_equally_long_matches_is_followed() -> None:
    text = [1, 2, 7, 50, 1, 2, 8, 51, 1, 2, 7, 52, 1, 2]
    assert draft(SuffixProposer(INTENT), view(text))[0] == 7


def test_a_tie_goes_to_the_newest() -> None:
    assert draft(SuffixProposer(INTENT), view([1, 2, 7, 50, 1, 2, 8, 51, 1, 2]))[0] == 8


def test_a_longer_match_beats_more_matches() -> None:
    text = [1, 2, 7, 50, 1, 2, 7, 51, 5, 6, 1, 2, 9, 52, 5, 6, 1, 2]
    assert draft(SuffixProposer(INTENT), view(text))[0] == 9


@pytest.mark.parametrize(("factor", "num_drafted"), [(1.0, 4), (2.0, 8), (0.5, 2), (0.2, 0)])
def test_draft_length_is_bounded_by_matched_length(factor: float, num_drafted: int) -> None:
    text = [60, 1, 2, 3, 4, *range(10, 40), 61, 1, 2, 3, 4]
    proposer = SuffixProposer(replace(INTENT, suffix_decoding_max_spec_factor=factor))
    assert draft(proposer, view(text)) == list(range(10, 10 + num_drafted))


def test_tree_depth_bounds_the_matched_length_and_so_the_draft() -> None:
    text = [*range(10), *range(10, 40), *range(10)]
    intent = Suffix(suffix_decoding_max_tree_depth=3, suffix_decoding_max_spec_factor=1.0)
    assert draft(SuffixProposer(intent), view(text)) == [10, 11, 12]


def test_path_ends_where_too_few_occurrences_follow_it() -> None:
    forks = [[1, 2, 3, 100 + k, 200 + k] for k in range(10)]
    text = [token for fork in forks for token in fork] + [1, 2]
    keeps = replace(INTENT, suffix_decoding_min_token_prob=0.05)
    cuts = replace(INTENT, suffix_decoding_min_token_prob=0.3)
    assert draft(SuffixProposer(cuts), view(text)) == [3]
    assert draft(SuffixProposer(keeps), view(text))[:2] in ([3], [3, 109])


def test_earlier_outputs_of_the_scope_are_drafted_from_and_no_others() -> None:
    proposer = SuffixProposer(INTENT)
    finish(proposer, [1, 2, 3, 4, 5, 6], scope="a")
    assert draft(proposer, view([9, 1, 2, 3], scope="a")) == [4, 5, 6]
    assert draft(proposer, view([9, 1, 2, 3], scope="b", req_id="s")) == []


def test_prompts_are_not_remembered_for_others() -> None:
    proposer = SuffixProposer(INTENT)
    sequence = view([1, 2, 3, 4, 5, 6], num_prompt=4)
    proposer.begin(sequence)
    proposer.end(sequence)
    assert draft(proposer, view([9, 1, 2])) == []
    assert draft(proposer, view([9, 5], req_id="s")) == [6]


def test_a_draft_does_not_run_over_into_the_next_output() -> None:
    proposer = SuffixProposer(INTENT)
    finish(proposer, [1, 2, 3])
    finish(proposer, [4, 5, 6])
    assert draft(proposer, view([9, 1, 2])) == [3]
    assert draft(proposer, view([9, 2, 3], req_id="s")) == []


def test_own_text_and_pool_vote_together() -> None:
    proposer = SuffixProposer(INTENT)
    for _ in range(2):
        finish(proposer, [30, 1, 2, 8, 40])
    text = [31, 1, 2, 7, 41, 32, 1, 2]
    assert draft(proposer, view(text))[0] == 8


def test_no_pool_when_no_requests_may_be_cached() -> None:
    proposer = SuffixProposer(replace(INTENT, suffix_decoding_max_cached_requests=0))
    finish(proposer, [1, 2, 3, 4])
    assert draft(proposer, view([9, 1, 2])) == []


def test_ending_twice_or_without_beginning_remembers_once_at_most() -> None:
    proposer = SuffixProposer(INTENT)
    sequence = view([99, 1, 2, 3], num_prompt=1)
    proposer.end(sequence)
    assert draft(proposer, view([9, 1, 2], req_id="s")) == []
