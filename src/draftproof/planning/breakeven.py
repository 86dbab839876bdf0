"""What each depth is worth: tokens per round from acceptance, time per round from costs, and what would have to hold.

Called by the command, by the schedule and by advice. Arithmetic on times and rates; whether these were measured or
assumed is the caller's to say (`docs/breakeven.md`). The rule itself is `core.breakeven`.

Acceptance comes in two forms. *Conditional*: of the drafts of a position that were reached (all before them accepted),
the share that was accepted. *Marginal*: of all rounds that drafted so far, the share in which it was accepted; never
rising from one position to the next, and the product of the conditional ones up to there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from draftproof.core.breakeven import BreakEven, acceptance_needed
from draftproof.core.errors import DraftproofError

MAX_DEPTH = 128


def marginal(conditional: Sequence[float]) -> tuple[float, ...]:
    return tuple(accumulate(conditional, lambda so_far, rate: so_far * rate))


def conditional(marginals: Sequence[float]) -> tuple[float, ...]:
    """The inverse of `marginal`; positions behind one that was never accepted count as 0."""
    before = (1.0, *marginals[:-1])
    return tuple(
        rate / previous if previous else 0.0 for rate, previous in zip(marginals, before, strict=True)
    )


def check_rates(field: str, rates: Sequence[float], is_marginal: bool) -> None:
    """Raises DP103 for what is no share, or rises although it is marginal."""
    for rate in rates:
        if not 0 <= rate <= 1:
            raise DraftproofError("DP103", field, rate, "shares from 0 to 1", "Write 0.8 for 80 %.")
    if is_marginal and any(later > earlier + 1e-9 for earlier, later in pairwise(rates)):
        raise DraftproofError(
            "DP103",
            field,
            ", ".join(f"{rate:g}" for rate in rates),
            "marginal shares, which never rise: a position is accepted only where those before it were",
            "If they are shares of those that were reached, say --acceptance-kind conditional.",
        )


def emitted_per_round(marginals: Sequence[float], depth: int) -> float:
    """1 + the sum of the marginal shares: the correction or bonus token, and each accepted draft (Leviathan et al.
    2023, equation 1 for equal conditional shares). Rounds that a stop cuts short emit less."""
    return 1.0 + sum(marginals[:depth])


@dataclass(frozen=True, slots=True)
class Curve:
    """Time over a count: straight lines between known points, the last slope beyond, never below the first point."""

    points: tuple[tuple[int, float], ...]

    def at(self, count: int) -> float:
        if len(self.points) == 1 or count <= self.points[0][0]:
            return self.points[0][1]
        index = next((i for i, (x, _) in enumerate(self.points) if x >= count), len(self.points) - 1)
        (x0, y0), (x1, y1) = self.points[index - 1], self.points[index]
        return max(self.points[0][1], y0 + (y1 - y0) * (count - x0) / (x1 - x0))

    def scaled(self, factor: float) -> Curve:
        return Curve(tuple((x, y * factor) for x, y in self.points))


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds at one batch size and context.

    decode_s        of a plain round: one token for every request
    draft           of drafting so many tokens per request
    verify          of the target's pass over so many rows per request, sampling and verdicts included
    coordination_s  of the rest of a speculative round
    """

    decode_s: float
    draft: Curve
    verify: Curve
    coordination_s: float = 0.0

    def round_s(self, depth: int) -> float:
        return self.draft.at(depth) + self.verify.at(depth + 1) + self.coordination_s


@dataclass(frozen=True, slots=True)
class Depth:
    """One depth. `acceptance_needed`: the conditional share that, equal at every position, makes it pay; None: not even
    full acceptance does. `speedup` is plain ÷ speculative time per token, above 1 faster; None without acceptance."""

    depth: int
    breakeven: BreakEven
    acceptance_needed: float | None
    speedup: float | None


def depth_row(costs: Costs, depth: int, marginals: Sequence[float] | None) -> Depth:
    emitted = 1.0 if marginals is None else emitted_per_round(marginals, depth)
    found = BreakEven(
        draft_s=costs.draft.at(depth),
        verify_s=costs.verify.at(depth + 1),
        coordination_s=costs.coordination_s,
        emitted_per_round=emitted,
        baseline_s_per_token=costs.decode_s,
    )
    needed = acceptance_needed(found.needed_per_round, depth)
    speedup = None if marginals is None else costs.decode_s / found.s_per_token
    return Depth(depth, found, needed, speedup)


def depth_rows(costs: Costs, marginals: Sequence[float] | None, max_depth: int) -> tuple[Depth, ...]:
    return tuple(depth_row(costs, depth, marginals) for depth in range(1, max_depth + 1))


def best(rows: Sequence[Depth]) -> Depth | None:
    """The depth with the highest speed-up above 1, the smallest of equals; None where none pays."""
    paying = [row for row in rows if row.speedup is not None and row.speedup > 1]
    return max(paying, key=lambda row: (row.speedup or 0.0, -row.depth), default=None)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What becomes of the best depth when one input is off by `change` (0.1: ten per cent more)."""

    what: str
    change: float
    depth: int
    speedup: float


def sensitivity(
    costs: Costs, marginals: Sequence[float], max_depth: int, step: float = 0.1
) -> tuple[Sensitivity, ...]:
    """Each input up and down by `step`; shares of acceptance as conditional ones, capped at 1."""
    found = []
    for sign in (step, -step):
        factor = 1 + sign
        changed = {
            "plain decoding": (replace(costs, decode_s=costs.decode_s * factor), marginals),
            "drafting": (replace(costs, draft=costs.draft.scaled(factor)), marginals),
            "verifying": (replace(costs, verify=costs.verify.scaled(factor)), marginals),
            "acceptance": (costs, marginal([min(1.0, rate * factor) for rate in conditional(marginals)])),
        }
        for what, (new_costs, new_marginals) in changed.items():
            row = best(depth_rows(new_costs, new_marginals, max_depth))
            found.append(
                Sensitivity(what, sign, row.depth if row else 0, (row.speedup if row else None) or 1.0)
            )
    return tuple(found)
