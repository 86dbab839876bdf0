"""vLLM: everything inside a fraction of the device; one pool of blocks for the layers of target and drafter.

Read from the sources of 0.32.0 and 0.33.0; the pool is compared in the tests with what 0.32.0 (CPU build) prints at
start. Layers with windows get block tables of their own; all tables draw blocks of one size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.checkpoints.layers import Compressed, Latent, Paired
from draftproof.checkpoints.states import RunningState
from draftproof.planning import passes
from draftproof.planning.engines.layers import (
    StateBytes,
    draft_layers,
    quantised_index_bytes,
    target_layers,
    uneven_heads,
)
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


_TOKENS_OF_KERNELS = 16
_TOKENS_OF_LATENT_KERNELS = 128
"""Blocks of hybrid models are multiples of what attention kernels take at least."""


def _state_bytes(setup: Setup) -> StateBytes:
    """A convolution keeps an input more per draft token (not Mamba's first kind); KDA's state is float32, others' as
    the configuration says or like activations."""

    def size(state: RunningState) -> float:
        width = setup.activation_bytes
        inputs = state.conv_elements + (0 if state.kind == "mamba" else state.conv_width * setup.levels)
        own = state.dtype_bytes or (4 if state.kind == "kda" else width)
        return state.state_elements * own + inputs * width

    return size


def _pool(setup: Setup) -> Pool:
    """Blocks as `get_kv_cache_groups` forms them."""
    target = target_layers(setup, _state_bytes(setup), quantised_index_bytes)
    layers = [*target, *draft_layers(setup, quantised_index_bytes)]
    caching = [layer for layer in layers if layer.token_bytes]
    states = [layer.state_bytes for layer in layers if layer.state_bytes]
    if states:
        return _hybrid_pool(setup, target, caching, states)
    if len({layer.window for layer in caching}) <= 1:
        size = sum(layer.token_bytes for layer in caching) * setup.page_tokens
        window = caching[0].window if caching else None
        groups = [Group(setup.page_tokens, size, window, extra_pages=0 if window is None else 1)]
        return Pool(tuple(groups) if caching else (), 0, max(1, size), _in_flight(setup))
    mixed, unit = _mixed_groups(caching, setup.page_tokens)
    return Pool(mixed, 0, unit, _in_flight(setup))


def _hybrid_pool(
    setup: Setup, target: Sequence[CachedLayer], caching: list[CachedLayer], states: list[int]
) -> Pool:
    """Running states lie in blocks of the same size as all others: the attention block grows until it holds a state
    (`_align_hybrid_block_size`), and states are padded to it. A request has one block of each group of states, one more
    where prefixes are cached (the default, except without attention), and one per draft token."""
    if not caching:
        whole = sum(states)
        return Pool((Group(1, whole, fixed=1 + setup.levels),), 0, max(1, whole), _in_flight(setup))
    of_token = next((layer.token_bytes for layer in target if layer.token_bytes), caching[0].token_bytes)
    block = hybrid_block_tokens(setup, of_token, max(states))
    mixed, unit = _mixed_groups(caching, block, num_states=len(states), state_blocks=2 + setup.levels)
    return Pool(mixed, 0, unit, _in_flight(setup))


def hybrid_block_tokens(setup: Setup, token_bytes: int, state_bytes: int) -> int:
    """Tokens of an attention block that holds one running state."""
    is_latent = any(isinstance(layer, Latent) for layer in setup.target.layers)
    grain = max(_TOKENS_OF_LATENT_KERNELS if is_latent else _TOKENS_OF_KERNELS, setup.page_tokens)
    return max(setup.page_tokens, grain * -(-state_bytes // (grain * token_bytes)))


def _in_flight(setup: Setup) -> int:
    return setup.max_batched_tokens


@dataclass(frozen=True, slots=True)
class _Kind:
    page_tokens: int
    window: int | None
    is_state: bool = False


def _mixed_groups(
    layers: list[CachedLayer], page_tokens: int, num_states: int = 0, state_blocks: int = 0
) -> tuple[tuple[Group, ...], int]:
    """Pages of one size for all layers (smaller ones get more tokens per page, or padding); layers of a kind share
    tables, in groups of equally many layers. Of `num_states` layers with running states a request has `state_blocks`
    blocks per group."""
    page_bytes = max(layer.token_bytes for layer in layers) * page_tokens
    kinds: Counter[_Kind] = Counter()
    for layer in layers:
        own = layer.token_bytes * page_tokens
        times = page_bytes // own if page_bytes % own == 0 else 1
        kinds[_Kind(page_tokens * times, layer.window)] += 1
    if num_states:
        kinds[_Kind(page_tokens, None, is_state=True)] = num_states
    fewest, most = min(kinds.values()), max(kinds.values())
    size = most if most < fewest * _FEW_MORE else fewest
    unit = size * page_bytes
    groups = [
        Group(
            kind.page_tokens,
            unit,
            kind.window,
            extra_pages=0 if kind.window is None else 1,
            fixed=state_blocks if kind.is_state else None,
        )
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
    found = [*uneven_heads(setup)]
    if setup.draft_tensor_parallel not in (1, setup.tensor_parallel):
        found.append("draft_tensor_parallel_size may only be 1 or the target's")
    if any(isinstance(layer, RunningState | Paired) for layer in setup.target.layers):
        found.append(
            "layers with a running state: attention kernels that take more than 16 tokens per block (latent attention: "
            "128) enlarge blocks further; --no-enable-prefix-caching saves one state per request"
        )
    if any(isinstance(layer, Compressed) for layer in setup.target.layers):
        found.append(
            "compressed attention is counted as vectors of the cache's type: vLLM's packed formats, alignment and its "
            "compressors' states are not known here"
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
