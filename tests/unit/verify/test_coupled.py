"""The target's own sample: right marginals, independent over keys, the same whatever else is computed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from draftproof.ops.noise import Purpose, draw, stream
from draftproof.verify.coupled import sample
from draftproof.verify.types import NoiseKey

FALSE_ALARM_RATE = 1e-6
P = torch.tensor([0.1, 0.0, 0.45, 0.25, 0.2], dtype=torch.float64)


def p_value(counts: Tensor, expected: Tensor) -> float:
    assert counts[expected == 0].sum() == 0
    counts, expected = counts[expected > 0].double(), expected[expected > 0]
    statistic = float(((counts - expected) ** 2 / expected).sum())
    half = torch.tensor([(counts.numel() - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


@pytest.mark.parametrize("part", ["seed", "position"])
def test_the_marginal_is_p_over_seeds_and_over_positions(part: str) -> None:
    num = 5000
    keys = [NoiseKey(k, 3) if part == "seed" else NoiseKey(3, k) for k in range(num)]
    counts = torch.bincount(sample(P.expand(num, 5), keys), minlength=5)
    assert p_value(counts, P * num) > FALSE_ALARM_RATE


@pytest.mark.parametrize("step", [(0, 1), (1, 0), (1, -1)])
def test_neighbouring_keys_give_independent_tokens(step: tuple[int, int]) -> None:
    num = 5000
    first = sample(P.expand(num, 5), [NoiseKey(k, 10) for k in range(num)])
    second = sample(P.expand(num, 5), [NoiseKey(k + step[0], 10 + step[1]) for k in range(num)])
    counts = torch.bincount(first * 5 + second, minlength=25)
    assert p_value(counts, (P[:, None] * P[None]).flatten() * num) > FALSE_ALARM_RATE


def test_the_token_does_not_depend_on_the_other_rows() -> None:
    generator = torch.Generator().manual_seed(1)
    probs = torch.softmax(4 * torch.randn(40, 999, dtype=torch.float64, generator=generator), -1)
    keys = [NoiseKey(row % 3, row) for row in range(40)]
    together = sample(probs, keys)
    assert [int(sample(probs[row : row + 1], keys[row : row + 1])) for row in range(40)] == together.tolist()
    order = torch.randperm(40, generator=generator)
    assert torch.equal(sample(probs[order], [keys[row] for row in order.tolist()]), together[order])


def test_filtering_a_token_that_was_not_chosen_leaves_the_choice() -> None:
    """Gumbel-max: the noise belongs to the token, so removing losers and renormalising changes nothing."""
    for seed in range(200):
        key = NoiseKey(seed, 0)
        chosen = int(sample(P[None], [key]))
        filtered = P.clone()
        filtered[(chosen + 1) % 5] = 0.0
        assert int(sample((filtered / filtered.sum())[None], [key])) == chosen


def test_it_reads_target_noise() -> None:
    keys = [NoiseKey(seed, 4) for seed in range(50)]
    probs = P.expand(50, 5)
    by_purpose = {
        purpose: draw(probs, [stream(k.seed, k.position, purpose) for k in keys])[:, 0] for purpose in Purpose
    }
    chosen = sample(probs, keys)
    assert [purpose for purpose, tokens in by_purpose.items() if torch.equal(tokens, chosen)] == [
        Purpose.TARGET
    ]


def test_one_key_per_row() -> None:
    with pytest.raises(AssertionError):
        sample(P.expand(2, 5), [NoiseKey(0, 0)])
