from __future__ import annotations

import math

import torch

from draftproof.ops.logprobs import TokenLogprobs, token_logprobs


def row_of(probs: list[float]) -> torch.Tensor:
    return torch.tensor(probs, dtype=torch.float64).log() + 7.0  # logits are free up to a constant


def test_the_chosen_token_its_rank_and_the_most_likely_alternatives() -> None:
    found = token_logprobs(row_of([0.1, 0.4, 0.2, 0.3]), token_id=2, num_top=2)
    assert math.isclose(found.logprob, math.log(0.2), abs_tol=1e-12)
    assert found.rank == 3
    assert [token for token, _ in found.top] == [1, 3]
    assert math.isclose(found.top[1][1], math.log(0.3), abs_tol=1e-12)


def test_equal_alternatives_come_by_id_and_share_a_rank() -> None:
    found = token_logprobs(row_of([0.2, 0.3, 0.2, 0.3]), token_id=3, num_top=3)
    assert [token for token, _ in found.top] == [1, 3, 0]
    assert found.rank == 1


def test_tokens_without_probability_are_no_alternatives() -> None:
    found = token_logprobs(row_of([0.0, 0.5, 0.0, 0.5]), token_id=1, num_top=20)
    assert [token for token, _ in found.top] == [1, 3]


def test_no_alternatives() -> None:
    assert token_logprobs(torch.zeros(4), 1, 0) == TokenLogprobs(1, -math.log(4), 1, ())


def test_bits_do_not_depend_on_where_the_row_lies() -> None:
    logits = torch.randn((3, 1003), generator=torch.Generator().manual_seed(5))
    elsewhere = torch.empty((1003, 3)).T.copy_(logits)
    for row in range(3):
        expected = token_logprobs(logits[row].clone(), 17, 5)
        assert token_logprobs(logits[row], 17, 5) == expected
        assert token_logprobs(elsewhere[row], 17, 5) == expected
