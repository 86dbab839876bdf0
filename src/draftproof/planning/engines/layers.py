"""The layers that cache something, of target and drafter, as an engine on one device has them. Shared by the rules."""

from __future__ import annotations

from draftproof.planning.paging import CachedLayer, cached_layers
from draftproof.planning.setup import Setup


def target_layers(setup: Setup, state_copies: int = 1) -> tuple[CachedLayer, ...]:
    """`state_copies`: running states that are kept per request, to go back to when drafts are rejected."""
    layers = cached_layers(
        setup.target.layers, setup.kv_bytes, setup.tensor_parallel, setup.activation_bytes * state_copies
    )
    return layers


def draft_layers(setup: Setup) -> tuple[CachedLayer, ...]:
    """Empty without a drafter that keeps a cache. A draft window caps every layer's."""
    if setup.drafter is None:
        return ()
    layers = cached_layers(
        setup.drafter.layers, setup.draft_kv_bytes, setup.draft_tensor_parallel, setup.activation_bytes
    )
    window = setup.draft_window
    if window is None:
        return layers
    return tuple(
        CachedLayer(layer.token_bytes, min(window, layer.window or window), layer.state_bytes)
        for layer in layers
    )
