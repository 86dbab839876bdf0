"""Runs the same requests plainly and speculatively, and measures both from outside the engine.

Called by the demo. Takes any engine with the members below; knows nothing of models, proposers or PyTorch.
A stop-watch around `step()` gives the wall time of every round; the engine's `RoundCost` says how it divides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from draftproof.core.cost import RoundCost, SpeculationStats


class SteppingEngine(Protocol):
    """What measuring needs of an engine. Requests and events are the engine's own types."""

    def add_request(self, request: Any) -> None: ...

    @property
    def has_work(self) -> bool: ...

    def step(self) -> Sequence[Any]: ...

    def take_round_costs(self) -> Sequence[RoundCost]: ...


@dataclass(slots=True)
class RequestRecord:
    """What one measured request did: the raw record behind every number of a report.

    num_decoded   tokens after the first emission (the first comes out of the prompt's last pass)
    decode_s      wall time of the rounds in which the request decoded, less the share of other prompts' rows
    """

    prompt: str
    language: str
    arm: str
    concurrency: int
    order: int
    token_ids: list[int] = field(default_factory=list)
    num_prompt_tokens: int = 0
    num_decoded: int = 0
    decode_s: float = 0.0
    finish_reason: str = ""
    stats: SpeculationStats = field(default_factory=SpeculationStats)


@dataclass(slots=True)
class DecodeTotals:
    """Sums over the rounds in which a request decoded. Times in seconds; prompt rows are left out."""

    rounds: int = 0
    emitted: int = 0
    wall_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0

    @property
    def coordination_s(self) -> float:
        """All of the wall time that was neither drafting nor the pass, so that no time is lost."""
        return max(0.0, self.wall_s - self.draft_s - self.verify_s)

    @property
    def s_per_token(self) -> float | None:
        """Wall time per decoded token of all requests together; None where none was decoded."""
        return self.wall_s / self.emitted if self.emitted else None

    @classmethod
    def sum(cls, parts: Iterable[DecodeTotals]) -> DecodeTotals:
        totals = cls()
        for part in parts:
            totals.add(part)
        return totals

    def add(self, other: DecodeTotals) -> None:
        self.rounds += other.rounds
        self.emitted += other.emitted
        self.wall_s += other.wall_s
        self.draft_s += other.draft_s
        self.verify_s += other.verify_s


def run_block(
    engine: SteppingEngine,
    requests: Sequence[Any],
    records: Sequence[RequestRecord],
    clock: Callable[[], float] = time.perf_counter,
) -> DecodeTotals:
    """Runs `requests` at the same time to their ends and fills `records`, one per request, in that order."""
    by_id = {request.req_id: record for request, record in zip(requests, records, strict=True)}
    for request in requests:
        engine.add_request(request)
    engine.take_round_costs()
    totals = DecodeTotals()
    while engine.has_work:
        decoding = [record for record in by_id.values() if record.token_ids and not record.finish_reason]
        start = clock()
        events = engine.step()
        wall_s = clock() - start
        costs = engine.take_round_costs()
        decode_s = max(0.0, wall_s - sum(cost.prefill_s for cost in costs))
        for record in decoding:
            record.decode_s += decode_s
        emitted = sum(_note_event(event, by_id[event.req_id]) for event in events)
        if decoding:
            draft_s, verify_s = sum(cost.draft_s for cost in costs), sum(cost.verify_s for cost in costs)
            totals.add(DecodeTotals(1, emitted, decode_s, draft_s, verify_s))
    return totals


def _note_event(event: Any, record: RequestRecord) -> int:
    """Adds an event to its request's record; returns how many decoded tokens it brought."""
    num_decoded = len(event.token_ids) if record.token_ids else 0
    record.token_ids.extend(event.token_ids)
    record.num_decoded += num_decoded
    if event.finished is not None:
        record.finish_reason = event.finished.finish_reason
        record.stats = event.finished.stats
    return num_decoded
