"""Checks at start, on this machine and this model, what the product promises: equal bits however rows are grouped.

The same tokens are fed in one pass and in uneven chunks beside another sequence; behind what the one pass stored, the
last ones also one by one and as the main branch of a tree. Where their logits are not equal to the last bit, the
promise is withdrawn, and `Engine.describe` says so. It is a sample of the groupings that occur, long enough to cross a
cache block; the test suite holds the proof over many.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.kv.cache import KVCache
from draftproof.kv.pool import BlockPool
from draftproof.models.base import ForwardBatch, Model, Segment

NUM_TOKENS = 37
NUM_COMPARED = 5
"""The last so many tokens, whose logits are compared."""
NUM_NEIGHBOURS = 3
"""Tokens of the other sequence that rides along."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """`promise`: output with speculation equals output without, bit for bit. `reason` says what was seen."""

    promise: bool
    reason: str


def check_bits(model: Model) -> SelfTest:
    """Takes about as long as 110 tokens of a prompt."""
    num_tokens = min(NUM_TOKENS, model.config.context_length)
    num_compared = min(NUM_COMPARED, num_tokens)
    vocab = model.config.vocab_size
    tokens = [(7919 * (index + 1)) % vocab for index in range(num_tokens)]
    cache = model.new_cache(num_blocks=2 * BlockPool.blocks_for(num_tokens + 2 * num_compared))
    feed = _Feed(model, cache, tokens, num_compared)
    logits = {
        "one pass": feed.chunks([num_tokens]),
        "single rows": feed.chunks([1] * num_compared, num_tokens - num_compared),
        "a tree": feed.tree(),
        "uneven chunks beside another sequence": feed.chunks(
            _uneven(num_tokens), neighbour=tokens[:NUM_NEIGHBOURS]
        ),
    }
    single = logits.pop("single rows")
    differing = [name for name, rows in logits.items() if not torch.equal(rows, single)]
    if differing:
        told = ", ".join(differing)
        return SelfTest(False, f"on this machine logits differ in their bits between single rows and {told}")
    return SelfTest(
        True, f"logits of {num_compared} rows equal to the last bit over {len(logits) + 1} groupings"
    )


def _uneven(num_tokens: int) -> list[int]:
    """1, 2, 4, 8 … rows, and the rest."""
    chunks: list[int] = []
    while sum(chunks) < num_tokens:
        chunks.append(min(2 ** len(chunks), num_tokens - sum(chunks)))
    return chunks


class _Feed:
    """Feeds the same tokens in different ways; each returns logits [num_compared, vocab] of the last ones."""

    def __init__(self, model: Model, cache: KVCache, tokens: list[int], num_compared: int) -> None:
        self._model = model
        self._cache = cache
        self._tokens = tokens
        self._num_compared = num_compared
        num_blocks = cache.num_blocks // 2
        self._main, self._other = (
            list(range(part * num_blocks, (part + 1) * num_blocks)) for part in range(2)
        )

    def chunks(self, sizes: list[int], start: int = 0, neighbour: list[int] | None = None) -> Tensor:
        """From token `start` on; those before are in the cache."""
        logits = []
        for num_rows in sizes:
            token_ids = self._tokens[start : start + num_rows]
            positions = list(range(start, start + num_rows))
            segments = [Segment(self._main, start, 0, num_rows)]
            if neighbour is not None:
                segments.append(Segment(self._other, 0, num_rows, len(neighbour)))
                token_ids, positions = token_ids + neighbour, positions + list(range(len(neighbour)))
            first = max(0, len(self._tokens) - self._num_compared - start)
            logits.append(self._forward(token_ids, positions, segments, list(range(first, num_rows))))
            start += num_rows
        return torch.cat(logits)

    def tree(self) -> Tensor:
        """The compared tokens as one branch of a tree in which each of them has a wrong sibling before it, behind
        those before, which are in the cache."""
        start = len(self._tokens) - self._num_compared
        token_ids, parents, positions, branch = [self._tokens[start]], [0], [start], [0]
        for position, token in enumerate(self._tokens[start + 1 :], start=start + 1):
            parent = branch[-1]
            for child in ((token + 1) % self._model.config.vocab_size, token):
                parents.append(parent)
                token_ids.append(child)
                positions.append(position)
            branch.append(len(token_ids) - 1)
        segment = Segment(self._main, start, 0, len(token_ids), parents)
        return self._forward(token_ids, positions, [segment], branch)

    def _forward(
        self, token_ids: list[int], positions: list[int], segments: list[Segment], logit_rows: list[int]
    ) -> Tensor:
        rows = torch.tensor(logit_rows, dtype=torch.int64)
        batch = ForwardBatch(torch.tensor(token_ids), torch.tensor(positions), segments, rows)
        return self._model.forward(batch, self._cache)
