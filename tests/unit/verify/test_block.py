"""Block verification at its edges; verdicts over generated chains are in `tests/exactness`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from draftproof.verify import block
from draftproof.verify.block import (
    excess,
    excess_of_point_mass,
    prefix_weight,
    stop_probability,
    verify_block,
)
from draftproof.verify.tree import RequestDraft, verify_tree
from draftproof.verify.types import NoiseKey, Verdict


def dist(*masses: float) -> Tensor:
    return torch.tensor(masses, dtype=torch.float64)


def test_weights_are_clamped_and_may_be_zero() -> None:
    assert prefix_weight(1.0, 0.9, 0.3) == 1.0
    assert prefix_weight(0.5, 0.0, 0.3) == 0.0
    assert prefix_weight(0.5, 0.3, 0.6) == 0.25


def test_a_drafted_token_that_q_excludes_is_our_fault() -> None:
    with pytest.raises(AssertionError, match="probability 0"):
        prefix_weight(1.0, 0.5, 0.0)


def test_stop_probability_at_the_edges() -> None:
    assert stop_probability(1.0, 0.2) == 1.0
    assert stop_probability(0.5, 0.0) == 0.0
    assert stop_probability(1.0, 0.0) == 1.0
    assert stop_probability(1.0, 1e-30) == 1.0
    assert stop_probability(1.0 - 2.0**-53, 2.0**-53) == 0.5


def test_inputs_are_left_alone() -> None:
    p, q = dist(0.6, 0.4), dist(0.2, 0.8)
    assert torch.equal(excess(0.5, p, q), dist(0.3, 0.4) - dist(0.2, 0.4))
    assert torch.equal(excess_of_point_mass(0.5, p, 0), dist(0.0, 0.2))
    assert torch.equal(p, dist(0.6, 0.4))
    assert torch.equal(q, dist(0.2, 0.8))


def test_nothing_drafted_draws_from_the_root() -> None:
    draft = RequestDraft([], [], [], torch.zeros((0, 0)), [dist(0.0, 1.0)])
    assert verify_block(draft, NoiseKey(0, 0)) == Verdict((), (), 1)


def test_a_tree_is_our_fault() -> None:
    draft = RequestDraft([0, 1], [0, 0], [None, None], torch.zeros((0, 0)), [dist(0.5, 0.5)] * 3)
    with pytest.raises(AssertionError, match="chains only"):
        verify_block(draft, NoiseKey(0, 0))


def test_equal_p_and_q_always_accept_everything() -> None:
    q = torch.softmax(torch.randn(1, 1000, generator=torch.Generator().manual_seed(0)), -1)
    p = q[0].double() / q[0].double().sum()
    for seed in range(50):
        draft = RequestDraft([seed, 3, 5], [0, 1, 2], [0, 0, 0], q, [p] * 4)
        assert verify_block(draft, NoiseKey(seed, 0)).path == (1, 2, 3)


def test_a_forbidden_token_ends_the_run() -> None:
    p, q = dist(0.6, 0.4, 0.0), dist(0.2, 0.3, 0.5)[None]
    for seed in range(100):
        verdict = verify_block(RequestDraft([0, 2, 1], [0, 1, 2], [0, 0, 0], q, [p] * 4), NoiseKey(seed, 0))
        assert len(verdict.path) <= 1
        assert verdict.next_token in (0, 1)


def test_one_drafted_token_is_judged_like_rejection() -> None:
    p, q = dist(0.5, 0.3, 0.2), dist(0.2, 0.2, 0.6)[None]
    for seed in range(200):
        draft = RequestDraft([2], [0], [0], q, [p, p])
        assert verify_block(draft, NoiseKey(seed, 4)) == verify_tree(draft, NoiseKey(seed, 4))


def test_an_early_deficit_can_be_made_good_later() -> None:
    """Some rejected prefix is followed by an accepted longer one: token by token this cannot happen."""
    p, q = dist(0.3, 0.7), dist(0.7, 0.3)[None]
    longer = [
        len(verify_block(draft, key).path) - len(verify_tree(draft, key).path)
        for seed in range(200)
        for draft, key in [(RequestDraft([0, 1], [0, 1], [0, 0], q, [p] * 3), NoiseKey(seed, 0))]
    ]
    assert max(longer) == 2


def test_a_refusal_that_only_rounding_can_cause_draws_from_p(monkeypatch: pytest.MonkeyPatch) -> None:
    """p equal to q, so nothing exceeds q; a uniform number of 1 stands for a weight that rounded below 1."""
    monkeypatch.setattr(block, "uniform", lambda stream, index=0: 1.0)
    p = dist(0.0, 0.5, 0.5)
    tokens = set()
    for seed in range(30):
        verdict = verify_block(RequestDraft([1], [0], [0], p[None], [p, p]), NoiseKey(seed, 0))
        assert verdict.path == ()
        tokens.add(verdict.next_token)
    assert tokens == {1, 2}
