"""Moving accepted rows of a tree, for both layouts of keys."""

from __future__ import annotations

import pytest
import torch

from draftproof.kv.cache import BLOCK_SIZE, KVCache

BLOCKS = (2, 0)
"""Block ids of the sequence under test, neither in order nor all that there are."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wordwise_keys", [False, True])
def test_compact_moves_a_path_and_nothing_else(dtype: torch.dtype, wordwise_keys: bool) -> None:
    cache = KVCache(2, 3, 2, 16, dtype, wordwise_keys=wordwise_keys)
    count = cache.data.numel()
    cache.data.copy_(torch.arange(count).remainder(251).view(cache.data.shape))
    context, path = BLOCK_SIZE - 3, [1, 3, 6]  # across the end of the first block
    before = [tokens(cache, position) for position in range(2 * BLOCK_SIZE)]
    rest = cache.data[1].clone()

    cache.compact(BLOCKS, context, path)

    moved = {context + 1 + depth: context + row for depth, row in enumerate(path)}
    for position in range(2 * BLOCK_SIZE):
        assert torch.equal(tokens(cache, position), before[moved.get(position, position)]), position
    assert torch.equal(cache.data[1], rest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slots_of_words_cover_a_block_once(dtype: torch.dtype) -> None:
    cache = KVCache(1, 1, 1, 16, dtype, wordwise_keys=True)
    cache.data.zero_()
    for position in range(BLOCK_SIZE):
        for part in cache.slot([0], position):
            part.add_(1)
    assert torch.equal(cache.data, torch.ones_like(cache.data))


def tokens(cache: KVCache, position: int) -> torch.Tensor:
    keys, values = cache.slot(BLOCKS, position)
    return torch.cat([keys.flatten(), values.flatten()])
