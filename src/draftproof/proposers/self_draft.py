"""The target's own weights, quantised, draft for the target at full precision.

Made by the registry, driven by the engine through `Proposer`. The drafter reads the target's cache, which is better
than one of its own would be, and writes only behind the committed tokens, where the coming pass of the target
overwrites it. So there is no prompt to read, nothing to catch up with, no cache to pay for, and a request's state is
its text. Users: `docs/proposers/self.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.kv.cache import BLOCK_SIZE
from draftproof.models.base import ForwardBatch, Segment
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import ProposerNeeds, SequenceView, Source
from draftproof.proposers.drafter import Drafter
from draftproof.proposers.drawing import Chain, Chains, draft_batch
from draftproof.proposers.resources import Resources
from draftproof.verify.types import Verdict


class SelfDraftProposer:
    """Keeps nothing of a request but whether drafting for it once failed."""

    name = "self"
    needs = ProposerNeeds(target_cache=True)

    def __init__(self, drafter: Drafter, resources: Resources, depth: int, draws: bool) -> None:
        self._model = drafter.model
        self._drafter = drafter  # held: it is freed with the last proposer that drafts with it
        self._cache = resources.cache
        self._depth = depth
        self.sources = (Source(follows_prices=False, depth=depth),)
        self._chains = Chains(drafter.token_map, draws)
        self._broken: set[str] = set()

    def begin(self, sequence: SequenceView) -> None: ...

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None:
        """The target's cache holds the prompt."""

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        drafts = [self._begin_draft(s, b) for s, b in zip(sequences, budgets, strict=True)]
        going = [chain for chain in drafts if chain is not None]
        if going:
            self._chains.grow(going, self._forward(going), self._forward)
        for chain in drafts:
            if chain is not None and chain.fault is not None:
                self._broken.add(chain.view.req_id)
                chain.view.note = f"decodes plainly from token {len(chain.view.token_ids)} on: {chain.fault}"
        return draft_batch(drafts)

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        """The target's cache follows by itself."""

    def end(self, sequence: SequenceView) -> None:
        self._broken.discard(sequence.req_id)

    def _begin_draft(self, sequence: SequenceView, budget: int) -> Chain | None:
        num_free = len(sequence.block_ids) * BLOCK_SIZE - (len(sequence.token_ids) - 1)
        limit = min(budget, sequence.depth, self._depth, num_free)
        return None if limit < 1 or sequence.req_id in self._broken else Chain(sequence, limit)

    def _forward(self, chains: Sequence[Chain]) -> Tensor:
        """Computes each chain's last token, at first the text's; logits [num_chains, target rows]."""
        token_ids: list[int] = []
        positions: list[int] = []
        segments: list[Segment] = []
        for row, chain in enumerate(chains):
            text, drafted = chain.view.token_ids, chain.tokens
            position = len(text) - 1 + len(drafted)
            token_ids.append(drafted[-1] if drafted else text[-1])
            positions.append(position)
            segments.append(Segment(chain.view.block_ids, position, row, 1))
        rows = torch.arange(len(chains))
        return self._model.forward(
            ForwardBatch(torch.tensor(token_ids), torch.tensor(positions), segments, rows), self._cache
        )
