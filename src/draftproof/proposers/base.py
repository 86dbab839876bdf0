"""The interface that every form of drafting stands behind, and what a proposer may see of a request.

The engine calls `begin` once, then per round `propose` and `commit`, and `end` once, whatever ends the request.
`tests/contract/test_proposer_contract.py` runs the same suite over every proposer in the registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from draftproof.core.params import SamplingParams
from draftproof.ops.draft_batch import DraftBatch
from draftproof.ops.sampling import SamplingState
from draftproof.proposers.evidence import ASSUMED_PRICES
from draftproof.verify.types import NoiseKey, Rule, Verdict


class Source(NamedTuple):
    """One source of drafts in a proposer; where there are several, the first that has a draft for a request gives it.

    follows_prices  it drafts by `SequenceView.prices`, so it may be given any budget; else as deep as it is asked
    depth           most tokens that it drafts, whatever it may
    reads           it must have read the text before it drafts: `ReadsText.lag` tells how much is missing
    """

    follows_prices: bool
    depth: int = 128
    reads: bool = False


class Offer(NamedTuple):
    """What a source may draft in a round: at most `budget` tokens, at `prices` (as `SequenceView.prices`)."""

    budget: int
    prices: Sequence[float]


@dataclass(slots=True)
class SequenceView:
    """What a proposer may read of one request. It writes nothing here but the last four fields.

    token_ids       prompt and committed output, the engine's own growing list (do not copy it per round)
    num_prompt      how many of them are prompt
    prediction      the user's expected output as token ids; empty if none was given
    scope           requests share remembered text only within one scope (API key or cache_salt)
    depth           upper bound of drafted tokens per round that the request's configuration names
    prices          prices[d] is what drafting d tokens costs in this round, in tokens: as much time as that many
                    take otherwise. Set by the engine before each `propose`. A proposer that knows how likely its
                    tokens are drafts as many as gain most over their price. prices[0] is negative where another
                    source drafts instead: what that is expected to gain over its own price. In a proposer of
                    several sources they are those of the source that is asked
    offers          what each source of a proposer of several may draft in this round; empty: each all of its budget
    noise           names the noise of the coming round
    rule            how the request's drafts are judged: MATCH wants what the target itself would take, under its
                    noise; the others take draws from q; BLOCK takes no trees
    sampling        what a row of logits over the target's vocabulary goes through before a token is chosen
    block_ids       the target's cache blocks of this request. All tokens but the last are computed; a proposer that
                    shares the target's cache may write from there on, for the coming pass overwrites it
    note            what the user should know of this request's drafts; set by the proposer, shown by the engine
    reading_s       seconds that the proposer spent on text that it had not read yet, which a draft costs once and not
                    per token; added to by the proposer, taken by the engine
    num_read        tokens that it read in that time
    source          the last source that was asked in this round, which is the one that drafted if any did; written by
                    proposers of several
    """

    req_id: str
    token_ids: list[int]
    num_prompt: int
    params: SamplingParams
    prediction: Sequence[int] = ()
    scope: str = ""
    depth: int = 1
    prices: Sequence[float] = ASSUMED_PRICES
    offers: Sequence[Offer] = ()
    noise: NoiseKey = field(default_factory=lambda: NoiseKey(0, 0))
    rule: Rule = Rule.MATCH
    sampling: SamplingState | None = None
    block_ids: list[int] = field(default_factory=list)
    note: str | None = None
    reading_s: float = 0.0
    num_read: int = 0
    source: int = 0


@dataclass(frozen=True, slots=True)
class ProposerNeeds:
    """What a proposer needs from the target, as data. Look-up proposers need nothing.

    target_cache  reads the target's keys and values, and writes behind the committed ones
    """

    hidden_layers: tuple[int, ...] = ()
    token_embeddings: bool = False
    target_cache: bool = False


class Proposer(Protocol):
    """Drafts tokens for several requests at once.

    `propose` returns one entry per sequence, in order, with at most `budgets[i]` nodes for sequence i; having
    nothing to draft is an empty entry, never an error. Drafts never depend on anything but the views, so that a
    request's text does not depend on its neighbours (shared pools are scoped and may change drafts, never text).
    """

    name: str
    needs: ProposerNeeds

    @property
    def sources(self) -> Sequence[Source]:
        """In the order in which they are asked; one, but for proposers that are made of others (`HasSources`)."""
        ...

    def begin(self, sequence: SequenceView) -> None: ...

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None:
        """After every prefill chunk: `hidden` [num_rows, hidden] as `needs` asks, or None."""
        ...

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch: ...

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        """After the engine appended each verdict's emitted tokens to `token_ids` (cut at the stop rule).

        A batch that fails is handed over again, one by one: a sequence that was committed already must take it.
        """
        ...

    def end(self, sequence: SequenceView) -> None: ...


@runtime_checkable
class DraftsChains(Protocol):
    """What a proposer offers besides when all it drafts are chains that it is certain of, as look-up does.

    A cascade puts lists together in a fraction of the time that tensors take.
    """

    def chains(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> list[list[int]]:
        """The drafts of `propose`, as lists of tokens."""
        ...


@runtime_checkable
class HasSources(Protocol):
    """What a proposer of several sources offers besides. It writes `SequenceView.source`."""

    def take_spent_s(self) -> list[float]:
        """Seconds spent in each source since this was asked last."""
        ...


@runtime_checkable
class HoldsCache(Protocol):
    """What a proposer offers besides when it keeps state per token that costs memory or cannot be rebuilt.

    Its blocks come from a `BlockPool` of the engine's `ByteBudget`.
    """

    def reach(self, sequence: SequenceView, num_tokens: int) -> int:
        """Of the first `num_tokens` tokens, which the target need not compute, how many this proposer can do without.

        Asked before `begin`, and again when a preempted request comes back. A proposer that rebuilds its state
        from `token_ids` alone answers `num_tokens`; one that must observe the target's hidden states, as far as
        its own cache has them.
        """
        ...

    def release(self, sequence: SequenceView) -> bool:
        """Gives up the sequence's blocks, because memory is short; whether there were any.

        The sequence goes on: state is rebuilt from `token_ids` when there is room, and until then nothing is
        drafted for it.
        """
        ...


@runtime_checkable
class ReadsText(Protocol):
    """What a proposer with sources that `reads` offers besides."""

    def lag(self, sequence: SequenceView, source: int = 0) -> int:
        """About how many tokens a source would read before a draft now, beyond what a step computes in passing."""
        ...
