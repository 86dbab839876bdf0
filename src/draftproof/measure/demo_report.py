"""The demo's result as text for a terminal, as Markdown, and as one JSON document.

Called by `draftproof demo`. Numbers come from `demo.DemoResult`; nothing is measured here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from draftproof.core.intent import as_dict
from draftproof.measure.compare import DecodeTotals
from draftproof.measure.demo import ARMS, Cell, DemoResult

VERDICTS = {
    "pays": "pays",
    "does_not_pay": "does not pay",
    "within_noise": "within noise",
    "not_measured": "not measured",
}

MEANING = (
    "Speed-up is plain ÷ speculative decode time per token: above 1 speculation is faster, and where the "
    "interval (95 %, over prompts, or over blocks of prompts that ran together) contains 1, these do not decide it."
)

_NOTES = (
    "tokens/s counts all requests of a load together, prompts excluded; the speed-up compares each prompt, or "
    "block of prompts, with itself. accepted: share of drafted tokens that the model would have written "
    "itself. per round: tokens per pass of the model and request, its own token included. identical: answers "
    "with the same tokens in both arms.",
    "Speculation pays where (draft + verify + other) ÷ emitted tokens is less than the plain time per token. "
    "Every request has a pool of its own, so that no answer is drafted from an earlier run of its prompt. Text in "
    "which a small model repeats itself is easy to draft: before deciding, measure your own model and prompts.",
)

Table = list[list[str]]


def as_text(result: DemoResult, description: Mapping[str, Any]) -> str:
    """For a terminal, at most 110 columns."""
    parts = [
        _aligned(_speed_table(result.cells), num_left=1, last_left=True),
        _aligned(_time_table(result.cells), num_left=1),
        *conclusions(result, description),
        *(_wrapped(text) for text in (MEANING, _titles(result.cells), *_NOTES)),
    ]
    return "\n\n".join(parts)


def as_markdown(
    result: DemoResult, description: Mapping[str, Any], provenance: Mapping[str, Any], program: str
) -> str:
    """A page that stands on its own: tables, conclusions, and where the numbers come from."""
    hardware = provenance["hardware"]
    origin = (
        f"{provenance['time']} · {hardware['cpu']}, {hardware['num_cores']} cores · {program} "
        f"({provenance['commit'] or 'no commit'}) · PyTorch {provenance['versions']['torch']} · "
        f"{description['dtype']}, weights {description['weights']}, {description['kernels']} kernels · "
        f"greedy, up to {result.max_tokens} "
        f"tokens per answer · {result.elapsed_s:.0f} s"
    )
    parts = [
        f"# Speculative against plain decoding: {description['model']}",
        origin,
        _markdown(_speed_table(result.cells)),
        _markdown(_time_table(result.cells)),
        *conclusions(result, description),
        MEANING,
        _titles(result.cells),
        *_NOTES,
    ]
    return "\n\n".join(parts) + "\n"


def as_document(
    result: DemoResult, description: Mapping[str, Any], provenance: Mapping[str, Any]
) -> dict[str, object]:
    """The JSON document, without its `schema_version`. Times in seconds; with the record of every request."""
    agreeing, several = result.loads_agree
    return {
        "provenance": dict(provenance),
        "engine": "draftproof",
        "model": dict(description),
        "max_tokens": result.max_tokens,
        "elapsed_s": result.elapsed_s,
        "is_whole": result.is_whole,
        "cells": [_cell(cell) for cell in result.cells],
        "loads": {"compared": several, "identical": agreeing},
        "all_identical": result.all_identical,
        "records": [
            asdict(record) | {"workload": cell.workload}
            for cell in result.cells
            for record in sorted([*cell.plain, *cell.speculative], key=lambda record: record.order)
        ],
    }


def conclusions(result: DemoResult, description: Mapping[str, Any]) -> list[str]:
    """What the tables say, in sentences: where it pays, why not elsewhere, and whether texts are equal."""
    lines = [] if result.is_whole else ["Interrupted: this is what had been measured by then."]
    lines += [
        f"{cell.workload}, {_requests(cell)}: {VERDICTS[cell.verdict]}. {_reason(cell)}"
        for cell in result.cells
    ]
    compared = sum(len(cell.pairs) for cell in result.cells)
    identical = sum(cell.num_identical for cell in result.cells)
    agreeing, several = result.loads_agree
    same = f"Identical answers: {identical} of {compared} with and without speculation"
    same += f", {agreeing} of {several} plain answers at every load." if several else "."
    exactness = description["exactness"]
    if not exactness["promise"]:
        same += f" Equal bits are not promised on this machine: {exactness['reason']}."
    elif not result.all_identical:
        same += " They were promised to be identical: this is a fault of ours."
    return ["\n".join(lines), same]


def _reason(cell: Cell) -> str:
    """One sentence of break-even arithmetic."""
    breakeven = cell.breakeven
    if breakeven is None:
        return "No answer had a second token."
    cost = breakeven.round_s / breakeven.baseline_s_per_token
    # A plain round of several requests emits several tokens: compare with tokens, not with rounds.
    return f"A round costs as much as {cost:.2f} plain tokens and emits {breakeven.emitted_per_round:.2f}."


def _requests(cell: Cell) -> str:
    return "1 request" if cell.concurrency == 1 else f"{cell.concurrency} requests at a time"


def _titles(cells: Sequence[Cell]) -> str:
    titles = {cell.workload: cell.title for cell in cells}
    return "Workloads: " + "; ".join(f"{name}: {title}" for name, title in titles.items()) + "."


def _speed_table(cells: Sequence[Cell]) -> Table:
    header = "workload;load;plain tok/s;spec. tok/s;speed-up (95 %);accepted;per round;identical;verdict"
    rows = [header.split(";")]
    for cell in cells:
        speedup = cell.speedup
        interval = "–"
        if speedup is not None:
            interval = f"{speedup.ratio:.2f}"
            interval += (
                f" ({speedup.low:.2f}–{speedup.high:.2f})" if speedup.low is not None else " (one pair)"
            )
        rate, length = cell.acceptance_rate, cell.acceptance_length
        rows.append(
            [
                cell.workload,
                str(cell.concurrency),
                *(_number(cell.tokens_per_s(arm), "{:.1f}") for arm in ARMS),
                interval,
                _number(rate, "{:.0%}").replace("%", " %"),
                _number(length, "{:.2f}"),
                f"{cell.num_identical}/{len(cell.pairs)}",
                VERDICTS[cell.verdict],
            ]
        )
    return rows


def _time_table(cells: Sequence[Cell]) -> Table:
    """Milliseconds per emitted token."""
    rows = [["ms per emitted token", "load", "draft", "verify", "other", "sum", "plain", "pays"]]
    for cell in cells:
        breakeven = cell.breakeven
        if breakeven is None:
            rows.append([cell.workload, str(cell.concurrency), *["–"] * 6])
            continue
        emitted = breakeven.emitted_per_round
        times = [breakeven.draft_s, breakeven.verify_s, breakeven.coordination_s, breakeven.round_s]
        rows.append(
            [
                cell.workload,
                str(cell.concurrency),
                *(f"{1000 * time / emitted:.2f}" for time in times),
                f"{1000 * breakeven.baseline_s_per_token:.2f}",
                "yes" if breakeven.pays else "no",
            ]
        )
    return rows


def _cell(cell: Cell) -> dict[str, object]:
    speedup, breakeven = cell.speedup, cell.breakeven
    baseline, candidate = (
        {"tokens_per_s": cell.tokens_per_s(arm), **_totals(cell.totals[arm])} for arm in ARMS
    )
    return {
        "workload": cell.workload,
        "candidate": as_dict(cell.candidate),
        "load": {"concurrency": cell.concurrency},
        "num_prompts": cell.num_prompts,
        "baseline": baseline,
        "candidate_metrics": candidate,
        "blocks": [
            {"baseline": _totals(plain), "candidate": _totals(spec)}
            for plain, spec in zip(*(cell.blocks[arm] for arm in ARMS), strict=True)
        ],
        "speedup": None
        if speedup is None
        else {
            "metric": "tpot" if cell.concurrency == 1 else "throughput",
            "ratio": speedup.ratio,
            "low": speedup.low,
            "high": speedup.high,
            "confidence": speedup.confidence,
            "num_prompts": cell.num_prompts,
            "num_blocks": speedup.num_pairs,
        },
        "breakeven": None if breakeven is None else breakeven.as_dict(),
        "acceptance": {
            "rate": cell.acceptance_rate,
            "length": cell.acceptance_length,
            "per_position": cell.acceptance_per_position,
        },
        "identical": {"compared": len(cell.pairs), "identical": cell.num_identical},
        "verdict": cell.verdict,
        "reasons": [_reason(cell)],
    }


def _totals(totals: DecodeTotals) -> dict[str, float]:
    return {**asdict(totals), "coordination_s": totals.coordination_s}


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _aligned(rows: Table, num_left: int, last_left: bool = False) -> str:
    """Columns padded to their widest cell: the first `num_left` and perhaps the last to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            text.ljust(width)
            if column < num_left or (last_left and column == len(row) - 1)
            else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "─" * max(len(line) for line in lines))
    return "\n".join(lines)


def _markdown(rows: Table) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" + "---:|" * (len(rows[0]) - 1))
    return "\n".join(lines)


def _wrapped(text: str, width: int = 100) -> str:
    return "\n".join(textwrap.wrap(text, width))
