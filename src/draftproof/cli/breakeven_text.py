"""What `draftproof breakeven` says: tables for people, a document for programs. Called by `breakeven` alone."""

from __future__ import annotations

from typing import Any

from draftproof.configs.speculation import BatchRange, Deployment, ModelRef, Speculation
from draftproof.planning.breakeven import Depth, best, conditional, depth_rows, sensitivity
from draftproof.planning.measured import Measured
from draftproof.planning.schedule import Chosen, LoadPoint, choose, ranges

ASSUMED = (
    "not measured: thresholds alone, no speed-up is claimed (--measured says that the numbers were measured)"
)

Sweeps = tuple[Measured, ...]


def is_measured(options: dict[str, Any]) -> bool:
    return bool(options["measured"]) or options["source"] is not None


def has_schedule(sweeps: Sweeps, options: dict[str, Any]) -> bool:
    """Whether there is a depth by batch size to say: of measurements, and at more than one."""
    return is_measured(options) and any(len(sweep.points) > 1 for sweep in sweeps)


def lines(sweeps: Sweeps, options: dict[str, Any]) -> list[str]:
    found: list[str] = []
    for sweep in sweeps:
        found += (
            [*([""] if found else []), f"{sweep.name}"]
            if len(sweeps) > 1 or is_measured(options)
            else [ASSUMED]
        )
        for point in sweep.points:
            found += _point_lines(point, options, with_batch=len(sweep.points) > 1)
        found += [f"  note: {note}" for note in sweep.notes]
        if has_schedule((sweep,), options):
            found += _schedule_lines(sweep, options)
    return found


def _rows(point: LoadPoint, options: dict[str, Any]) -> tuple[Depth, ...]:
    shares = point.marginals if is_measured(options) and point.marginals else None
    return depth_rows(point.costs, shares, min(options["max_depth"], point.max_depth))


def _point_lines(point: LoadPoint, options: dict[str, Any], with_batch: bool) -> list[str]:
    rows = _rows(point, options)
    found = [f" batch {point.batch}"] if with_batch else []
    found.append(f"  plain decoding: {1000 * point.costs.decode_s:.3f} ms per token")
    claims = rows[0].speedup is not None
    found.append(
        "  depth   round ms   needed per round   needed acceptance"
        + ("   emitted   speed-up" if claims else "")
    )
    for row in rows:
        needed = "cannot pay" if row.acceptance_needed is None else f"{row.acceptance_needed:.3f}"
        times = row.breakeven
        line = f"  {row.depth:>5}   {1000 * times.round_s:>8.3f}   {times.needed_per_round:>16.3f}   {needed:>17}"
        if claims:
            line += f"   {times.emitted_per_round:>7.3f}   {row.speedup:>8.3f}"
        found.append(line)
    found.append(
        "  (needed acceptance: the same share at every position, of rounds that accepted all before)"
    )
    if claims:
        found += _best_lines(point, rows)
    return found


def _best_lines(point: LoadPoint, rows: tuple[Depth, ...]) -> list[str]:
    row = best(rows)
    found = []
    if row is None or row.speedup is None:
        found.append("  best depth: 0, no depth pays")
    else:
        deeper = "; deeper was not measured" if row.depth == len(rows) else ""
        found.append(f"  best depth: {row.depth}, {row.speedup:.3f} times plain decoding{deeper}")
    shares = ", ".join(f"{rate:.2f}" for rate in conditional(point.marginals))
    found.append(f"  acceptance by position, of those reached: {shares}")
    found.append("  if one number is off by a tenth:")
    for case in sensitivity(point.costs, point.marginals, len(rows)):
        found.append(
            f"    {case.what} {'+' if case.change > 0 else '-'}10 %: depth {case.depth}, {case.speedup:.3f}"
        )
    return found


_DRAFTER = "speculation.drafter"


def _schedule_lines(sweep: Measured, options: dict[str, Any]) -> list[str]:
    chosen = choose(sweep.points, options["hysteresis"])
    schedule = ranges(chosen)
    found = ["  schedule (batch sizes and depth):"]
    for span in schedule:
        found.append(f"    {span.low} to {'any' if span.high is None else span.high}: {span.depth}")
    found += [
        f"    measured at {each.batch}: depth {each.depth}, {each.speedup:.3f}; "
        f"best is {each.best_depth}, {each.best_speedup:.3f}"
        for each in chosen
    ]
    written = _written(schedule, options)
    if written is not None:
        found += [f"  for {written['engine']}:"]
        found += [
            f"    {line}" for artifact in written["artifacts"] for line in artifact["text"].splitlines()
        ]
        found += [f"    {note['kind']}: {note['setting']} ({note['reason']})" for note in written["notes"]]
    return found


def _written(schedule: tuple[BatchRange, ...], options: dict[str, Any]) -> dict[str, Any] | None:
    """The schedule in the engine's own format, through its dialect. Raises DP110 for an engine without one."""
    if options["engine"] is None:
        return None
    from draftproof.configs.registry import dialect

    engine, _, version = options["engine"].partition("==")
    model = options["model"]
    speculation = Speculation(
        method=options["method"],
        drafter=ModelRef(name=model) if model else None,
        depth=max((span.depth for span in schedule), default=0) or None,
        schedule=schedule,
    )
    rendered = dialect(engine).render(Deployment(engine=engine, speculation=speculation), version or None)
    return {
        "engine": engine,
        "artifacts": [{"name": each.name, "text": each.text} for each in rendered.artifacts],
        "notes": [
            {
                "kind": note.kind.value,
                "setting": note.setting,
                "reason": note.reason
                + (": name it with --model" if note.setting == _DRAFTER and not model else ""),
            }
            for note in rendered.notes
        ],
    }


def document(sweeps: Sweeps, options: dict[str, Any]) -> dict[str, Any]:
    measured = is_measured(options)
    found = []
    for sweep in sweeps:
        entry: dict[str, Any] = {
            "name": sweep.name,
            "points": [_point(point, options) for point in sweep.points],
            "notes": list(sweep.notes),
        }
        if has_schedule((sweep,), options):
            chosen = choose(sweep.points, options["hysteresis"])
            schedule = ranges(chosen)
            entry["schedule"] = [[span.low, span.high, span.depth] for span in schedule]
            entry["chosen"] = [_chosen(each) for each in chosen]
            entry["written"] = _written(schedule, options)
        found.append(entry)
    return {"measured": measured, "sweeps": found, **({} if measured else {"label": ASSUMED})}


def _point(point: LoadPoint, options: dict[str, Any]) -> dict[str, Any]:
    rows = _rows(point, options)
    entry: dict[str, Any] = {
        "batch": point.batch,
        "decode_s": point.costs.decode_s,
        "depths": [_depth(row) for row in rows],
    }
    if rows[0].speedup is not None:
        top = best(rows)
        entry["best_depth"] = top.depth if top else 0
        entry["acceptance"] = {
            "marginal": list(point.marginals),
            "conditional": list(conditional(point.marginals)),
        }
        entry["sensitivity"] = [
            {"what": case.what, "change": case.change, "best_depth": case.depth, "speedup": case.speedup}
            for case in sensitivity(point.costs, point.marginals, len(rows))
        ]
    return entry


def _depth(row: Depth) -> dict[str, Any]:
    entry = {
        "depth": row.depth,
        "round_s": row.breakeven.round_s,
        "needed_per_round": row.breakeven.needed_per_round,
        "needed_acceptance": row.acceptance_needed,
    }
    if row.speedup is None:
        return entry
    return {**entry, **row.breakeven.as_dict(), "speedup": row.speedup}


def _chosen(each: Chosen) -> dict[str, Any]:
    return {
        "batch": each.batch,
        "depth": each.depth,
        "speedup": each.speedup,
        "best_depth": each.best_depth,
        "best_speedup": each.best_speedup,
    }
