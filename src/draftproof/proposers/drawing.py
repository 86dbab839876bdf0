"""From a drafter's logits to chains of drafted tokens, over the target's vocabulary.

Used by the proposers that draft with a model. A request judged by matching gets the token that the drafter thinks the
target will take: the best one, or the sample under the target's own noise (Gumbel coupling). A request judged by
rejection or block gets a token drawn from q, with q. Whether a chain goes on may depend on the tokens drawn so far,
never on what a token turns out to be: each drawn token is kept, also when the drafter fails behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from draftproof.checkpoints.vocabulary import VocabularyFit
from draftproof.ops.draft_batch import DraftBatch
from draftproof.ops.noise import Purpose, draw, stream
from draftproof.ops.sampling import SamplingState
from draftproof.proposers.base import SequenceView
from draftproof.verify.types import Rule

MIN_SURVIVAL = 0.3
"""A chain goes on while the drafter's own confidence in all of it is at least this: a further token costs a step of
the drafter, which is about this part of a step of the target."""

logger = logging.getLogger("draftproof.proposers")


class TokenMap:
    """Columns of a drafter's logits that stand for tokens of the target, and which.

    target_ids   int64 [num_columns], or None where column k stands for token k
    drafter_ids  int64 [num_columns], or None where column k is the k-th logit
    """

    def __init__(self, pairs: Sequence[tuple[int, int]], num_rows: int) -> None:
        """`pairs` (target id, drafter id), ascending; `num_rows` of the target's vocabulary."""
        self.num_rows = num_rows
        self._num_columns = len(pairs)
        self._target_ids: Tensor | None = None
        self._drafter_ids: Tensor | None = None
        if any(pair != (column, column) for column, pair in enumerate(pairs)):
            self._target_ids = torch.tensor([target_id for target_id, _ in pairs], dtype=torch.int64)
            self._drafter_ids = torch.tensor([drafter_id for _, drafter_id in pairs], dtype=torch.int64)

    @classmethod
    def of(cls, fit: VocabularyFit, num_target_rows: int, num_drafter_rows: int) -> TokenMap:
        """Ids that either model has no row for are never drafted."""
        pairs = [pair for pair in fit.pairs if pair[0] < num_target_rows and pair[1] < num_drafter_rows]
        return cls(pairs, num_target_rows)

    @classmethod
    def identity(cls, num_rows: int) -> TokenMap:
        return cls([(row, row) for row in range(num_rows)], num_rows)

    def columns(self, logits: Tensor) -> Tensor:
        """[num_rows, drafter rows] → [num_rows, num_columns]"""
        return logits[:, : self._num_columns] if self._drafter_ids is None else logits[:, self._drafter_ids]

    def token(self, column: int) -> int:
        return column if self._target_ids is None else int(self._target_ids[column])

    def over_target(self, columns: Tensor) -> Tensor:
        """[num_rows, num_columns] → [num_rows, target rows], -inf where the drafter has no such token."""
        if self._target_ids is None and self._num_columns == self.num_rows:
            return columns
        full = torch.full((columns.shape[0], self.num_rows), -torch.inf)
        if self._target_ids is None:
            full[:, : self._num_columns] = columns
        else:
            full[:, self._target_ids] = columns
        return full


@dataclass(slots=True)
class Chain:
    """One request's draft while it grows. `fault`: why the drafter failed behind its tokens, which are kept."""

    view: SequenceView
    limit: int
    tokens: list[int] = field(default_factory=list)
    q: list[Tensor] = field(default_factory=list)
    survival: float = 1.0
    fault: str | None = None


Step = Callable[[Sequence[Chain]], Tensor]
"""Computes each chain's last token; logits float32 [num_chains, drafter rows]."""


class Chains:
    """Grows the chains of one `propose` call, a token each per pass of the drafter."""

    def __init__(self, token_map: TokenMap, draws: bool) -> None:
        """`draws`: sampled requests get drawn tokens; else every request gets the best one, as a point mass."""
        self._map = token_map
        self._draws = draws

    def grow(self, chains: Sequence[Chain], logits: Tensor, step: Step) -> None:
        """Draws until every chain has ended; `logits` as for `extend`."""
        going = self.extend(chains, logits)
        while going:
            going = [c for computed, logits in _computed(going, step) for c in self.extend(computed, logits)]

    def extend(self, chains: Sequence[Chain], logits: Tensor) -> list[Chain]:
        """Adds a token to each chain and returns those that go on.

        logits  float32 [num_chains, drafter rows], one row per chain
        """
        assert logits.shape[0] == len(chains)
        columns = self._map.columns(logits)
        values = columns.numpy()
        best = values.argmax(axis=1).tolist()
        going: list[Chain] = []
        for row, chain in enumerate(chains):
            top = values[row, best[row]]
            if not np.isfinite(top):  # the largest value of a row with a NaN is the NaN
                chain.fault = "the drafter's logits are not finite numbers"
                continue
            sampling = chain.view.sampling
            assert sampling is not None
            if sampling.leaves_logits:
                chain.tokens.append(self._map.token(best[row]))
                if len(chain.tokens) < chain.limit:
                    chain.survival /= float(np.exp(values[row] - top).sum())
            elif not self._choose(chain, sampling, columns[row : row + 1]):
                continue
            if len(chain.tokens) < chain.limit and chain.survival >= MIN_SURVIVAL:
                going.append(chain)
        return going

    def _choose(self, chain: Chain, sampling: SamplingState, columns: Tensor) -> bool:
        """A token through the request's sampling parameters; False when they leave none that the drafter has."""
        ids, probs = sampling.likely(self._map.over_target(columns)[0], chain.tokens)
        if not len(ids):
            return False
        view, depth = chain.view, len(chain.tokens)
        chain.survival *= float(probs.max())
        if view.params.is_greedy or not self._draws:
            chain.tokens.append(int(ids[probs.argmax()]))
            return True
        if view.rule is Rule.MATCH:
            noise = stream(view.noise.seed, view.noise.position + depth, Purpose.TARGET)
        else:
            noise = stream(view.noise.seed, view.noise.position, Purpose.DRAFT, depth)
            q = torch.zeros((1, self._map.num_rows), dtype=torch.float64)
            q[0, ids] = probs
            chain.q.append(q)
        chain.tokens.append(int(draw(probs[None], [noise], ids=ids)[0, 0]))
        return True


def _computed(chains: Sequence[Chain], step: Step) -> list[tuple[Sequence[Chain], Tensor]]:
    """The chains with their logits; where the pass fails, each alone, without those whose own pass fails."""
    try:
        return [(chains, step(chains))]
    except Exception as error:
        if len(chains) == 1:
            chains[0].fault = f"the drafter failed ({type(error).__name__}: {error})"
            logger.warning("request %s: %s", chains[0].view.req_id, chains[0].fault)
            return []
    return [part for chain in chains for part in _computed([chain], step)]


def draft_batch(chains: Sequence[Chain | None]) -> DraftBatch:
    """One entry per chain, in order; None has none."""
    kept = [chain.tokens if chain is not None else [] for chain in chains]
    batch = DraftBatch.chains(kept)
    qs = [q for chain in chains if chain is not None for q in chain.q]
    if not qs:
        return batch
    drawn = torch.tensor(
        [
            bool(chain is not None and chain.q)
            for chain, tokens in zip(chains, kept, strict=True)
            for _ in tokens
        ]
    )
    q_rows = torch.where(drawn, drawn.cumsum(0) - 1, 0)
    return DraftBatch(
        tokens=batch.tokens,
        parent_rows=batch.parent_rows,
        node_offsets=batch.node_offsets,
        is_point_mass=~drawn,
        q_rows=q_rows,
        q=torch.cat(qs),
    )
