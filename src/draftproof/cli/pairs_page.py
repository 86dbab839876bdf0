"""The page `docs/pairs.md`, written from the catalogue. Called by `draftproof.cli.docs`."""

from __future__ import annotations

from itertools import groupby

from draftproof.configs.pairs import Pair, load_catalogue
from draftproof.core.finding import Source

_INTRO = """\
# Known pairs of target and drafter

This page is generated from `src/draftproof/configs/data/pairs.toml` by `python -m draftproof.cli.docs`; do not edit it.

{num_pairs} pairs of {num_targets} targets, as their sources stood on {date}. `draftproof pairs TARGET` lists those
of one target. Three things to know before relying on a row:

- **A row says that somebody documents the pair**, not that we ran it. Lengths are tokens per verify round, the
  correction or bonus token included, as the named source reports them on its own prompts. Yours will differ: measure.
- **A pair is known by the names of its repositories.** A model of the same family, or a fine-tuned one of the same
  shape, is another model: its drafter is unproven.
- **"-" under engines** means that the source names none.

An entry that is wrong or missing is worth an issue: a target, a drafter, and a page that documents them.
"""

_HEAD = "| method | drafter | engines | K | reported length | known trouble | sources |\n|---|---|---|---|---|---|---|"


def pairs_page() -> str:
    catalogue = load_catalogue()
    targets = {pair.target for pair in catalogue.pairs}
    sections = [_INTRO.format(num_pairs=len(catalogue.pairs), num_targets=len(targets), date=catalogue.date)]
    for target, pairs in groupby(catalogue.pairs, lambda pair: pair.target):
        sections.append(f"## {target}\n\n{_HEAD}\n" + "".join(f"{_row(pair)}\n" for pair in pairs))
    return "\n".join(sections)


def _row(pair: Pair) -> str:
    reports = "; ".join(
        f"{report.length}{f' at K = {report.depth}' if report.depth else ''} ({report.by}: {report.condition})"
        for report in pair.acceptance
    )
    trouble = " ".join(f"{trouble.text} ({_link(trouble.source)})" for trouble in pair.trouble)
    sources = "; ".join(map(_link, pair.sources))
    cells = (
        pair.method, pair.drafter or "built in", ", ".join(pair.engines) or "-", str(pair.depth or ""), reports,
        trouble, sources,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _link(source: Source) -> str:
    return f"[{source.name}]({source.url})" if source.url else source.name
