"""SGLang's adaptive configuration file: batch-size slots with candidate steps, and the schedule that it can say.

A slot's key is the lower bound of the batch sizes that it serves. A slot with one candidate never changes, so a file of
such slots is a schedule by batch size; anything else adapts, and stays SGLang's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from draftproof.configs.reading.node import Node
from draftproof.configs.speculation import BatchRange


def read_slots(node: Node) -> tuple[tuple[BatchRange, ...], Mapping[str, Any] | None]:
    """The schedule that the file says, and the file itself where it says more than that. Raises DP111."""
    members = node.members("the adaptive configuration")
    slots: dict[int, tuple[int, ...]] = {}
    more = False
    for key, entry in members.items():
        if not key.isdecimal() or len(key) > 9:
            more = True
            continue
        inner = entry.members(f"slot {key}")
        steps = inner.get("candidate_steps")
        if steps is None or not isinstance(steps.value, tuple) or not steps.value:
            raise (steps or entry).refused(
                "candidate_steps: a list of whole numbers", "Name the steps to choose from."
            )
        slots[int(key)] = tuple(step.integer("candidate_steps") for step in steps.value)
        if any(step < 0 for step in slots[int(key)]):
            raise steps.refused("candidate_steps of 0 or more", "Correct the value.")
        more = more or any(name != "candidate_steps" for name in inner)
    if not slots:
        raise node.refused('a batch size as key, such as "1"', "Give at least one slot.")
    lows = sorted(slots)
    if more or lows[0] != 1 or any(len(set(steps)) > 1 for steps in slots.values()):
        return (), node.plain()
    highs = [low - 1 for low in lows[1:]] + [None]
    return tuple(
        BatchRange(low=low, high=high, depth=slots[low][0]) for low, high in zip(lows, highs, strict=True)
    ), None


def write_slots(schedule: tuple[BatchRange, ...]) -> str:
    """The file that says `schedule`."""
    slots = {str(part.low): {"candidate_steps": [part.depth]} for part in schedule}
    return json.dumps(slots, indent=2) + "\n"


def write_own(config: Any) -> str:
    return json.dumps(config, indent=2, default=_plain) + "\n"


def _plain(value: object) -> object:
    assert isinstance(value, Mapping)
    return dict(value)
