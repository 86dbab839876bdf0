"""Several proposers in order: each request gets the draft of the first one that has any.

Made by the registry, which hands it its parts; driven by the engine like any other proposer. It knows nothing of
what its parts are. A part that fails for a request leaves that request to the others. What each part may draft is
decided before any of them does. Users: `docs/proposers/cascade.md`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import Proposer, ProposerNeeds, SequenceView, Source
from draftproof.proposers.guard import Guard
from draftproof.verify.types import Verdict


class CascadeProposer:
    """The first draft wins; every part sees every commit, so that those behind stay ready.

    Neighbours that follow prices are one source: they are asked at the same prices, and little tells them apart.
    """

    def __init__(
        self, parts: Sequence[Proposer], name: str = "cascade", vocab_size: int | None = None
    ) -> None:
        assert parts, "a cascade of nothing"
        self.name = name
        sources: list[Source] = []
        self._parts: list[tuple[Guard, int]] = []
        """Each part, and which source it is of."""
        for part in parts:
            [source] = part.sources
            if source.follows_prices and sources and sources[-1].follows_prices:
                sources[-1] = max(sources[-1], source, key=lambda each: each.depth)
            else:
                sources.append(source)
            self._parts.append((Guard(part, vocab_size), len(sources) - 1))
        self.sources = tuple(sources)
        self._spent_s = [0.0] * len(sources)
        self.needs = ProposerNeeds(
            hidden_layers=tuple(sorted({layer for part in parts for layer in part.needs.hidden_layers})),
            token_embeddings=any(part.needs.token_embeddings for part in parts),
            target_cache=any(part.needs.target_cache for part in parts),
        )

    def begin(self, sequence: SequenceView) -> None:
        for part, source in self._parts:
            with self._timed(source):
                part.begin(sequence)
        self._tell(sequence)

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None:
        for part, source in self._parts:
            with self._timed(source):
                part.observe(sequence, hidden)

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        batch = self._first_drafts(sequences, budgets)
        for sequence in sequences:
            self._tell(sequence)
        return batch

    def _first_drafts(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        chains: list[list[int]] = [[]] * len(sequences)
        others: dict[int, DraftBatch] = {}
        waiting = list(range(len(sequences)))
        for part, source in self._parts:
            asked: list[SequenceView] = []
            limits: list[int] = []
            asking = []
            for idx in waiting:
                limit = _take_offer(sequences[idx], source, budgets[idx])
                if limit:
                    asked.append(sequences[idx])
                    limits.append(limit)
                    asking.append(idx)
            if not asking:
                continue
            with self._timed(source):
                if part.drafts_chains:
                    for idx, chain in zip(asking, part.chains(asked, limits), strict=True):
                        chains[idx] = chain
                else:
                    batch = part.propose(asked, limits)
                    sizes = batch.node_offsets.diff().tolist()
                    if len(asking) == len(sequences) and all(sizes):
                        return batch
                    others |= {idx: batch.request(entry) for entry, idx in enumerate(asking) if sizes[entry]}
            waiting = [idx for idx in waiting if not chains[idx] and idx not in others]
        if not others:
            return DraftBatch.chains(chains)
        return DraftBatch.concat(
            [others.get(idx) or DraftBatch.chains([chain]) for idx, chain in enumerate(chains)]
        )

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        for part, source in self._parts:
            with self._timed(source):
                part.commit(sequences, verdicts)

    def end(self, sequence: SequenceView) -> None:
        for part, _ in self._parts:
            part.end(sequence)

    def reach(self, sequence: SequenceView, num_tokens: int) -> int:
        return min(part.reach(sequence, num_tokens) for part, _ in self._parts)

    def release(self, sequence: SequenceView) -> bool:
        released = [part.release(sequence) for part, _ in self._parts]
        return any(released)

    def lag(self, sequence: SequenceView, source: int = 0) -> int:
        return sum(part.lag(sequence) for part, of in self._parts if of == source)

    def take_spent_s(self) -> list[float]:
        spent_s, self._spent_s = self._spent_s, [0.0] * len(self.sources)
        return spent_s

    @contextmanager
    def _timed(self, source: int) -> Iterator[None]:
        started_s = time.perf_counter()
        try:
            yield
        finally:
            self._spent_s[source] += time.perf_counter() - started_s

    def _tell(self, sequence: SequenceView) -> None:
        if not any(part.failures for part, _ in self._parts):
            return
        failures = [part.failures[sequence.req_id] for part, _ in self._parts if not part.serves(sequence)]
        if failures:
            sequence.note = "drafts with what is left: " + "; ".join(failures)


def _take_offer(sequence: SequenceView, source: int, budget: int) -> int:
    """How much a source may draft for a request now, which is told at what prices."""
    if sequence.offers:
        offer = sequence.offers[source]
        budget = min(budget, offer.budget)
        sequence.prices = offer.prices
    if budget:
        sequence.source = source
    return budget
