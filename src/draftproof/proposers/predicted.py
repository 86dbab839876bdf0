"""Predicted outputs: drafts from the text that the user expects, and finds back into it after an edit.

Made by the registry, driven by the engine through `Proposer`. A cursor points at the expected next token. Where the
output departs from the prediction, the newest output tokens are looked up in it: near and ahead first (text was
inserted, deleted or replaced), then anywhere (parts were moved). It does not know what the prediction was made
for, and a prediction that has nothing to do with the output costs one look-up per token and drafts nothing.
Users: `docs/proposers/predicted.md`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import ProposerNeeds, SequenceView, Source
from draftproof.proposers.evidence import Evidence
from draftproof.proposers.occurrences import agreement
from draftproof.verify.types import Verdict

SIZES = (4, 2, 1)
"""N-gram sizes by which the output's end is looked up in the prediction."""
NEAR_TOKENS = 64
"""How far ahead of the point of departure one or two agreeing tokens are believed."""
FAR_SIZE = 4
"""Agreeing tokens that are needed anywhere else."""
ANCHOR_LENGTH = 4
"""Agreeing tokens after which a place counts as found, and the next search starts there."""
MAX_AGREEMENT = 32


@dataclass(slots=True)
class _Request:
    prediction: Sequence[int]
    places: dict[tuple[int, ...], list[int]]
    """For each n-gram of the prediction the indices of what follows it, ascending."""
    evidence: Evidence = field(default_factory=Evidence)
    cursor: int = 0
    """Index of the expected next token."""
    length: int = MAX_AGREEMENT
    """Tokens before the cursor that agree with the output's end; at the start nothing speaks against it."""
    lost: bool = False
    anchor: int = 0
    """Where the output last followed the prediction for certain: the search starts here."""
    num_read: int = 0
    """Tokens of the view that the cursor has followed."""
    guess: Sequence[int] = ()
    guess_length: int = 0


class PredictedProposer:
    """Follows the user's prediction; drafts nothing for requests without one."""

    name = "predicted"
    needs = ProposerNeeds()
    sources = (Source(follows_prices=True),)

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._requests: dict[str, _Request] = {}

    def begin(self, sequence: SequenceView) -> None:
        if sequence.prediction:
            self._requests[sequence.req_id] = _Request(
                sequence.prediction, _places(sequence.prediction), num_read=sequence.num_prompt
            )

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None:
        """Nothing to learn from a prompt chunk."""

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        return DraftBatch.chains(self.chains(sequences, budgets))

    def chains(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> list[list[int]]:
        return [self._draft(s, b) for s, b in zip(sequences, budgets, strict=True)]

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        for sequence in sequences:
            request = self._requests.get(sequence.req_id)
            if request is not None and request.guess:
                came = sequence.token_ids[request.num_read :]
                request.evidence.learn(request.guess_length, request.guess, came)
                request.guess = ()

    def end(self, sequence: SequenceView) -> None:
        self._requests.pop(sequence.req_id, None)

    def _draft(self, sequence: SequenceView, budget: int) -> list[int]:
        request = self._requests.get(sequence.req_id)
        if request is None:
            return []
        request.guess = ()
        limit = min(budget, sequence.depth, self._depth)
        if limit < 1:
            return []
        _follow(request, sequence)
        if request.lost:
            return []
        request.guess = request.prediction[request.cursor : request.cursor + limit]
        request.guess_length = request.length
        num_worth = request.evidence.num_worth(request.length, len(request.guess), sequence.prices)
        return list(request.guess[:num_worth])


def _places(prediction: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
    places: dict[tuple[int, ...], list[int]] = {}
    for size in SIZES:
        shifted = [prediction[offset:] for offset in range(size)]
        for position, ngram in enumerate(zip(*shifted, strict=False), size):
            places.setdefault(ngram, []).append(position)
    return places


def _follow(request: _Request, sequence: SequenceView) -> None:
    """Moves the cursor over the output that came since the last call."""
    text, prediction = sequence.token_ids, request.prediction
    while request.num_read < len(text):
        token = text[request.num_read]
        request.num_read += 1
        if not request.lost and request.cursor < len(prediction) and prediction[request.cursor] == token:
            request.cursor += 1
            request.length += 1
            if request.length >= ANCHOR_LENGTH:
                request.anchor = request.cursor
        else:
            request.lost = True
        if request.lost:
            _realign(request, text, sequence.num_prompt)


def _realign(request: _Request, text: list[int], num_prompt: int) -> None:
    """Looks the output's end up in the prediction; sets the cursor if it is there."""
    end = request.num_read
    for size in SIZES:
        if end - size < num_prompt:
            continue
        found = request.places.get(tuple(text[end - size : end]))
        if found is None:
            continue
        ahead = bisect_left(found, request.anchor + 1)
        if ahead < len(found) and (found[ahead] <= request.anchor + NEAR_TOKENS or size >= FAR_SIZE):
            cursor = found[ahead]
        elif size >= FAR_SIZE:
            cursor = found[ahead - 1]
        else:
            continue
        request.cursor, request.lost = cursor, False
        request.length = agreement(text, end, request.prediction, cursor, MAX_AGREEMENT)
        return
