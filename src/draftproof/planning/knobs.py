"""What can be turned when memory is short: each setting's bytes for the cache, and its price.

Called by the command. Nothing here is free: what gains bytes costs concurrency, speed, acceptance or accuracy, and the
price is said beside the gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from draftproof.planning.memory import plan_memory, without_speculation
from draftproof.planning.passes import DEFAULT_DRAFT_GRAPHS, DEFAULT_GRAPHS
from draftproof.planning.setup import Setup


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


@dataclass(frozen=True, slots=True)
class _Turn:
    name: str
    change: str
    price: str
    turned: Callable[[Setup], Setup]


def knobs(setup: Setup, context: int) -> tuple[Knob, ...]:
    """Every setting that this engine has and that says something for this configuration."""
    base = plan_memory(setup, context)
    before = base.requests(context)
    found = []
    for turn in [*(() if before else _to_fit(setup, context)), *_turns(setup)]:
        flag = setup.rules.knobs.get(turn.name)
        if flag is None:
            continue
        after = plan_memory(turn.turned(setup), context)
        gained = after.cache_bytes - base.cache_bytes
        saved = (base.request_bytes(context) - after.request_bytes(context)) * max(before, 1)
        found.append(
            Knob(turn.name, flag, turn.change, gained + saved, before, after.requests(context), turn.price)
        )
    if setup.method != "none":
        plain = plan_memory(without_speculation(setup), context)
        saved = (base.request_bytes(context) - plain.request_bytes(context)) * max(before, 1)
        found.append(
            Knob(
                "no speculation",
                "leave the method out",
                f"{setup.method} to none",
                plain.cache_bytes - base.cache_bytes + saved,
                before,
                plain.requests(context),
                "the speed-up, where there is one",
            )
        )
    return tuple(found)


def _to_fit(setup: Setup, context: int) -> Iterator[_Turn]:
    """Where not one request fits: the fewest devices, and the most bits of the target's weights, that make room."""
    enough = (n for n in _degrees(setup) if plan_memory(_shared(setup, n)).requests(context))
    devices = next(enough, None)
    if devices is not None:
        yield _Turn(
            "tensor parallelism",
            f"{setup.tensor_parallel} to {devices} devices",
            "more devices, which wait for each other in every layer",
            lambda now: _shared(now, devices),
        )
    num_stages = next(_stages_that_fit(setup, context), None)
    if num_stages is not None:
        yield _Turn(
            "pipeline parallelism",
            f"{setup.num_stages} to {num_stages} stages",
            "more devices, of which one request uses one at a time; few methods draft with it",
            lambda now: _cut(now, num_stages),
        )
    if setup.target.weights.float_elements:
        bits = next((b for b in (8, 4.5) if plan_memory(_rounded(setup, b)).requests(context)), 4.5)
        yield _Turn(
            "target weights",
            f"floats to {bits:g} bits per weight",
            "answers change: test quality, and acceptance, again",
            lambda now: _rounded(now, bits),
        )


def _degrees(setup: Setup) -> Iterator[int]:
    """Of tensor parallelism beyond today's, up to 64 times as many devices, that divide the attention heads."""
    doubled = (setup.tensor_parallel << step for step in range(1, 7))
    return (devices for devices in doubled if setup.target.num_heads % devices == 0)


def _stages_that_fit(setup: Setup, context: int) -> Iterator[int]:
    """Numbers of stages that make room, beyond today's and up to 16 times as many, where nobody cut otherwise."""
    cut = setup.rules.stages
    if cut is None or (setup.cuts and setup.cuts != cut(setup.target.num_layers, setup.num_stages)):
        return
    most = min(16 * setup.num_stages, setup.target.num_layers)
    for num in range(setup.num_stages + 1, most + 1):
        if plan_memory(_cut(setup, num), context).requests(context):
            yield num


def _cut(now: Setup, num_stages: int) -> Setup:
    assert now.rules.stages is not None
    return replace(now, cuts=now.rules.stages(now.target.num_layers, num_stages))


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


def _turns(setup: Setup) -> list[_Turn]:
    return [*_reservation(setup), *_passes(setup), *_drafts(setup), *_types(setup)]


def _reservation(setup: Setup) -> list[_Turn]:
    fraction = setup.used_fraction
    if fraction is None or fraction > 0.96:
        return []
    more = round(min(0.98, fraction + 0.03), 2)
    price = "less room for peaks: passes that need more than planned run out of memory"
    return [
        _Turn(
            "memory reservation", f"{fraction:g} to {more:g}", price, lambda now: replace(now, fraction=more)
        )
    ]


def _passes(setup: Setup) -> list[_Turn]:
    found = []
    if setup.max_num_seqs > 1:
        half = max(1, setup.max_num_seqs // 2)
        found.append(
            _Turn(
                "concurrent requests",
                f"{setup.max_num_seqs} to {half}",
                f"at most {half} requests run at once: throughput under load falls, others wait. A price, not a gain",
                lambda now: replace(now, max_num_seqs=half),
            )
        )
    fewer = max(256, setup.max_batched_tokens // 2)
    if fewer < setup.max_batched_tokens and setup.allowances.activations is None:
        found.append(
            _Turn(
                "largest pass",
                f"{setup.max_batched_tokens} to {fewer} tokens",
                "long prompts take more passes: later first tokens",
                lambda now: replace(now, max_batched_tokens=fewer),
            )
        )
    given = setup.allowances.graphs
    graphs = given if given is not None else DEFAULT_GRAPHS + (DEFAULT_DRAFT_GRAPHS if setup.drafter else 0)
    if graphs:
        found.append(
            _Turn(
                "graph capture sizes",
                "half of the graphs (assumed: half of their bytes)",
                "batches above the largest captured size run without a graph, slower per step",
                lambda now: replace(now, allowances=replace(now.allowances, graphs=graphs // 2)),
            )
        )
    return found


def _drafts(setup: Setup) -> list[_Turn]:
    found = []
    if setup.levels > 1:
        found.append(
            _Turn(
                "draft depth",
                f"{setup.levels} to {setup.levels - 1}"
                + (" levels of the tree" if setup.branching > 1 else ""),
                "fewer accepted tokens per round",
                _one_level_less,
            )
        )
    if setup.is_probabilistic:
        found.append(
            _Turn(
                "draft sampling",
                "probabilistic to greedy",
                "drafts of the best token alone: fewer are accepted at high temperature",
                lambda now: replace(now, is_probabilistic=False),
            )
        )
    if setup.drafter is not None and setup.drafter.layers and setup.draft_window is None:
        found.append(
            _Turn(
                "draft window",
                "2048 tokens",
                "the drafter forgets what is further back: acceptance may fall in long texts",
                lambda now: replace(now, draft_window=2048),
            )
        )
    return found


def _one_level_less(now: Setup) -> Setup:
    less = now.levels - 1
    return replace(now, levels=less, draft_tokens=max(less, round(now.draft_tokens * less / now.levels)))


def _types(setup: Setup) -> list[_Turn]:
    found = []
    smaller = {4: 2, 2: 1}.get(round(setup.kv_bytes))
    if smaller is not None and not (setup.rules.name == "draftproof" and smaller < 2):
        shared = setup.draft_kv_bytes == setup.kv_bytes

        def fewer(now: Setup) -> Setup:
            return replace(now, kv_bytes=smaller, draft_kv_bytes=smaller if shared else now.draft_kv_bytes)

        found.append(
            _Turn(
                "cache dtype",
                f"{8 * setup.kv_bytes:g} to {8 * smaller} bits per element",
                "answers change: test quality and acceptance again; not every attention kernel has it",
                fewer,
            )
        )
    if setup.drafter is not None and setup.drafter.layers and setup.draft_kv_bytes > 1:
        found.append(
            _Turn(
                "draft cache dtype",
                f"{8 * setup.draft_kv_bytes:g} to 8 bits per element",
                "acceptance may fall; answers do not change",
                lambda now: replace(now, draft_kv_bytes=1),
            )
        )
    if setup.drafter is not None and setup.draft_weight_bits is None and setup.drafter.weights.float_elements:
        found.append(
            _Turn(
                "draft weights",
                "to 4.5 bits per weight",
                "acceptance falls a little; answers do not change",
                lambda now: replace(now, draft_weight_bits=4.5),
            )
        )
    return found
