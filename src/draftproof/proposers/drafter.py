"""A loaded drafter: its model, how its tokens map to the target's, what it takes, and whether it fits at all.

Made by the registry for the proposers that draft with a model of their own. Knows no requests.
"""

from __future__ import annotations

import logging
import math
import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftproof.checkpoints.gguf import open_checkpoint
from draftproof.core import heap
from draftproof.core.errors import DraftproofError, named_by
from draftproof.core.footprint import BYTES_PER_WEIGHT, mib
from draftproof.core.interrupts import uninterrupted
from draftproof.kv.budget import ByteBudget
from draftproof.kv.cache import KVCache
from draftproof.kv.pool import BlockPool
from draftproof.models.catalogue import resolve
from draftproof.models.loading import formed_bytes, load_weights
from draftproof.models.precision import LOOKUPS, FormedWeights, check_form
from draftproof.models.tensors import tensor_specs
from draftproof.proposers.drawing import TokenMap
from draftproof.proposers.fitting import check_pair
from draftproof.proposers.resources import Resources

if TYPE_CHECKING:
    from pathlib import Path

    from draftproof.models.base import Model, ModelConfig
    from draftproof.models.loading import LoadedModel
    from draftproof.models.tokenizer import Tokenizer

logger = logging.getLogger("draftproof.proposers")


@dataclass(slots=True, weakref_slot=True)
class Drafter:
    """model         runs the drafts
    tokenizer        the drafter's own where contexts have to be tokenised again, else the target's
    token_map        its logits → the target's tokens
    to_drafter       target id → drafter id, for different vocabularies; None where ids are equal
    num_blocks       blocks of its cache; 0 for a drafter that shares the target's
    vocabulary       in words, how the vocabularies relate
    weights          the precision of its weights
    weight_types     how many matrices are computed with in which type
    weights_bytes    what they take
    source           where it came from
    """

    model: Model
    tokenizer: Tokenizer
    token_map: TokenMap
    to_drafter: Mapping[int, int] | None
    num_blocks: int
    vocabulary: str
    weights: str
    weight_types: Mapping[str, int]
    weights_bytes: int
    source: Path

    @property
    def cache_bytes(self) -> int:
        """Of a full cache; pages that no request has used yet are not taken."""
        return self.num_blocks * self.block_bytes

    @property
    def block_bytes(self) -> int:
        return _block_bytes(self.model)

    def describe(self) -> dict[str, Any]:
        return {
            "model": str(self.source),
            "weights": self.weights,
            "weight_types": dict(self.weight_types),
            "weights_bytes": self.weights_bytes,
            "cache_bytes": self.cache_bytes,
            "vocabulary": self.vocabulary,
        }


def load_drafter(model: str, weights: str, resources: Resources) -> Drafter:
    """The drafter `model` in the precision `weights`, loaded once however many proposers use it, under whatever name.

    Raises DP4xx for what cannot be loaded, DP801 for vocabularies that do not fit, DP802 for a drafter that is
    larger than the target, DP803 for a head, DP701 where memory does not suffice.
    """
    weights = _precision(weights, resources.target.model)
    with named_by("speculation.model"):
        path = resolve(model)
    return _once((os.path.realpath(path), weights), resources, lambda: _load(path, weights, resources))


def quantised_target(weights: str, resources: Resources) -> Drafter:
    """The target's own weights in another precision, which draft in the target's cache.

    `native` for a native target is the target itself, without a copy: that is for tests. Raises DP701, and DP802
    where rounding leaves the weights as they are.
    """
    weights = "int4" if weights == "auto" else weights
    return _once(("", weights), resources, lambda: _reload(weights, resources))


def _once(key: tuple[str, str], resources: Resources, make: Callable[[], Drafter]) -> Drafter:
    drafter = resources.drafters.get(key)
    if drafter is None:
        drafter = make()
        heap.trim()  # of two vocabularies that were compared, and of what loading took
        with uninterrupted():
            if resources.reserves_weights and drafter.weights_bytes:
                _reserve(drafter.weights_bytes, resources.budget)
                weakref.finalize(drafter, resources.budget.unreserve, drafter.weights_bytes)
            resources.drafters[key] = drafter
        logger.info("drafter loaded: %s", drafter.describe())
    return drafter


def _check_room(weights_bytes: int, resources: Resources) -> None:
    """Before anything is loaded, for a refusal may come with every request."""
    if resources.reserves_weights:
        with uninterrupted():
            _reserve(weights_bytes, resources.budget)
            resources.budget.unreserve(weights_bytes)


def _reserve(weights_bytes: int, budget: ByteBudget) -> None:
    """Counts a drafter's weights among what memory is used for."""
    if not budget.reserve(weights_bytes):
        raise DraftproofError(
            "DP701",
            "speculation.model",
            f"a drafter of {mib(weights_bytes)}",
            f"at most {mib(budget.num_bytes - budget.num_reserved)} less what running requests hold",
            "Load it before requests run, give the engine more memory (--memory), or go on without a drafter.",
        )


def _load(path: Path, weights: str, resources: Resources) -> Drafter:
    target = resources.target
    fit = check_pair(target.source, path)
    checkpoint = open_checkpoint(path)
    config, stored = load_weights(checkpoint)
    _check_size(count_weights(config), count_weights(target.config))
    formed = FormedWeights(stored, check_form(weights), as_drafter=True)
    needed = formed_bytes(config, formed, target.model.dtype, target.model.kernels)
    num_blocks = _num_blocks(config, target.model, needed, resources)
    _check_room(needed, resources)
    loaded = resources.load(
        path,
        dtype=dtype_name(target.model),
        weights=weights,
        kernels=target.model.kernels,
        as_drafter=True,
    )
    has_same_ids = fit.same_ids and fit.covers_target
    return Drafter(
        model=loaded.model,
        tokenizer=target.tokenizer if has_same_ids else loaded.tokenizer,
        token_map=TokenMap.of(fit, target.config.vocab_size, config.vocab_size),
        to_drafter=None if has_same_ids else dict(fit.pairs),
        num_blocks=num_blocks,
        vocabulary=fit.describe(),
        weights=weights,
        weight_types=loaded.weight_types,
        weights_bytes=loaded.weights_bytes,
        source=path,
    )


def _reload(weights: str, resources: Resources) -> Drafter:
    target = resources.target
    drafter, weights_bytes = target, 0
    if weights != "native" or target.weights != "native":
        config, stored = load_weights(open_checkpoint(target.source), target.config.context_length)
        formed = FormedWeights(stored, check_form(weights), as_drafter=True)
        _check_rounds(config, formed, FormedWeights(stored, target.weights), target)
        needed = formed_bytes(config, formed, target.model.dtype, target.model.kernels)
        available = resources.available_bytes()
        if needed > available:
            raise DraftproofError(
                "DP701",
                "speculation.method",
                f"{mib(needed)} for the target's weights at {weights}",
                _left(available),
                f"{_more_memory(needed - available, resources)}, shorten the context of {resources.max_len} tokens "
                "(--max-model-len), or draft by look-up (auto), which needs no weights.",
            )
        _check_room(needed, resources)
        drafter = resources.reload(target, weights)
        weights_bytes = drafter.weights_bytes
    return Drafter(
        model=drafter.model,
        tokenizer=target.tokenizer,
        token_map=TokenMap.identity(target.config.vocab_size),
        to_drafter=None,
        num_blocks=0,
        vocabulary="the same vocabulary",
        weights=weights,
        weight_types=drafter.weight_types,
        weights_bytes=weights_bytes,
        source=target.source,
    )


def _precision(weights: str, target: Model) -> str:
    """What `auto` stands for: four bits where kernels compute with them, for acceptance hardly suffers."""
    if weights != "auto":
        return weights
    return "int4" if target.kernels == "native" else "native"


def count_weights(config: ModelConfig) -> int:
    return sum(math.prod(spec.shape) for spec in tensor_specs(config))


def dtype_name(model: Model) -> str:
    return str(model.dtype).removeprefix("torch.")


def _check_rounds(
    config: ModelConfig, formed: FormedWeights, own: FormedWeights, target: LoadedModel
) -> None:
    """A drafter whose layers are the target's takes the target's time, whatever its embedding and head are."""
    names = [spec.name for spec in tensor_specs(config) if len(spec.shape) == 2 and spec.name not in LOOKUPS]
    if all(formed.type_of(name) == own.type_of(name) for name in names):
        types = ", ".join(f"{count} {name}" for name, count in target.weight_types.items())
        raise DraftproofError(
            "DP802",
            "speculation.draft_weights",
            f"{formed.form}, which leaves the weights of the target's layers as they are ({types})",
            "fewer bits than the target's",
            "Draft with a smaller model (draft_model), or by look-up (auto).",
        )


def _check_size(num_drafter: int, num_target: int) -> None:
    """A drafter of the target's size is allowed, for tests; a larger one can never pay."""
    if num_drafter > num_target:
        raise DraftproofError(
            "DP802",
            "speculation.model",
            f"{num_drafter} weights",
            f"at most {num_target}, as many as the target has",
            "Draft with the smaller of the two; a drafter of a tenth to a third of the target pays best.",
        )


def _num_blocks(config: ModelConfig, target: Model, weights_bytes: int, resources: Resources) -> int:
    """As many blocks as the target's cache has, or what memory leaves; at least one full request.

    Both caches draw their blocks from one budget, so this is what there may be, not what is taken.
    """
    block_bytes = KVCache.block_bytes(config.num_layers, config.num_kv_heads, config.head_dim, target.dtype)
    available = resources.available_bytes()
    least = BlockPool.blocks_for(min(resources.max_len, config.context_length))
    num_blocks = min(resources.num_blocks, (available - weights_bytes) // block_bytes)
    if num_blocks < min(least, resources.num_blocks):
        missing = weights_bytes + least * block_bytes - available
        fits = int((available - least * block_bytes) / BYTES_PER_WEIGHT["int4"])
        smaller = f"use a drafter of at most {fits} weights with draft_weights int4, or " if fits > 0 else ""
        raise DraftproofError(
            "DP701",
            "speculation.model",
            f"a drafter of {mib(weights_bytes)}, and {mib(least * block_bytes)} of cache for one request",
            _left(available),
            f"{_more_memory(missing, resources)}, {smaller}"
            f"{'' if smaller else 'or '}shorten the context of {resources.max_len} tokens (--max-model-len).",
        )
    return num_blocks


def _left(available: int) -> str:
    return f"at most {max(0, available) // 2**20} MiB, which are left beside one full request of the target"


def _more_memory(missing: int, resources: Resources) -> str:
    if resources.reserves_weights:
        return f"Give the engine {mib(missing)} more memory (--memory)"
    return f"Make {mib(missing)} more of the machine's memory free"


def _block_bytes(model: Model) -> int:
    config = model.config
    return KVCache.block_bytes(config.num_layers, config.num_kv_heads, config.head_dim, model.dtype)
