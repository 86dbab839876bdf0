"""Measured times and acceptance out of documents: reports of `prove`, results of `generate --json`, load sweeps.

Called by the break-even command. Reads JSON objects that others wrote, so every value is judged before use; what a
document does not hold is an error with the key, never a default. Times between measured numbers of rows are straight
lines, which `Measured.notes` says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from draftproof.core.errors import DraftproofError
from draftproof.planning.breakeven import MAX_DEPTH, Costs, Curve, check_rates, marginal
from draftproof.planning.schedule import LoadPoint

SHORTEST, LONGEST = 1e-12, 1e12
NOISE = 0.05
"""Share by which measured times may disagree."""
_COUNT = re.compile(r"[0-9]{1,7}")


@dataclass(frozen=True, slots=True)
class Measured:
    """One load sweep: what was measured under one name, by batch size, and what a reader should know of it."""

    name: str
    points: tuple[LoadPoint, ...]
    notes: tuple[str, ...]


def read_document(
    document: Mapping[str, Any], source: str, decode_s: float | None = None
) -> tuple[Measured, ...]:
    """By what the document is. `decode_s` is the plain time per token, which a single result of `generate` lacks.

    Raises DP103 for values that are missing or no numbers.
    """
    cells = document.get("cells")
    if isinstance(cells, list):
        if any(isinstance(cell, dict) and isinstance(cell.get("candidate"), dict) for cell in cells):
            raise DraftproofError(
                "DP103",
                source,
                "the demo's report: each draft of it ends where it is worth no more",
                "measurements of drafts of one depth",
                "Its cells hold the result already. For a depth, give what `draftproof generate --json` printed.",
            )
        return _from_report(document, source)
    if isinstance(document.get("sweep"), list):
        points = [
            _sweep_point(_Keys(entry, f"{source}: sweep[{i}]")) for i, entry in enumerate(document["sweep"])
        ]
        return (Measured("sweep", tuple(points), ()),)
    if isinstance(document.get("speculation"), dict) and isinstance(document.get("timing"), dict):
        return (_from_result(_Keys(document, source), decode_s),)
    raise DraftproofError(
        "DP103",
        source,
        "neither cells, sweep, nor speculation and timing",
        "report.json of `draftproof prove`, a load sweep, or what `draftproof generate --json` printed",
        "Name such a file.",
    )


def plain_decode_s(document: Mapping[str, Any], source: str) -> float:
    """Seconds per token of a run without speculation, from `generate --json`: its first token came out of the prompt's
    pass."""
    keys = _Keys(document, source)
    method = keys.inner("speculation").text("method")
    if method != "none":
        raise DraftproofError(
            "DP103", f"{source}: speculation.method", method, "none", "Run the same without speculation."
        )
    tokens = keys.inner("usage").number("completion_tokens")
    if tokens < 2:
        raise DraftproofError("DP103", source, f"{tokens:g} tokens", "at least two", "Let it write more.")
    return keys.inner("timing").duration("decode_s") / (tokens - 1)


def _from_report(document: Mapping[str, Any], source: str) -> tuple[Measured, ...]:
    """Cells of one workload, candidate and context are one sweep over concurrency."""
    depths = _depths_of_arms(document)
    sweeps: dict[str, list[LoadPoint]] = {}
    for index, entry in enumerate(document["cells"]):
        cell = _Keys(entry, f"{source}: cells[{index}]")
        candidate, load = cell.text("candidate"), cell.inner("load")
        if "concurrency" not in load.values:
            continue  # a rate has no batch size
        shares = cell.inner("acceptance").shares("per_position")
        depth = depths.get(candidate, len(shares))
        times = cell.inner("breakeven")
        costs = _costs(
            depth, times.duration("baseline_s_per_token"), times.number("draft_s"), times.number("verify_s"),
            times.number("coordination_s"),
        )  # fmt: skip
        name = f"{cell.text('workload')}, {candidate}, context {entry.get('context')}"
        batch = load.count("concurrency")
        sweeps.setdefault(name, []).append(LoadPoint(batch, costs, shares, min(depth, len(shares))))
    if not sweeps:
        raise DraftproofError(
            "DP103", f"{source}: cells", "no cell with a concurrency", "measured cells", "Measure first."
        )
    notes = ("times at other depths than the measured one lie on straight lines from plain decoding",)
    return tuple(
        Measured(name, tuple(sorted(points, key=lambda point: point.batch)), notes)
        for name, points in sweeps.items()
    )


def _depths_of_arms(document: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    arms = document.get("arms")
    for arm in arms if isinstance(arms, list) else []:
        intent = arm.get("intent") if isinstance(arm, dict) else None
        depth = intent.get("num_speculative_tokens") if isinstance(intent, dict) else None
        if type(depth) is int and 1 <= depth <= MAX_DEPTH:
            found[str(arm.get("name"))] = depth
    return found


def _from_result(keys: _Keys, decode_s: float | None) -> Measured:
    """One request: a sweep of one batch size."""
    speculation = keys.inner("speculation")
    rounds = speculation.number("rounds")
    if decode_s is None:
        raise DraftproofError(
            "DP103",
            "--decode-ms",
            "nothing",
            "the plain time per token: a run with speculation does not tell it",
            "Give --baseline FILE (generate --json with method none), or --decode-ms.",
        )
    if rounds < 1:
        raise DraftproofError(
            "DP103", f"{keys.place}: speculation.rounds", "0", "rounds that drafted", "Let it draft."
        )
    proposed, accepted = (
        speculation.numbers("proposed_per_position"),
        speculation.numbers("accepted_per_position"),
    )
    if not proposed or len(accepted) != len(proposed) or proposed[0] <= 0:
        raise DraftproofError(
            "DP103",
            f"{keys.place}: speculation.proposed_per_position",
            "nothing",
            "drafted positions",
            "Let it draft.",
        )
    shares = tuple(count / rounds for count in accepted)
    check_rates(f"{keys.place}: speculation.accepted_per_position", shares, is_marginal=True)
    # Drafts may end early: a cap of so many tokens is on average a draft of this many.
    drafted = [sum(proposed[: cap + 1]) / rounds for cap in range(len(proposed))]
    draft_s, verify_s = speculation.number("draft_s") / rounds, speculation.number("verify_s") / rounds
    grown = max(0.0, verify_s - decode_s)
    caps = [(cap, mean / drafted[-1]) for cap, mean in enumerate(drafted, start=1)]
    costs = Costs(
        decode_s,
        Curve(((0, 0.0), *((cap, draft_s * share) for cap, share in caps))),
        Curve(((1, decode_s), *((cap + 1, decode_s + grown * share) for cap, share in caps))),
        speculation.number("coordination_s") / rounds,
    )
    notes = [
        f"{rounds:g} rounds with {drafted[-1]:.2f} drafted tokens on average; times at other depths are in proportion"
    ]
    if min(proposed) < rounds:
        notes.append(
            "drafts ended early or changed their depth: depths are caps, with the same rule of ending"
        )
    return Measured("one request", (LoadPoint(1, costs, shares, len(shares)),), tuple(notes))


def _costs(depth: int, decode_s: float, draft_s: float, verify_s: float, coordination_s: float) -> Costs:
    """From one measured depth: a plain pass at one row, the verify pass at its own number, drafting in proportion."""
    verify = Curve(((1, decode_s), (1 + depth, max(decode_s, verify_s))))
    return Costs(decode_s, Curve(((0, 0.0), (depth, draft_s))), verify, coordination_s)


def _sweep_point(entry: _Keys) -> LoadPoint:
    """{"batch", "decode_ms", "draft_ms", "verify_ms", "coordination_ms", "acceptance", "acceptance_kind"}."""
    rates = entry.shares("acceptance", is_marginal=False)
    if entry.values.get("acceptance_kind", "marginal") == "marginal":
        check_rates(f"{entry.place}.acceptance", rates, is_marginal=True)
    else:
        rates = marginal(rates)
    costs = Costs(
        entry.duration("decode_ms") / 1000,
        curve_of(entry.values.get("draft_ms"), f"{entry.place}.draft_ms", per_token=True),
        curve_of(entry.values.get("verify_ms"), f"{entry.place}.verify_ms", per_token=False),
        entry.number("coordination_ms") / 1000 if "coordination_ms" in entry.values else 0.0,
    )
    depth = depth_measured(costs, len(rates), f"{entry.place}.verify_ms")
    return LoadPoint(entry.count("batch"), costs, rates, depth)


def depth_measured(costs: Costs, depth: int, field: str) -> int:
    """The deepest of `depth` drafted tokens for which both times were measured, up to the last point of both.

    A single time of a pass holds for any number of rows, one per drafted token for any depth, for so it was given.
    Raises DP103 where not even one drafted token was.
    """
    if len(costs.verify.points) > 1 or costs.verify.points[0][0] > 1:
        depth = min(depth, costs.verify.points[-1][0] - 1)
    if len(costs.draft.points) > 2 or costs.draft.points[-1][0] > 1:
        depth = min(depth, costs.draft.points[-1][0])
    if depth < 1:
        raise DraftproofError(
            "DP103",
            field,
            "no pass of two rows or more",
            "the pass that verifies a draft",
            "Measure it, too.",
        )
    return depth


def curve_of(value: object, field: str, per_token: bool) -> Curve:
    """Milliseconds: one number (per drafted token, or for a pass whatever its rows), a list (for 1, 2, … drafted
    tokens, or for 2, 3, … rows), or an object or "rows:ms" pairs by count. Raises DP103."""
    judge = _time if per_token else _duration
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, list) and len(value) == 1:
        only = judge(value[0], field)
        return Curve(((0, 0.0), (1, only / 1000))) if per_token else Curve(((1, only / 1000),))
    if isinstance(value, list):
        first = 1 if per_token else 2
        pairs = [(first + index, judge(item, field)) for index, item in enumerate(value)]
    elif isinstance(value, dict) and all(_COUNT.fullmatch(str(key)) for key in value):
        pairs = sorted((int(key), judge(item, field)) for key, item in value.items())
        if not per_token and pairs and pairs[-1][0] < 2:
            pairs = []  # one row is a plain pass
    else:
        pairs = []
    if not per_token and any(rows < 1 for rows, _ in pairs):
        raise DraftproofError("DP103", field, "a pass over 0 rows", "counts of rows from 1", "Leave it out.")
    if not pairs or len(dict(pairs)) < len(pairs):
        raise DraftproofError(
            "DP103",
            field,
            f"{value!r}"[:80],
            "milliseconds: a number, a list, or counts with numbers, each count once, for passes two rows or more",
            "See --help.",
        )
    return Curve(tuple((count, ms / 1000) for count, ms in pairs))


def contradictions(costs: Costs, where: str = "") -> tuple[str, ...]:
    """Times that cannot all be true beyond what a measurement is off by: more rows in less time, or any rows in less
    than plain decoding takes for one."""
    found = []
    limit = costs.decode_s * (1 - NOISE)
    fast = [rows for rows, seconds in costs.verify.points if rows >= 1 and seconds < limit]
    if fast:
        found.append(f"{where}a pass over {fast[0]} rows takes less than plain decoding of one")
    for what, curve in (("verifying", costs.verify), ("drafting", costs.draft)):
        falls = [
            late for (_, before), (late, after) in pairwise(curve.points) if after < before * (1 - NOISE)
        ]
        if falls:
            found.append(f"{where}{what} takes less time for {falls[0]} than for fewer")
    return tuple(
        f"these times contradict each other: {what}; what follows from them does not hold" for what in found
    )


def with_contradictions(sweep: Measured) -> Measured:
    """The sweep with a note for every point whose times contradict each other."""
    many = len(sweep.points) > 1
    notes = [
        note
        for point in sweep.points
        for note in contradictions(point.costs, f"batch {point.batch}, " if many else "")
    ]
    return replace(sweep, notes=(*sweep.notes, *notes))


def _time(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LONGEST:
        raise DraftproofError("DP103", field, f"{value!r}"[:80], "a number from 0", "Give milliseconds.")
    return float(value)


def _duration(value: object, field: str) -> float:
    """Of a pass of the target: drafting may cost nothing, a pass never does."""
    found = _time(value, field)
    if not is_duration(found):
        raise DraftproofError("DP103", field, found, "a time above 0", "Give milliseconds.")
    return found


def is_duration(time: float) -> bool:
    """Whether a pass can take so long, in seconds or milliseconds: what is divided by it stays a number."""
    return SHORTEST <= time < LONGEST


class _Keys:
    """An object of a document, whose values are judged when they are asked for."""

    def __init__(self, values: object, place: str) -> None:
        self.place = place
        if not isinstance(values, dict):
            raise self._fault("", values, "an object")
        self.values: dict[str, Any] = values

    def inner(self, key: str) -> _Keys:
        return _Keys(self.values.get(key), f"{self.place}.{key}")

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str):
            raise self._fault(key, value, "text")
        return value

    def number(self, key: str) -> float:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LONGEST:
            raise self._fault(key, value, "a number from 0")
        return float(value)

    def duration(self, key: str) -> float:
        found = self.number(key)
        if not is_duration(found):
            raise self._fault(key, found, "a time above 0")
        return found

    def count(self, key: str) -> int:
        value = self.values.get(key)
        if type(value) is not int or not 1 <= value <= 1 << 20:
            raise self._fault(key, value, "a whole number from 1")
        return value

    def numbers(self, key: str) -> list[float]:
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) > MAX_DEPTH:
            raise self._fault(key, value, f"at most {MAX_DEPTH} numbers")
        return [_Keys({key: item}, self.place).number(key) for item in value]

    def shares(self, key: str, is_marginal: bool = True) -> tuple[float, ...]:
        found = self.numbers(key)
        if not found:
            raise self._fault(key, found, "a share for each position")
        check_rates(f"{self.place}.{key}", found, is_marginal)
        return tuple(found)

    def _fault(self, key: str, found: object, expected: str) -> DraftproofError:
        field = f"{self.place}.{key}" if key else self.place
        shown = "nothing" if found is None else f"{found!r}"[:80]
        return DraftproofError("DP103", field, shown, expected, "Check the file.")
