"""The engine's side of proposing: which proposer serves which request, and what that costs.

Knows proposers only through the `Proposer` protocol and the registry; no method has a name here.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from draftproof.core.errors import DraftproofError
from draftproof.core.intent import NoSpeculation, SpeculationIntent
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import Offer, Proposer, SequenceView
from draftproof.proposers.evidence import INSTEAD, assumed_prices
from draftproof.proposers.guard import Guard
from draftproof.proposers.registry import without_weights
from draftproof.verify.types import NoiseKey, Verdict

CHEAP_ROWS = 4
"""Rows of a pass that are assumed to cost about as much as one where nothing was measured."""
MAY_PASS = frozenset({"DP401", "DP402", "DP404", "DP601", "DP701"})
"""Refusals that a later request may not meet: a file is not there yet, or running requests hold the memory."""


@dataclass(slots=True)
class Drafted:
    """A request that may draft, and the proposer that serves it.

    reads    whether a source of its drafts must read the text first
    instead  what is expected where look-up has no draft, in tokens, as long as nothing was measured
    """

    view: SequenceView
    intent: SpeculationIntent
    guard: Guard
    reads: bool
    instead: float


class Spent(NamedTuple):
    """Seconds inside proposers since they were asked for last, by configuration and source.

    reading  tokens of text that proposers had not read yet (prompts, and what other drafts brought), and seconds that
             they took, which are not among the others
    """

    drafting_s: dict[tuple[SpeculationIntent, int], float]
    reading: dict[tuple[SpeculationIntent, int], tuple[int, float]]

    @property
    def total_s(self) -> float:
        return sum(self.drafting_s.values()) + sum(seconds for _, seconds in self.reading.values())


class Drafting:
    """Proposers by configuration (so that requests of one configuration share its pool) and requests by id."""

    def __init__(
        self, create: Callable[[SpeculationIntent], Proposer], vocab_size: int, max_pools: int
    ) -> None:
        self._create = create
        self._vocab_size = vocab_size
        self._max_pools = max_pools
        self._guards: dict[SpeculationIntent, Guard] = {}
        self._num_users: Counter[SpeculationIntent] = Counter()
        self._idle: OrderedDict[SpeculationIntent, None] = OrderedDict()
        """Configurations whose guard no request uses, the least recently used first."""
        self._refused: OrderedDict[SpeculationIntent, dict[str, str]] = OrderedDict()
        self._requests: dict[str, Drafted] = {}
        self._spent_s: dict[SpeculationIntent, float] = {}
        self._reading: dict[tuple[SpeculationIntent, int], tuple[int, float]] = {}

    def prepare(
        self, intent: SpeculationIntent, refuses: bool
    ) -> tuple[SpeculationIntent, DraftproofError | None]:
        """Makes the proposer of an intent; where it cannot be made, of what stands in for it.

        Returns the intent that will run, and why it is not the given one. `refuses`: a method that was asked for by
        name raises instead.
        """
        if isinstance(intent, NoSpeculation):
            return intent, None
        try:
            self._guard_for(intent)
        except DraftproofError as error:
            instead = without_weights(intent)
            if instead is None and refuses:
                raise
            return self.prepare(instead or NoSpeculation(), refuses)[0], error
        return intent, None

    def add(self, view: SequenceView, intent: SpeculationIntent) -> Proposer:
        """Finds or makes the request's proposer, whose refusal (a DraftproofError) is the caller's."""
        guard = self._guard_for(intent)
        sources = guard.proposer.sources
        leads = sources[0].follows_prices and not sources[-1].follows_prices
        reads = any(source.reads for source in sources)
        self._requests[view.req_id] = Drafted(view, intent, guard, reads, INSTEAD if leads else 0.0)
        self._num_users[intent] += 1
        self._idle.pop(intent, None)
        return guard.proposer

    def begin(self, req_id: str) -> None:
        """Once, when the request is admitted; a proposer that fails here leaves the request plain."""
        request = self._requests.get(req_id)
        if request is not None:
            with self._timed(request.intent):
                request.guard.begin(request.view)

    def observe(self, req_id: str) -> None:
        """After every chunk of the prompt. No proposer of this version asks for hidden states."""
        request = self._requests.get(req_id)
        if request is not None:
            with self._timed(request.intent):
                request.guard.observe(request.view, None)

    def drafts(self, req_id: str) -> bool:
        """Whether the request still drafts: False for plain requests and after a failure."""
        request = self._requests.get(req_id)
        return request is not None and request.guard.serves(request.view)

    @property
    def num_requests(self) -> int:
        return len(self._requests)

    def failure(self, req_id: str) -> str | None:
        request = self._requests.get(req_id)
        return request.guard.failures.get(req_id) if request is not None else None

    def note(self, req_id: str) -> str | None:
        """What the user should know of the request's drafts."""
        request = self._requests.get(req_id)
        return request.view.note if request is not None else None

    def lags(self, req_id: str) -> Sequence[int]:
        """Tokens that each source of the request's drafts would have to read first; empty: none of them any."""
        request = self._requests.get(req_id)
        if request is None or not request.reads:
            return ()
        sources = enumerate(request.guard.proposer.sources)
        return [request.guard.lag(request.view, place) if each.reads else 0 for place, each in sources]

    def source(self, req_id: str) -> int:
        """The source that was asked for the request's draft last, which is the one that drafted if any did."""
        request = self._requests.get(req_id)
        return 0 if request is None else request.view.source

    def take_spent(self) -> Spent:
        drafting_s = {}
        for intent, seconds in self._spent_s.items():
            drafting_s[intent, 0] = seconds
            guard = self._guards.get(intent)
            for place, part_s in enumerate(guard.take_spent_s()[1:] if guard else (), 1):
                drafting_s[intent, place] = part_s
                drafting_s[intent, 0] -= part_s
        for key, (_, seconds) in self._reading.items():
            drafting_s[key] = drafting_s.get(key, 0.0) - seconds  # that is not what drafting costs
        spent = Spent(drafting_s, self._reading)
        self._spent_s, self._reading = {}, {}
        return spent

    def propose(
        self,
        req_ids: Sequence[str],
        budgets: Sequence[int],
        block_tables: Sequence[list[int]],
        prices: Sequence[Sequence[float] | None],
        offers: Sequence[Sequence[Offer]],
    ) -> DraftBatch:
        """One entry per request, in order; empty where nothing drafts.

        `block_tables` are their cache blocks; where no prices are given some are assumed. `offers` are for requests
        with several sources of drafts, empty where none were decided.
        """
        num_cheap = max(0, CHEAP_ROWS // max(1, len(req_ids)) - 1)
        groups: dict[int, list[int]] = {}
        for index, req_id in enumerate(req_ids):
            if budgets[index] > 0 and self.drafts(req_id):
                request = self._requests[req_id]
                known = prices[index]
                if known is None:
                    known = assumed_prices(num_cheap, budgets[index], request.instead)
                request.view.prices, request.view.offers = known, offers[index]
                request.view.block_ids = block_tables[index]
                groups.setdefault(id(request.guard), []).append(index)
        if not groups:
            return DraftBatch.chains([()] * len(req_ids))
        batches: list[tuple[list[int], DraftBatch]] = []
        for indices in groups.values():
            requests = [self._requests[req_ids[index]] for index in indices]
            with self._timed(requests[0].intent):
                batch = requests[0].guard.propose(
                    [request.view for request in requests], [budgets[index] for index in indices]
                )
            self._take_reading(requests)
            batches.append((indices, batch))
        if len(batches) == 1:
            return batch if len(indices) == len(req_ids) else batch.spread(indices, len(req_ids))
        entries = [DraftBatch.chains([()])] * len(req_ids)
        for indices, batch in batches:
            for position, index in enumerate(indices):
                entries[index] = batch.request(position)
        return DraftBatch.concat(entries)

    def commit(self, committed: Sequence[tuple[str, Verdict, NoiseKey]]) -> None:
        """After the verdicts' tokens were emitted: request, verdict, and the name of its next round's noise."""
        groups: dict[int, list[tuple[Drafted, Verdict]]] = {}
        for req_id, verdict, noise in committed:
            request = self._requests.get(req_id)
            if request is not None:
                request.view.noise = noise
                groups.setdefault(id(request.guard), []).append((request, verdict))
        for group in groups.values():
            with self._timed(group[0][0].intent):
                views = [request.view for request, _ in group]
                group[0][0].guard.commit(views, [verdict for _, verdict in group])

    def reach(self, req_id: str, num_tokens: int) -> int:
        """How many of the first `num_tokens` tokens need not be computed, as far as the request's proposer goes."""
        request = self._requests.get(req_id)
        if request is None:
            return num_tokens
        with self._timed(request.intent):
            return request.guard.reach(request.view, num_tokens)

    def release(self, req_id: str) -> bool:
        """Has the request's proposer give up its cache blocks; whether it had any."""
        request = self._requests.get(req_id)
        if request is None:
            return False
        with self._timed(request.intent):
            return request.guard.release(request.view)

    def end(self, req_id: str) -> None:
        """Always called once per request that was added, also after a failure; frees its state."""
        request = self._requests.pop(req_id, None)
        if request is not None:
            with self._timed(request.intent):
                request.guard.end(request.view)
            self._num_users[request.intent] -= 1
            if not self._num_users[request.intent]:
                del self._num_users[request.intent]
                self._idle[request.intent] = None
                self._drop_idle(self._max_pools)

    def _take_reading(self, requests: Sequence[Drafted]) -> None:
        for request in requests:
            view = request.view
            if view.num_read:
                key = request.intent, view.source
                num_tokens, seconds = self._reading.get(key, (0, 0.0))
                self._reading[key] = num_tokens + view.num_read, seconds + view.reading_s
                view.num_read, view.reading_s = 0, 0.0

    def _guard_for(self, intent: SpeculationIntent) -> Guard:
        if intent in self._refused:  # a drafter that did not fit is not loaded again for every request
            self._refused.move_to_end(intent)
            raise DraftproofError(**self._refused[intent])
        if intent not in self._guards:
            try:
                created = Guard(self._create(intent), self._vocab_size)
            except DraftproofError as error:
                if error.code not in MAY_PASS:
                    self._refused[intent] = (
                        error.as_dict()
                    )  # the error itself holds on to what its frames held
                    if len(self._refused) > self._max_pools:
                        self._refused.popitem(last=False)
                raise
            self._drop_idle(self._max_pools - 1)
            self._guards[intent] = created
            self._idle[intent] = None
        return self._guards[intent]

    def _drop_idle(self, most: int) -> None:
        """Until there are at most so many configurations, as far as nobody uses them."""
        while len(self._guards) > most and self._idle:
            del self._guards[self._idle.popitem(last=False)[0]]

    @contextmanager
    def _timed(self, intent: SpeculationIntent) -> Iterator[None]:
        started_s = time.perf_counter()
        try:
            yield
        finally:
            self._spent_s[intent] = self._spent_s.get(intent, 0.0) + time.perf_counter() - started_s
