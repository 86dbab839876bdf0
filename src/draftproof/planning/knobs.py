"""What can be turned when memory is short: each setting's bytes for the cache, and its price.

Called by the command. Nothing here is free: what gains bytes costs concurrency, speed, acceptance or accuracy, and the
price is said beside the gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial

from draftproof.planning.memory import plan_memory, without_speculation
from draftproof.planning.passes import DEFAULT_DRAFT_GRAPHS, DEFAULT_GRAPHS
from draftproof.planning.setup import Setup
from draftproof.planning.stages import cut_by_engine


@dataclass(frozen=True, slots=True)
class Knob:
    """`change` in words, `flag` as the engine writes it, `gained` bytes for the cache (they may be negative for
    settings whose gain is a request's own size), requests at the asked context before and after."""

    name: str
    flag: str
    change: str
    gained: int
    before: int
    after: int
    price: str


class Price(IntEnum):
    """Classes of prices, from the least on."""

    SPEED = 1
    ACCEPTANCE = 2
    CONCURRENCY = 3
    ANSWERS = 4
    DEVICES = 5


@dataclass(frozen=True, slots=True)
class Turn:
    """One setting turned: what a `Knob` says of it, and the setup that comes of it."""

    name: str
    change: str
    price: str
    cost: Price
    turned: Callable[[Setup], Setup]


NO_SPECULATION = "no speculation"


def knobs(setup: Setup, context: int) -> tuple[Knob, ...]:
    """Every setting that this engine has and that says something for this configuration."""
    base = plan_memory(setup, context)
    before = base.requests(context)
    found = []
    for turn in [*(() if before else _to_fit(setup, context)), *turns(setup)]:
        after = plan_memory(turn.turned(setup), context)
        gained = after.cache_bytes - base.cache_bytes
        saved = (base.request_bytes(context) - after.request_bytes(context)) * max(before, 1)
        found.append(
            Knob(
                turn.name,
                flag_of(setup, turn),
                turn.change,
                gained + saved,
                before,
                after.requests(context),
                turn.price,
            )
        )
    return tuple(found)


def flag_of(setup: Setup, turn: Turn) -> str:
    return "leave the method out" if turn.name == NO_SPECULATION else setup.rules.knobs[turn.name]


def turns(setup: Setup) -> list[Turn]:
    """Those of the same devices and the same weights of the target that the engine has, a step each."""
    found = [*_reservation(setup), *_passes(setup), *_drafts(setup), *_types(setup)]
    if setup.method != "none":
        found.append(
            Turn(
                NO_SPECULATION,
                f"{setup.method} to none",
                "the speed-up, where there is one",
                Price.CONCURRENCY,
                without_speculation,
            )
        )
    return [turn for turn in found if turn.name == NO_SPECULATION or turn.name in setup.rules.knobs]


def _to_fit(setup: Setup, context: int) -> Iterator[Turn]:
    """Where not one request fits: the fewest devices, and the most bits of the target's weights, that make room."""

    def first(options: Sequence[Turn]) -> Turn | None:
        return next((turn for turn in options if plan_memory(turn.turned(setup)).requests(context)), None)

    yield from (turn for options in devices(setup) if (turn := first(options)) is not None)
    if bits := target_weights(setup):
        yield first(bits) or bits[-1]


def devices(setup: Setup) -> list[list[Turn]]:
    """More devices, from the fewest on: in each layer, and in stages."""
    shared = [
        Turn(
            "tensor parallelism",
            f"{setup.tensor_parallel} to {num} devices",
            "more devices, which wait for each other in every layer",
            Price.DEVICES,
            partial(_shared, devices=num),
        )
        for num in _degrees(setup)
    ]
    cut = [
        Turn(
            "pipeline parallelism",
            f"{setup.num_stages} to {num} stages",
            "more devices, of which one request uses one at a time; few methods draft with it",
            Price.DEVICES,
            partial(_cut, num_stages=num),
        )
        for num in _more_stages(setup)
    ]
    return [options for options in (shared, cut) if options and options[0].name in setup.rules.knobs]


def target_weights(setup: Setup) -> list[Turn]:
    """Fewer bits of the target's floats."""
    if not setup.target.weights.float_elements or "target weights" not in setup.rules.knobs:
        return []
    return [
        Turn(
            "target weights",
            f"floats to {bits:g} bits per weight",
            "answers change: test quality, and acceptance, again",
            Price.ANSWERS,
            partial(_rounded, bits=bits),
        )
        for bits in (8, 4.5)
    ]


def _degrees(setup: Setup) -> Iterator[int]:
    """Of tensor parallelism beyond today's, up to 64 times as many devices, that divide the attention heads."""
    doubled = (setup.tensor_parallel << step for step in range(1, 7))
    return (devices for devices in doubled if setup.target.num_heads % devices == 0)


def _more_stages(setup: Setup) -> range:
    """Beyond today's, up to 16 times as many; none where somebody cut otherwise than the engine."""
    num, shape = setup.num_stages, setup.target
    if setup.rules.stages is None or (setup.cuts and setup.cuts != cut_by_engine(setup.rules, shape, num)):
        return range(0)
    return range(num + 1, min(16 * num, shape.num_layers // shape.sublayers) + 1)


def _cut(now: Setup, num_stages: int) -> Setup:
    return replace(now, cuts=cut_by_engine(now.rules, now.target, num_stages))


def _shared(now: Setup, devices: int) -> Setup:
    drafts = devices if now.draft_tensor_parallel == now.tensor_parallel else now.draft_tensor_parallel
    return replace(now, tensor_parallel=devices, draft_tensor_parallel=drafts)


def _rounded(now: Setup, bits: float) -> Setup:
    parts = now.parts
    return replace(
        now,
        target=replace(now.target, weights=now.target.weights.rounded(bits)),
        parts=None if parts is None else lambda: parts().rounded(bits),
    )


def _reservation(setup: Setup) -> list[Turn]:
    fraction = setup.used_fraction
    if fraction is None or fraction > 0.96:
        return []
    more = round(min(0.98, fraction + 0.03), 2)
    price = "less room for peaks: passes that need more than planned run out of memory"
    return [
        Turn(
            "memory reservation",
            f"{fraction:g} to {more:g}",
            price,
            Price.SPEED,
            lambda now: replace(now, fraction=more),
        )
    ]


def _passes(setup: Setup) -> list[Turn]:
    found = []
    if setup.max_num_seqs > 1:
        half = max(1, setup.max_num_seqs // 2)
        found.append(
            Turn(
                "concurrent requests",
                f"{setup.max_num_seqs} to {half}",
                f"at most {half} requests run at once: throughput under load falls, others wait. A price, not a gain",
                Price.CONCURRENCY,
                lambda now: replace(now, max_num_seqs=half),
            )
        )
    fewer = max(256, setup.max_batched_tokens // 2)
    if fewer < setup.max_batched_tokens and setup.allowances.activations is None:
        found.append(
            Turn(
                "largest pass",
                f"{setup.max_batched_tokens} to {fewer} tokens",
                "long prompts take more passes: later first tokens",
                Price.SPEED,
                lambda now: replace(now, max_batched_tokens=fewer),
            )
        )
    given = setup.allowances.graphs
    graphs = given if given is not None else DEFAULT_GRAPHS + (DEFAULT_DRAFT_GRAPHS if setup.drafter else 0)
    if graphs:
        found.append(
            Turn(
                "graph capture sizes",
                "half of the graphs (assumed: half of their bytes)",
                "batches above the largest captured size run without a graph, slower per step",
                Price.SPEED,
                lambda now: replace(now, allowances=replace(now.allowances, graphs=graphs // 2)),
            )
        )
    return found


def _drafts(setup: Setup) -> list[Turn]:
    found = []
    if setup.levels > 1:
        found.append(
            Turn(
                "draft depth",
                f"{setup.levels} to {setup.levels - 1}"
                + (" levels of the tree" if setup.branching > 1 else ""),
                "fewer accepted tokens per round",
                Price.ACCEPTANCE,
                _one_level_less,
            )
        )
    if setup.is_probabilistic:
        found.append(
            Turn(
                "draft sampling",
                "probabilistic to greedy",
                "drafts of the best token alone: fewer are accepted at high temperature",
                Price.ACCEPTANCE,
                lambda now: replace(now, is_probabilistic=False),
            )
        )
    if setup.drafter is not None and setup.drafter.layers and setup.draft_window is None:
        found.append(
            Turn(
                "draft window",
                "2048 tokens",
                "the drafter forgets what is further back: acceptance may fall in long texts",
                Price.ACCEPTANCE,
                lambda now: replace(now, draft_window=2048),
            )
        )
    return found


def _one_level_less(now: Setup) -> Setup:
    less = now.levels - 1
    return replace(now, levels=less, draft_tokens=max(less, round(now.draft_tokens * less / now.levels)))


def _types(setup: Setup) -> list[Turn]:
    found = []
    smaller = {4: 2, 2: 1}.get(round(setup.kv_bytes))
    if smaller is not None and not (setup.rules.name == "draftproof" and smaller < 2):
        shared = setup.draft_kv_bytes == setup.kv_bytes

        def fewer(now: Setup) -> Setup:
            return replace(now, kv_bytes=smaller, draft_kv_bytes=smaller if shared else now.draft_kv_bytes)

        found.append(
            Turn(
                "cache dtype",
                f"{8 * setup.kv_bytes:g} to {8 * smaller} bits per element",
                "answers change: test quality and acceptance again; not every attention kernel has it",
                Price.ANSWERS,
                fewer,
            )
        )
    if setup.drafter is not None and setup.drafter.layers and setup.draft_kv_bytes > 1:
        found.append(
            Turn(
                "draft cache dtype",
                f"{8 * setup.draft_kv_bytes:g} to 8 bits per element",
                "acceptance may fall; answers do not change",
                Price.ACCEPTANCE,
                lambda now: replace(now, draft_kv_bytes=1),
            )
        )
    if setup.drafter is not None and setup.draft_weight_bits is None and setup.drafter.weights.float_elements:
        found.append(
            Turn(
                "draft weights",
                "to 4.5 bits per weight",
                "acceptance falls a little; answers do not change",
                Price.ACCEPTANCE,
                lambda now: replace(now, draft_weight_bits=4.5),
            )
        )
    return found
