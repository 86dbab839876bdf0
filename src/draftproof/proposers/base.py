"""The interface that every form of drafting stands behind, and what a proposer may see of a request.

The engine calls `begin` once, then per round `propose` and `commit`, and `end` once, whatever ends the request.
`tests/contract/test_proposer_contract.py` runs the same suite over every proposer in the registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from draftproof.core.params import SamplingParams
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.evidence import ASSUMED_PRICES
from draftproof.verify.types import NoiseKey, Verdict


@dataclass(slots=True)
class SequenceView:
    """What a proposer may read of one request. It never writes here.

    token_ids       prompt and committed output, the engine's own growing list (do not copy it per round)
    num_prompt      how many of them are prompt
    prediction      the user's expected output as token ids; empty if none was given
    scope           requests share remembered text only within one scope (API key or cache_salt)
    depth           upper bound of drafted tokens per round that the request's configuration names
    prices          prices[d] is what drafting d tokens costs in this round, in tokens: as much time as that many
                    take otherwise. Set by the engine before each `propose`. A proposer that knows how likely its
                    tokens are drafts as many as gain most over their price
    """

    req_id: str
    token_ids: list[int]
    num_prompt: int
    params: SamplingParams
    prediction: Sequence[int] = ()
    scope: str = ""
    depth: int = 1
    prices: Sequence[float] = ASSUMED_PRICES
    noise: NoiseKey = field(default_factory=lambda: NoiseKey(0, 0))


@dataclass(frozen=True, slots=True)
class ProposerNeeds:
    """What a proposer needs from the target, as data. Look-up proposers need nothing."""

    hidden_layers: tuple[int, ...] = ()
    token_embeddings: bool = False


class Proposer(Protocol):
    """Drafts tokens for several requests at once.

    `propose` returns one entry per sequence, in order, with at most `budgets[i]` nodes for sequence i; having
    nothing to draft is an empty entry, never an error. Drafts never depend on anything but the views, so that a
    request's text does not depend on its neighbours (shared pools are scoped and may change drafts, never text).
    """

    name: str
    needs: ProposerNeeds
    follows_prices: bool
    """Whether it drafts by `SequenceView.prices`, so that it may be given any budget; else as deep as it is asked."""

    def begin(self, sequence: SequenceView) -> None: ...

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None:
        """After every prefill chunk: `hidden` [num_rows, hidden] as `needs` asks, or None."""
        ...

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch: ...

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        """After the engine appended each verdict's emitted tokens to `token_ids` (cut at the stop rule)."""
        ...

    def end(self, sequence: SequenceView) -> None: ...
