"""Settings that make room together where none does alone: the least dear that works, and pairs.

Called by the command. Bounded: a setting has a few steps, all are turned in order of price until a request fits, and
what is not needed for that is taken back, the dearest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from draftproof.planning.knobs import NO_SPECULATION, Price, Turn, devices, flag_of, target_weights, turns
from draftproof.planning.memory import plan_memory
from draftproof.planning.setup import Setup

_MOST_PAIRS = 2
_LEAST_PASS = 256

Steps = Sequence[Turn]
"""One setting, from the mildest step to the strongest."""


@dataclass(frozen=True, slots=True)
class Part:
    """One setting of several: `change` in words, `flag` as the engine writes it."""

    name: str
    flag: str
    change: str
    price: str


@dataclass(frozen=True, slots=True)
class Combination:
    """Settings that make room together and not without any one of them, and the requests that then fit."""

    parts: tuple[Part, ...]
    requests: int


def together(setup: Setup, context: int) -> tuple[Combination, ...]:
    """Where no single setting on the same devices, as `knobs` shows it, makes room for a request of `context` tokens:
    one that does when it is turned further, else several, in order of price. More devices are among them only where
    nothing else works, and they alone do not: the fewest, with what they need besides."""
    settings = _steps(setup)
    shown = [*(options[0] for options in settings), *target_weights(setup)]
    if _fits(setup, [], context) or any(_fits(setup, [turn], context) for turn in shown):
        return ()
    found = [
        _milder(setup, [options], context) for options in settings if _fits(setup, [options[-1]], context)
    ]
    if not found:
        found = _search(setup, settings, context)
    more = devices(setup)
    if not found and not any(_fits(setup, [turn], context) for options in more for turn in options):
        found = [chosen for options in more if (chosen := _fewest(setup, options, settings, context))]
    return tuple(
        Combination(
            tuple(Part(turn.name, flag_of(setup, turn), turn.change, turn.price) for turn in chosen),
            plan_memory(_turned(setup, chosen)).requests(context),
        )
        for chosen in found
    )


def _search(setup: Setup, settings: Sequence[Steps], context: int) -> list[list[Turn]]:
    """The cheapest that works, and pairs."""
    found = [chosen for chosen in [_cheapest(setup, settings, context)] if chosen]
    for chosen in _pairs(setup, settings, context):
        if len(found) > _MOST_PAIRS:
            break
        if {turn.name for turn in chosen} not in [{turn.name for turn in other} for other in found]:
            found.append(chosen)
    return sorted(found, key=lambda chosen: sorted((turn.cost for turn in chosen), reverse=True))


def _fewest(setup: Setup, more: Steps, settings: Sequence[Steps], context: int) -> list[Turn]:
    for turn in more:
        if chosen := _cheapest(turn.turned(setup), settings, context):
            return [*chosen, turn]
    return []


def _cheapest(setup: Setup, settings: Sequence[Steps], context: int) -> list[Turn]:
    """Turned as far as they go, in order of price, until a request fits; then what is not needed is taken back."""
    chosen: list[Steps] = []
    for options in settings:
        chosen.append(options)
        if _fits(setup, [steps[-1] for steps in chosen], context):
            break
    else:
        return []
    for options in list(reversed(chosen)):
        rest = [steps for steps in chosen if steps is not options]
        if _fits(setup, [steps[-1] for steps in rest], context):
            chosen = rest
    return _milder(setup, chosen, context)


def _pairs(setup: Setup, settings: Sequence[Steps], context: int) -> Iterator[list[Turn]]:
    by_price = sorted(combinations(settings, 2), key=lambda pair: (pair[1][0].cost, pair[0][0].cost))
    for pair in by_price:
        if not _excludes(*pair) and _fits(setup, [options[-1] for options in pair], context):
            yield _milder(setup, pair, context)


def _excludes(one: Steps, other: Steps) -> bool:
    names = sorted((one[0].name, other[0].name), key=lambda name: name != NO_SPECULATION)
    return names[0] == NO_SPECULATION and names[1].startswith("draft")


def _milder(setup: Setup, chosen: Sequence[Steps], context: int) -> list[Turn]:
    """Each only as far as it must, the dearest first."""
    found = [options[-1] for options in chosen]
    for place in reversed(range(len(found))):
        for turn in chosen[place]:
            tried = [*found[:place], turn, *found[place + 1 :]]
            if _fits(setup, tried, context):
                found = tried
                break
    return found


def _fits(setup: Setup, chosen: Sequence[Turn], context: int) -> bool:
    return plan_memory(_turned(setup, chosen)).requests(context) > 0


def _turned(setup: Setup, chosen: Sequence[Turn]) -> Setup:
    """No speculation comes last: settings of drafts ask how many there are."""
    for turn in sorted(chosen, key=lambda turn: turn.name == NO_SPECULATION):
        setup = turn.turned(setup)
    return setup


def _steps(setup: Setup) -> list[Steps]:
    """Settings on the same devices in order of price, each with its strongest step behind the one that is shown
    alone."""
    found: list[Steps] = []
    for turn in turns(setup):
        further = _further(setup, turn)
        found.append([turn] if further is None else [turn, further])
    bits = target_weights(setup)
    return sorted([*found, bits] if bits else found, key=lambda options: options[0].cost)


def _further(setup: Setup, turn: Turn) -> Turn | None:
    if turn.name == "concurrent requests" and setup.max_num_seqs > 2:
        change, price = f"{setup.max_num_seqs} to 1", "one request runs at a time: all others wait"
        return Turn(turn.name, change, price, turn.cost, lambda now: replace(now, max_num_seqs=1))
    if turn.name == "largest pass" and setup.max_batched_tokens > 2 * _LEAST_PASS:
        change = f"{setup.max_batched_tokens} to {_LEAST_PASS} tokens"
        return Turn(
            turn.name, change, turn.price, turn.cost, lambda now: replace(now, max_batched_tokens=_LEAST_PASS)
        )
    if turn.name == "graph capture sizes":
        price = "no graphs: every step is slower"
        return Turn(turn.name, "no graphs", price, Price.SPEED, _without_graphs)
    return None


def _without_graphs(now: Setup) -> Setup:
    return replace(now, allowances=replace(now.allowances, graphs=0))
