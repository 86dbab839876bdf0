"""The layers that cache something, of target and drafter, as an engine on one device has them. Shared by the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from draftproof.checkpoints.states import RunningState, dtype_bytes
from draftproof.planning.paging import CachedLayer, cached_layers
from draftproof.planning.setup import Setup

StateBytes = Callable[[RunningState], float]
IndexBytes = Callable[[int], float]

_QUANTISED_BLOCK = 128


def quantised_index_bytes(length: int) -> int:
    """An indexer's key in one byte per element and a float32 scale per 128 of them, whatever the cache's type: as vLLM
    0.33 and SGLang 0.5.23 keep it."""
    return length + length // _QUANTISED_BLOCK * 4


def plain_state_bytes(setup: Setup) -> StateBytes:
    """The state proper in the type that the configuration names by either key, else like activations, as the
    convolution's inputs."""

    def size(state: RunningState) -> float:
        width = setup.activation_bytes
        own = dtype_bytes(state.ssm_cache_dtype) or dtype_bytes(state.ssm_dtype) or width
        return state.state_elements * own + state.conv_elements * width

    return size


def uneven_heads(setup: Setup) -> tuple[str, ...]:
    """That the engine refuses to start where devices do not divide the heads: vLLM 0.33 (config/model.py) and SGLang
    0.5.23 (its models) do."""
    heads, devices = setup.target.num_heads, setup.tensor_parallel
    if heads % devices == 0:
        return ()
    return (f"{setup.rules.title} refuses {devices} devices: they do not divide {heads} attention heads",)


def drafts_in_stages(setup: Setup, refused: str | None) -> tuple[str, ...]:
    """Where the drafter of a pipeline is; `refused`: what the engine says of this method with stages."""
    if setup.num_stages == 1 or setup.method == "none":
        return ()
    if refused is not None:
        return (f"{setup.rules.title} {refused} (rule COMBO-01)",)
    return () if setup.drafter is None else ("the drafter is on the last stage alone",)


def target_layers(
    setup: Setup, state_bytes: StateBytes | None = None, index_bytes: IndexBytes | None = None
) -> tuple[CachedLayer, ...]:
    return cached_layers(
        setup.target.layers,
        setup.kv_bytes,
        setup.tensor_parallel,
        state_bytes or plain_state_bytes(setup),
        index_bytes,
    )


def draft_layers(setup: Setup, index_bytes: IndexBytes | None = None) -> tuple[CachedLayer, ...]:
    """Empty without a drafter that keeps a cache, and in stages of a pipeline without it. A draft window caps every
    layer's."""
    if setup.drafter is None or not setup.draws:
        return ()
    layers = cached_layers(
        setup.drafter.layers,
        setup.draft_kv_bytes,
        setup.draft_tensor_parallel,
        plain_state_bytes(setup),
        index_bytes,
    )
    window = setup.draft_window
    if window is None:
        return layers
    return tuple(replace(layer, window=min(window, layer.window or window)) for layer in layers)
