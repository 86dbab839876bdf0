"""Drafting with a second, smaller model that keeps a cache of its own (Leviathan et al. 2023; Chen et al. 2023).

Made by the registry, driven by the engine through `Proposer`. Requests are drafted for together: a pass per drafted
token, a row per request. Nothing is computed before a request is asked to draft: the prompt, and whatever else the
cache lags behind the text, is caught up with in chunks at that time, so the first token comes as soon as without a
drafter and no request waits long for another's prompt. Users: `docs/proposers/draft-model.md`.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.kv.pool import BlockPool
from draftproof.kv.table import BlockTable, PrefixKeys
from draftproof.models.base import ForwardBatch, Segment
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import ProposerNeeds, SequenceView, Source
from draftproof.proposers.draft_context import CachedRequest, Context, MappedTokens, SameTokens
from draftproof.proposers.drafter import Drafter
from draftproof.proposers.drawing import Chain, Chains, draft_batch
from draftproof.proposers.resources import Resources
from draftproof.verify.types import Verdict

CATCH_UP_ROWS = 256
"""Rows of text that one `propose` computes at most; a request that lags further drafts in a later round."""
FEW_ROWS = 4
"""Rows of a request that cost about what one does: weights are streamed, not computed with."""
FULL = "at times drafted less: the drafter's cache was full"
"""A note, said once and beside whatever else there is to say."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One request's rows of a pass: `token_ids` go behind the first `start` tokens of its cache."""

    request: CachedRequest
    token_ids: Sequence[int]
    start: int
    wants_logits: bool = True


class DraftModelProposer:
    """Drafts greedily, or as the request samples."""

    name = "draft_model"
    needs = ProposerNeeds()

    def __init__(
        self, drafter: Drafter, resources: Resources, depth: int, draws: bool, tail: int | None = None
    ) -> None:
        """`tail`: tokens of the text that the drafter reads at most before a draft, where ids are equal."""
        self._drafter = drafter
        self._tail = tail if drafter.to_drafter is None else None
        self._target = resources.target
        self._depth = depth
        self.sources = (Source(follows_prices=False, depth=depth, reads=True),)
        self._shares_prefixes = resources.shares_prefixes
        self._chains = Chains(drafter.token_map, draws)
        self._cache = drafter.model.new_cache(drafter.num_blocks)
        self._pool = BlockPool(drafter.num_blocks, drafter.block_bytes, resources.budget, self._cache.discard)
        weakref.finalize(self, resources.budget.leave, self._pool)
        self._requests: dict[str, CachedRequest] = {}

    def begin(self, sequence: SequenceView) -> None:
        shares = self._shares_prefixes and self._drafter.to_drafter is None
        table = BlockTable(self._pool, PrefixKeys(sequence.scope) if shares else None)
        self._requests[sequence.req_id] = CachedRequest(self._new_context(), table)
        if self._drafter.to_drafter is not None:
            sequence.note = f"drafts with {self._drafter.source.name}: {self._drafter.vocabulary}"

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None:
        """The prompt is read when the request is first asked to draft."""

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        drafts = [self._begin_draft(s, b) for s, b in zip(sequences, budgets, strict=True)]
        going, logits = self._catch_up([chain for chain in drafts if chain is not None])
        if going:
            self._chains.grow(going, logits, self._step)
        for chain in drafts:
            if chain is not None and chain.fault is not None:
                self._stop(chain.view, chain.fault)
        return draft_batch(drafts)

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        """What was accepted is read from the text at the next draft."""

    def end(self, sequence: SequenceView) -> None:
        request = self._requests.pop(sequence.req_id, None)
        if request is not None:
            request.release()

    def reach(self, sequence: SequenceView, num_tokens: int) -> int:
        """All of it: the drafter reads the text, and nothing of the target's."""
        return num_tokens

    def release(self, sequence: SequenceView) -> bool:
        request = self._requests.get(sequence.req_id)
        return request is not None and request.release()

    def lag(self, sequence: SequenceView, source: int = 0) -> int:
        """In the target's tokens, where vocabularies differ."""
        num_missing = self._num_missing(sequence)
        if self._tail is not None:
            num_missing = min(num_missing, self._tail)
        return num_missing if num_missing > FEW_ROWS else 0

    def _num_missing(self, sequence: SequenceView) -> int:
        request = self._requests[sequence.req_id]
        return request.context.num_tokens(sequence) - request.num_cached - request.num_fed

    def _new_context(self) -> Context:
        if self._drafter.to_drafter is None:
            return SameTokens(self._tail)
        target, drafter = self._target, self._drafter
        return MappedTokens(
            target.tokenizer, target.config.bos_token_id, drafter.tokenizer, self._drafter.to_drafter
        )

    def _begin_draft(self, sequence: SequenceView, budget: int) -> Chain | None:
        """An empty chain with its cache blocks at hand; None when the request cannot draft now."""
        request = self._requests[sequence.req_id]
        limit = min(budget, sequence.depth, self._depth)
        if limit < 1 or request.is_stopped:
            return None
        if self._tail is not None and self._num_missing(sequence) > self._tail:
            request.release()  # it begins anew with the text's end, which is quicker
            self.begin(sequence)
            request = self._requests[sequence.req_id]
        if not request.follow(sequence):
            return None
        num_tokens, num_positions = len(request.token_ids), self._drafter.model.config.context_length
        if num_tokens > num_positions:
            self._stop(sequence, f"the drafter has {num_positions} positions")
            return None
        limit = min(limit, num_positions - num_tokens + 1)  # the last drafted token is never computed
        if not request.table.grow(num_tokens + limit - 1):
            if FULL not in (sequence.note or ""):
                sequence.note = f"{sequence.note}; {FULL}" if sequence.note else FULL
            return None
        return Chain(sequence, limit)

    def _stop(self, sequence: SequenceView, reason: str) -> None:
        """Ends one request's drafting for good and frees what it holds."""
        request = self._requests[sequence.req_id]
        request.is_stopped = True
        request.release()
        sequence.note = f"decodes plainly from token {len(sequence.token_ids)} on: {reason}"

    def _catch_up(self, chains: Sequence[Chain]) -> tuple[list[Chain], Tensor]:
        """Computes the text that the cache lacks, least first; the chains that are ready, and their logits."""
        rows_left = CATCH_UP_ROWS
        parts: list[_Part] = []
        asked: list[Chain] = []
        ready: list[Chain] = []
        for chain in sorted(chains, key=lambda chain: self._requests[chain.view.req_id].num_missing):
            request = self._requests[chain.view.req_id]
            num_rows = min(request.num_missing, rows_left)
            if num_rows == 0:
                break
            rows_left -= num_rows
            is_ready = num_rows == request.num_missing
            start = request.num_cached
            parts.append(_Part(request, request.token_ids[start : start + num_rows], start, is_ready))
            asked.append(chain)
            if is_ready:
                ready.append(chain)
        started_s = time.perf_counter()
        logits = self._forward(parts)
        pass_s = time.perf_counter() - started_s
        num_rows = sum(len(part.token_ids) for part in parts)
        for chain, part in zip(asked, parts, strict=True):
            part.request.computed(len(part.token_ids))
            if num_rows > FEW_ROWS * len(parts):  # fewer cost about what a step costs, and count as one
                num_read = len(part.token_ids) - part.wants_logits
                chain.view.num_read += num_read
                chain.view.reading_s += pass_s * num_read / num_rows
        return ready, logits

    def _step(self, chains: Sequence[Chain]) -> Tensor:
        """Computes each chain's last token; logits [num_chains, drafter rows]."""
        to_drafter = self._drafter.to_drafter
        parts: list[_Part] = []
        for chain in chains:
            request, token = self._requests[chain.view.req_id], chain.tokens[-1]
            token = token if to_drafter is None else to_drafter[token]
            parts.append(_Part(request, [token], request.num_cached + request.num_fed))
        logits = self._forward(parts)
        for part in parts:
            part.request.feed(part.token_ids[0])
        return logits

    def _forward(self, parts: Sequence[_Part]) -> Tensor:
        """One pass; logits of each part's last row where it wants them."""
        token_ids: list[int] = []
        positions: list[int] = []
        segments: list[Segment] = []
        logit_rows: list[int] = []
        for part in parts:
            num_rows = len(part.token_ids)
            segments.append(Segment(part.request.table.block_ids, part.start, len(token_ids), num_rows))
            token_ids.extend(part.token_ids)
            positions.extend(range(part.start, part.start + num_rows))
            if part.wants_logits:
                logit_rows.append(len(token_ids) - 1)
        if not token_ids:
            return torch.empty((0, self._drafter.model.config.vocab_size))
        batch = ForwardBatch(
            torch.tensor(token_ids),
            torch.tensor(positions),
            segments,
            torch.tensor(logit_rows, dtype=torch.int64),
        )
        return self._drafter.model.forward(batch, self._cache)
