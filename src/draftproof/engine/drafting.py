"""The engine's side of proposing: which proposer serves which request, and what happens when one fails.

Knows proposers only through the `Proposer` protocol and the registry; no method has a name here.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from draftproof.core.intent import SpeculationIntent
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import Proposer, SequenceView
from draftproof.proposers.evidence import assumed_prices
from draftproof.verify.types import NoiseKey, Verdict

CHEAP_ROWS = 4
"""Rows of a pass that are assumed to cost about as much as one where nothing was measured."""

logger = logging.getLogger("draftproof.engine")


@dataclass(slots=True)
class Drafted:
    """A request that may draft: its view, its proposer, and why it stopped drafting if it did.

    `chains_only` says that its rule of verification knows no trees.
    """

    view: SequenceView
    intent: SpeculationIntent
    proposer: Proposer
    chains_only: bool = False
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
        self._one_by_one: set[int] = set()
        self._spent_s: dict[SpeculationIntent, float] = {}

    def add(self, view: SequenceView, intent: SpeculationIntent, chains_only: bool) -> Proposer:
        """Finds or makes the request's proposer, whose refusal (a DraftproofError) is the caller's."""
        proposer = self._proposer_for(intent)
        self._requests[view.req_id] = Drafted(view, intent, proposer, chains_only)
        return proposer

    def begin(self, req_id: str) -> None:
        """Once, when the request is admitted; a proposer that fails here leaves the request plain."""
        request = self._requests.get(req_id)
        if request is not None:
            self._guarded(request, lambda: request.proposer.begin(request.view))

    def observe(self, req_id: str) -> None:
        """After every chunk of the prompt. No proposer of this version asks for hidden states."""
        request = self._requests.get(req_id)
        if request is not None:
            self._guarded(request, lambda: request.proposer.observe(request.view, None))

    def drafts(self, req_id: str) -> bool:
        """Whether the request still drafts: False for plain requests and after a failure."""
        request = self._requests.get(req_id)
        return request is not None and request.failure is None

    @property
    def num_requests(self) -> int:
        return len(self._requests)

    def failure(self, req_id: str) -> str | None:
        request = self._requests.get(req_id)
        return request.failure if request is not None else None

    def take_spent(self) -> dict[SpeculationIntent, float]:
        """Seconds inside proposers since the last call, by configuration."""
        spent_s, self._spent_s = self._spent_s, {}
        return spent_s

    def propose(
        self, req_ids: Sequence[str], budgets: Sequence[int], prices: Sequence[Sequence[float] | None]
    ) -> DraftBatch:
        """One entry per request, in order; empty where nothing drafts. Where no prices are given some are assumed."""
        num_cheap = max(0, CHEAP_ROWS // max(1, len(req_ids)) - 1)
        groups: dict[int, list[int]] = {}
        for index, req_id in enumerate(req_ids):
            if budgets[index] > 0 and self.drafts(req_id):
                known = prices[index]
                self._requests[req_id].view.prices = (
                    known if known is not None else assumed_prices(num_cheap, budgets[index])
                )
                groups.setdefault(id(self._requests[req_id].proposer), []).append(index)
        if not groups:
            return DraftBatch.chains([()] * len(req_ids))
        entries = [DraftBatch.chains([()])] * len(req_ids)
        for indices in groups.values():
            requests = [self._requests[req_ids[index]] for index in indices]
            batch = self._propose_group(requests, [budgets[index] for index in indices])
            if len(indices) == len(req_ids):
                return batch
            for position, index in enumerate(indices):
                entries[index] = batch.request(position)
        return DraftBatch.concat(entries)

    def commit(self, req_id: str, verdict: Verdict, noise: NoiseKey) -> None:
        """After the verdict's tokens were emitted. `noise` names the next round's noise."""
        request = self._requests.get(req_id)
        if request is not None:
            request.view.noise = noise
            self._guarded(request, lambda: request.proposer.commit([request.view], [verdict]))

    def end(self, req_id: str) -> None:
        """Always called once per request that was added, also after a failure; frees its state."""
        request = self._requests.pop(req_id, None)
        if request is not None:
            request.failure = None  # a failed proposer must free its state as well
            self._guarded(request, lambda: request.proposer.end(request.view))

    def _proposer_for(self, intent: SpeculationIntent) -> Proposer:
        if intent not in self._proposers:
            created = self._create(intent)
            in_use = {request.intent for request in self._requests.values()}
            idle = [known for known in self._proposers if known not in in_use]
            while len(self._proposers) >= self._max_pools and idle:
                self._one_by_one.discard(id(self._proposers.pop(idle.pop(0))))
            self._proposers[intent] = created
        self._proposers.move_to_end(intent)
        return self._proposers[intent]

    def _propose_group(self, requests: list[Drafted], budgets: list[int]) -> DraftBatch:
        """A batch that fails is asked for again one by one, from then on: only the request at fault goes plainly."""
        proposer = requests[0].proposer
        if len(requests) == 1 or id(proposer) in self._one_by_one:
            alone = [self._propose_alone(r, b) for r, b in zip(requests, budgets, strict=True)]
            return DraftBatch.concat(alone)
        started_s = time.perf_counter()
        try:
            batch = proposer.propose([request.view for request in requests], budgets)
            check_drafts(batch, budgets, [r.chains_only for r in requests], self._vocab_size)
            return batch
        except Exception as error:
            logger.warning(
                "proposer %r failed for a batch and is asked one by one now: %s", proposer.name, error
            )
            self._one_by_one.add(id(proposer))
        finally:
            self._spend(requests[0].intent, started_s)
        return self._propose_group(requests, budgets)

    def _propose_alone(self, request: Drafted, budget: int) -> DraftBatch:
        drafted = [DraftBatch.chains([()])]

        def propose() -> None:
            batch = request.proposer.propose([request.view], [budget])
            check_drafts(batch, [budget], [request.chains_only], self._vocab_size)
            drafted[0] = batch

        self._guarded(request, propose)
        return drafted[0]

    def _guarded(self, request: Drafted, call: Callable[[], None]) -> None:
        """Calls a proposer for a request that still drafts; what it raises ends the request's drafting."""
        if request.failure is not None:
            return
        started_s = time.perf_counter()
        try:
            call()
        except Exception as error:
            request.failure = f"proposer {request.proposer.name!r} failed ({type(error).__name__}: {error})"
            logger.warning("request %s decodes plainly: %s", request.view.req_id, request.failure)
        finally:
            self._spend(request.intent, started_s)

    def _spend(self, intent: SpeculationIntent, started_s: float) -> None:
        self._spent_s[intent] = self._spent_s.get(intent, 0.0) + time.perf_counter() - started_s


def check_drafts(
    batch: DraftBatch, budgets: Sequence[int], chains_only: Sequence[bool], vocab_size: int
) -> None:
    """Raises ValueError unless the drafts are what was asked for: a proposer is not trusted with the pass."""
    sizes = batch.node_offsets.diff().tolist()
    if len(sizes) != len(budgets) or any(not 0 <= s <= b for s, b in zip(sizes, budgets, strict=True)):
        raise ValueError(f"drafted {sizes} nodes where {list(budgets)} were asked for")
    if sum(sizes) != batch.num_nodes or int(batch.node_offsets[0]) != 0:
        raise ValueError("node offsets do not cover the nodes")
    if not batch.num_nodes:
        return
    if bool(((batch.tokens < 0) | (batch.tokens >= vocab_size)).any()):
        raise ValueError(f"drafted a token outside the vocabulary of {vocab_size}")
    parents = batch.parent_rows.tolist()
    first = 0
    for size, chain in zip(sizes, chains_only, strict=True):
        for node in range(size):
            parent = parents[first + node]
            if not 0 <= parent <= node or (chain and parent != node):
                raise ValueError(f"node {node} has parent row {parent}, which is not allowed here")
        first += size
    if not bool(batch.is_point_mass.all()):
        _check_distributions(batch, vocab_size)


def _check_distributions(batch: DraftBatch, vocab_size: int) -> None:
    drawn = ~batch.is_point_mass
    q_rows, tokens = batch.q_rows[drawn], batch.tokens[drawn]
    if batch.q.shape[1] != vocab_size or not bool(((q_rows >= 0) & (q_rows < batch.q.shape[0])).all()):
        raise ValueError(f"draft distributions of shape {tuple(batch.q.shape)} do not fit the drafted nodes")
    if not bool((torch.isfinite(batch.q) & (batch.q >= 0)).all()) or not bool(
        (batch.q[q_rows, tokens] > 0).all()
    ):
        raise ValueError("a token was drawn from a distribution that does not have it")
