"""Prompt look-up (Saxena 2023): what followed the newest tokens when they stood in this request before.

Made by the registry, driven by the engine through `Proposer`. It needs no weights and reads only the request's own
tokens; it does not know which model reads its drafts. Users: `docs/proposers/ngram.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from torch import Tensor

from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import ProposerNeeds, SequenceView, Source
from draftproof.proposers.evidence import Evidence
from draftproof.proposers.occurrences import Indexes, Occurrences, agreement, continuation
from draftproof.verify.types import Verdict

MAX_CANDIDATES = 16
"""Occurrences compared per look-up; of more, the newest."""
MAX_AGREEMENT = 32
"""How far back candidates are compared; `Evidence` makes no difference beyond."""


@dataclass(slots=True)
class _Request:
    index: Occurrences
    evidence: Evidence = field(default_factory=Evidence)
    guess: list[int] = field(default_factory=list)
    guess_length: int = 0
    """Tokens that agreed where the guess was made."""
    guess_at: int = 0
    """How many tokens the text had then."""


class NGramProposer:
    """Drafts from the longest n-gram in [`min_size`, `max_size`] that ends the text and stood in it before.

    Of several occurrences the one is taken that agrees furthest back, and of equals the newest.
    """

    name = "ngram"
    needs = ProposerNeeds()
    sources = (Source(follows_prices=True),)

    def __init__(self, depth: int, min_size: int, max_size: int, indexes: Indexes | None = None) -> None:
        """`indexes` of the sizes that are looked up here, and maybe more; None: its own."""
        self._depth = depth
        self._sizes = range(min_size, max_size + 1)
        self._indexes = Indexes(self._sizes) if indexes is None else indexes
        self._requests: dict[str, _Request] = {}

    def begin(self, sequence: SequenceView) -> None:
        self._requests[sequence.req_id] = _Request(self._indexes.take(sequence.req_id))

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None:
        """Nothing to learn from a prompt chunk: the whole prompt is in the view and indexed at the first draft."""

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        return DraftBatch.chains(self.chains(sequences, budgets))

    def chains(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> list[list[int]]:
        return [self._draft(s, b) for s, b in zip(sequences, budgets, strict=True)]

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        for sequence in sequences:
            request = self._requests[sequence.req_id]
            if request.guess:
                came = sequence.token_ids[request.guess_at :]
                request.evidence.learn(request.guess_length, request.guess, came)
                request.guess = []

    def end(self, sequence: SequenceView) -> None:
        if self._requests.pop(sequence.req_id, None) is not None:
            self._indexes.give_back(sequence.req_id)

    def _draft(self, sequence: SequenceView, budget: int) -> list[int]:
        limit = min(budget, sequence.depth, self._depth)
        request = self._requests[sequence.req_id]
        request.guess = []
        if limit < 1:
            return []
        text = sequence.token_ids
        request.index.extend(text)
        found = self._longest(request.index, text)
        if found is None:
            return []
        position, length = found
        request.guess = continuation(text, position, limit)
        request.guess_length, request.guess_at = length, len(text)
        return request.guess[: request.evidence.num_worth(length, limit, sequence.prices)]

    def _longest(self, index: Occurrences, text: list[int]) -> tuple[int, int] | None:
        """Position and agreeing length of the best occurrence."""
        for size in reversed(self._sizes):
            if size >= len(text):
                continue
            best = None
            for position in islice(index.followers(size, tuple(text[-size:])), MAX_CANDIDATES):
                length = agreement(text, len(text), text, position, MAX_AGREEMENT)
                if best is None or length > best[1]:
                    best = position, length
                if length == MAX_AGREEMENT:
                    break
            if best is not None:
                return best
        return None
