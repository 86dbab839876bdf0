"""`Rule.REJECTION` for one request: a tree of drafted nodes, siblings judged one after the other in draw
order.

A chain is a tree with one path, for which this is algorithm 1 of Leviathan et al. 2023. Siblings that were
drawn without replacement follow the recursive rejection of Chen et al. 2024 (Sequoia, arXiv 2402.12374,
algorithm 2) and Jeon et al. 2024: after each rejection p <- norm(max(p - q, 0)), q <- q without that token,
renormalised. Point-mass siblings are the special case "remove and renormalise". Called by `verify`; noise
comes by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from draftproof.ops.noise import Purpose, draw, stream, uniform
from draftproof.verify.rejection import acceptance_probability, residual, without
from draftproof.verify.types import NoiseKey, Verdict


@dataclass(frozen=True, slots=True)
class RequestDraft:
    """One request's nodes as lists, and its share of the target's distributions.

    tokens, parent_rows  [num_nodes]            see DraftBatch
    q                    [num_nodes]            None for a point mass, else a row index into `q_probs`
    q_probs              float [num_q_rows, vocab]
    p                    [num_nodes + 1] of float64 [vocab], the target's distribution per row, root first
    """

    tokens: Sequence[int]
    parent_rows: Sequence[int]
    q: Sequence[int | None]
    q_probs: Tensor
    p: Sequence[Tensor]

    def q_of(self, node: int) -> Tensor | None:
        """The distribution that the first sibling of `node`'s row of q was drawn from, float64 [vocab];
        None for a point mass. A float32 q is drawn from by its ratios, so it is made to sum to 1 in float64
        too."""
        q_row = self.q[node]
        if q_row is None:
            return None
        q = self.q_probs[q_row].double()
        return q / q.sum()


@dataclass(slots=True)
class Siblings:
    """The children of one row while they are judged: what is left of p, and of each q that they were drawn
    from."""

    draft: RequestDraft
    p: Tensor
    _left: dict[int, Tensor] = field(default_factory=dict)

    def acceptance(self, node: int) -> float:
        """Probability to accept the next sibling, given that the earlier ones were rejected."""
        token, q = self.draft.tokens[node], self._q(node)
        return acceptance_probability(float(self.p[token]), 1.0 if q is None else float(q[token]))

    def reject(self, node: int) -> None:
        """Goes on without `node`: p becomes the residual, and q what the next sibling was drawn from."""
        token, q, q_row = self.draft.tokens[node], self._q(node), self.draft.q[node]
        if q is None or q_row is None:
            self.p = without(self.p, token)
        else:
            self.p = residual(self.p, q)
            self._left[q_row] = without(q, token)

    def _q(self, node: int) -> Tensor | None:
        q_row = self.draft.q[node]
        return self._left[q_row] if q_row in self._left else self.draft.q_of(node)


def verify_tree(draft: RequestDraft, key: NoiseKey) -> Verdict:
    """Judges one request's tree; the emitted run is distributed as the target's own continuation.

    Acceptance of the k-th sibling at depth d reads ACCEPT noise (seed, key.position, d, k); the correction or
    bonus token at output position key.position + d reads RECOVER noise of that position.
    """
    row, place = 0, 0
    path: list[int] = []
    siblings = Siblings(draft, draft.p[0])
    for node, parent_row in enumerate(draft.parent_rows):
        if parent_row != row:
            continue
        noise = stream(key.seed, key.position, Purpose.ACCEPT, len(path))
        if uniform(noise, place) < siblings.acceptance(node):
            row, place = node + 1, 0
            path.append(row)
            siblings = Siblings(draft, draft.p[row])
        else:
            siblings.reject(node)
            place += 1
    return finish(draft, path, siblings.p, key)


def finish(draft: RequestDraft, path: Sequence[int], weights: Tensor, key: NoiseKey) -> Verdict:
    """The verdict for an accepted path, its next token drawn from `weights` (float64 [vocab], any scale)."""
    recover = stream(key.seed, key.position + len(path), Purpose.RECOVER)
    next_token = int(draw(weights[None], [recover]))
    return Verdict(tuple(path), tuple([draft.tokens[row - 1] for row in path]), next_token)
