"""The engine's side of proposing: which proposer serves which request, and what happens when one fails.

Knows proposers only through the `Proposer` protocol and the registry; no method has a name here.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftproof.core.intent import SpeculationIntent
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import Proposer, SequenceView
from draftproof.verify.types import NoiseKey, Verdict

CHEAP_ROWS = 4
"""Rows of a pass that cost about as much as one: up to there the weights are streamed, not computed with."""

logger = logging.getLogger("draftproof.engine")


@dataclass(slots=True)
class Drafted:
    """A request that may draft: its view, its proposer, and why it stopped drafting if it did."""

    view: SequenceView
    intent: SpeculationIntent
    proposer: Proposer
    failure: str | None = None


class Drafting:
    """Proposers by configuration (so that requests of one configuration share its pool) and requests by id."""

    def __init__(
        self, create: Callable[[SpeculationIntent], Proposer], vocab_size: int, max_pools: int
    ) -> None:
        self._create = create
        self._vocab_size = vocab_size
        self._max_pools = max_pools
        self._proposers: OrderedDict[SpeculationIntent, Proposer] = OrderedDict()
        self._requests: dict[str, Drafted] = {}

    def begin(self, view: SequenceView, intent: SpeculationIntent) -> None:
        """Starts drafting for a request; a proposer that fails here leaves the request plain."""
        proposer = self._proposer_for(intent)
        request = Drafted(view, intent, proposer)
        self._requests[view.req_id] = request
        self._guarded(request, lambda: proposer.begin(view))

    def view(self, req_id: str) -> SequenceView | None:
        """The request's view while it drafts; None for plain requests and after a failure."""
        request = self._requests.get(req_id)
        return request.view if request is not None and request.failure is None else None

    @property
    def num_requests(self) -> int:
        return len(self._requests)

    def failure(self, req_id: str) -> str | None:
        request = self._requests.get(req_id)
        return request.failure if request is not None else None

    def propose(self, req_ids: Sequence[str], budgets: Sequence[int]) -> DraftBatch:
        """One entry per request, in order; empty where nothing drafts."""
        entries: list[DraftBatch | None] = [None] * len(req_ids)
        num_cheap = max(0, CHEAP_ROWS // max(1, len(req_ids)) - 1)
        groups: dict[int, list[int]] = {}
        for index, req_id in enumerate(req_ids):
            if budgets[index] > 0 and self.view(req_id) is not None:
                self._requests[req_id].view.num_cheap = num_cheap
                groups.setdefault(id(self._requests[req_id].proposer), []).append(index)
        for indices in groups.values():
            requests = [self._requests[req_ids[index]] for index in indices]
            batch = self._propose_group(requests, [budgets[index] for index in indices])
            for position, index in enumerate(indices):
                entries[index] = batch.request(position) if len(indices) > 1 else batch
        if not groups:
            return DraftBatch.chains([()] * len(req_ids))
        if len(entries) == 1 and entries[0] is not None:
            return entries[0]
        return DraftBatch.concat(
            [entry if entry is not None else DraftBatch.chains([()]) for entry in entries]
        )

    def commit(self, req_id: str, verdict: Verdict, noise: NoiseKey) -> None:
        """After the verdict's tokens were emitted. `noise` names the next round's noise."""
        request = self._requests.get(req_id)
        if request is not None and request.failure is None:
            request.view.noise = noise
            self._guarded(request, lambda: request.proposer.commit([request.view], [verdict]))

    def end(self, req_id: str) -> None:
        """Always called once per request that began, also after a failure; frees its state."""
        request = self._requests.pop(req_id, None)
        if request is not None:
            self._guarded(request, lambda: request.proposer.end(request.view))

    def _proposer_for(self, intent: SpeculationIntent) -> Proposer:
        if intent not in self._proposers:
            in_use = {request.intent for request in self._requests.values()}
            idle = [known for known in self._proposers if known not in in_use]
            while len(self._proposers) >= self._max_pools and idle:
                del self._proposers[idle.pop(0)]
            self._proposers[intent] = self._create(intent)
        self._proposers.move_to_end(intent)
        return self._proposers[intent]

    def _propose_group(self, requests: list[Drafted], budgets: list[int]) -> DraftBatch:
        """A failing batch is asked again one by one, so that only the request at fault goes on plainly."""
        proposer = requests[0].proposer
        try:
            batch = proposer.propose([request.view for request in requests], budgets)
            self._check(batch, budgets)
            return batch
        except Exception as error:
            if len(requests) == 1:
                self._fail(requests[0], error)
                return DraftBatch.chains([()])
        return DraftBatch.concat(
            [self._propose_group([r], [b]) for r, b in zip(requests, budgets, strict=True)]
        )

    def _check(self, batch: DraftBatch, budgets: list[int]) -> None:
        """A proposer is not trusted with the pass: what it drafts must be what was asked for."""
        sizes = (batch.node_offsets[1:] - batch.node_offsets[:-1]).tolist()
        if len(sizes) != len(budgets) or any(s > b for s, b in zip(sizes, budgets, strict=True)):
            raise ValueError(f"drafted {sizes} nodes where {budgets} were asked for")
        if bool(((batch.tokens < 0) | (batch.tokens >= self._vocab_size)).any()):
            raise ValueError(f"drafted a token outside the vocabulary of {self._vocab_size}")

    def _guarded(self, request: Drafted, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._fail(request, error)

    @staticmethod
    def _fail(request: Drafted, error: Exception) -> None:
        request.failure = f"proposer {request.proposer.name!r} failed ({type(error).__name__}: {error})"
        logger.warning("request %s decodes plainly: %s", request.view.req_id, request.failure)
