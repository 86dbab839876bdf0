"""TensorRT-LLM (PyTorch backend): a share of what is free after loading is the cache, drafters have their own.

Read from single source files of its main branch of mid-2026, which became 1.3, and documentation. Less is known than of
other engines, and said.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.checkpoints.states import RunningState, dtype_bytes
from draftproof.configs.speculation import Value
from draftproof.planning import passes
from draftproof.planning.engines.layers import StateBytes, draft_layers, drafts_in_stages, target_layers
from draftproof.planning.own import one_of
from draftproof.planning.paging import Pool, plain_pool
from draftproof.planning.setup import EngineMemory, Item, Setup
from draftproof.planning.stages import extra_at_the_start


def _lookahead(setup: Setup) -> int:
    """Draft tokens of one step; PARD's twice as many."""
    return 2 * setup.levels if setup.method == "pard" else setup.draft_tokens


def _state_bytes(setup: Setup) -> StateBytes:
    """`resolve_ssm_cache_dtype`: as kv_cache_config says, else as mamba_ssm_cache_dtype of the configuration, else like
    activations; mamba_ssm_dtype is not read."""
    said = dtype_bytes(setup.own.get("kv_cache_config"))

    def size(state: RunningState) -> float:
        width = setup.activation_bytes
        own = said or dtype_bytes(state.ssm_cache_dtype) or width
        return state.state_elements * own + state.conv_elements * width

    return size


def _said_of_states(value: Value) -> str | None:
    said = value.get("mamba_ssm_cache_dtype") if isinstance(value, Mapping) else None
    return None if said is None else one_of("auto", "float32", "float16", "bfloat16")(said)


def _pool(setup: Setup) -> Pool:
    layers = [*target_layers(setup, _state_bytes(setup)), *draft_layers(setup)]
    return plain_pool(layers, setup.page_tokens, keeps_windows=False, in_flight=0)


def _buffers(setup: Setup) -> tuple[Item, ...]:
    return (
        passes.activations(setup),
        *passes.drawing(setup),
        passes.graphs(setup),
        passes.runtime(setup),
    )


def _warnings(setup: Setup) -> tuple[str, ...]:
    return drafts_in_stages(setup, "refuses speculation with a pipeline")


rules = EngineMemory(
    name="trtllm",
    title="TensorRT-LLM",
    read_version="1.3.0",
    page_tokens=32,
    max_num_seqs=lambda memory: 2048,
    max_batched_tokens=lambda memory: 8192,
    fraction=0.9,
    fraction_covers="free",
    lookahead=_lookahead,
    pool=_pool,
    buffers=_buffers,
    stages=extra_at_the_start,
    partition="pp_partition",
    bounds_rows=True,
    reads={"kv_cache_config": _said_of_states},
    knobs={
        "tensor parallelism": "tensor_parallel_size",
        "pipeline parallelism": "pipeline_parallel_size",
        "target weights": "a quantised checkpoint",
        "memory reservation": "kv_cache_config.free_gpu_memory_fraction",
        "graph capture sizes": "cuda_graph_config.max_batch_size",
        "draft depth": "speculative_config.max_draft_len",
        "concurrent requests": "max_batch_size",
        "largest pass": "max_num_tokens",
        "cache dtype": "kv_cache_config.dtype fp8",
    },
    unknowns=(
        "graphs and workspaces are not known; a draft_len_schedule adds captured sizes",
        "layers with windows are counted as if they kept everything, which is from above",
        "slots that drafts reserve are taken as one step's draft tokens",
    ),
    warnings=_warnings,
)
