"""How the engine's memory is divided: what the process holds, room to compute in, and caches with the rest.

Asked once, when an engine is made and its model is loaded. The limit that a user sets (`EngineConfig.memory`) is for
the whole process, for that is what a container or an operator counts. Users: `docs/memory.md`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from draftproof.core import footprint
from draftproof.core.errors import DraftproofError
from draftproof.engine.config import EngineConfig
from draftproof.kv.cache import BLOCK_SIZE, KVCache
from draftproof.kv.pool import BlockPool
from draftproof.models.base import Model


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes, except `num_blocks`.

    limit         for the whole process; None: none was set
    process       what it held when the model was loaded: weights, tokenizer, libraries
    workspace     activations and logits of a pass, from above, and what first passes leave behind
    caches        keys and values of target and drafters, and with a limit drafters' weights as well
    block         of one block of the target's cache; with a limit, look-up's index of its tokens as well
    num_blocks    most blocks that the target's cache may have
    """

    limit: int | None
    process: int
    workspace: int
    caches: int
    block: int
    num_blocks: int


def plan_memory(config: EngineConfig, model: Model, max_len: int) -> MemoryPlan:
    """Raises DP701, with what would fit, where the memory does not hold one request."""
    shape = model.config
    block = KVCache.block_bytes(shape.num_layers, shape.num_kv_heads, shape.head_dim, model.dtype)
    process, workspace = resident_bytes(), workspace_bytes(config, model)
    if config.memory is not None:
        caches = config.memory - process - workspace
        block += BLOCK_SIZE * footprint.INDEX_BYTES
    elif config.cache_bytes is not None:
        caches = config.cache_bytes
    else:
        caches = total_memory_bytes() // 4
    num_wanted = config.max_num_seqs * BlockPool.blocks_for(max_len)
    plan = MemoryPlan(
        config.memory, process, workspace, caches, block, max(0, min(num_wanted, caches // block))
    )
    _check(config, plan, max_len)
    return plan


def workspace_bytes(config: EngineConfig, model: Model) -> int:
    """A pass of `max_num_rows` rows: activations and logits of sampled rows, and what first passes leave behind."""
    shape = model.config
    mixtures = {layer.experts for layer in shape.layers if layer.experts is not None}
    experts = tuple(footprint.ExpertShape(e.num_experts, e.num_used, e.intermediate_size) for e in mixtures)
    whole = footprint.PassShape(
        shape.hidden_size,
        shape.intermediate_size,
        shape.num_heads,
        shape.num_kv_heads,
        shape.head_dim,
        shape.vocab_size,
        experts,
    )
    return footprint.workspace_bytes(whole, config.max_num_rows, config.max_num_seqs)


def _check(config: EngineConfig, plan: MemoryPlan, max_len: int) -> None:
    """A context that was asked for must fit whole; otherwise one block is enough to start with."""
    least = BlockPool.blocks_for(config.max_model_len) if config.max_model_len is not None else 1
    if plan.num_blocks >= least:
        return
    fits = plan.num_blocks * BLOCK_SIZE
    if plan.limit is None:
        found = f"{plan.caches} bytes for the cache"
        needed = f"at least {least * plan.block} bytes, which hold {least * BLOCK_SIZE} tokens of this model"
    else:
        found = footprint.mib(plan.limit)
        # Each part rounded up on its own, so that the sum is the sum of what is shown.
        process, workspace, tokens = (
            -(-part // 2**20) for part in (plan.process, plan.workspace, least * plan.block)
        )
        needed = (
            f"at least {process + workspace + tokens} MiB: {process} MiB that the process holds with the model, "
            f"{workspace} MiB to compute in, and {tokens} MiB for {least * BLOCK_SIZE} tokens"
        )
    shrink = (
        f"a context of at most {fits} tokens (--max-model-len)"
        if fits
        else "a smaller model, or --weights int4 where weights have more bits"
    )
    raise DraftproofError(
        "DP701",
        "memory",
        found,
        needed,
        f"Give the engine more memory (--memory), or take {shrink}"
        + (
            ", or in the library fewer rows and requests at a time (max_num_rows, max_num_seqs)."
            if plan.limit
            else "."
        ),
    )


def resident_bytes() -> int:
    """Memory that the process holds now; its peak where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def available_memory_bytes() -> int:
    """Memory that can be taken without swapping, as the system estimates it; half of all where it says nothing."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":") for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return total_memory_bytes() // 2


def total_memory_bytes() -> int:
    """Physical memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
