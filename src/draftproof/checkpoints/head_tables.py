"""What an EAGLE-3 head says of itself beside its shapes: tables of its smaller vocabulary, layers that it reads.

Called by rules and, where a head is trained or loaded, by whoever writes one. `d2t` holds for each draft id the offset
to its target id (target = draft + d2t[draft]); `t2d` says for each target id whether the head can draft it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """`tensor`: which table; `found` and `expected` in words."""

    tensor: str
    found: str
    expected: str


def find_faults(
    d2t: Sequence[int], t2d: Sequence[int] | None, num_draft: int | None, num_target: int | None
) -> tuple[Fault, ...]:
    """What is wrong with the tables; sizes are None where they are not known."""
    faults: list[Fault] = []
    if num_draft is not None and len(d2t) != num_draft:
        faults.append(Fault("d2t", f"{len(d2t)} entries", f"{num_draft}, as draft_vocab_size says"))
    ids = [draft_id + offset for draft_id, offset in enumerate(d2t)]
    if t2d is not None:
        faults += _table_faults(d2t, ids, t2d)
    if not faults:
        faults += _id_faults(ids, num_target)
    return tuple(faults)


def _table_faults(d2t: Sequence[int], ids: Sequence[int], t2d: Sequence[int]) -> list[Fault]:
    draftable = [target_id for target_id, flag in enumerate(t2d) if flag]
    if len(draftable) != len(d2t):
        return [Fault("t2d", f"{len(draftable)} tokens can be drafted", f"{len(d2t)}, as many as d2t has")]
    if list(ids) == draftable:
        return []
    if list(d2t) == draftable:
        return [
            Fault("d2t", "target ids themselves", "offsets: target id minus draft id, as today's engines add")
        ]
    at = next(rank for rank, (ours, theirs) in enumerate(zip(ids, draftable, strict=True)) if ours != theirs)
    return [
        Fault("d2t", f"draft id {at} stands for {ids[at]}", f"{draftable[at]}, the token that t2d has there")
    ]


def _id_faults(ids: Sequence[int], num_target: int | None) -> list[Fault]:
    for draft_id, target_id in enumerate(ids):
        if target_id < 0 or (num_target is not None and target_id >= num_target):
            return [
                Fault(
                    "d2t",
                    f"draft id {draft_id} stands for {target_id}",
                    f"an id of the target, below {num_target}"
                    if num_target is not None
                    else "an id of 0 or more",
                )
            ]
        if draft_id and target_id <= ids[draft_id - 1]:
            return [
                Fault(
                    "d2t",
                    f"draft ids {draft_id - 1} and {draft_id} stand for {ids[draft_id - 1]} and {target_id}",
                    "ascending target ids",
                )
            ]
    return []


def captured_layers(config: object) -> tuple[str, tuple[int, ...]] | None:
    """The key under which a head's configuration lists the target's layers that it reads, and the list."""
    if not isinstance(config, dict):
        return None
    for group, key in _LAYER_KEYS:
        inner = config.get(group) if group else config
        found = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(found, list) and found and all(type(layer) is int for layer in found):
            return (f"{group}.{key}" if group else key), tuple(found)
    return next(((key, layers) for key, layers in _gguf_lists(config)), None)


def _gguf_lists(config: dict[str, object]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """`eagle3.target_layers`: a GGUF file names its architecture in the key."""
    for key, found in config.items():
        if (
            key.endswith(".target_layers")
            and isinstance(found, list)
            and all(type(part) is int for part in found)
        ):
            yield key, tuple(found)


_LAYER_KEYS = (
    ("", "eagle_aux_hidden_state_layer_ids"),
    ("eagle_config", "eagle_aux_hidden_state_layer_ids"),
    ("eagle_config", "layer_ids"),
    ("dflash_config", "target_layer_ids"),
    ("dflash_config", "layer_ids"),
    ("", "aux_hidden_state_layer_ids"),
    ("", "target_layer_ids"),
)
