"""A proposer that fails is left by the request at fault alone, and the others are still asked together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from torch import Tensor

from draftproof.core.params import SamplingParams
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import ProposerNeeds, SequenceView, Source
from draftproof.proposers.guard import ROUNDS_ALONE, Guard
from draftproof.verify.types import Verdict


class Failing:
    """Drafts each request's number, and fails for some requests, or for every batch of several."""

    name = "failing"
    needs = ProposerNeeds()
    sources = (Source(follows_prices=False),)

    def __init__(self, fails_for: str = "", fails_together: bool = False) -> None:
        self.asked: list[str] = []
        self._fails_for = fails_for
        self._fails_together = fails_together

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        return DraftBatch.chains(self.draft(sequences, budgets))

    def draft(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> list[list[int]]:
        self.asked.append("".join(sequence.req_id for sequence in sequences))
        if any(s.req_id in self._fails_for for s in sequences) or (
            self._fails_together and len(sequences) > 1
        ):
            raise RuntimeError("no draft")
        return [[ord(s.req_id)] * budget for s, budget in zip(sequences, budgets, strict=True)]

    def begin(self, sequence: SequenceView) -> None: ...
    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None: ...
    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None: ...
    def end(self, sequence: SequenceView) -> None: ...


class FailingLists(Failing):
    def chains(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> list[list[int]]:
        return self.draft(sequences, budgets)


Proposers = pytest.mark.parametrize("kind", [Failing, FailingLists])


def ask(guard: Guard, names: str) -> list[list[int]]:
    sequences = [SequenceView(name, [1], 1, SamplingParams(), depth=4) for name in names]
    budgets = [2] * len(names)
    if guard.drafts_chains:
        return guard.chains(sequences, budgets)
    batch = guard.propose(sequences, budgets)
    return [batch.request(entry).tokens.tolist() for entry in range(len(names))]


def drafts(names: str, without: str = "") -> list[list[int]]:
    return [[] if name in without else [ord(name)] * 2 for name in names]


@Proposers
def test_after_a_failure_the_others_are_asked_together(kind: type[Failing]) -> None:
    proposer = kind(fails_for="b")
    guard = Guard(proposer, vocab_size=None)
    assert ask(guard, "abc") == drafts("abc", without="b")
    assert list(guard.failures) == ["b"]
    proposer.asked.clear()
    assert ask(guard, "abcd") == drafts("abcd", without="b")
    assert proposer.asked == ["acd"]


@Proposers
def test_a_lone_failure_is_asked_once(kind: type[Failing]) -> None:
    proposer = kind(fails_for="b")
    guard = Guard(proposer, vocab_size=None)
    assert ask(guard, "b") == [[]]
    assert ask(guard, "b") == [[]]
    assert proposer.asked == ["b"]


@Proposers
def test_what_fails_for_batches_alone_is_asked_one_by_one(kind: type[Failing]) -> None:
    proposer = kind(fails_together=True)
    guard = Guard(proposer, vocab_size=None)
    assert ask(guard, "ab") == drafts("ab")
    assert ask(guard, "ab") == drafts("ab")
    assert proposer.asked == ["ab", "a", "b", "a", "b"]
    assert not guard.failures


@Proposers
def test_what_failed_for_a_batch_once_is_asked_together_again(kind: type[Failing]) -> None:
    proposer = kind(fails_together=True)
    guard = Guard(proposer, vocab_size=None)
    assert ask(guard, "ab") == drafts("ab")
    proposer._fails_together = False
    for _ in range(ROUNDS_ALONE):
        assert ask(guard, "ab") == drafts("ab")
    proposer.asked.clear()
    assert ask(guard, "ab") == drafts("ab")
    assert proposer.asked == ["ab"]
