"""The walk over a tree at its edges; verdicts over generated trees are in `tests/exactness`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from draftproof.ops.noise import Purpose, stream, uniform
from draftproof.verify.tree import RequestDraft, verify_tree
from draftproof.verify.types import NoiseKey, Verdict

NO_Q = torch.zeros((0, 0), dtype=torch.float64)


def one_hot(token: int, vocab: int = 4) -> Tensor:
    return torch.eye(vocab, dtype=torch.float64)[token]


def point_masses(tokens: Sequence[int], parents: Sequence[int], p: Sequence[Tensor]) -> RequestDraft:
    return RequestDraft(tokens, parents, [None] * len(tokens), NO_Q, p)


def test_certain_rows_leave_no_choice() -> None:
    """p one-hot in every row: the accepted path and the next token are forced, through siblings and
    levels."""
    tokens, parents = [0, 1, 2, 3], [0, 0, 2, 2]
    p = [one_hot(1), one_hot(0), one_hot(3), one_hot(0), one_hot(2)]
    for seed in range(20):
        verdict = verify_tree(point_masses(tokens, parents, p), NoiseKey(seed, 0))
        assert verdict == Verdict((2, 4), (1, 3), 2)


def test_a_forbidden_token_is_never_accepted_and_never_drawn() -> None:
    p = torch.tensor([0.6, 0.4, 0.0], dtype=torch.float64)
    q = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)
    for seed in range(100):
        verdict = verify_tree(RequestDraft([2], [0], [0], q, [p, p]), NoiseKey(seed, 0))
        assert verdict.path == ()
        assert verdict.next_token in (0, 1)


def test_a_repeated_point_mass_cannot_be_accepted_after_its_rejection() -> None:
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    verdicts = [
        verify_tree(point_masses([0, 0], [0, 0], [half] * 3), NoiseKey(seed, 0)) for seed in range(100)
    ]
    assert {verdict.path for verdict in verdicts} == {(1,), ()}
    assert all(verdict.next_token == 1 for verdict in verdicts if not verdict.path)


def test_all_of_the_support_as_siblings_accepts_one_of_them() -> None:
    q = torch.tensor([[0.7, 0.3]], dtype=torch.float32)
    p = torch.tensor([0.2, 0.8], dtype=torch.float64)
    for seed in range(100):
        verdict = verify_tree(RequestDraft([0, 1], [0, 0], [0, 0], q, [p, p, p]), NoiseKey(seed, 0))
        assert len(verdict.path) == 1


def test_a_q_of_low_precision_is_what_its_ratios_say() -> None:
    """Softmax in float32 misses 1 by about 1e-7; tokens were drawn from the ratios, so that is put right."""
    q = torch.softmax(torch.randn(1, 50_000, generator=torch.Generator().manual_seed(2)), -1)
    ours = RequestDraft([0], [0], [0], q, []).q_of(0)
    assert ours is not None
    assert abs(float(q.double().sum()) - 1.0) > 1e-9
    assert abs(float(ours.sum()) - 1.0) < 1e-14
    assert RequestDraft([0], [0], [None], q, []).q_of(0) is None


def test_equal_p_and_q_always_accept() -> None:
    """Also where float32 q does not sum to 1 in float64: it is drawn from by its ratios."""
    q = torch.softmax(torch.randn(1, 1000, generator=torch.Generator().manual_seed(0)), -1)
    p = q[0].double() / q[0].double().sum()
    for seed in range(50):
        draft = RequestDraft([seed], [0], [0], q, [p, p])
        assert verify_tree(draft, NoiseKey(seed, 0)).path == (1,)


def test_the_single_token_vocabulary() -> None:
    one = torch.ones(1, dtype=torch.float64)
    q = torch.ones((1, 1), dtype=torch.float64)
    assert verify_tree(RequestDraft([0, 0], [0, 1], [0, None], q, [one] * 3), NoiseKey(0, 0)) == Verdict(
        (1, 2), (0, 0), 0
    )


@pytest.mark.parametrize("position", [0, 5])
def test_acceptance_reads_the_documented_noise(position: int) -> None:
    """(seed, round's first position, ACCEPT, depth) with the place among siblings as index."""
    p = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    for seed in range(60):
        first = uniform(stream(seed, position, Purpose.ACCEPT, 0), 0)
        second = uniform(stream(seed, position, Purpose.ACCEPT, 0), 1)
        below = uniform(stream(seed, position, Purpose.ACCEPT, 1), 0)
        expected: tuple[int, ...] = ()
        if first < 0.3:
            expected = (1, 3) if below < 0.4 else (1,)
        elif second < 0.3 / 0.7:
            expected = (2,)
        draft = point_masses([0, 1, 2], [0, 0, 1], [p] * 4)
        assert verify_tree(draft, NoiseKey(seed, position)).path == expected
