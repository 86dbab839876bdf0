"""SGLang: weights and cache inside a static fraction, passes in what is left; the drafter's cache is a share of cells.

Read from 0.5.23. Since mid-2026 the drafter's weights count inside the static fraction (PR 28855).
"""

from __future__ import annotations

from draftproof.planning import passes
from draftproof.planning.engines.layers import draft_layers, target_layers
from draftproof.planning.paging import CachedLayer, Pool, plain_pool
from draftproof.planning.setup import GIB, MIB, Certainty, EngineMemory, Item, Setup

_SCALED = ("eagle", "eagle3", "mtp", "draft_model")
"""Methods whose drafter is taken to have layers as large as the target's."""
_OVERLAP = 2
_LARGE_DEVICE = 60 * GIB


def _chunk(memory: int) -> int:
    """--chunked-prefill-size by the device's memory."""
    return next((tokens for limit, tokens in ((35 * GIB, 2048), (60 * GIB, 4096)) if memory < limit), 8192)


def _graph_batch(setup: Setup) -> int:
    """--cuda-graph-max-bs-decode by the device's memory."""
    if setup.memory < 20 * GIB:
        return 8
    if setup.memory < 35 * GIB:
        return 24 if setup.tensor_parallel < 4 else 80
    return 256


def _lookahead(setup: Setup) -> int:
    """Per request and decode: steps × branches or all verified tokens, whichever is more, twice for overlap."""
    if setup.levels == 0:
        return 0
    verified = 1 + setup.draft_tokens
    if setup.page_tokens > 1 and setup.branching > 1:
        page = setup.page_tokens
        per_branch = -(-((page - 1) + setup.levels) // page) * page
        return _OVERLAP * max(per_branch * setup.branching, verified)
    return _OVERLAP * max(setup.levels * setup.branching, verified)


def _scaled_share(setup: Setup) -> float:
    """What a drafter adds to a token's cell by SGLang's count."""
    if setup.drafter is None or setup.method not in _SCALED:
        return 0.0
    return len(setup.drafter.layers) / len(setup.target.layers)


def _pool(setup: Setup) -> Pool:
    target = target_layers(setup)
    if setup.method in _SCALED and setup.drafter is not None:
        cell = sum(layer.token_bytes for layer in target)
        layers = [*target, CachedLayer(round(cell * _scaled_share(setup)), setup.draft_window)]
    else:
        layers = [*target, *draft_layers(setup)]
    return plain_pool(layers, setup.page_tokens, keeps_windows=False, in_flight=0)


def _reserve(setup: Setup) -> Item:
    """What the automatic fraction leaves for passes."""
    graph_batch = setup.graph_max_batch or min(setup.max_num_seqs, _graph_batch(setup))
    mib = 512 + 1.5 * max(setup.max_batched_tokens, 2048) + setup.tensor_parallel / 8 * 1024 + 2 * graph_batch
    size = round(mib * MIB)
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
    links = passes.DEFAULT_LINKS if setup.tensor_parallel > 1 else 0
    return (
        passes.activations(setup),
        passes.verify_logits(setup),
        *passes.draft_probabilities(setup),
        passes.graphs(setup, passes.DEFAULT_GRAPHS, passes.DEFAULT_DRAFT_GRAPHS),
        passes.runtime(setup, passes.DEFAULT_RUNTIME + links),
    )


def _warnings(setup: Setup) -> tuple[str, ...]:
    found = []
    if setup.drafter is not None and setup.method in _SCALED:
        taken = sum(layer.token_bytes for layer in target_layers(setup)) * _scaled_share(setup)
        real = sum(layer.token_bytes for layer in draft_layers(setup))
        if real > 1.02 * taken:
            found.append(
                f"the drafter's cache takes {real} bytes per token, SGLang counts {round(taken)}: its pool is larger "
                "than planned, so leave a lower --mem-fraction-static"
            )
    if setup.draft_weight_bits is None and setup.drafter is not None:
        found.append("before PR 28855 (mid-2026) the drafter's weights came on top of --mem-fraction-static")
    return tuple(found)


rules = EngineMemory(
    name="sglang",
    title="SGLang",
    read_version="0.5.23",
    page_tokens=1,
    max_num_seqs=lambda memory: 256,
    max_num_seqs_speculative=48,
    max_batched_tokens=_chunk,
    fraction=None,
    fraction_covers="static",
    lookahead=_lookahead,
    pool=_pool,
    buffers=_buffers,
    knobs={
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
        "layers with windows are counted as if they kept everything: SGLang splits its pool in two",
        "the default of --max-running-requests without speculation depends on the device; 256 is taken",
    ),
    warnings=_warnings,
)
