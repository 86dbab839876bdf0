"""A cascade: the first draft wins, per request; every part sees every call."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from torch import Tensor

from draftproof.core.params import SamplingParams
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import ProposerNeeds, SequenceView
from draftproof.proposers.cascade import CascadeProposer
from draftproof.verify.types import Verdict


class Part:
    """Drafts its own number for the requests it is asked to serve, and writes down what is called."""

    follows_prices = True

    def __init__(self, token: int, serves: str, needs: ProposerNeeds | None = None) -> None:
        self.name = f"part {token}"
        self.needs = needs or ProposerNeeds()
        self.token = token
        self.serves = serves
        self.calls: list[str] = []

    def begin(self, sequence: SequenceView) -> None:
        self.calls.append(f"begin {sequence.req_id}")

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None:
        self.calls.append(f"observe {sequence.req_id}")

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        self.calls.append("propose " + "".join(s.req_id for s in sequences))
        chains = [
            [self.token] * b if s.req_id in self.serves else []
            for s, b in zip(sequences, budgets, strict=True)
        ]
        return DraftBatch.chains(chains)

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        self.calls.append("commit " + "".join(s.req_id for s in sequences))

    def end(self, sequence: SequenceView) -> None:
        self.calls.append(f"end {sequence.req_id}")


def views(names: str) -> list[SequenceView]:
    return [SequenceView(name, [1], 1, SamplingParams(), depth=4) for name in names]


def chains(batch: DraftBatch) -> list[list[int]]:
    return [batch.request(entry).tokens.tolist() for entry in range(batch.num_requests)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("abc", "abc", [[1], [1, 1], [1, 1, 1]]),
        ("", "abc", [[2], [2, 2], [2, 2, 2]]),
        ("b", "ab", [[2], [1, 1], []]),
        ("c", "", [[], [], [1, 1, 1]]),
        ("", "", [[], [], []]),
    ],
)
def test_each_request_gets_the_first_draft(first: str, second: str, expected: list[list[int]]) -> None:
    parts = [Part(1, first), Part(2, second)]
    batch = CascadeProposer(parts).propose(views("abc"), [1, 2, 3])
    assert chains(batch) == expected
    left = [name for name in "abc" if name not in first]
    assert parts[1].calls == ([f"propose {''.join(left)}"] if left else [])


def test_every_part_sees_begin_observe_commit_and_end() -> None:
    parts = [Part(1, "a"), Part(2, "")]
    cascade = CascadeProposer(parts)
    sequences = views("a")
    cascade.begin(sequences[0])
    cascade.observe(sequences[0], None)
    cascade.propose(sequences, [1])
    cascade.commit(sequences, [Verdict((), (), 1)])
    cascade.end(sequences[0])
    assert parts[0].calls == ["begin a", "observe a", "propose a", "commit a", "end a"]
    assert parts[1].calls == ["begin a", "observe a", "commit a", "end a"]


def test_needs_are_those_of_all_parts() -> None:
    parts = [Part(1, "", ProposerNeeds((4, 2))), Part(2, "", ProposerNeeds((2,), token_embeddings=True))]
    assert CascadeProposer(parts).needs == ProposerNeeds((2, 4), token_embeddings=True)
