"""The plan of one device's memory: every part with its bytes and how sure it is, and what is left for the cache.

Called by the command, by rules and by advice. An engine's division is data (`planning.engines`); here it is added up,
inverted (the smallest memory, the smallest fraction that works), and asked at several context lengths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from draftproof.checkpoints.weights import Weights
from draftproof.planning.paging import Pool
from draftproof.planning.setup import Certainty, Item, Setup


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of one device.

    items          what is held besides the cache
    cache_bytes    what is left for keys and values of target and drafter; below 0: so much is missing
    spare_bytes    beside an engine's fraction, where that covers weights and cache only: what passes do not need; below
                   0: passes will run out of memory
    lookahead      tokens beyond its own that a request reserves
    """

    setup: Setup
    items: tuple[Item, ...]
    cache_bytes: int
    spare_bytes: int | None
    pool: Pool
    lookahead: int

    @property
    def fits(self) -> bool:
        return self.cache_bytes > 0 and (self.spare_bytes is None or self.spare_bytes >= 0)

    def requests(self, context: int) -> int:
        """Requests of `context` tokens each that the cache holds at the same time, look-ahead included."""
        return self.pool.num_requests(self.cache_bytes, context + self.lookahead) if self.fits else 0

    def request_bytes(self, context: int) -> int:
        return self.pool.request_bytes(context + self.lookahead)

    def capacity_tokens(self, context: int) -> int:
        """Tokens that the cache holds in requests of `context` tokens, as engines print it: without look-ahead."""
        return self.pool.num_tokens(self.cache_bytes, context) if self.fits else 0

    @property
    def total(self) -> int:
        return sum(item.num_bytes for item in self.items) + max(0, self.cache_bytes)


def plan_memory(setup: Setup) -> MemoryPlan:
    """Adds up. Raises DP406 for weights whose type is not known."""
    rules = setup.rules
    weights = weight_items(setup)
    buffers = rules.buffers(setup)
    items = (*weights, *buffers)
    loaded = sum(item.num_bytes for item in weights)
    passes = sum(item.num_bytes for item in buffers)
    fraction, spare = setup.used_fraction, None
    if rules.fraction_covers == "whole":
        cache = setup.memory - loaded - passes
    elif rules.fraction_covers == "all":
        cache = math.floor(setup.memory * (fraction or 1.0)) - loaded - passes
    elif rules.fraction_covers == "free":
        cache = math.floor((setup.memory - loaded - passes) * (fraction or 1.0))
    elif fraction is None:  # the engine reserves for passes and gives the rest to weights and cache
        cache = setup.memory - loaded - passes
    else:
        cache = math.floor(setup.memory * fraction) - loaded
        spare = setup.memory - math.floor(setup.memory * fraction) - passes
    return MemoryPlan(setup, items, cache, spare, rules.pool(setup), rules.lookahead(setup))


def weight_items(setup: Setup) -> tuple[Item, ...]:
    """Weights on the device that holds most: the target's share, and the drafter's."""
    found = [
        _weights("target weights", setup.target.weights, setup, setup.tensor_parallel),
    ]
    if setup.drafter is not None:
        found.append(
            _weights(
                "drafter weights",
                setup.drafter.weights,
                setup,
                setup.draft_tensor_parallel,
                setup.draft_weight_bits,
            )
        )
    return tuple(found)


def _weights(name: str, weights: Weights, setup: Setup, parallel: int, bits: float | None = None) -> Item:
    if bits is not None:
        assert setup.drafter is not None
        size = min(weights.num_bytes(setup.float_bytes), math.ceil(setup.drafter.num_parameters * bits / 8))
        why = f"{setup.drafter.num_parameters} weights at {bits:g} bits"
        certainty = Certainty.ESTIMATE
    else:
        size = weights.num_bytes(setup.float_bytes)
        why = weights.basis
        certainty = Certainty.EXACT if weights.by == "tensors" else Certainty.COMPUTED
    if parallel > 1:
        size, why = (
            -(-size // parallel),
            f"{why}; divided by {parallel} devices, which keep small parts whole",
        )
        certainty = Certainty.ESTIMATE
    return Item(name, size, certainty, why)


def without_speculation(setup: Setup) -> Setup:
    """The same service without drafts. Where an engine lowers its limit of requests under speculation, the limit stays:
    what is compared is memory."""
    return replace(
        setup, method="none", drafter=None, levels=0, draft_tokens=0, branching=1, is_probabilistic=False
    )


@dataclass(frozen=True, slots=True)
class Smallest:
    """The least that works for `requests` requests of `context` tokens.

    fraction   of memory, rounded up to hundredths; None: there is none, or the engine has no such setting
    memory     bytes of a device that would do, at the fraction in use
    most       the largest fraction that leaves room for passes; None: no such bound
    """

    fraction: float | None
    memory: int
    most: float | None


def smallest(setup: Setup, context: int, requests: int) -> Smallest:
    plan = plan_memory(setup)
    cache = plan.pool.bytes_for(requests, context + plan.lookahead)
    loaded = sum(item.num_bytes for item in plan.items if not item.is_dynamic)
    passes = sum(item.num_bytes for item in plan.items if item.is_dynamic)
    covers, used = setup.rules.fraction_covers, setup.used_fraction
    if covers == "whole":
        return Smallest(None, loaded + passes + cache, None)
    if covers == "all":
        needed = loaded + passes + cache
        return Smallest(_hundredths(needed / setup.memory), math.ceil(needed / (used or 1.0)), None)
    if covers == "free":
        free = setup.memory - loaded - passes
        fraction = _hundredths(cache / free) if free > 0 else None
        return Smallest(fraction, loaded + passes + math.ceil(cache / (used or 1.0)), None)
    most = math.floor((1 - passes / setup.memory) * 100) / 100
    least = _hundredths((loaded + cache) / setup.memory)
    works = least is not None and least <= most
    return Smallest(least if works else None, loaded + cache + passes, most)


def _hundredths(fraction: float) -> float | None:
    rounded = math.ceil(round(fraction, 9) * 100) / 100
    return rounded if rounded <= 1 else None


@dataclass(frozen=True, slots=True)
class Point:
    """Requests at the same time at one context length, by memory; engines run no more than their own limit."""

    context: int
    without: int
    speculative: int


def curve(setup: Setup, contexts: Sequence[int]) -> tuple[Point, ...]:
    plain, drafting = plan_memory(without_speculation(setup)), plan_memory(setup)
    return tuple(Point(context, plain.requests(context), drafting.requests(context)) for context in contexts)


def contexts_up_to(longest: int | None, asked: int) -> tuple[int, ...]:
    """Powers of two from 512 to the model's longest context, and the length that was asked for."""
    most = max(longest or 0, asked)
    found = {asked}
    length = 512
    while length <= most:
        found.add(length)
        length *= 2
    if longest is not None:
        found.add(longest)
    return tuple(sorted(found))
