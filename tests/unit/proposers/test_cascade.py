"""A cascade: the first draft wins, per request; every part sees every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from draftproof.core.params import SamplingParams
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import Offer, ProposerNeeds, SequenceView, Source
from draftproof.proposers.cascade import CascadeProposer
from draftproof.verify.types import Verdict


class Part:
    """Drafts its own number for the requests it is asked to serve, and writes down what is called."""

    sources = (Source(follows_prices=True),)

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


class Lists(Part):
    """The same as lists of tokens; it may not be asked for anything else."""

    kind = "list"

    def chains(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> list[list[int]]:
        return chains(super().propose(sequences, budgets))

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        raise AssertionError("asked for tensors")


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


@given(
    st.lists(
        st.tuples(st.sampled_from(["list", "chain", "drawn", "tree"]), st.text("abc", max_size=3)),
        min_size=1,
        max_size=3,
    )
)
def test_drafts_of_all_kinds_arrive_as_they_were_made(kinds: list[tuple[str, str]]) -> None:
    """Chains are put together in another way than drafts with distributions and trees: nobody sees which."""

    class Other(Part):
        def __init__(self, token: int, serves: str, kind: str) -> None:
            super().__init__(token, serves)
            self.kind = kind

        def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
            batch = super().propose(sequences, budgets)
            if self.kind == "tree":
                return replace(batch, parent_rows=torch.zeros_like(batch.parent_rows))
            if self.kind == "drawn":
                drawn = torch.zeros_like(batch.is_point_mass)
                return replace(batch, is_point_mass=drawn, q=torch.full((1, 8), self.token / 8.0))
            return batch

    parts = [
        (Lists(token, serves) if kind == "list" else Other(token, serves, kind))
        for token, (kind, serves) in enumerate(kinds, 1)
    ]
    batch = CascadeProposer(parts).propose(views("abc"), [1, 2, 3])
    for entry, name in enumerate("abc"):
        first = next((part for part in parts if name in part.serves), None)
        found = batch.request(entry)
        assert found.tokens.tolist() == ([] if first is None else [first.token] * (entry + 1))
        if first is not None:
            assert found.parent_rows.tolist() == (
                [0] * (entry + 1) if first.kind == "tree" else list(range(entry + 1))
            )
            assert set(found.is_point_mass.tolist()) == {first.kind != "drawn"}
            assert first.kind != "drawn" or found.q[found.q_rows].unique().tolist() == [first.token / 8.0]


@pytest.mark.parametrize(
    "made",
    [[[99]], [[-1]], [[5] * 9], [], [[5], [5]], [[None]], [5]],
    ids=["vocabulary", "negative", "long", "none", "two", "no token", "no list"],
)
def test_a_part_with_malformed_lists_leaves_its_request_to_the_others(made: list[list[int]]) -> None:
    class Malformed(Lists):
        def chains(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> list[list[int]]:
            bad = [index for index, sequence in enumerate(sequences) if sequence.req_id == "b"]
            return made if bad else super().chains(sequences, budgets)

    cascade = CascadeProposer([Malformed(1, "abc"), Lists(2, "abc")], vocab_size=64)
    sequences = views("abc")
    for _ in range(2):
        assert chains(cascade.propose(sequences, [2, 2, 2])) == [[1, 1], [2, 2], [1, 1]]
    assert [sequence.note is not None for sequence in sequences] == [False, True, False]


@given(st.lists(st.integers(0, 3), max_size=6), st.data())
def test_drafts_of_some_among_many(sizes: list[int], data: st.DataObject) -> None:
    others = data.draw(st.integers(0, 5))
    places = sorted(data.draw(st.permutations(range(len(sizes) + others)))[: len(sizes)])
    drafts = [[index] * size for index, size in enumerate(sizes)]
    expected: list[list[int]] = [[]] * (len(sizes) + others)
    for place, draft in zip(places, drafts, strict=True):
        expected[place] = draft
    assert chains(DraftBatch.chains(drafts).spread(places, len(expected))) == expected


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


class Reading(Part):
    """A part that must read the text before it drafts."""

    sources = (Source(follows_prices=False, depth=2, reads=True),)

    def reach(self, sequence: SequenceView, num_tokens: int) -> int:
        return num_tokens

    def release(self, sequence: SequenceView) -> bool:
        return False

    def lag(self, sequence: SequenceView, source: int = 0) -> int:
        return len(sequence.token_ids)


def test_neighbours_that_follow_prices_are_one_source() -> None:
    cascade = CascadeProposer(
        [Part(1, ""), Part(2, "a"), Reading(3, "ab"), Reading(4, "abc"), Part(5, "abcd")]
    )
    assert [source.follows_prices for source in cascade.sources] == [True, False, False, True]
    assert [source.depth for source in cascade.sources] == [128, 2, 2, 128]
    sequences = views("abcd")
    cascade.propose(sequences, [1] * 4)
    assert [sequence.source for sequence in sequences] == [0, 1, 2, 3], "it is told who drafted"
    assert [cascade.lag(sequences[0], source) for source in range(4)] == [0, 1, 1, 0]
    assert len(cascade.take_spent_s()) == 4
    assert cascade.take_spent_s() == [0.0] * 4


def test_each_source_drafts_what_was_decided_for_it_at_its_prices() -> None:
    class Priced(Part):
        def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
            self.calls += [f"{sequence.prices}" for sequence in sequences]
            return super().propose(sequences, budgets)

    first, second = Priced(1, "a"), Reading(2, "abcd")
    sequences = views("abcd")
    for sequence, depths in zip(sequences, [(4, 1), (4, 1), (4, 0), (0, 2)], strict=True):
        sequence.offers = [Offer(depth, [float(depth)]) for depth in depths]
    cascade = CascadeProposer([first, second])
    assert chains(cascade.propose(sequences, [3, 3, 3, 3])) == [[1] * 3, [2], [], [2, 2]]
    assert [sequence.source for sequence in sequences] == [0, 1, 0, 1]
    assert first.calls == ["[4.0]"] * 3 + ["propose abc"]
    assert second.calls == ["propose bd"]


def test_without_offers_each_is_asked_for_all_of_the_budget() -> None:
    cascade = CascadeProposer([Part(1, ""), Reading(2, "a")])
    cascade.begin(views("a")[0])
    assert chains(cascade.propose(views("a"), [3])) == [[2, 2, 2]]
