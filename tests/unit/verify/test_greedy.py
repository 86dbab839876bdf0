from __future__ import annotations

import pytest
import torch

from draftproof.verify import greedy


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("num_rows", [1, 3, 17])
@pytest.mark.parametrize("vocab", [2, 31, 1000, 70_001])
def test_among_equal_scores_the_lowest_id_wins(dtype: torch.dtype, num_rows: int, vocab: int) -> None:
    """Wherever the ties lie, and however many rows share the call."""
    scores = torch.zeros(num_rows, vocab, dtype=dtype)
    first = [(row * 7919) % (vocab - 1) for row in range(num_rows)]
    for row, best in enumerate(first):
        scores[row, best] = 2.0
        scores[row, best + 1 :: 3] = 2.0
        scores[row, -1] = 2.0
    assert greedy.choose(scores).tolist() == first
    assert greedy.choose(torch.zeros(num_rows, vocab, dtype=dtype)).tolist() == [0] * num_rows


def test_minus_infinity_is_never_chosen_while_anything_else_is_left() -> None:
    scores = torch.full((1, 5), -torch.inf)
    scores[0, 3] = -1e30
    assert greedy.choose(scores).tolist() == [3]
