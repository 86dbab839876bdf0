"""A model that is a formula, for tests of the engine: fast, exact, and breakable at will.

The logits of a row are a function of the tokens that it sees, read back from the cache the way a real model reads
keys: through block ids and slots, so that an engine that mixes up blocks, slots or paths gives other text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from draftproof.engine.config import EngineConfig
from draftproof.kv.cache import KVCache
from draftproof.models.base import ForwardBatch, LayerConfig, ModelConfig, RopeConfig, Segment

VOCAB_SIZE = 64
EOS_ID = 1


class FakeModel:
    """`change(visible_tokens, logits)` may alter a row's logits in place, by what the row sees."""

    kernels: Literal["native", "python"] = "python"
    dtype = torch.float32

    def __init__(self, context: int = 256, change: Callable[[list[int], Tensor], None] | None = None) -> None:
        self.config = ModelConfig(
            architecture="fake",
            vocab_size=VOCAB_SIZE,
            hidden_size=8,
            intermediate_size=8,
            layers=(LayerConfig(RopeConfig(theta=1e4)),),
            num_heads=1,
            num_kv_heads=1,
            head_dim=8,
            rms_norm_eps=1e-5,
            context_length=context,
            tie_embeddings=True,
            eos_token_ids=(EOS_ID,),
        )
        self.change = change
        self.passes: list[list[int]] = []
        """Rows per segment of every pass."""

    def new_cache(self, num_blocks: int) -> KVCache:
        return KVCache(1, num_blocks, 1, 8, torch.float32)

    def forward(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        self.passes.append([segment.num_rows for segment in batch.segments])
        rows: list[Tensor] = []
        for segment in batch.segments:
            for row in range(segment.num_rows):
                for part in cache.slot(segment.block_ids, segment.context_len + row):
                    part.fill_(float(batch.token_ids[segment.first_row + row]))
            slots = _slots(segment, cache)
            rows.extend(
                self._logits(_visible(segment, row, slots), int(batch.positions[segment.first_row + row]))
                for row in range(segment.num_rows)
            )
        assert len(rows) == batch.token_ids.shape[0]
        return torch.stack(rows)[batch.logit_rows]

    def _logits(self, visible: list[int], position: int) -> Tensor:
        assert position == len(visible) - 1
        state = 7
        for token in visible:
            state = (state * 1103515245 + token + 12345) % 2147483648
        logits = _random_logits(state).clone()
        if self.change is not None:
            self.change(visible, logits)
        return logits


@lru_cache(maxsize=20_000)
def _random_logits(state: int) -> Tensor:
    logits = torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(state)) * 3
    logits[EOS_ID] -= 6
    return logits


def _slots(segment: Segment, cache: KVCache) -> list[int]:
    """The tokens in the segment's slots, as the cache has them."""
    stored = cache.data[segment.block_ids, 0, 0, 0, :, 0].flatten()
    return stored[: segment.context_len + segment.num_rows].long().tolist()


def _visible(segment: Segment, row: int, slots: list[int]) -> list[int]:
    """Tokens that a row sees, root to itself."""
    if segment.parent_rows is None:
        return slots[: segment.context_len + row + 1]
    path = [row]
    while path[-1] != 0:
        path.append(segment.parent_rows[path[-1]])
    return slots[: segment.context_len] + [slots[segment.context_len + step] for step in reversed(path)]


class FakeTokenizer:
    """One letter per token."""

    vocab_size = VOCAB_SIZE

    def encode(self, text: str) -> list[int]:
        return [ord(letter) % VOCAB_SIZE for letter in text]

    def decode(self, token_ids: list[int]) -> str:
        return "".join(chr(ord("!") + token) for token in token_ids)


class FakeTemplate:
    def render(self, messages: list[dict[str, str]], **_: object) -> str:
        return "".join(message["content"] for message in messages)


class FakeLoaded:
    """What `Engine` takes for a `LoadedModel`."""

    def __init__(self, model: FakeModel) -> None:
        self.model = model
        self.tokenizer = FakeTokenizer()
        self.template = FakeTemplate()
        self.source = Path("fake")
        self.kernels_reason = "a formula"
        self.weights = "native"
        self.weight_types: dict[str, int] = {}


def cache_of(num_blocks: int, **limits: Any) -> EngineConfig:
    """An engine's configuration with so many blocks for a `FakeModel`."""
    return EngineConfig(cache_bytes=num_blocks * KVCache.block_bytes(1, 1, 8, FakeModel.dtype), **limits)
