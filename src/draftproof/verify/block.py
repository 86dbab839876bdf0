"""`Rule.BLOCK` for one request: block verification of a chain.

Source: Sun et al. 2024, "Block verification accelerates speculative decoding" (arXiv 2403.10444), algorithm
2. On average it accepts at least as many tokens as token-by-token rejection. Point masses are q = 1 for
their token. Called by `verify`; noise comes by key.

The longest accepted prefix is chosen, so every acceptance test of the chain may be read, also those behind
the accepted prefix. That is why ACCEPT noise names the round and not the output position (see `ops.noise`).
"""

from __future__ import annotations

from torch import Tensor

from draftproof.ops.noise import Purpose, stream, uniform
from draftproof.verify.tree import RequestDraft, finish
from draftproof.verify.types import NoiseKey, Verdict


def prefix_weight(previous: float, p_token: float, q_token: float) -> float:
    """w_i = min(w_{i-1} * p / q, 1) with w_0 = 1 (p_i in the paper); `q_token` is 1 for a point mass."""
    assert q_token > 0.0, "a drafted token has probability 0 under the q it is said to be drawn from"
    return min(previous * p_token / q_token, 1.0)


def excess(weight: float, p: Tensor, q: Tensor) -> Tensor:
    """max(w * p - q, 0), float64 [vocab]: not normalised, the next token's weights if the prefix ends
    here."""
    return (weight * p - q).clamp_(min=0.0)


def excess_of_point_mass(weight: float, p: Tensor, token: int) -> Tensor:
    """`excess` for q one-hot at `token`: w * p without it, since w * p(token) <= 1. Not normalised."""
    rest = weight * p
    rest[token] = 0.0
    return rest


def stop_probability(weight: float, excess_mass: float) -> float:
    """h_i for a prefix that is not the whole chain: s / (s + 1 - w), s the mass of `excess`.

    For s = 0 and w = 1 (p equals q after a sure prefix) any value is right: the next prefix is then sure as
    well, and so on, until one that is accepted with certainty. The value taken is 1.
    """
    remaining = 1.0 - weight
    return excess_mass / (excess_mass + remaining) if excess_mass + remaining > 0.0 else 1.0


def verify_block(draft: RequestDraft, key: NoiseKey) -> Verdict:
    """Judges one request's chain; the emitted run is distributed as the target's own continuation.

    ACCEPT noise (seed, key.position, depth) tests the prefix that ends at that depth; RECOVER noise of the
    next output position draws the correction or bonus token.
    """
    row = len(draft.tokens)
    assert list(draft.parent_rows) == list(range(row)), "block verification judges chains only"
    weights = [1.0]  # [num_nodes + 1], by row
    for node, token in enumerate(draft.tokens):
        q = draft.q_of(node)
        q_token = 1.0 if q is None else float(q[token])
        weights.append(prefix_weight(weights[-1], float(draft.p[node][token]), q_token))
    # The paper tests every prefix and keeps the longest accepted one: the same as asking from the longest
    # down.
    accept, next_weights = weights[row], draft.p[row]
    while row > 0 and uniform(stream(key.seed, key.position, Purpose.ACCEPT, row - 1)) >= accept:
        row -= 1
        next_weights = _excess(draft, row, weights[row])
        accept = stop_probability(weights[row], float(next_weights.sum()))
    if not next_weights.any():  # by rounding alone, where p equals q within the last bits: so does p itself
        next_weights = draft.p[row]
    return finish(draft, range(1, row + 1), next_weights, key)


def _excess(draft: RequestDraft, row: int, weight: float) -> Tensor:
    """`excess` of the prefix that ends in `row`, against the q of the node behind it (node index `row`)."""
    q = draft.q_of(row)
    if q is None:
        return excess_of_point_mass(weight, draft.p[row], draft.tokens[row])
    return excess(weight, draft.p[row], q)
