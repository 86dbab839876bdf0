"""Suffix decoding (Oliaro et al., NeurIPS 2025): drafts from this request's text and from earlier outputs.

Made by the registry, driven by the engine through `Proposer`. The paper keeps suffix trees with counts; here the
occurrences are found through hash chains and counted when asked, which gives the same continuation at a fraction
of the memory. What the paper bounds is bounded here under vLLM's names: matched length (tree depth), draft length
per matched token (spec factor), and the share of occurrences that a drafted path keeps (token probability).
Users: `docs/proposers/suffix.md`.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from torch import Tensor

from draftproof.core.intent import Suffix
from draftproof.kv.budget import Account, ByteBudget
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import ProposerNeeds, SequenceView, Source
from draftproof.proposers.evidence import Evidence
from draftproof.proposers.occurrences import Indexes, Occurrences, agreement, continuation
from draftproof.proposers.pool import Pools
from draftproof.verify.types import Verdict

SIZES = (1, 2, 4, 8)
"""N-gram sizes that are indexed; longer agreement is found by comparing backwards from these."""
MAX_CANDIDATES = 16
"""Occurrences compared per look-up and source; of more, the newest."""


@dataclass(slots=True)
class _Request:
    index: Occurrences
    evidence: Evidence = field(default_factory=Evidence)
    guess: list[int] = field(default_factory=list)
    guess_length: int = 0
    """Tokens that agreed where the guess was made."""
    guess_at: int = 0
    """How many tokens the text had then."""


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """One place to draft from: tokens of `text` from index `start` on."""

    text: Sequence[int | None]
    start: int
    length: int
    """How many tokens before it agree with the request's newest."""


class SuffixProposer:
    """Follows the majority of the occurrences that agree furthest back."""

    name = "suffix"
    needs = ProposerNeeds()
    sources = (Source(follows_prices=True),)

    def __init__(
        self,
        intent: Suffix,
        indexes: Indexes | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        """`indexes` of the sizes that are looked up here, and maybe more; None: its own.

        `budget`: what the remembered outputs are drawn from; None: they have their own bound alone.
        """
        self._intent = intent
        self._sizes = tuple(size for size in SIZES if size <= intent.suffix_decoding_max_tree_depth)
        self._pools = Pools(self._sizes, intent.suffix_decoding_max_cached_requests)
        self._account: Account | None = None
        if budget is not None:
            self._account = Account(budget, self._pools.num_bytes, self._pools.shrink)
            weakref.finalize(self, budget.leave, self._account)
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
        """Frees the request and remembers its output for later ones of its scope."""
        if self._requests.pop(sequence.req_id, None) is not None:
            self._indexes.give_back(sequence.req_id)
            self._pools.remember(sequence.scope, sequence.token_ids[sequence.num_prompt :])
            if self._account is not None:
                self._account.settle()

    def _draft(self, sequence: SequenceView, budget: int) -> list[int]:
        limit = min(budget, sequence.depth, self._intent.num_speculative_tokens)
        request = self._requests[sequence.req_id]
        request.guess = []
        if limit < 1:
            return []
        text = sequence.token_ids
        request.index.extend(text)
        voters = self._longest(request.index, sequence)
        if not voters:
            return []
        length = voters[0].length
        limit = min(limit, int(length * self._intent.suffix_decoding_max_spec_factor))
        guess, shares = _majority(voters, text, limit, self._intent.suffix_decoding_min_token_prob)
        request.guess, request.guess_length, request.guess_at = guess, length, len(text)
        return guess[: request.evidence.num_worth(length, len(guess), sequence.prices, shares)]

    def _longest(self, index: Occurrences, sequence: SequenceView) -> list[_Occurrence]:
        """The occurrences that agree furthest back, newest first, the request's own before the pool's."""
        text, cap = sequence.token_ids, self._intent.suffix_decoding_max_tree_depth
        pool = self._pools.get(sequence.scope)
        best: list[_Occurrence] = []
        for size in reversed(self._sizes):
            if best:
                break
            ngram = tuple(text[-size:])
            for position in islice(index.followers(size, ngram), MAX_CANDIDATES):
                _keep_longest(best, text, text, position, cap)
            if pool is not None:
                for position in islice(pool.index.followers(size, ngram), MAX_CANDIDATES):
                    if pool.text[position - pool.base] is not None:
                        _keep_longest(best, text, pool.text, position - pool.base, cap)
        return best


def _keep_longest(
    best: list[_Occurrence], text: list[int], other: Sequence[int | None], start: int, cap: int
) -> None:
    length = agreement(text, len(text), other, start, cap)
    if best and length > best[0].length:
        best.clear()
    if not best or length == best[0].length:
        best.append(_Occurrence(other, start, length))


def _majority(
    voters: list[_Occurrence], text: list[int], limit: int, min_share: float
) -> tuple[list[int], list[float]]:
    """Tokens that most occurrences continue with, and each one's share of those that came so far.

    Ties go to the newest. Ends where the path keeps less than `min_share` of all, or nothing is left to follow.
    """
    runs = [_run(voter, text, limit) for voter in voters]
    path: list[int] = []
    shares: list[float] = []
    kept = 1.0
    for offset in range(limit):
        runs = [run for run in runs if len(run) > offset]
        if not runs:
            break
        if len(runs) == 1:
            path.extend(runs[0][offset:])
            shares.extend([1.0] * (len(runs[0]) - offset))
            break
        votes = Counter(run[offset] for run in runs)
        token, count = votes.most_common(1)[0]
        share = count / len(runs)
        kept *= share
        if kept < min_share:
            break
        path.append(token)
        shares.append(share)
        runs = [run for run in runs if run[offset] == token]
    return path, shares


def _run(voter: _Occurrence, text: list[int], limit: int) -> list[int]:
    """What follows one occurrence, at most `limit` tokens; in the pool it ends with the output."""
    if voter.text is text:
        return continuation(text, voter.start, limit)
    run: list[int] = []
    for token in voter.text[voter.start : voter.start + limit]:
        if token is None:
            break
        run.append(token)
    return run
