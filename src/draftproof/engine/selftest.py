"""Checks at start, on this machine and this model, what the product promises: equal bits however rows are grouped.

The same tokens are fed one by one, in one pass, in uneven chunks beside another sequence, and as a tree; the logits
must be
equal to the last bit. Where they are not, the promise is withdrawn, and `Engine.describe` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.kv.cache import BLOCK_SIZE, KVCache
from draftproof.models.base import ForwardBatch, Model, Segment

NUM_TOKENS = 9


@dataclass(frozen=True, slots=True)
class SelfTest:
    """`promise`: output with speculation equals output without, bit for bit. `reason` says what was seen."""

    promise: bool
    reason: str


def check_bits(model: Model) -> SelfTest:
    """Takes about a dozen passes of one to ten rows."""
    vocab = model.config.vocab_size
    tokens = [(7919 * (index + 1)) % vocab for index in range(NUM_TOKENS)]
    cache = model.new_cache(num_blocks=3)
    single = _feed(model, cache, tokens, [1] * NUM_TOKENS)
    variants = {
        "one pass": _feed(model, cache, tokens, [NUM_TOKENS]),
        "chunks of 2, 3 and 4 rows": _feed(model, cache, tokens, [2, 3, 4]),
        "a pass shared with another sequence": _feed(model, cache, tokens, [4, 1, 4], neighbour=tokens[::-1]),
        "a tree": _feed_tree(model, cache, tokens),
    }
    differing = [name for name, logits in variants.items() if not torch.equal(logits, single)]
    if differing:
        return SelfTest(
            False, f"on this machine logits differ in their bits between single rows and {differing}"
        )
    return SelfTest(
        True, f"logits equal to the last bit over {len(variants) + 1} groupings of {NUM_TOKENS} rows"
    )


def _feed(
    model: Model, cache: KVCache, tokens: list[int], chunks: list[int], neighbour: list[int] | None = None
) -> Tensor:
    """Logits [num_tokens, vocab] of `tokens` fed in `chunks`, in block 0; the neighbour sits in block 1."""
    assert len(tokens) <= BLOCK_SIZE
    logits, start = [], 0
    for num_rows in chunks:
        token_ids = tokens[start : start + num_rows]
        positions = list(range(start, start + num_rows))
        segments = [Segment([0], start, 0, num_rows)]
        if neighbour is not None:
            segments.append(Segment([1], 0, num_rows, len(neighbour)))
            token_ids = token_ids + neighbour
            positions = positions + list(range(len(neighbour)))
        batch = ForwardBatch(
            torch.tensor(token_ids), torch.tensor(positions), segments, torch.arange(num_rows)
        )
        logits.append(model.forward(batch, cache))
        start += num_rows
    return torch.cat(logits)


def _feed_tree(model: Model, cache: KVCache, tokens: list[int]) -> Tensor:
    """The same path as the main branch of a tree in which every node but the root has a wrong sibling before it."""
    token_ids, parents, depths, main = [tokens[0]], [0], [0], [0]
    for depth, token in enumerate(tokens[1:], start=1):
        parent = main[-1]
        for child in ((token + 1) % model.config.vocab_size, token):
            parents.append(parent)
            token_ids.append(child)
            depths.append(depth)
        main.append(len(token_ids) - 1)
    segment = Segment([2], 0, 0, len(token_ids), parents)
    batch = ForwardBatch(torch.tensor(token_ids), torch.tensor(depths), [segment], torch.tensor(main))
    return model.forward(batch, cache)
