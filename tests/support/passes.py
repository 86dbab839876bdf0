"""Forward passes spelled out, for tests of models: chains in chunks, several sequences at once, trees."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.kv.cache import BLOCK_SIZE, KVCache
from draftproof.models.base import ForwardBatch, Model, Segment


def blocks_for(num_tokens: int, first: int = 0) -> list[int]:
    """Block ids for a sequence of `num_tokens`, every other block from `first` on, so that they are not adjacent."""
    return [first + 2 * rank for rank in range(-(-num_tokens // BLOCK_SIZE))]


def segment(
    block_ids: list[int],
    context_len: int,
    num_rows: int,
    first_row: int = 0,
    parents: list[int] | None = None,
) -> Segment:
    return Segment(block_ids, context_len, first_row, num_rows, parents)


def depths(part: Segment) -> list[int]:
    """Depth of each row below the context."""
    if part.parent_rows is None:
        return list(range(part.num_rows))
    found: list[int] = []
    for row, parent in enumerate(part.parent_rows):
        found.append(found[parent] + 1 if row else 0)
    return found


def forward(model: Model, cache: KVCache, token_ids: Sequence[int], segments: list[Segment]) -> Tensor:
    """One pass; logits of all rows, float32 [num_rows, vocab]."""
    positions = [part.context_len + depth for part in segments for depth in depths(part)]
    batch = ForwardBatch(
        torch.tensor(token_ids), torch.tensor(positions), segments, torch.arange(len(token_ids))
    )
    return model.forward(batch, cache)


def logits_in_chunks(model: Model, token_ids: Sequence[int], chunks: Sequence[int]) -> Tensor:
    """Logits of all tokens of one sequence, fed in chunks of the given lengths (the last repeats)."""
    block_ids = blocks_for(len(token_ids))
    cache = model.new_cache(block_ids[-1] + 1)
    cache.data.fill_(float("nan"))  # what was never written must not matter
    parts: list[Tensor] = []
    start = 0
    for step in range(len(token_ids)):
        if start == len(token_ids):
            break
        end = min(len(token_ids), start + chunks[min(step, len(chunks) - 1)])
        part = segment(block_ids, start, end - start)
        parts.append(forward(model, cache, token_ids[start:end], [part]))
        start = end
    return torch.cat(parts)
