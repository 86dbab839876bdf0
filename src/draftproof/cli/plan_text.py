"""What `draftproof plan` says: a table for people, a document for programs. Called by `plan` alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from draftproof.cli.plan_input import Asked
from draftproof.planning.knobs import Knob, knobs
from draftproof.planning.memory import (
    MemoryPlan,
    Point,
    Smallest,
    plan_memory,
    smallest,
    without_speculation,
)
from draftproof.planning.setup import Certainty, Setup
from draftproof.planning.together import together


def amount(num_bytes: float) -> str:
    """Bytes for people: 3.2 GiB, 412 MiB, 96 KiB."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:.2f} {unit}" if unit == "GiB" else f"{num_bytes / size:.0f} {unit}"
    return f"{num_bytes:.0f} bytes"


def lines(asked: Asked) -> list[str]:
    setup, context = asked.setup, asked.context
    plan, plain = plan_memory(setup, context), plan_memory(without_speculation(setup), context)
    return [
        *_head(asked),
        "",
        *_stages(plan, context),
        *_items(plan),
        "",
        *_cache(asked, plan, plain),
        *_least(asked, plan),
        "",
        *_knob_lines(knobs(setup, context), context),
        *_together_lines(asked, plan),
        *_remarks(asked, plan),
    ]


def _head(asked: Asked) -> list[str]:
    setup = asked.setup
    shape = setup.target
    counted = f"{shape.parameters.total / 1e9:.2f} billion parameters"
    if shape.experts is not None:
        counted += f", {shape.parameters.active / 1e9:.2f} active"
    found = [
        f"{asked.target}: {shape.model_type}, {shape.num_layers} layers, {counted} (by {shape.parameters_by})",
    ]
    if setup.method != "none":
        drafter = f", drafter {setup.drafter.name}" if setup.drafter else ", no drafter with weights"
        draft = f"{setup.draft_tokens} draft tokens"
        if setup.branching > 1:
            draft += f" in {setup.levels} levels"
        found.append(f"speculation: {setup.method}, {draft}{drafter}")
    num_devices = setup.tensor_parallel * setup.num_stages
    parallel = f", {num_devices} devices" if num_devices > 1 else ""
    parallel += f" in {setup.num_stages} stages" if setup.num_stages > 1 else ""
    found.append(
        f"{setup.rules.title} (rules read from {setup.rules.read_version}), {amount(setup.memory)} per device"
        f"{parallel}, at most {setup.max_num_seqs} requests at once"
    )
    return found


def _stages(plan: MemoryPlan, context: int) -> list[str]:
    """A line for each stage of a pipeline, and of which one the parts are shown."""
    if not plan.others:
        return []
    found, first = [], 0
    for own, num in zip(plan.stages, plan.setup.cuts, strict=True):
        weights = amount(sum(item.num_bytes for item in own.items if not item.is_dynamic))
        cache = "nothing" if own.cache_bytes <= 0 else amount(own.cache_bytes)
        held = replace(own, others=()).requests(context)
        layers = f"layers {first} to {first + num - 1}" if num else "no layers"
        found.append(
            f"  stage {_number(own)}: {layers}, {weights} of weights, {cache} for the cache: {held} requests"
        )
        first += num
    return [*found, "", f"  a device of stage {_number(plan)}, which holds the fewest:"]


def _number(plan: MemoryPlan) -> int:
    return 1 + (plan.setup.stage.index if plan.setup.stage else 0)


def _items(plan: MemoryPlan) -> list[str]:
    names = [item.name for item in plan.items]
    width = max(map(len, [*names, "left for the cache"]))
    found = [
        f"  {item.name.ljust(width)}  {amount(item.num_bytes):>10}  {item.certainty.value:<10}  {item.why}"
        for item in plan.items
    ]
    fraction = plan.setup.used_fraction
    of = f"inside a fraction of {fraction:g}" if fraction is not None else "what is left"
    cache = "nothing" if plan.cache_bytes <= 0 else amount(plan.cache_bytes)
    found.append(f"  {'left for the cache'.ljust(width)}  {cache:>10}  {'':<10}  {of}")
    if plan.cache_bytes <= 0:
        found.append(f"  {amount(-plan.cache_bytes)} are missing before a single token is cached")
    if plan.spare_bytes is not None and plan.spare_bytes < 0:
        found.append(f"  passes need {amount(-plan.spare_bytes)} more than the fraction leaves")
    return found


def _cache(asked: Asked, plan: MemoryPlan, plain: MemoryPlan) -> list[str]:
    setup, context = asked.setup, asked.context
    where = " on this stage" if plan.others else ""
    found = [f"  one more token takes {amount(plan.pool.token_bytes)} of cache{where}"]
    if setup.method != "none":
        found[0] += f", {amount(plain.pool.token_bytes)} without speculation"
        found[0] += f"; {plan.lookahead} tokens per request are reserved for drafts" if plan.lookahead else ""
    found.append(f"  the cache holds {plan.capacity_tokens(context):,} tokens in requests of {context:,}")
    limit = "" if plan.requests(context) <= setup.max_num_seqs else f" (the engine runs {setup.max_num_seqs})"
    longest = setup.target.context_length
    beyond = f" (beyond the model's {longest:,} positions)" if _too_long(asked) else ""
    found.append(f"  requests of {context:,} tokens at once: {plan.requests(context)}{limit}{beyond}")
    if setup.method != "none":
        before = plain.requests(context)
        lost = before - plan.requests(context)
        share = f", {lost / before:.0%} fewer" if before and lost > 0 else ""
        found.append(f"  without speculation: {before}{share}")
    return found


def _least(asked: Asked, plan: MemoryPlan) -> list[str]:
    wanted = asked.concurrency or 1
    found = smallest(asked.setup, asked.context, wanted)
    what = f"{wanted} request{'s' if wanted > 1 else ''} of {asked.context:,} tokens"
    if found.memory is None:
        return [f"  a fraction of {asked.setup.used_fraction:g} leaves no room for passes on any device"]
    works = plan.requests(asked.context) >= wanted
    if plan.setup.rules.fraction_covers == "whole" or (found.fraction is None and works):
        return [f"  smallest memory for {what}: {amount(found.memory)}"]
    if found.fraction is None:
        said = (
            f"  no fraction of {amount(asked.setup.memory)} works for {what}: {amount(found.memory)} would do"
        )
        return [said]
    bound = f" (at most {found.most:g}, or passes run out)" if found.most is not None else ""
    return [f"  smallest fraction that works for {what}: {found.fraction:g}{bound}"]


def _knob_lines(found: Sequence[Knob], context: int) -> list[str]:
    if not found:
        return []
    lines = [f"what can be turned (bytes for the cache; requests of {context:,} tokens; what it costs)"]
    helping = [knob for knob in found if knob.before or knob.after]
    if not helping:
        lines.append(f"  no single setting makes room for a request of {context:,} tokens")
    for knob in helping or found:
        gain = ("+" if knob.gained >= 0 else "-") + amount(abs(knob.gained))
        lines.append(f"  {knob.name}: {knob.change}  {gain}, {knob.before} to {knob.after}  [{knob.flag}]")
        lines.append(f"      price: {knob.price}")
    return lines


def _together_lines(asked: Asked, plan: MemoryPlan) -> list[str]:
    """What makes room where no single setting on the same devices does, in order of price."""
    setup, context = asked.setup, asked.context
    if plan.requests(context):
        return []
    found = together(setup, context)
    lines = (
        ["", f"what makes room for a request of {context:,} tokens, the least dear first"] if found else []
    )
    for number, combination in enumerate(found, start=1):
        for place, part in enumerate(combination.parts):
            lead = f"{number}. " if place == 0 else "   "
            lines.append(f"  {lead}{part.name}: {part.change}  [{part.flag}]")
            lines.append(f"       price: {part.price}")
        lines.append(f"     requests then: {combination.requests}")
    if not found and not any(knob.after for knob in knobs(setup, context)):
        lines.append("  nor do all of these together, or more devices with them")
    return lines


def _remarks(asked: Asked, plan: MemoryPlan) -> list[str]:
    notes = [*plan.setup.rules.warnings(plan.setup), *plan.setup.rules.unknowns]
    if asked.version_note:
        notes.insert(0, asked.version_note)
    assumed = [item for item in plan.items if item.certainty is Certainty.ASSUMPTION]
    if assumed:
        names = ", ".join(f"{item.name} {amount(item.num_bytes)}" for item in assumed)
        notes.append(
            f"assumed, not known: {names} (--runtime-bytes, --graph-bytes, --activation-bytes set them)"
        )
    notes[:0] = _too_long(asked)
    return ["", "to know:", *(f"  {note}" for note in notes)] if notes else []


def _too_long(asked: Asked) -> list[str]:
    longest = asked.setup.target.context_length
    if longest is None or asked.context <= longest:
        return []
    return [f"the model was made for {longest:,} tokens; {asked.context:,} are planned"]


def document(asked: Asked, points: Sequence[Point]) -> dict[str, Any]:
    setup, context = asked.setup, asked.context
    plan, plain = plan_memory(setup, context), plan_memory(without_speculation(setup), context)
    least = smallest(setup, context, asked.concurrency or 1)
    return {
        "engine": setup.rules.name,
        "version": asked.version,
        "rules_read_from": setup.rules.read_version,
        "target": {"model": asked.target, **_shape(setup)},
        "speculation": _speculation(setup),
        "memory_bytes": setup.memory,
        "fraction": setup.used_fraction,
        "tensor_parallel": setup.tensor_parallel,
        "pipeline_parallel": setup.num_stages,
        "stages": [
            {
                "num_layers": num,
                "weight_bytes": sum(item.num_bytes for item in own.items if not item.is_dynamic),
                "cache_bytes": own.cache_bytes,
                "requests": replace(own, others=()).requests(context),
            }
            for own, num in zip(plan.stages, setup.cuts or (setup.target.num_layers,), strict=True)
        ],
        "stage": _number(plan),
        "max_num_seqs": setup.max_num_seqs,
        "items": [
            {"name": item.name, "bytes": item.num_bytes, "certainty": item.certainty.value, "why": item.why}
            for item in plan.items
        ],
        "fits": plan.requests(context) >= (asked.concurrency or 1),
        "cache_bytes": plan.cache_bytes,
        "spare_bytes": plan.spare_bytes,
        "context": context,
        "cache_bytes_per_token": plan.pool.token_bytes,
        "cache_bytes_per_request": plan.request_bytes(context),
        "lookahead_tokens": plan.lookahead,
        "kv_token_capacity": plan.capacity_tokens(context),
        "requests": {"without": plain.requests(context), "speculative": plan.requests(context)},
        "curve": [
            {
                "context": point.context,
                "without": point.without,
                "speculative": point.speculative,
                "beyond_model": point.context > (setup.target.context_length or point.context),
            }
            for point in points
        ],
        "smallest": _smallest(least, asked.concurrency or 1),
        "knobs": [
            {
                "name": knob.name,
                "flag": knob.flag,
                "change": knob.change,
                "gained_bytes": knob.gained,
                "requests_before": knob.before,
                "requests_after": knob.after,
                "price": knob.price,
            }
            for knob in knobs(setup, context)
        ],
        "combinations": [
            {
                "settings": [
                    {"name": part.name, "flag": part.flag, "change": part.change, "price": part.price}
                    for part in combination.parts
                ],
                "requests_after": combination.requests,
            }
            for combination in together(setup, context)
        ],
        "warnings": [
            *_too_long(asked),
            *([asked.version_note] if asked.version_note else []),
            *setup.rules.warnings(setup),
        ],
        "unknowns": list(setup.rules.unknowns),
    }


def _smallest(least: Smallest, requests: int) -> dict[str, Any]:
    return {
        "requests": requests,
        "fraction": least.fraction,
        "largest_fraction": least.most,
        "memory_bytes": least.memory,
    }


def _shape(setup: Setup) -> dict[str, Any]:
    shape = setup.target
    return {
        "model_type": shape.model_type,
        "num_layers": shape.num_layers,
        "hidden_size": shape.hidden_size,
        "num_kv_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "context_length": shape.context_length,
        "num_parameters": shape.parameters.total,
        "num_active_parameters": shape.parameters.active,
        "parameters_by": shape.parameters_by,
        "weights_by": shape.weights.by,
    }


def _speculation(setup: Setup) -> dict[str, Any]:
    return {
        "method": setup.method,
        "levels": setup.levels,
        "draft_tokens": setup.draft_tokens,
        "drafter": None
        if setup.drafter is None
        else {
            "name": setup.drafter.name,
            "num_layers": len(setup.drafter.layers),
            "num_parameters": setup.drafter.num_parameters,
        },
    }
