"""The one record of what a round cost. Controller, metrics, reports and `generate --json` read it; no torch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RoundCost:
    """One engine round. Times in seconds of wall clock.

    draft_s         inside proposers, whatever they were asked for (begin, propose, commit, end)
    verify_s        the forward pass, sampling and verdicts, the share of rows that belong to decoding
    prefill_s       the share of the same that belongs to prompt chunks, apportioned by rows
    coordination_s  the rest of the round: scheduling, building inputs, emission, streaming
    proposed        draft tokens put before the target
    accepted        of them accepted *and* emitted (counted after the stop rule)
    emitted         tokens that decoding put into the text, corrections and bonus tokens included; a request's
                    first token comes out of its prompt's pass and is not counted here
    num_decode_rows, num_prefill_rows   rows of the pass
    batch           requests that decoded in this round
    context         mean committed tokens of those requests
    """

    draft_s: float = 0.0
    verify_s: float = 0.0
    prefill_s: float = 0.0
    coordination_s: float = 0.0
    proposed: int = 0
    accepted: int = 0
    emitted: int = 0
    num_decode_rows: int = 0
    num_prefill_rows: int = 0
    batch: int = 0
    context: float = 0.0


@dataclass(slots=True)
class SpeculationStats:
    """Counters of one request (or the sum over many). Definitions: `docs/notation.md`."""

    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    emitted: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    proposed_per_position: list[int] = field(default_factory=list)
    depth_histogram: dict[int, int] = field(default_factory=dict)
    draft_s: float = 0.0
    verify_s: float = 0.0
    coordination_s: float = 0.0

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / proposed draft tokens; None before anything was proposed."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def acceptance_length(self) -> float | None:
        """emitted tokens per verify round, correction or bonus included, after the stop rule."""
        return self.emitted / self.rounds if self.rounds else None

    def add_round(self, proposed: int, accepted: int, emitted: int) -> None:
        """Counts one round of a request. Depth is `proposed`; for chains position k was accepted if k < accepted."""
        self.rounds += 1
        self.proposed += proposed
        self.accepted += accepted
        self.emitted += emitted
        self.depth_histogram[proposed] = self.depth_histogram.get(proposed, 0) + 1
        for counts, upto in ((self.proposed_per_position, proposed), (self.accepted_per_position, accepted)):
            counts.extend([0] * (proposed - len(counts)))
            for position in range(upto):
                counts[position] += 1
