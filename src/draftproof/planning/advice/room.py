"""Whether a step fits into the memory that was named, and what it costs in requests at the same time.

Called by `advising` where a device's memory and the target's files are at hand. The engines' division of memory is
`planning.memory`'s; here it is asked twice, with and without speculation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from draftproof.checkpoints.view import CheckpointView
from draftproof.configs.speculation import Speculation
from draftproof.core.errors import DraftproofError
from draftproof.planning.advice.ask import Ask
from draftproof.planning.advice.facts import Facts
from draftproof.planning.advice.judged import describe
from draftproof.planning.advice.step import Capacity, Claim, Standing, Step
from draftproof.planning.assemble import Wish, assemble
from draftproof.planning.engines import RULES
from draftproof.planning.memory import MemoryPlan, plan_memory, without_speculation

_DEFAULT_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class Room:
    """The plan without speculation, for requests of `context` tokens."""

    plain: MemoryPlan
    context: int

    @property
    def requests(self) -> int:
        return self.plain.requests(self.context)


def measure_room(ask: Ask, facts: Facts) -> tuple[Room | None, str | None]:
    """The room that plain decoding has, or in words why that is not known; (None, None) where none was asked for."""
    if ask.memory is None:
        return None, None
    if ask.view is None or facts.geometry is None:
        return None, "Memory was not planned: the target's files are not at hand, or its sizes are not known."
    if ask.engine not in RULES:
        return None, f"Memory was not planned: how {ask.engine} divides it is not known to this version."
    try:
        plan = _plan(ask, ask.view, Speculation())
    except DraftproofError as error:
        return None, f"Memory was not planned: {error.field}: {error.found} ({error.code})."
    longest = facts.geometry.context_length or _DEFAULT_CONTEXT
    return Room(plan, ask.context or min(longest, _DEFAULT_CONTEXT)), None


def too_small(ask: Ask, room: Room | None) -> Claim | None:
    """Said before all else where not even plain decoding fits."""
    if room is None or room.requests:
        return None
    held = sum(item.num_bytes for item in room.plain.items)
    return Claim(
        f"On {_gib(ask.memory or 0)} not one request of {room.context} tokens fits, without any speculation: "
        f"{_gib(held)} are held before the cache ({room.plain.setup.rules.title}). Take more memory, fewer bits, or a "
        "shorter context first."
    )


def too_few(ask: Ask, room: Room | None) -> Claim | None:
    """Said where plain decoding holds fewer requests than are asked for."""
    if room is None or ask.concurrency is None or not 0 < room.requests < ask.concurrency:
        return None
    return Claim(
        f"On {_gib(ask.memory or 0)} {room.requests} requests of {room.context} tokens fit at the same time "
        f"({room.plain.setup.rules.title}), fewer than the {ask.concurrency} that you need, "
        "with or without speculation."
    )


def weigh(ask: Ask, step: Step, room: Room | None) -> Step:
    """`step` with its price in concurrent requests; ruled out where it does not fit."""
    if room is None or not room.requests or step.speculation is None or step.standing is Standing.RULED_OUT:
        return step
    assert ask.view is not None
    if step.speculation.drafter is not None:
        return _by_published_size(ask, step, room)
    try:
        plan = _plan(ask, ask.view, step.speculation)
    except DraftproofError as error:
        if error.code not in ("DP103", "DP104", "DP106", "DP406"):
            raise
        unknown = Claim(f"Its memory was not planned: {error.field}: {error.found} ({error.code}).")
        return replace(step, against=(*step.against, unknown))
    capacity = Capacity(room.context, room.requests, plan.requests(room.context))
    return _priced(ask, step, capacity, plan.setup.rules.title)


def _plan(ask: Ask, view: CheckpointView, speculation: Speculation) -> MemoryPlan:
    def unread(name: str) -> CheckpointView:
        raise DraftproofError("DP401", "drafter", name, "a checkpoint at hand", "Name its directory.")

    assert ask.memory is not None
    deployment = describe(ask, speculation)
    plan = plan_memory(assemble(view, deployment, Wish(memory=ask.memory), unread))
    return plan if speculation.method != "none" else plan_memory(without_speculation(plan.setup))


def _by_published_size(ask: Ask, step: Step, room: Room) -> Step:
    """Of a drafter that was not read its weights alone, by their published count; its cache comes on top."""
    weights = sum(size.num_bytes for size in step.sizes)
    if not weights:
        unknown = Claim("Its memory was not planned: neither its files nor a published size are at hand.")
        return replace(step, against=(*step.against, unknown))
    left = replace(room.plain, cache_bytes=room.plain.cache_bytes - weights)
    missing = "the drafter's cache is not counted, for the drafter was not read"
    capacity = Capacity(room.context, room.requests, left.requests(room.context), missing)
    return _priced(
        ask, step, capacity, f"{room.plain.setup.rules.title}, weights by their published size; {missing}"
    )


def _priced(ask: Ask, step: Step, capacity: Capacity, rules: str) -> Step:
    standing, against = step.standing, list(step.against)
    where = f"on {_gib(ask.memory or 0)} ({rules})"
    if not capacity.with_step:
        standing = Standing.RULED_OUT
        against.insert(0, Claim(f"It leaves no room for one request of {capacity.context} tokens {where}."))
    elif ask.concurrency is not None and capacity.with_step < ask.concurrency <= capacity.plain:
        standing = standing.at_most(Standing.POSSIBLE)
        against.insert(
            0,
            Claim(
                f"It lowers the requests of {capacity.context} tokens that fit from {capacity.plain} to "
                f"{capacity.with_step}, below the {ask.concurrency} that you need, {where}."
            ),
        )
    return replace(step, standing=standing, against=tuple(against), capacity=capacity)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.3g} GiB"
