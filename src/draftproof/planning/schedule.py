"""The depth by batch size, from a load sweep, with hysteresis: changes that gain little are not made.

Called by the command and by reports. What comes out is `configs.speculation.BatchRange`, which the dialects write in
each engine's format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.configs.speculation import BatchRange
from draftproof.core.errors import DraftproofError
from draftproof.planning.breakeven import Costs, best, depth_row, depth_rows

DEFAULT_HYSTERESIS = 0.03


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """What was measured with `batch` requests decoding at once; `max_depth` is the deepest that was run."""

    batch: int
    costs: Costs
    marginals: tuple[float, ...]
    max_depth: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """The depth at a measured batch size: its speed-up, the best depth there, and why another was taken."""

    batch: int
    depth: int
    speedup: float
    best_depth: int
    best_speedup: float


def choose(points: Sequence[LoadPoint], hysteresis: float = DEFAULT_HYSTERESIS) -> tuple[Chosen, ...]:
    """From small batches to large: the depth of the batch before is kept while it loses less than `hysteresis` against
    the best here and still pays; speculation begins only where it gains more than `hysteresis`.

    Raises DP103 for batch sizes that are not ascending.
    """
    batches = [point.batch for point in points]
    if not batches or batches != sorted(set(batches)) or batches[0] < 1:
        raise DraftproofError(
            "DP103", "sweep", batches, "ascending batch sizes from 1, each once", "Sort the measurements."
        )
    found: list[Chosen] = []
    for point in points:
        row = best(depth_rows(point.costs, point.marginals, point.max_depth))
        depth, speedup = (row.depth, row.speedup or 1.0) if row else (0, 1.0)
        kept = found[-1].depth if found else 0
        kept_speedup = _speedup(point, kept)
        if kept_speedup is not None and kept_speedup >= 1 and kept_speedup * (1 + hysteresis) >= speedup:
            chosen = (kept, kept_speedup)
        else:
            chosen = (depth, speedup) if speedup >= 1 + hysteresis else (0, 1.0)
        found.append(Chosen(point.batch, *chosen, best_depth=depth, best_speedup=speedup))
    return tuple(found)


def _speedup(point: LoadPoint, depth: int) -> float | None:
    if depth == 0:
        return 1.0
    return depth_row(point.costs, depth, point.marginals).speedup if depth <= point.max_depth else None


def ranges(chosen: Sequence[Chosen]) -> tuple[BatchRange, ...]:
    """Batch sizes between two measured ones get the smaller depth of the two, those above the largest none: what was
    not measured is not claimed. Starts at 1, without gaps; the last range has no end."""
    spans: list[tuple[int, int]] = []
    start = 1
    for index, here in enumerate(chosen):
        if here.batch > start:
            before = chosen[index - 1].depth if index else here.depth
            spans.append((start, min(before, here.depth)))
        spans.append((here.batch, here.depth))
        start = here.batch + 1
    spans.append((start, 0))
    merged: list[tuple[int, int]] = []
    for low, depth in spans:
        if not merged or merged[-1][1] != depth:
            merged.append((low, depth))
    ends: list[int | None] = [*(low - 1 for low, _ in merged[1:]), None]
    return tuple(
        BatchRange(low=low, high=high, depth=depth) for (low, depth), high in zip(merged, ends, strict=True)
    )
