"""How requests draw memory from a cache: pages, groups of layers, windows, states.

Made by the engines' rules (`planning.engines`), read by `memory`. Arithmetic of bytes and tokens; no engine's name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftproof.checkpoints.layers import Compressed, KeyValues, Latent, Layer, attention_of, state_of
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
    state_bytes: Callable[[RunningState], float],
    index_bytes: Callable[[int], float] | None = None,
) -> tuple[CachedLayer, ...]:
    """On each of `tensor_parallel` devices; layers that keep nothing of their own are left out. Heads and states are
    divided, at least one head and one group per device; latent and compressed vectors and keys of indexers are not.

    state_bytes   of a device's part of a running state
    index_bytes   of an indexer's key by its length, None: as all other elements
    """
    sized = index_bytes or (lambda length: length * element_bytes)
    found = []
    for layer in layers:
        attention, state = attention_of(layer), state_of(layer)
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
        if state is not None:
            found.append(CachedLayer(0, None, math.ceil(state_bytes(state.on_each(tensor_parallel)))))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a cell holds windows alone: `ratio` times as many tokens as the rest, and of a request no more than
    `held`. Where windows run short first, a request costs as much as a longer one."""

    ratio: float
    held: int

    def tokens(self, num_tokens: int) -> int:
        return max(num_tokens, math.ceil(min(num_tokens, self.held) / self.ratio))


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a request's page table: a page of `page_tokens` tokens costs `page_bytes`."""

    page_tokens: int
    page_bytes: int
    window: int | None = None
    extra_pages: int = 0
    """Pages that a window may need because it does not begin at a page's start."""
    fixed: int | None = None
    """Pages of a request, however long it is: running states."""
    split: Split | None = None

    def pages(self, num_tokens: int, in_flight: int) -> int:
        """Of a request of `num_tokens`; `in_flight` tokens may be on their way before what a window left is freed."""
        if self.fixed is not None:
            return self.fixed
        if self.split is not None:
            num_tokens = self.split.tokens(num_tokens)
        if self.window is None:
            return -(-num_tokens // self.page_tokens)
        kept = min(self.window - 1 + in_flight, num_tokens)
        return -(-kept // self.page_tokens) + self.extra_pages


@dataclass(frozen=True, slots=True)
class States:
    """Running states in a part of the cache of their own: `share` of it, of which `reserved` bytes serve no request."""

    share: float
    reserved: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A cache of pages. `unit` is what it is cut into (1: it is not cut); `in_flight` as in `Group.pages`.
    `state_bytes` of a request lie beside its pages, or in the part that `states` describes. `aside`: bytes that the
    cache holds for all requests together, however many there are; `most`: requests for which that is enough."""

    groups: tuple[Group, ...]
    state_bytes: int = 0
    unit: int = 1
    in_flight: int = 0
    states: States | None = None
    aside: int = 0
    most: int | None = None

    def request_bytes(self, num_tokens: int) -> int:
        """Of the whole cache for one more request; where states have a part of their own, of whichever part it takes
        more."""
        return self.bytes_for(1, num_tokens, reserved=0)

    def bytes_for(self, num_requests: int, num_tokens: int, reserved: int | None = None) -> int:
        """The smallest cache for so many requests of `num_tokens` each."""
        pages = sum(group.pages(num_tokens, self.in_flight) * group.page_bytes for group in self.groups)
        if self.states is None:
            whole = (pages + self.state_bytes) * num_requests
            return whole if reserved is not None else self.aside + -(-whole // self.unit) * self.unit
        unused = self.states.reserved if reserved is None else reserved
        state = (self.state_bytes * num_requests + unused) / self.states.share
        needed = math.ceil(max(pages * num_requests / (1 - self.states.share), state))
        return needed + (self.aside if reserved is None else 0)

    def num_requests(self, cache_bytes: int, num_tokens: int) -> int:
        """Requests of `num_tokens` each that fit at the same time."""
        return int(self.holds(cache_bytes, num_tokens))

    def holds(self, cache_bytes: int, num_tokens: int) -> float:
        """Such requests, with what is left for a part of one more."""
        whole = max(0, cache_bytes - self.aside) // self.unit * self.unit
        if self.states is None:
            fits = whole / max(1, self.request_bytes(num_tokens))
            return fits if self.most is None else min(fits, self.most)
        pages = sum(group.pages(num_tokens, self.in_flight) * group.page_bytes for group in self.groups)
        by_states = max(0.0, whole * self.states.share - self.states.reserved) / max(1, self.state_bytes)
        return min(by_states, whole * (1 - self.states.share) / max(1, pages))

    @property
    def token_bytes(self) -> float:
        """Of one more token of a long request: layers with windows and states add nothing."""
        growing = [group for group in self.groups if group.window is None and group.fixed is None]
        return sum(group.page_bytes / group.page_tokens for group in growing)


def plain_pool(layers: Sequence[CachedLayer], page_tokens: int, keeps_windows: bool, in_flight: int) -> Pool:
    """Every layer with pages of the same number of tokens; windows are kept as such or counted like all others."""
    whole = sum(layer.token_bytes for layer in layers if layer.window is None or not keeps_windows)
    windows = sorted({layer.window for layer in layers if layer.window is not None}) if keeps_windows else []
    groups = [Group(page_tokens, whole * page_tokens)] if whole else []
    for window in windows:
        size = sum(layer.token_bytes for layer in layers if layer.window == window)
        groups.append(Group(page_tokens, size * page_tokens, window, extra_pages=1 if page_tokens > 1 else 0))
    return Pool(tuple(groups), sum(layer.state_bytes for layer in layers), in_flight=in_flight)
