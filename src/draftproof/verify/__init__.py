"""Verification: which drafted tokens the target would have produced, and the one token that it adds.

Called by the engine once per round. Mathematics only: no models, no input or output, no hidden random
state. The verdict is a pure function of the draft, the target's tokens or distributions, the rules and the
noise keys.

    greedy, coupled   the target's own token per row, made before `verify` for requests judged by `Rule.MATCH`
    match             accept while the draft is that token
    rejection, tree   Leviathan et al. 2023; trees of point-mass or drawn siblings
    block             Sun et al. 2024
    oracle            the same rules in exact fractions, slow and obvious: what the others are tested against
"""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.ops.draft_batch import DraftBatch
from draftproof.verify.block import verify_block
from draftproof.verify.match import accept_matching
from draftproof.verify.tree import RequestDraft, verify_tree
from draftproof.verify.types import NoiseKey, Rule, TargetRows, Verdict

__all__ = ["NoiseKey", "Rule", "TargetRows", "Verdict", "verify"]


def verify(
    draft: DraftBatch, target: TargetRows, rules: Sequence[Rule], keys: Sequence[NoiseKey]
) -> list[Verdict]:
    """One verdict per request, in order.

    draft   nodes of `num_requests` requests
    target  the rows of all requests one after the other, num_nodes(r) + 1 of request r, its root first
    rules   [num_requests]
    keys    [num_requests]; `Rule.MATCH` reads none (its noise is already in `target.tokens`)

    The emitted run of a request is distributed as the target's own continuation (`docs/exactness.md`).
    """
    num_rows = draft.num_nodes + draft.num_requests
    assert len(rules) == len(keys) == draft.num_requests, (len(rules), len(keys), draft.num_requests)
    assert target.tokens.shape == (num_rows,), (target.tokens.shape, num_rows)
    assert target.prob_rows.shape == (num_rows,), (target.prob_rows.shape, num_rows)
    # Lists once: scalar reads of tensors would dominate the round.
    drafted, parents, offsets = draft.lists
    tokens: list[int] = target.tokens.tolist()
    verdicts: list[Verdict] = []
    for request, (rule, key) in enumerate(zip(rules, keys, strict=True)):
        start, stop = offsets[request], offsets[request + 1]
        first_row, end_row = start + request, stop + request + 1
        if rule is Rule.MATCH:
            verdict = accept_matching(drafted[start:stop], parents[start:stop], tokens[first_row:end_row])
        else:
            judge = verify_block if rule is Rule.BLOCK else verify_tree
            verdict = judge(_with_probabilities(draft, target, request, start, stop), key)
        verdicts.append(verdict)
    return verdicts


def _with_probabilities(
    draft: DraftBatch, target: TargetRows, request: int, start: int, stop: int
) -> RequestDraft:
    """One request's nodes, with the target's distribution of each row (views into `target.probs`)."""
    q_rows: list[int] = draft.q_rows[start:stop].tolist()
    is_point_mass: list[bool] = draft.is_point_mass[start:stop].tolist()
    prob_rows: list[int] = target.prob_rows[start + request : stop + request + 1].tolist()
    if not all(is_point_mass):
        assert draft.q.shape[1] == target.probs.shape[1], (draft.q.shape, target.probs.shape)
    return RequestDraft(
        tokens=draft.tokens[start:stop].tolist(),
        parent_rows=draft.parent_rows[start:stop].tolist(),
        q=[None if point else q_row for point, q_row in zip(is_point_mass, q_rows, strict=True)],
        q_probs=draft.q,
        p=[target.probs[row] for row in prob_rows],
    )
