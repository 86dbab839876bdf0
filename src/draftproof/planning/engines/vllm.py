"""vLLM: everything inside a fraction of the device; one pool of blocks for the layers of target and drafter.

Read from the sources of 0.32.0 and 0.33.0; the pool is compared in the tests with what 0.32.0 (CPU build) prints at
start. Layers with windows get block tables of their own; all tables draw blocks of one size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from draftproof.checkpoints.layers import Compressed, Latent, state_of
from draftproof.checkpoints.states import RunningState, dtype_bytes
from draftproof.configs.engines.vllm.facts import OWN_RANKS
from draftproof.planning import passes
from draftproof.planning.engines.layers import (
    StateBytes,
    draft_layers,
    drafts_in_stages,
    quantised_index_bytes,
    target_layers,
    uneven_heads,
)
from draftproof.planning.own import one_of, switch
from draftproof.planning.paging import CachedLayer, Group, Pool
from draftproof.planning.setup import GIB, EngineMemory, Item, Setup
from draftproof.planning.stages import extra_from_the_end

_CHUNK_BYTES = GIB
"""The rejection sampler of the second model runner works in float32 chunks of at most this."""
_BY_MEMORY = ((160 * GIB, 1024, 16384), (70 * GIB, 1024, 8192), (0, 256, 2048))
"""From so many bytes on: --max-num-seqs and --max-num-batched-tokens of a server (`get_batch_defaults`)."""
_READ_STATES = ("eagle3", "dflash", "dspark")
"""Methods whose drafter reads states of the target's inner layers."""
_CUT_TOO = ("draft_model", "pard")
"""Methods whose drafter is built with the target's stages, so that the last one holds its own part alone."""
_FEW_MORE = 1.5
"""Below this ratio of their numbers of layers, smaller groups are padded to the larger instead of splitting it."""


def _lookahead(setup: Setup) -> int:
    """`num_lookahead_tokens`: a query more where a block begins with a token that is known (DFlash's always does)."""
    if setup.method in ("none", "ngram", "suffix"):
        return 0
    fills_in = setup.method == "dflash" or (
        setup.method == "dspark" and setup.drafter is not None and not setup.drafter.samples_from_anchor
    )
    return setup.levels + 1 if fills_in else setup.levels


_TOKENS_OF_KERNELS = 16
_TOKENS_OF_LATENT_KERNELS = 128
"""Blocks of hybrid models are multiples of what attention kernels take at least."""
_TOKENS_OF_FLASHINFER = 64
_OWN_KERNEL = frozenset({"olmo_hybrid"})
"""Of models with a gated delta net those that do not take FlashInfer's kernel."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """States that a prefill leaves on its way, for the prefix cache: blocks of a request, and the tokens whose
    multiples blocks have to be."""

    blocks: int = 0
    grain: int = 1


def checkpoints(setup: Setup) -> Checkpoints:
    """By what computes the prefill (`get_kv_cache_spec`, `get_prefill_checkpoint_alignment`): Mamba-2's kernel, since
    0.33 FlashInfer's for gated delta nets, FlashKDA where the gate has a bound (not Ling's). None without the prefix
    cache."""
    states, model = _states(setup), setup.target.model_type
    if not setup.prefix_caching:
        return Checkpoints()
    if states and all(state.kind == "mamba2" for state in states):
        return Checkpoints(blocks=1)
    by_flashinfer = setup.own.get("gdn-prefill-backend", "auto") in ("auto", "flashinfer")
    if (
        by_flashinfer
        and states
        and all(state.kind == "delta_net" for state in states)
        and model not in _OWN_KERNEL
    ):
        return Checkpoints(1, _TOKENS_OF_FLASHINFER)
    by_flashkda = setup.own.get("kda-prefill-backend", "auto") in ("auto", "flashkda")
    if by_flashkda and states and all(state.kind == "kda" and state.has_bounded_gate for state in states):
        return Checkpoints(blocks=1)
    return Checkpoints()


def _states(setup: Setup) -> list[RunningState]:
    return [state for layer in setup.all_layers if (state := state_of(layer)) is not None]


def _state_bytes(setup: Setup) -> StateBytes:
    """A convolution keeps an input more per draft token (not Mamba's first kind). The state proper is float32 for KDA,
    for Nemotron-H and Qwen3.5 as their configurations say, else like inputs, which are like activations; flags win."""
    model = setup.target.model_type
    width = dtype_bytes(setup.own.get("mamba-cache-dtype")) or setup.activation_bytes
    flag = dtype_bytes(setup.own.get("mamba-ssm-cache-dtype"))

    def size(state: RunningState) -> float:
        inputs = state.conv_elements + (0 if state.kind == "mamba" else state.conv_width * setup.levels)
        told = None
        if model == "nemotron_h":
            told = state.ssm_cache_dtype or "float32"
        elif model in ("qwen3_5_text", "qwen3_5_moe_text"):
            told = state.ssm_dtype
        own = flag or dtype_bytes(told) or (4 if state.kind == "kda" else width)
        return state.state_elements * own + inputs * width

    return size


def _pool(setup: Setup) -> Pool:
    """Blocks as `get_kv_cache_groups` forms them: of the whole model, also where a stage of a pipeline holds a part of
    it. All stages have as many blocks as the one that has room for the fewest (`get_kv_cache_configs`)."""
    target, layers = _layers_by_stage(setup)
    mine = 0 if setup.stage is None else setup.stage.index
    caching = [own for own in layers if own.layer.token_bytes]
    states = [own for own in layers if own.layer.state_bytes]
    if states:
        return _hybrid_pool(setup, target, caching, states, mine)
    if len({own.layer.window for own in caching}) <= 1:
        size = sum(own.layer.token_bytes for own in caching if own.stage == mine) * setup.page_tokens
        window = caching[0].layer.window if caching else None
        groups = [Group(setup.page_tokens, size, window, extra_pages=0 if window is None else 1)]
        return Pool(tuple(groups) if caching else (), 0, max(1, size), _in_flight(setup))
    mixed, unit = _mixed_groups(caching, setup.page_tokens, mine)
    return Pool(mixed, 0, unit, _in_flight(setup))


@dataclass(frozen=True, slots=True)
class _Own:
    """What a layer keeps, and the stage that holds it."""

    layer: CachedLayer
    stage: int = 0


def _layers_by_stage(setup: Setup) -> tuple[list[_Own], list[_Own]]:
    """The target's, and with the drafter's, which are the last stage's."""
    cuts = (len(setup.target.layers),) if setup.stage is None else setup.stage.cuts
    layers = setup.all_layers
    target: list[_Own] = []
    for stage, num in enumerate(cuts):
        own = replace(setup.target, layers=layers[:num])
        kept = target_layers(replace(setup, target=own), _state_bytes(setup), quantised_index_bytes)
        target += [_Own(layer, stage) for layer in kept]
        layers = layers[num:]
    drafts = draft_layers(replace(setup, stage=None), quantised_index_bytes)
    return target, [*target, *(_Own(layer, len(cuts) - 1) for layer in drafts)]


def _hybrid_pool(
    setup: Setup, target: Sequence[_Own], caching: list[_Own], states: list[_Own], mine: int
) -> Pool:
    """Running states lie in blocks of the same size as all others: the attention block grows until it holds a state
    (`_align_hybrid_block_size`), and states are padded to it. A request has one block of each group of states and one
    per draft token; where prefixes are cached (the default, except without attention) one more, and one of what a
    prefill leaves (`MambaSpec.max_memory_usage_bytes`)."""
    if not caching:
        whole = sum(own.layer.state_bytes for own in states if own.stage == mine)
        return Pool((Group(1, whole, fixed=1 + setup.levels),), 0, max(1, whole), _in_flight(setup))
    of_token = next((own.layer for own in target if own.layer.token_bytes), caching[0].layer).token_bytes
    left = checkpoints(setup)
    largest = max(own.layer.state_bytes for own in states)
    block = hybrid_block_tokens(setup, of_token, largest, left.grain)
    blocks = 1 + setup.levels + (1 if setup.prefix_caching else 0) + left.blocks
    mixed, unit = _mixed_groups(caching, block, mine, states=states, state_blocks=blocks)
    return Pool(mixed, 0, unit, _in_flight(setup))


def hybrid_block_tokens(setup: Setup, token_bytes: int, state_bytes: int, multiple_of: int = 1) -> int:
    """Tokens of an attention block that holds one running state."""
    is_latent = any(isinstance(layer, Latent) for layer in setup.all_layers)
    kernel = max(_TOKENS_OF_LATENT_KERNELS if is_latent else _TOKENS_OF_KERNELS, setup.page_tokens)
    grain = math.lcm(kernel, multiple_of)
    return max(setup.page_tokens, grain * -(-state_bytes // (grain * token_bytes)))


def _in_flight(setup: Setup) -> int:
    """`max_in_flight_tokens`: of every batch that may be on its way, one per stage and, with asynchronous scheduling,
    one more."""
    batches = setup.num_stages + (0 if setup.own.get("no-async-scheduling") else 1)
    return batches * setup.max_batched_tokens


@dataclass(frozen=True, slots=True)
class _Kind:
    page_tokens: int
    window: int | None
    is_state: bool = False


def _mixed_groups(
    layers: list[_Own],
    page_tokens: int,
    mine: int,
    states: Sequence[_Own] = (),
    state_blocks: int = 0,
) -> tuple[tuple[Group, ...], int]:
    """Pages of one size for all layers (smaller ones get more tokens per page, or padding); layers of a kind share
    tables, in groups of equally many layers, dealt out in turns so that the stages of a pipeline have even parts of
    each. Of layers with running states a request has `state_blocks` blocks per group. A block of stage `mine` takes
    what its largest part of a group takes."""
    page_bytes = max(own.layer.token_bytes for own in layers) * page_tokens
    kinds: dict[_Kind, list[int]] = {}
    for own in layers:
        size = own.layer.token_bytes * page_tokens
        times = page_bytes // size if page_bytes % size == 0 else 1
        kinds.setdefault(_Kind(page_tokens * times, own.layer.window), []).append(own.stage)
    if states:
        kinds[_Kind(page_tokens, None, is_state=True)] = [own.stage for own in states]
    fewest, most = min(map(len, kinds.values())), max(map(len, kinds.values()))
    size = most if most < fewest * _FEW_MORE else fewest
    dealt = [
        (kind, stages[start :: -(-len(stages) // size)])
        for kind, stages in kinds.items()
        for start in range(-(-len(stages) // size))
    ]
    unit = max(1, page_bytes * max(stages.count(mine) for _, stages in dealt))
    groups = [
        Group(
            kind.page_tokens,
            unit,
            kind.window,
            extra_pages=0 if kind.window is None else 1,
            fixed=state_blocks if kind.is_state else None,
        )
        for kind, _ in dealt
    ]
    return tuple(groups), unit


def _buffers(setup: Setup) -> tuple[Item, ...]:
    return (
        passes.activations(setup),
        *passes.drawing(setup, _CHUNK_BYTES, setup.activation_bytes),
        passes.graphs(setup),
        passes.runtime(setup),
    )


def _warnings(setup: Setup) -> tuple[str, ...]:
    refused = "gives a draft model one stage's part of its layers" if setup.method in _CUT_TOO else None
    found = [*uneven_heads(setup), *drafts_in_stages(setup, refused)]
    if setup.num_stages > 1 and setup.method in _READ_STATES:
        found.append(
            "few targets pass the states that this drafter reads from stage to stage: draftproof check says which "
            "(rule COMBO-01)"
        )
    if setup.draft_tensor_parallel not in (1, setup.tensor_parallel):
        found.append("draft_tensor_parallel_size may only be 1 or the target's")
    if states := _states(setup):
        left = checkpoints(setup)
        found.append(
            "layers with a running state: attention kernels that take more than 16 tokens per block (latent attention: "
            "128) enlarge blocks further"
            + (
                f"; --no-enable-prefix-caching saves {1 + left.blocks} states per request"
                if setup.prefix_caching
                else ""
            )
        )
        if left.grain > 1:
            found.append(
                f"blocks are multiples of {left.grain} tokens, and a request has a state more, as with FlashInfer's "
                "prefill: the default since 0.33 on Hopper, and on Blackwell with CUDA 13 and key heads of 128. On "
                "other devices, in 0.32, and with --gdn-prefill-backend triton neither holds"
            )
        elif left.blocks and states[0].kind == "kda":
            found.append(
                "a request has a state more, as with FlashKDA: the default on Hopper and Blackwell in bfloat16 with "
                "heads of 128; not with --kda-prefill-backend triton"
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
    max_num_seqs=lambda memory: next(seqs for least, seqs, _ in _BY_MEMORY if memory >= least),
    max_batched_tokens=lambda memory: next(tokens for least, _, tokens in _BY_MEMORY if memory >= least),
    fraction=0.92,
    fraction_covers="all",
    own_ranks=OWN_RANKS,
    lookahead=_lookahead,
    pool=_pool,
    buffers=_buffers,
    stages=extra_from_the_end,
    partition="VLLM_PP_LAYER_PARTITION",
    bounds_rows=True,
    reads={
        "no-async-scheduling": switch,
        "gdn-prefill-backend": one_of("auto", "flashinfer", "triton", "cutedsl", "aiter_flydsl", "sycl"),
        "kda-prefill-backend": one_of("auto", "flashkda", "flashinfer", "triton", "fused"),
        "mamba-cache-dtype": one_of("auto", "float32", "float16", "bfloat16"),
        "mamba-ssm-cache-dtype": one_of("auto", "float32", "float16", "bfloat16"),
    },
    knobs={
        "tensor parallelism": "--tensor-parallel-size",
        "pipeline parallelism": "--pipeline-parallel-size",
        "target weights": "a quantised checkpoint, or --quantization fp8",
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
        "--max-num-seqs and --max-num-batched-tokens default to those of serving over HTTP, by the device's memory; an "
        "A100 and, since 0.33, a GB10 (DGX Spark) have 256 and 2048 whatever theirs",
    ),
    warnings=_warnings,
)
