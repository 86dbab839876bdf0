"""What a round cost, as one `RoundCost`, and each decoding request's share of it by its rows."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.core.cost import RoundCost
from draftproof.engine.judging import Judgement
from draftproof.engine.request import StreamEvent
from draftproof.engine.scheduler import Scheduled


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Seconds: the whole round, the part inside proposers, and the forward pass with sampling and verdicts."""

    round_s: float
    draft_s: float
    pass_s: float


def round_cost(
    scheduled: list[Scheduled], judgements: list[Judgement], events: list[StreamEvent], times: RoundTimes
) -> RoundCost:
    """`events` and `judgements` are those of the sampling sequences, in the order of `scheduled`."""
    decoding = [item for item in scheduled if item.decodes]
    num_proposed = sum(judged.num_proposed for judged in judgements)
    num_decode_rows = len(decoding) + num_proposed
    num_prefill_rows = sum(item.num_rows for item in scheduled) - len(decoding)
    share = num_decode_rows / (num_decode_rows + num_prefill_rows)
    sampling = [item for item in scheduled if item.samples]
    return RoundCost(
        draft_s=times.draft_s,
        verify_s=times.pass_s * share,
        prefill_s=times.pass_s * (1 - share),
        coordination_s=max(0.0, times.round_s - times.draft_s - times.pass_s),
        proposed=num_proposed,
        accepted=sum(len(event.draft.accepted) for event in events if event.draft is not None),
        emitted=sum(
            len(event.token_ids) for item, event in zip(sampling, events, strict=True) if item.decodes
        ),
        num_decode_rows=num_decode_rows,
        num_prefill_rows=num_prefill_rows,
        batch=len(decoding),
        context=sum(item.sequence.num_computed for item in decoding) / max(1, len(decoding)),
    )


def share_cost(cost: RoundCost, scheduled: list[Scheduled], judgements: list[Judgement]) -> None:
    """Adds to each decoding request's counters its part of the round's times.

    The pass is shared by rows, coordination evenly, drafting evenly among the requests that had a draft budget.
    """
    decoding = [
        (item, j)
        for item, j in zip((s for s in scheduled if s.samples), judgements, strict=True)
        if item.decodes
    ]
    num_drafting = sum(item.budget > 0 for item, _ in decoding)
    for item, judged in decoding:
        stats = item.sequence.stats
        stats.verify_s += cost.verify_s * (1 + judged.num_proposed) / cost.num_decode_rows
        stats.coordination_s += cost.coordination_s / len(decoding)
        if item.budget > 0:
            stats.draft_s += cost.draft_s / num_drafting
