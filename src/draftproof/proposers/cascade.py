"""Several proposers in order: each request gets the draft of the first one that has any.

Made by the registry, which hands it its parts; driven by the engine like any other proposer. It knows nothing of
what its parts are. A part that fails for a request leaves that request to the others.
Users: `docs/proposers/cascade.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import Proposer, ProposerNeeds, SequenceView
from draftproof.proposers.guard import Guard
from draftproof.verify.types import Verdict


class CascadeProposer:
    """The first draft wins; every part sees every commit, so that those behind stay ready."""

    def __init__(
        self,
        parts: Sequence[Proposer],
        name: str = "cascade",
        vocab_size: int | None = None,
        patience: int = 0,
    ) -> None:
        """`patience`: rounds that a request is left without a draft before parts that read prompts are asked for it."""
        assert parts, "a cascade of nothing"
        self.name = name
        self._parts = tuple(Guard(part, vocab_size) for part in parts)
        self._patience = patience
        self._left_without: dict[str, int] = {}
        self._is_left: set[str] = set()
        """Requests that other parts leave without a draft in the round that runs."""
        self.follows_prices = all(part.follows_prices for part in parts)
        self.needs = ProposerNeeds(
            hidden_layers=tuple(sorted({layer for part in parts for layer in part.needs.hidden_layers})),
            token_embeddings=any(part.needs.token_embeddings for part in parts),
            target_cache=any(part.needs.target_cache for part in parts),
        )

    def begin(self, sequence: SequenceView) -> None:
        for part in self._parts:
            part.begin(sequence)
        self._left_without[sequence.req_id] = 0
        self._tell(sequence)

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None:
        for part in self._parts:
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
        self._is_left.difference_update(sequence.req_id for sequence in sequences)
        for part in self._parts:
            asking = [idx for idx in waiting if budgets[idx] and self._may_ask(part, sequences[idx])]
            if not asking:
                continue
            asked = [sequences[idx] for idx in asking], [budgets[idx] for idx in asking]
            if part.drafts_chains:
                for idx, chain in zip(asking, part.chains(*asked), strict=True):
                    chains[idx] = chain
            else:
                batch = part.propose(*asked)
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

    def _may_ask(self, part: Guard, sequence: SequenceView) -> bool:
        """Whether the request was left without a draft often enough to pay for the reading of its prompt."""
        if not self._patience or not part.holds_cache:
            return True
        self._is_left.add(sequence.req_id)
        return self._left_without[sequence.req_id] >= self._patience

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        for sequence in sequences:
            if sequence.req_id in self._is_left:
                self._is_left.remove(sequence.req_id)
                self._left_without[sequence.req_id] += 1
        for part in self._parts:
            part.commit(sequences, verdicts)

    def end(self, sequence: SequenceView) -> None:
        self._left_without.pop(sequence.req_id, None)
        self._is_left.discard(sequence.req_id)
        for part in self._parts:
            part.end(sequence)

    def reach(self, sequence: SequenceView, num_tokens: int) -> int:
        return min(part.reach(sequence, num_tokens) for part in self._parts)

    def release(self, sequence: SequenceView) -> bool:
        released = [part.release(sequence) for part in self._parts]
        return any(released)

    def _tell(self, sequence: SequenceView) -> None:
        if not any(part.failures for part in self._parts):
            return
        failures = [part.failures[sequence.req_id] for part in self._parts if not part.serves(sequence)]
        if failures:
            sequence.note = "drafts with what is left: " + "; ".join(failures)
