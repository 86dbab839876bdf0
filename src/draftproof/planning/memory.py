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
from draftproof.planning.stages import per_stage

_LONG = 8192
_BEYOND_EVERY_DEVICE = 2**60


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of one device; of a pipeline, of a device of the stage that holds the fewest requests.

    items          what is held besides the cache
    cache_bytes    what is left for keys and values of target and drafter; below 0: so much is missing
    spare_bytes    beside an engine's fraction, where that covers weights and cache only: what passes do not need; below
                   0: passes will run out of memory
    lookahead      tokens beyond its own that a request reserves
    others         the pipeline's other stages
    """

    setup: Setup
    items: tuple[Item, ...]
    cache_bytes: int
    spare_bytes: int | None
    pool: Pool
    lookahead: int
    others: tuple[MemoryPlan, ...] = ()

    @property
    def stages(self) -> tuple[MemoryPlan, ...]:
        """All stages in order; of a plan without a pipeline the plan alone."""
        return tuple(sorted((self, *self.others), key=lambda plan: _index(plan.setup)))

    @property
    def fits(self) -> bool:
        return all(plan.has_room for plan in (self, *self.others))

    @property
    def has_room(self) -> bool:
        return self.cache_bytes > 0 and (self.spare_bytes is None or self.spare_bytes >= 0)

    def requests(self, context: int) -> int:
        """Requests of `context` tokens each that the cache holds at the same time, look-ahead included."""
        return int(self._holds(context + self.lookahead))

    def request_bytes(self, context: int) -> int:
        return self.pool.request_bytes(context + self.lookahead)

    def capacity_tokens(self, context: int) -> int:
        """Tokens that the cache holds in requests of `context` tokens, as engines print it: without look-ahead."""
        return int(self._holds(context) * context)

    def _holds(self, num_tokens: int) -> float:
        if not self.fits:
            return 0.0
        return min(plan.pool.holds(plan.cache_bytes, num_tokens) for plan in (self, *self.others))

    @property
    def total(self) -> int:
        return sum(item.num_bytes for item in self.items) + max(0, self.cache_bytes)


def _index(setup: Setup) -> int:
    return 0 if setup.stage is None else setup.stage.index


def plan_memory(setup: Setup, context: int = _LONG) -> MemoryPlan:
    """Adds up. Of a pipeline, `context` says for which length of requests the tightest stage is meant. Raises DP406 for
    weights whose type is not known."""
    plans = [_plan_device(own) for own in per_stage(setup)]
    if setup.rules.shares_least:
        least = min(plan.cache_bytes for plan in plans)
        plans = [replace(plan, cache_bytes=least) for plan in plans]
    tightest = min(
        plans,
        key=lambda plan: (plan.has_room, plan.pool.holds(plan.cache_bytes, context), plan.cache_bytes),
    )
    return replace(tightest, others=tuple(plan for plan in plans if plan is not tightest))


def _plan_device(setup: Setup) -> MemoryPlan:
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
        free = setup.memory - loaded - passes
        cache = math.floor(free * (fraction or 1.0)) if free > 0 else free
    elif fraction is None:  # the engine reserves for passes and gives the rest to weights and cache
        cache = setup.memory - loaded - passes
    else:
        cache = math.floor(setup.memory * fraction) - loaded
        spare = setup.memory - math.floor(setup.memory * fraction) - passes
    return MemoryPlan(setup, items, cache, spare, rules.pool(setup), rules.lookahead(setup))


def weight_items(setup: Setup) -> tuple[Item, ...]:
    """Weights on the device that holds most: the target's share, and the drafter's. Where a pipeline's last stage does
    not hold the embedding that a drafter takes from the target, it is there once more."""
    found = [
        _weights("target weights", setup.target.weights, setup, setup.tensor_parallel),
    ]
    if setup.drafter is None or not setup.draws:
        return tuple(found)
    found.append(
        _weights(
            "drafter weights",
            setup.drafter.weights,
            setup,
            setup.draft_tensor_parallel,
            setup.draft_weight_bits,
        )
    )
    if setup.stage is not None and not setup.drafter.has_embedding:
        assert setup.parts is not None
        parts = setup.parts()
        if not parts.is_tied:
            found.append(_weights("drafter's embedding", parts.embedding, setup, setup.draft_tensor_parallel))
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
    memory     bytes of a device that would do, at the fraction in use, with the sizes that the engine chooses there;
               None: at this fraction passes run out of memory on every device
    most       the largest fraction that leaves room for passes; None: no such bound
    """

    fraction: float | None
    memory: int | None
    most: float | None


def smallest(setup: Setup, context: int, requests: int) -> Smallest:
    """Of a pipeline, what every stage has enough with."""
    found = [_least_fraction(plan, context, requests) for plan in _as_loaded(plan_memory(setup).stages)]
    fractions = [least for least, _ in found]
    most = min((bound for _, bound in found if bound is not None), default=None)
    fraction = None if None in fractions else max(each for each in fractions if each is not None)
    if fraction is not None and most is not None and fraction > most:
        fraction = None
    return Smallest(fraction, _least_memory(setup, context, requests), most)


def _as_loaded(stages: Sequence[MemoryPlan]) -> Sequence[MemoryPlan]:
    """Where all give their cache what the stage with the least has left, each is as if it held that stage's parts."""
    if not stages[0].setup.rules.shares_least:
        return stages
    held = max((plan.items for plan in stages), key=lambda items: sum(item.num_bytes for item in items))
    return [replace(plan, items=held) for plan in stages]


def _parts(plan: MemoryPlan, context: int, requests: int) -> tuple[int, int, int]:
    """Bytes of what is loaded, of passes, and of the cache that is wanted."""
    loaded = sum(item.num_bytes for item in plan.items if not item.is_dynamic)
    passes = sum(item.num_bytes for item in plan.items if item.is_dynamic)
    return loaded, passes, plan.pool.bytes_for(requests, context + plan.lookahead)


def _least_fraction(plan: MemoryPlan, context: int, requests: int) -> tuple[float | None, float | None]:
    """The least fraction that works, and the most that leaves room for passes, as in `Smallest`."""
    loaded, passes, cache = _parts(plan, context, requests)
    covers, memory = plan.setup.rules.fraction_covers, plan.setup.memory
    if covers == "whole":
        return None, None
    if covers == "all":
        return _hundredths((loaded + passes + cache) / memory), None
    if covers == "free":
        free = memory - loaded - passes
        return (_hundredths(cache / free) if free > 0 else None), None
    most = math.floor((1 - passes / memory) * 100) / 100
    least = _hundredths((loaded + cache) / memory)
    return (least if least is not None and least <= most else None), most


def _least_memory(setup: Setup, context: int, requests: int) -> int | None:
    """From below, for on a larger device an engine may choose larger passes, too."""
    memory, step = 1, 1
    while memory < _BEYOND_EVERY_DEVICE:
        plan = plan_memory(setup.on(memory), context)
        if plan.requests(context) >= requests:
            return memory
        needed = max(_needed(each, context, requests) for each in _as_loaded(plan.stages))
        memory, step = max(needed, memory + step), 2 * step  # the step outruns what rounding takes away
    return None


def _needed(plan: MemoryPlan, context: int, requests: int) -> int:
    """Bytes of a device on which nothing else is larger than in `plan`."""
    loaded, passes, cache = _parts(plan, context, requests)
    covers, used = plan.setup.rules.fraction_covers, plan.setup.used_fraction
    if covers == "whole" or used is None:
        return loaded + passes + cache
    if covers == "all":
        return math.ceil((loaded + passes + cache) / used)
    if covers == "free":
        return loaded + passes + math.ceil(cache / used)
    return max(math.ceil((loaded + cache) / used), math.ceil(passes / (1 - used)) if used < 1 else 0)


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
