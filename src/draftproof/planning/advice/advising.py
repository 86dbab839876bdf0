"""Puts steps in order for one target, engine, workload and role. Called by `draftproof advise`.

The order follows what is cheapest to be sure of: layers that the checkpoint already has, heads that were made for it,
text that is there anyway, then other models. What stands in the way of all of them comes before all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from draftproof.core.finding import Source
from draftproof.planning.advice.ask import Ask, Role
from draftproof.planning.advice.drafters import propose_draft_models, propose_self
from draftproof.planning.advice.facts import Facts, read_facts
from draftproof.planning.advice.heads import missing_mtp, others, propose_heads, propose_mtp
from draftproof.planning.advice.judged import complete
from draftproof.planning.advice.lookups import propose_look_up, propose_prediction
from draftproof.planning.advice.room import measure_room, too_few, too_small, weigh
from draftproof.planning.advice.step import Advice, Claim, Kind, Standing, Step

_ORDERS: Mapping[Role, tuple[Kind, ...]] = MappingProxyType(
    {
        "operator": ("mtp", "head", "look_up", "prediction", "draft_model", "self"),
        "app": ("prediction", "mtp", "head", "look_up", "draft_model", "self"),
        "hosted": ("prediction", "provider"),
    }
)
_STANDINGS = (Standing.TRY, Standing.POSSIBLE, Standing.RULED_OUT)
BUSY = 32
"""Requests at once from which plain decoding is a serious candidate for throughput; a judgement."""

_COSTS = Source(
    name="vLLM documentation, speculative decoding (for medium to low load); vLLM issues 17984, 19254",
    read="2026-11",
    url="https://docs.vllm.ai/en/latest/features/speculative_decoding/",
)


def advise(ask: Ask) -> Advice:
    """Raises DP402 for broken files, DP112 for a version that the engine's dialect does not know."""
    facts = read_facts(ask.reference, ask.view)
    room, unplanned = measure_room(ask, facts)
    steps = [complete(ask, weigh(ask, step, room)) for step in _proposed(ask, facts)]
    order = _ORDERS[ask.role]
    steps.sort(key=lambda step: (_STANDINGS.index(step.standing), order.index(step.kind)))
    return Advice(
        steps=_with_nothing(ask, steps),
        fix_first=tuple(_fix_first(facts, too_small(ask, room))),
        notes=(*_notes(ask, facts, unplanned), *filter(None, (too_few(ask, room),))),
    )


def _proposed(ask: Ask, facts: Facts) -> Iterator[Step]:
    if ask.role == "hosted":
        from draftproof.planning.advice.hosted import propose_hosted  # a table that others need not wait for

        yield from propose_hosted(ask)
        return
    yield from propose_mtp(ask, facts)
    yield from propose_heads(ask, facts)
    yield from propose_look_up(ask)
    yield from propose_prediction(ask)
    yield from propose_draft_models(ask, facts)
    yield from propose_self(ask, facts)


def _with_nothing(ask: Ask, steps: list[Step]) -> tuple[Step, ...]:
    """Decoding plainly stands behind what is worth a try and before what is not proven."""
    to_try = [step for step in steps if step.standing is Standing.TRY]
    rest = [step for step in steps if step.standing is not Standing.TRY]
    return (*to_try, _nothing(ask, bool(to_try)), *rest)


def _nothing(ask: Ask, has_try: bool) -> Step:
    evidence = [
        Claim("Costs nothing, changes nothing, and is the arm that every measurement is compared with.")
    ]
    against = []
    if (ask.concurrency or 0) >= BUSY:
        evidence.append(
            Claim(
                f"At {ask.concurrency} requests at once a pass is seldom bound by memory any more: verifying drafts "
                "takes time from other requests. Plain decoding, or a schedule that stops drafting, may be best.",
                _COSTS,
            )
        )
    if has_try:
        against.append(
            Claim("There is something above that nothing speaks against. Measure it against this.")
        )
    else:
        evidence.append(
            Claim("Nothing was found here that is both documented for this target and known to fit.")
        )
    title = "Do nothing: leave requests as they are" if ask.role == "hosted" else "Do nothing: decode plainly"
    return Step(
        kind="none",
        title=title,
        standing=Standing.TRY,
        evidence=tuple(evidence),
        against=tuple(against),
    )


def _fix_first(facts: Facts, too_small: Claim | None) -> Iterator[Claim]:
    if too_small is not None:
        yield too_small
    for remark in facts.remarks:
        if "missing" in remark or "pickled" in remark:
            yield Claim(f"The checkpoint is not whole: {remark}.")
    yield from missing_mtp(facts)


def _notes(ask: Ask, facts: Facts, unplanned: str | None) -> Iterator[Claim]:
    if ask.role == "hosted":
        from draftproof.planning.advice.hosted import provider_names

        if ask.engine not in provider_names():
            yield Claim(f"No provider was named (--engine NAME). Known: {', '.join(provider_names())}.")
        return
    if unplanned is not None:
        yield Claim(unplanned)
    if ask.engine_assumed:
        yield Claim(
            f"No engine was named: commands and rules are those of {ask.engine} (--engine ENGINE==VERSION)."
        )
    if ask.unread is not None:
        yield Claim(f"Not read: {ask.unread}. What follows rests on the name and the catalogue alone.")
    elif facts.unknown_shape is not None:
        yield Claim(f"Its sizes are not known: {facts.unknown_shape}. Thresholds and bytes are left out.")
    stock = f"catalogue of {facts.catalogue.date}, {len(facts.catalogue.pairs)} pairs"
    if facts.match.model is None:
        same = facts.match.same_shape
        hint = (
            f" Its shape is that of {', '.join(same)}, which does not say that it is one of them."
            if same
            else ""
        )
        yield Claim(f"No pair is known for this target ({stock}).{hint}")
    left = others(ask, facts)
    if left:
        names = ", ".join(pair.drafter or "" for pair in left)
        yield Claim(
            f"{len(left)} more published heads ({stock}): {names}. `draftproof pairs` shows their sources."
        )
