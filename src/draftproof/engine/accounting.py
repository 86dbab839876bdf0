"""What a round cost, as one `RoundCost`, and each decoding request's share of it by its rows."""

from __future__ import annotations

import time
from dataclasses import dataclass

from draftproof.core.cost import RoundCost
from draftproof.engine.judging import Judgement
from draftproof.engine.request import StreamEvent
from draftproof.engine.scheduler import Scheduled


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """When the parts of a round began (`time.perf_counter()`), and when the last judgement was made."""

    start_s: float
    draft_s: float
    verify_s: float
    judged_s: float


def round_cost(
    scheduled: list[Scheduled], judgements: list[Judgement], events: list[StreamEvent], times: RoundTimes
) -> RoundCost:
    decoding = [item for item in scheduled if item.decodes]
    num_proposed = sum(judged.num_proposed for judged in judgements)
    num_decode_rows = len(decoding) + num_proposed
    num_prefill_rows = sum(item.num_rows for item in scheduled) - len(decoding)
    share = num_decode_rows / (num_decode_rows + num_prefill_rows)
    sampling = [item for item in scheduled if item.samples]
    return RoundCost(
        draft_s=times.verify_s - times.draft_s,
        verify_s=(times.judged_s - times.verify_s) * share,
        prefill_s=(times.judged_s - times.verify_s) * (1 - share),
        coordination_s=time.perf_counter() - times.judged_s + times.draft_s - times.start_s,
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
    """Adds to each decoding request's counters its part of the round's times, by rows of the pass."""
    sampling = [item for item in scheduled if item.samples]
    for item, judged in zip(sampling, judgements, strict=True):
        if item.decodes:
            share = (1 + judged.num_proposed) / cost.num_decode_rows
            item.sequence.stats.draft_s += cost.draft_s * share
            item.sequence.stats.verify_s += cost.verify_s * share
            item.sequence.stats.coordination_s += cost.coordination_s * share
