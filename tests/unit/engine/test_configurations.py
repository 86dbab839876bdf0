"""Requests of many configurations: whose proposers are kept, and what it costs to add one more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from draftproof.core.intent import NGram, SpeculationIntent
from draftproof.engine.drafting import Drafting
from draftproof.proposers.base import Proposer, SequenceView
from draftproof.proposers.registry import create_proposer


def view_of(req_id: str) -> SequenceView:
    return SequenceView(req_id=req_id, token_ids=[1], num_prompt=1, params=None)  # type: ignore[arg-type]


def test_the_least_recently_used_of_the_idle_configurations_goes() -> None:
    made: list[int] = []

    def create(intent: SpeculationIntent) -> Proposer:
        assert isinstance(intent, NGram)
        made.append(intent.num_speculative_tokens)
        return create_proposer(intent)

    def run(depth: int) -> None:
        drafting.add(view_of("passing"), NGram(num_speculative_tokens=depth))
        drafting.end("passing")

    drafting = Drafting(create, 100, max_pools=3)
    drafting.add(view_of("stays"), NGram(num_speculative_tokens=1))
    for depth in (2, 3, 2, 4, 2, 1, 3):
        run(depth)
    assert made == [1, 2, 3, 4, 3], "3 was used least recently when 4 came, and 1 is in use"
    for name in ("a", "b", "c"):
        drafting.add(view_of(name), NGram(num_speculative_tokens=10 + ord(name)))
    for name in ("a", "b", "c", "stays"):
        drafting.end(name)
        assert len(drafting._guards) == max(3, drafting.num_requests), (
            "more than max_pools only while they are in use"
        )


def test_what_adding_a_request_takes_does_not_grow_with_those_that_wait() -> None:
    @dataclass(frozen=True)
    class Counted(NGram):
        hashed: ClassVar[int] = 0

        def __hash__(self) -> int:
            Counted.hashed += 1
            return hash(self.num_speculative_tokens)

    drafting = Drafting(create_proposer, 100, max_pools=2)
    per_request = []
    for depth in range(1, 101):
        before = Counted.hashed
        intent = Counted(num_speculative_tokens=depth)
        drafting.prepare(intent, refuses=True)
        drafting.add(view_of(f"r{depth}"), intent)
        per_request.append(Counted.hashed - before)
    assert len(set(per_request[2:])) == 1, per_request
