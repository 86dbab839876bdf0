"""vLLM: everything inside a fraction of the device; one pool of blocks for the layers of target and drafter.

Read from the sources of 0.32.0 and 0.33.0; the pool is compared in the tests with what 0.32.0 (CPU build) prints at
start. Layers with windows get block tables of their own; all tables draw blocks of one size.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from draftproof.planning import passes
from draftproof.planning.engines.layers import draft_layers, target_layers
from draftproof.planning.paging import CachedLayer, Group, Pool
from draftproof.planning.setup import GIB, EngineMemory, Item, Setup

_CHUNK_BYTES = GIB
"""The rejection sampler of the second model runner works in float32 chunks of at most this."""
_LARGE_DEVICE = 70 * GIB
_FEW_MORE = 1.5
"""Below this ratio of their numbers of layers, smaller groups are padded to the larger instead of splitting it."""


def _lookahead(setup: Setup) -> int:
    if setup.method in ("none", "ngram", "suffix"):
        return 0
    return setup.levels + 1 if setup.method in ("dflash", "dspark") else setup.levels


def _pool(setup: Setup) -> Pool:
    """Blocks as `get_kv_cache_groups` forms them."""
    copies = 1 + setup.levels if setup.drafter is not None else 1
    layers = [*target_layers(setup, copies), *draft_layers(setup)]
    caching = [layer for layer in layers if layer.token_bytes]
    states = sum(layer.state_bytes for layer in layers)
    if len({layer.window for layer in caching}) <= 1:
        size = sum(layer.token_bytes for layer in caching) * setup.page_tokens
        window = caching[0].window if caching else None
        groups = [Group(setup.page_tokens, size, window, extra_pages=0 if window is None else 1)]
        return Pool(tuple(groups) if caching else (), states, max(1, size), _in_flight(setup))
    mixed, unit = _mixed_groups(caching, setup.page_tokens)
    return Pool(mixed, states, unit, _in_flight(setup))


def _in_flight(setup: Setup) -> int:
    return setup.max_batched_tokens


@dataclass(frozen=True, slots=True)
class _Kind:
    page_tokens: int
    window: int | None


def _mixed_groups(layers: list[CachedLayer], page_tokens: int) -> tuple[tuple[Group, ...], int]:
    """Pages of one size for all layers (smaller ones get more tokens per page, or padding); layers of a kind share
    tables, in groups of equally many layers."""
    page_bytes = max(layer.token_bytes for layer in layers) * page_tokens
    kinds: Counter[_Kind] = Counter()
    for layer in layers:
        own = layer.token_bytes * page_tokens
        times = page_bytes // own if page_bytes % own == 0 else 1
        kinds[_Kind(page_tokens * times, layer.window)] += 1
    fewest, most = min(kinds.values()), max(kinds.values())
    size = most if most < fewest * _FEW_MORE else fewest
    unit = size * page_bytes
    groups = [
        Group(kind.page_tokens, unit, kind.window, extra_pages=0 if kind.window is None else 1)
        for kind, count in kinds.items()
        for _ in range(-(-count // size))
    ]
    return tuple(groups), unit


def _buffers(setup: Setup) -> tuple[Item, ...]:
    links = passes.DEFAULT_LINKS if setup.tensor_parallel > 1 else 0
    return (
        passes.activations(setup),
        passes.verify_logits(setup, _CHUNK_BYTES),
        *passes.draft_probabilities(setup),
        passes.graphs(setup, passes.DEFAULT_GRAPHS, passes.DEFAULT_DRAFT_GRAPHS),
        passes.runtime(setup, passes.DEFAULT_RUNTIME + links),
    )


def _warnings(setup: Setup) -> tuple[str, ...]:
    found = []
    if setup.draft_tensor_parallel not in (1, setup.tensor_parallel):
        found.append("draft_tensor_parallel_size may only be 1 or the target's")
    if any(layer.state_bytes for layer in target_layers(setup)):
        found.append(
            "layers with a running state: vLLM enlarges its blocks to hold one; the padding is not counted here"
        )
    return tuple(found)


rules = EngineMemory(
    name="vllm",
    title="vLLM",
    read_version="0.33.0",
    page_tokens=16,
    max_num_seqs=lambda memory: 1024 if memory >= _LARGE_DEVICE else 256,
    max_batched_tokens=lambda memory: 8192 if memory >= _LARGE_DEVICE else 2048,
    fraction=0.92,
    fraction_covers="all",
    lookahead=_lookahead,
    pool=_pool,
    buffers=_buffers,
    knobs={
        "memory reservation": "--gpu-memory-utilization",
        "graph capture sizes": "--max-cudagraph-capture-size, or --enforce-eager",
        "draft depth": "num_speculative_tokens",
        "concurrent requests": "--max-num-seqs",
        "largest pass": "--max-num-batched-tokens",
        "cache dtype": "--kv-cache-dtype fp8",
        "draft cache dtype": "kv_cache_dtype in --speculative-config",
        "draft weights": "quantization in --speculative-config",
        "draft sampling": "draft_sample_method greedy",
    },
    unknowns=(
        "graphs: vLLM profiles them at start and takes what it finds from the cache",
        "activations: vLLM measures its own peak with a pass of the largest size",
        "--max-num-seqs and --max-num-batched-tokens default to those of serving over HTTP, by the device's memory",
    ),
    warnings=_warnings,
)
