"""Calls a proposer so that what goes wrong stays with the request at fault, which then drafts no more with it.

Used by the engine around every proposer and by a cascade around each of its parts. A proposer is not trusted with the
pass either: what it drafts is checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import DraftsChains, HasSources, HoldsCache, Proposer, ReadsText, SequenceView
from draftproof.verify.types import Rule, Verdict

ROUNDS_ALONE = 64
"""Rounds in which requests are asked one by one after a batch failed though none of them did: maybe for lack of
memory that is there again."""

T = TypeVar("T")
Asking = Callable[[Sequence[SequenceView], Sequence[int]], T]

logger = logging.getLogger("draftproof.proposers")


class Guard:
    """One proposer and the requests that it failed for.

    failures  why, by request id; until `end`
    """

    def __init__(self, proposer: Proposer, vocab_size: int | None) -> None:
        """`vocab_size` None: unknown here, whoever takes the draft checks its tokens."""
        self.proposer = proposer
        self.failures: dict[str, str] = {}
        self._chains = proposer.chains if isinstance(proposer, DraftsChains) else None
        self._sources = proposer if isinstance(proposer, HasSources) else None
        self._vocab_size = vocab_size
        self._rounds_alone = 0

    @property
    def drafts_chains(self) -> bool:
        return self._chains is not None

    def serves(self, sequence: SequenceView) -> bool:
        return sequence.req_id not in self.failures

    def begin(self, sequence: SequenceView) -> None:
        self._call(sequence, lambda: self.proposer.begin(sequence))

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None:
        self._call(sequence, lambda: self.proposer.observe(sequence, hidden))

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        """One entry per sequence; those that are not served draft nothing, the others are asked together.

        A batch that fails is asked for again one by one; where none of them is to blame, for some rounds.
        """
        if self.drafts_chains:
            return DraftBatch.chains(self.chains(sequences, budgets))
        served = self._served(sequences)
        batch = self._together(self._checked, served, sequences, budgets)
        if batch is not None and len(served) == len(sequences):
            return batch
        if batch is None:
            drafts = self._one_by_one(self._checked, served, sequences, budgets)
        else:
            drafts = {index: batch.request(entry) for entry, index in enumerate(served)}
        nothing = DraftBatch.chains([()])
        return DraftBatch.concat([drafts.get(index, nothing) for index in range(len(sequences))])

    def chains(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> list[list[int]]:
        """As `propose`, where `drafts_chains`."""
        served = self._served(sequences)
        chains = self._together(self._checked_chains, served, sequences, budgets)
        if chains is None:
            alone = self._one_by_one(self._checked_chains, served, sequences, budgets)
            drafts = {index: chain for index, [chain] in alone.items()}
        elif len(served) == len(sequences):
            return chains
        else:
            drafts = dict(zip(served, chains, strict=True))
        return [drafts.get(index, []) for index in range(len(sequences))]

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        """For all at once; one by one again where that fails, which a proposer must bear."""
        if self.failures:
            served = [index for index, sequence in enumerate(sequences) if self.serves(sequence)]
            sequences = [sequences[index] for index in served]
            verdicts = [verdicts[index] for index in served]
        if not sequences:
            return
        try:
            self.proposer.commit(sequences, verdicts)
        except Exception as error:
            if len(sequences) == 1:
                self._fail(sequences[0], error)
                return
            for sequence, verdict in zip(sequences, verdicts, strict=True):
                self.commit([sequence], [verdict])

    def end(self, sequence: SequenceView) -> None:
        """Also after a failure: a failed proposer must free its state as well."""
        self.failures.pop(sequence.req_id, None)
        self._call(sequence, lambda: self.proposer.end(sequence))
        self.failures.pop(sequence.req_id, None)

    def reach(self, sequence: SequenceView, num_tokens: int) -> int:
        """How many of `num_tokens` tokens that the target need not compute the proposer can do without."""
        reach = num_tokens
        if self.serves(sequence) and isinstance(self.proposer, HoldsCache):
            try:
                reach = max(0, min(num_tokens, self.proposer.reach(sequence, num_tokens)))
            except Exception as error:
                self._fail(sequence, error)
        return reach

    def release(self, sequence: SequenceView) -> bool:
        """Has the proposer give up what it holds of a request, also after a failure; whether there was anything."""
        if isinstance(self.proposer, HoldsCache):
            try:
                return self.proposer.release(sequence)
            except Exception as error:
                self._fail(sequence, error)
        return False

    def lag(self, sequence: SequenceView, source: int = 0) -> int:
        """Tokens that the proposer would read before a draft now; none where it reads nothing."""
        if self.serves(sequence) and isinstance(self.proposer, ReadsText):
            try:
                return self.proposer.lag(sequence, source)
            except Exception as error:
                self._fail(sequence, error)
        return 0

    def take_spent_s(self) -> Sequence[float]:
        """Seconds in each source since this was asked last; empty where there is one."""
        return self._sources.take_spent_s() if self._sources is not None else ()

    def _served(self, sequences: Sequence[SequenceView]) -> list[int]:
        return [index for index, sequence in enumerate(sequences) if self.serves(sequence)]

    def _together(
        self,
        ask: Asking[T],
        served: Sequence[int],
        sequences: Sequence[SequenceView],
        budgets: Sequence[int],
    ) -> T | None:
        """What is drafted for all that are served at once; None where they have to be asked one by one."""
        if not served:
            return None
        if self._rounds_alone:
            self._rounds_alone -= 1
            return None
        try:
            return ask([sequences[index] for index in served], [budgets[index] for index in served])
        except Exception as error:
            if len(served) == 1:
                self._fail(sequences[served[0]], error)
            else:
                self._rounds_alone = ROUNDS_ALONE
                logger.warning("proposer %r failed for a batch: %s", self.proposer.name, error)
            return None

    def _one_by_one(
        self,
        ask: Asking[T],
        served: Sequence[int],
        sequences: Sequence[SequenceView],
        budgets: Sequence[int],
    ) -> dict[int, T]:
        """What is drafted for each that is served, but for those at fault; without them batches are tried again."""
        drafts = {}
        for index in served:
            if not self.serves(sequences[index]):
                continue  # `_together` asked for it alone already
            try:
                drafts[index] = ask([sequences[index]], [budgets[index]])
            except Exception as error:
                self._fail(sequences[index], error)
                self._rounds_alone = 0
        return drafts

    def _checked_chains(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> list[list[int]]:
        assert self._chains is not None
        chains = self._chains(sequences, budgets)
        check_chains(chains, budgets, self._vocab_size)
        return chains

    def _checked(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        batch = self.proposer.propose(sequences, budgets)
        check_drafts(batch, budgets, [s.rule is Rule.BLOCK for s in sequences], self._vocab_size)
        return batch

    def _call(self, sequence: SequenceView, call: Callable[[], None]) -> None:
        if self.serves(sequence):
            try:
                call()
            except Exception as error:
                self._fail(sequence, error)

    def _fail(self, sequence: SequenceView, error: Exception) -> None:
        reason = f"proposer {self.proposer.name!r} failed ({type(error).__name__}: {error})"
        self.failures[sequence.req_id] = reason
        logger.warning("request %s drafts without it: %s", sequence.req_id, reason)


def check_chains(chains: Sequence[Sequence[int]], budgets: Sequence[int], vocab_size: int | None) -> None:
    """As `check_drafts`, for lists of tokens."""
    sizes = [len(chain) for chain in chains]
    if len(sizes) != len(budgets) or any(size > budget for size, budget in zip(sizes, budgets, strict=True)):
        raise ValueError(f"drafted {sizes} nodes where {list(budgets)} were asked for")
    for chain in chains:
        if chain and (min(chain) < 0 or (vocab_size is not None and max(chain) >= vocab_size)):
            raise ValueError(f"drafted a token outside the vocabulary of {vocab_size}")


def check_drafts(
    batch: DraftBatch, budgets: Sequence[int], chains_only: Sequence[bool], vocab_size: int | None
) -> None:
    """Raises ValueError unless the drafts are what was asked for: a proposer is not trusted with the pass."""
    sizes = batch.node_offsets.diff().tolist()
    if len(sizes) != len(budgets) or any(not 0 <= s <= b for s, b in zip(sizes, budgets, strict=True)):
        raise ValueError(f"drafted {sizes} nodes where {list(budgets)} were asked for")
    if sum(sizes) != batch.num_nodes or int(batch.node_offsets[0]) != 0:
        raise ValueError("node offsets do not cover the nodes")
    if not batch.num_nodes:
        return
    too_large = vocab_size is not None and bool((batch.tokens >= vocab_size).any())
    if too_large or bool((batch.tokens < 0).any()):
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


def _check_distributions(batch: DraftBatch, vocab_size: int | None) -> None:
    drawn = ~batch.is_point_mass
    q_rows, tokens = batch.q_rows[drawn], batch.tokens[drawn]
    fits = vocab_size is None or batch.q.shape[1] == vocab_size
    if not fits or not bool(((q_rows >= 0) & (q_rows < batch.q.shape[0])).all()):
        raise ValueError(f"draft distributions of shape {tuple(batch.q.shape)} do not fit the drafted nodes")
    if not bool((torch.isfinite(batch.q) & (batch.q >= 0)).all()) or not bool(
        (batch.q[q_rows, tokens] > 0).all()
    ):
        raise ValueError("a token was drawn from a distribution that does not have it")
