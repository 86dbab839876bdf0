"""SGLang: weights and cache inside a static fraction, passes in what is left; the drafter's cache is a share of cells.

Read from 0.5.23. Since mid-2026 the drafter's weights count inside the static fraction (PR 28855).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from draftproof.checkpoints.layers import Compressed, Latent, Paired, attention_of
from draftproof.checkpoints.states import RunningState, dtype_bytes
from draftproof.configs.engines.sglang.defaults import SPECULATIVE_REQUESTS
from draftproof.planning import passes
from draftproof.planning.engines.layers import (
    StateBytes,
    draft_layers,
    drafts_in_stages,
    quantised_index_bytes,
    target_layers,
    uneven_heads,
)
from draftproof.planning.own import count, one_of, ratio, switch
from draftproof.planning.paging import CachedLayer, Group, Pool, Split, States, plain_pool
from draftproof.planning.setup import GIB, MIB, Certainty, EngineMemory, Item, Setup
from draftproof.planning.stages import extra_at_the_end

_SCALED = ("eagle", "eagle3", "mtp", "draft_model")
"""Methods whose drafter is taken to have layers as large as the target's."""
_IN_STAGES = ("eagle", "mtp")
"""Methods that run with a pipeline (`check_pipeline_parallel_compat`)."""
_DOUBLE = 2
"""A decode reserves twice what it may need (`get_alloc_reserve_per_decode`), with the overlap schedule or without."""
_SPLIT = frozenset({
    "llama4_text", "gpt_oss", "mimo_v2_flash", "step3p5", "gemma4_text", "granite_swa", "granitemoe_swa",
})  # fmt: skip
"""Model types whose windows have a pool of their own (`is_hybrid_swa_model`); others keep every token unless their
configuration has `is_hybrid_swa`."""
_WINDOW_RATIO = 0.8
_EVICTION_STEP = 128
"""--swa-full-tokens-ratio, and SGLANG_SWA_EVICTION_INTERVAL in tokens, where nobody sets them."""
_STATE_RATIO = 0.9
"""--mamba-full-memory-ratio where nobody sets it: states to keys and values."""
_STATE_SLOTS = 3
_STRATEGIES = ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy")
_TRACKED = frozenset({
    "kimi_linear", "kimi_k3", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "falcon_h1", "granitemoehybrid",
    "nemotron_h", "bailing_hybrid",
})  # fmt: skip
"""State slots per request with the prefix cache, and the models that keep more in an extra buffer
(`_calculate_mamba_ratio`, --mamba-radix-cache-strategy auto)."""
_READS_DTYPE = frozenset({"nemotron_h", "falcon_h1", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})
"""Model types whose `mamba_ssm_dtype` is read; other states are float32."""
_LARGE_DEVICE = 60 * GIB
_BY_MEMORY: tuple[tuple[int, int, int, int], ...] = (
    (160 * GIB, 16384, 512, 512), (60 * GIB, 8192, 256, 512), (35 * GIB, 4096, 32, 160), (20 * GIB, 4096, 48, 160),
    (0, 2048, 8, 8),
)  # fmt: skip
"""From so many bytes on: --chunked-prefill-size, and --cuda-graph-max-bs-decode on up to 3 devices and on more
(`handle_gpu_memory_settings`)."""
_PREFILL_GRAPHS: tuple[int, ...] = (
    *range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64), *range(1280, 4097, 256),
)  # fmt: skip
_PREFILL_STEP = 512
"""Tokens of captured prefill graphs to 4096, and the step from there (`generate_prefill_cuda_graph_batch_sizes`)."""
_GRAPH_MIB = 8
_LATENT_GRAPHS_MIB = 1536
"""Of each prefill graph; of all where attention is latent (`reserve_for_graph_mb`)."""


def _chunk(memory: int) -> int:
    return next(tokens for least, tokens, _, _ in _BY_MEMORY if memory >= least)


def _graph_batch(setup: Setup) -> int:
    _, _, few, many = next(row for row in _BY_MEMORY if setup.memory >= row[0])
    return few if setup.tensor_parallel < 4 else many


def _prefill_graphs_mib(setup: Setup) -> int:
    if any(isinstance(layer, Latent) for layer in setup.all_layers):
        return _LATENT_GRAPHS_MIB
    beyond = len(range(_PREFILL_GRAPHS[-1] + _PREFILL_STEP, setup.max_batched_tokens + 1, _PREFILL_STEP))
    return _GRAPH_MIB * (sum(size <= setup.max_batched_tokens for size in _PREFILL_GRAPHS) + beyond)


def _lookahead(setup: Setup) -> int:
    """Per request and decode: steps × branches or all verified tokens, whichever is more, twice."""
    if setup.levels == 0:
        return 0
    verified = 1 + setup.draft_tokens
    if setup.page_tokens > 1 and setup.branching > 1:
        page = setup.page_tokens
        per_branch = -(-((page - 1) + setup.levels) // page) * page
        return _DOUBLE * max(per_branch * setup.branching, verified)
    return _DOUBLE * max(setup.levels * setup.branching, verified)


def _scaled_share(setup: Setup) -> float:
    """What a drafter adds to a token's cell by SGLang's count (`DefaultPoolConfigurator`): its layers, as large as the
    target's layers that hold keys and values."""
    if setup.drafter is None or setup.method not in _SCALED or not _counts(setup):
        return 0.0
    holding = sum(attention_of(layer) is not None for layer in setup.target.layers)
    return len(setup.drafter.layers) / holding if holding else 0.0


def _counts(setup: Setup) -> bool:
    """Prediction layers of a target without num_nextn_predict_layers (Qwen3.5, Qwen3-Next) are not counted where no
    draft path is named (`_resolve_eagle_aux_hidden_state`)."""
    return setup.drafter is None or not setup.drafter.is_built_in or bool(setup.own.get("names_predictions"))


def _state_bytes(setup: Setup) -> StateBytes:
    """`mamba2_state_dtype`: the state proper in float32 unless a flag or a configuration that is read says otherwise,
    inputs of convolutions in bfloat16."""
    is_read, said = setup.target.model_type in _READS_DTYPE, setup.own.get("mamba-ssm-dtype")

    def size(state: RunningState) -> float:
        told = said or (state.ssm_dtype if is_read else None)
        return state.state_elements * (dtype_bytes(told) or 4) + state.conv_elements * 2

    return size


def _target_layers(setup: Setup) -> tuple[CachedLayer, ...]:
    return target_layers(setup, _state_bytes(setup), quantised_index_bytes)


def _pool(setup: Setup) -> Pool:
    target = _target_layers(setup)
    is_scaled = setup.method in _SCALED and setup.drafter is not None
    drafts = [] if is_scaled else list(draft_layers(setup, quantised_index_bytes))
    if _is_split(setup) and _is_mixed(target):
        pool = _split_pool(setup, target, drafts)
    else:
        if is_scaled:
            cell = sum(layer.token_bytes for layer in target)
            drafts = [CachedLayer(round(cell * _scaled_share(setup)), setup.draft_window)]
        pool = plain_pool([*target, *drafts], setup.page_tokens, keeps_windows=False, in_flight=0)
    state = _most_states(setup)
    return _with_states(setup, pool, state) if state else pool


def _most_states(setup: Setup) -> int:
    """Bytes of a request's states on the stage of a pipeline that holds the most: all plan with its share
    (`_handle_max_mamba_cache`)."""
    layers, found = setup.all_layers, []
    for num in setup.stage.cuts if setup.stage is not None else (len(layers),):
        own = replace(setup, target=replace(setup.target, layers=layers[:num]))
        found.append(sum(layer.state_bytes for layer in _target_layers(own)))
        layers = layers[num:]
    return max(found)


def _is_mixed(layers: Sequence[CachedLayer]) -> bool:
    return len({layer.window is None for layer in layers if layer.token_bytes}) == 2


def _is_split(setup: Setup) -> bool:
    return setup.target.model_type in _SPLIT or bool(setup.own.get("is_hybrid_swa"))


def _window_ratio(setup: Setup) -> float:
    return float(setup.own.get("swa-full-tokens-ratio", _WINDOW_RATIO))


def _overlaps(setup: Setup) -> bool:
    """Whether a batch is scheduled while another runs; not with a pipeline (`check_pipeline_parallel_compat`)."""
    return setup.num_stages == 1 and not setup.own.get("disable-overlap-schedule")


def _split_pool(setup: Setup, target: Sequence[CachedLayer], drafts: Sequence[CachedLayer]) -> Pool:
    """`HybridSWAPoolConfigurator`: layers with windows hold a fixed ratio of the tokens that the others hold. Of a
    request they hold the window, what is freed in steps, and what decoding reserves (`compute_swa_request_cap`);
    where prefixes are not kept and the requests are limited, just that for all of them."""
    full = [layer.token_bytes for layer in target if layer.window is None and layer.token_bytes]
    windowed = [layer for layer in target if layer.window is not None]
    page, share = setup.page_tokens, _window_ratio(setup)
    of_windows = sum(layer.token_bytes for layer in windowed)
    cell = sum(full) + sum(layer.token_bytes for layer in drafts)
    if setup.drafter is not None and setup.method in _SCALED and _counts(setup):
        with_windows = sum(getattr(layer, "window", None) is not None for layer in setup.drafter.layers)
        cell += full[0] * (len(setup.drafter.layers) - with_windows)
        of_windows += windowed[0].token_bytes * with_windows
    verified = 1 + setup.draft_tokens if setup.levels else 1
    held = max(layer.window or 0 for layer in windowed) + _EVICTION_STEP * verified + page
    held += _lookahead(setup) if setup.levels else page
    if not setup.prefix_caching and setup.limits_requests:
        batches = 2 if _overlaps(setup) else 1
        tokens = held * setup.max_num_seqs + batches * setup.max_batched_tokens + page
        aside = -(-tokens // page) * page * of_windows
        return Pool((Group(page, cell * page),), aside=aside)
    cell += math.ceil(share * of_windows)
    return Pool((Group(page, cell * page, split=Split(share, held)),))


def _with_states(setup: Setup, pool: Pool, state_bytes: int) -> Pool:
    """Running states have a part of the cache; a request has several slots of them, and, with speculation, one more
    state for each verified token. One slot (and its tokens' states) is padding. Where their number is said, or follows
    from the requests because no prefixes are kept, they lie aside (`_handle_max_mamba_cache`)."""
    verified = 1 + setup.draft_tokens if setup.levels else 0
    slots = _state_slots(setup)
    said = setup.own.get("max-mamba-cache-size")
    if said is not None or (not setup.prefix_caching and setup.limits_requests):
        num = said or setup.max_num_seqs
        running = min(num // slots, setup.max_num_seqs) if setup.limits_requests else num // slots
        held = state_bytes * (num + 1 + verified * (running + 1))
        return replace(pool, state_bytes=0, aside=pool.aside + held, most=num // slots)
    share = setup.own.get("mamba-full-memory-ratio", _STATE_RATIO)
    return replace(
        pool,
        state_bytes=state_bytes * (slots + verified),
        states=States(share / (1 + share), state_bytes * (1 + verified)),
    )


def _state_slots(setup: Setup) -> int:
    """`_calculate_mamba_ratio`, `get_mamba_tracking_slots`."""
    if not setup.prefix_caching:
        return 1
    strategy = setup.own.get("mamba-radix-cache-strategy", "auto")
    overlaps = _overlaps(setup)
    if strategy == "auto":
        tracks = setup.target.model_type in _TRACKED and (overlaps or setup.page_tokens > 1)
        strategy = "extra_buffer" if tracks else "no_buffer"
    tracking = {"no_buffer": 0, "extra_buffer_lazy": 1}.get(strategy, 2 if overlaps else 1)
    return _STATE_SLOTS + tracking


def _reserve(setup: Setup) -> Item:
    """What the automatic fraction leaves for passes."""
    graph_batch = setup.graph_max_batch or min(setup.max_num_seqs, _graph_batch(setup))
    mib = (
        512
        + 1.5 * max(setup.max_batched_tokens, 2048)
        + setup.tensor_parallel * setup.num_stages / 8 * 1024
        + 2 * graph_batch
    )
    size = round((mib + _prefill_graphs_mib(setup)) * MIB)
    if setup.memory > _LARGE_DEVICE:
        size = max(size, 10 * GIB)
    return Item(
        "reserve for passes",
        size,
        Certainty.RULE,
        "SGLang's rule where no fraction is given",
        is_dynamic=True,
    )


def _buffers(setup: Setup) -> tuple[Item, ...]:
    if setup.used_fraction is None:
        return (_reserve(setup),)
    return (
        passes.activations(setup),
        *passes.drawing(setup),
        passes.graphs(setup),
        passes.runtime(setup),
    )


def _warnings(setup: Setup) -> tuple[str, ...]:
    refused = None if setup.method in _IN_STAGES else f"does not run {setup.method} with a pipeline"
    found = [*uneven_heads(setup), *drafts_in_stages(setup, refused)]
    if setup.num_stages > 1 and setup.drafter is not None and refused is None:
        found.append(
            "every stage counts the drafter's cache, which the last one alone has; drafts with a pipeline ask for "
            "SGLANG_ENABLE_PP_SPEC=1, or a server that prefills for others"
        )
    if setup.drafter is not None and setup.method in _SCALED:
        taken = sum(layer.token_bytes for layer in _target_layers(setup)) * _scaled_share(setup)
        real = sum(layer.token_bytes for layer in draft_layers(setup, quantised_index_bytes))
        if real > 1.02 * taken:
            found.append(
                f"the drafter's cache takes {real} bytes per token, SGLang counts {round(taken)}: its pool is larger "
                "than planned, so leave a lower --mem-fraction-static"
            )
    layers = setup.target.layers
    if any(getattr(layer, "window", None) for layer in layers):
        if _is_split(setup):
            if setup.prefix_caching or not setup.limits_requests:
                found.append(
                    f"windows have a pool of their own: --swa-full-tokens-ratio {_window_ratio(setup):g} is taken"
                )
        else:
            found.append(
                "layers with windows keep every token: SGLang splits its pool for other model types only, and where "
                "the configuration has is_hybrid_swa"
            )
    if any(isinstance(layer, RunningState | Paired) for layer in layers):
        found.append(
            f"a request has {_state_slots(setup)} slots of running states, in a part of the cache of their own: "
            f"--mamba-full-memory-ratio {setup.own.get('mamba-full-memory-ratio', _STATE_RATIO):g} is taken unless "
            "their number is said or follows from the requests"
        )
    if any(isinstance(layer, Compressed) for layer in layers):
        found.append(
            "compressed attention is counted as vectors of the cache's type in one pool: SGLang's pools per "
            "compression and their states are not known here"
        )
    if setup.draft_weight_bits is None and setup.drafter is not None:
        found.append("before PR 28855 (mid-2026) the drafter's weights came on top of --mem-fraction-static")
    return tuple(found)


rules = EngineMemory(
    name="sglang",
    title="SGLang",
    read_version="0.5.23",
    page_tokens=1,
    max_num_seqs=lambda memory: 512,
    max_num_seqs_speculative=SPECULATIVE_REQUESTS,
    max_batched_tokens=_chunk,
    fraction=None,
    fraction_covers="static",
    lookahead=_lookahead,
    pool=_pool,
    buffers=_buffers,
    stages=extra_at_the_end,
    partition="SGLANG_PP_LAYER_PARTITION",
    shares_least=True,
    reads={
        "swa-full-tokens-ratio": ratio(),
        "mamba-full-memory-ratio": ratio(),
        "max-mamba-cache-size": count,
        "mamba-ssm-dtype": one_of("float32", "bfloat16", "float16"),
        "mamba-radix-cache-strategy": one_of(*_STRATEGIES),
        "disable-overlap-schedule": switch,
    },
    knobs={
        "tensor parallelism": "--tp-size",
        "pipeline parallelism": "--pp-size",
        "target weights": "a quantised checkpoint, or --quantization fp8",
        "memory reservation": "--mem-fraction-static",
        "graph capture sizes": "--cuda-graph-max-bs-decode",
        "draft depth": "--speculative-num-steps, --speculative-num-draft-tokens",
        "concurrent requests": "--max-running-requests",
        "largest pass": "--chunked-prefill-size",
        "cache dtype": "--kv-cache-dtype fp8_e4m3",
        "draft cache dtype": "--speculative-draft-kv-cache-dtype fp8_e4m3",
        "draft window": "--speculative-draft-window-size",
        "draft weights": "--speculative-draft-model-quantization",
    },
    unknowns=(
        "graphs: captured sizes follow --cuda-graph-max-bs-decode; bytes per size are not known",
        "without speculation --max-running-requests is 2048 to 4096, by what the cache holds; buffers are planned for "
        "512, the most that is captured",
    ),
    warnings=_warnings,
)
