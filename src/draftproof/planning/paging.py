"""How requests draw memory from a cache: pages, groups of layers, windows, states.

Made by the engines' rules (`planning.engines`), read by `memory`. Arithmetic of bytes and tokens; no engine's name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftproof.checkpoints.layers import Compressed, KeyValues, Latent, Layer, Paired
from draftproof.checkpoints.states import RunningState


@dataclass(frozen=True, slots=True)
class CachedLayer:
    """What one layer keeps on one device: bytes per token, the window in tokens (None: all), or bytes per request."""

    token_bytes: int
    window: int | None = None
    state_bytes: int = 0


def cached_layers(
    layers: Sequence[Layer],
    element_bytes: float,
    tensor_parallel: int,
    state_element_bytes: float,
    index_bytes: Callable[[int], float] | None = None,
) -> tuple[CachedLayer, ...]:
    """On each of `tensor_parallel` devices; layers that keep nothing of their own are left out. Heads are divided, at
    least one per device; latent and compressed vectors and keys of indexers are not. `index_bytes`: of an indexer's key
    by its length, None: as all other elements."""
    sized = index_bytes or (lambda length: length * element_bytes)
    found = []
    for layer in layers:
        attention = layer.attention if isinstance(layer, Paired) else layer
        state = layer.state if isinstance(layer, Paired) else layer
        if isinstance(attention, KeyValues):
            heads = -(-attention.num_kv_heads // tensor_parallel)
            size = heads * (attention.key_dim + attention.value_dim) * element_bytes + sized(
                attention.index_dim
            )
            found.append(CachedLayer(math.ceil(size), attention.window))
        elif isinstance(attention, Latent):
            size = (attention.rank + attention.rope_dim) * element_bytes + sized(attention.index_dim)
            found.append(CachedLayer(math.ceil(size)))
        elif isinstance(attention, Compressed):
            found.append(CachedLayer(math.ceil(attention.key_dim * element_bytes), attention.window))
            size = attention.key_dim * element_bytes + sized(attention.index_dim)
            found.append(CachedLayer(math.ceil(size / attention.rate)))
        if isinstance(state, RunningState):
            elements = state.state_elements + state.conv_elements
            found.append(CachedLayer(0, None, math.ceil(elements * state_element_bytes / tensor_parallel)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a request's page table: a page of `page_tokens` tokens costs `page_bytes`."""

    page_tokens: int
    page_bytes: int
    window: int | None = None
    extra_pages: int = 0
    """Pages that a window may need because it does not begin at a page's start."""

    def pages(self, num_tokens: int, in_flight: int) -> int:
        """Of a request of `num_tokens`; `in_flight` tokens may be on their way before what a window left is freed."""
        if self.window is None:
            return -(-num_tokens // self.page_tokens)
        kept = min(self.window - 1 + in_flight, num_tokens)
        return -(-kept // self.page_tokens) + self.extra_pages


@dataclass(frozen=True, slots=True)
class Pool:
    """A cache of pages. `unit` is what it is cut into (1: it is not cut); `in_flight` as in `Group.pages`."""

    groups: tuple[Group, ...]
    state_bytes: int = 0
    unit: int = 1
    in_flight: int = 0

    def request_bytes(self, num_tokens: int) -> int:
        pages = sum(group.pages(num_tokens, self.in_flight) * group.page_bytes for group in self.groups)
        return pages + self.state_bytes

    def num_requests(self, cache_bytes: int, num_tokens: int) -> int:
        """Requests of `num_tokens` each that fit at the same time."""
        whole = max(0, cache_bytes) // self.unit * self.unit
        return whole // max(1, self.request_bytes(num_tokens))

    def num_tokens(self, cache_bytes: int, request_tokens: int) -> int:
        """Tokens that the cache holds when every request has `request_tokens`."""
        whole = max(0, cache_bytes) // self.unit * self.unit
        return int(whole / max(1, self.request_bytes(request_tokens)) * request_tokens)

    @property
    def token_bytes(self) -> float:
        """Of one more token of a long request: layers with windows and states add nothing."""
        return sum(group.page_bytes / group.page_tokens for group in self.groups if group.window is None)


def plain_pool(layers: Sequence[CachedLayer], page_tokens: int, keeps_windows: bool, in_flight: int) -> Pool:
    """Every layer with pages of the same number of tokens; windows are kept as such or counted like all others."""
    whole = sum(layer.token_bytes for layer in layers if layer.window is None or not keeps_windows)
    windows = sorted({layer.window for layer in layers if layer.window is not None}) if keeps_windows else []
    groups = [Group(page_tokens, whole * page_tokens)] if whole else []
    for window in windows:
        size = sum(layer.token_bytes for layer in layers if layer.window == window)
        groups.append(Group(page_tokens, size * page_tokens, window, extra_pages=1 if page_tokens > 1 else 0))
    return Pool(tuple(groups), sum(layer.state_bytes for layer in layers), in_flight=in_flight)
