"""What `draftproof check` says: findings for people, a document for programs. Called by `check` alone."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from draftproof.cli import output
from draftproof.cli.check_input import Asked
from draftproof.configs.rules.judging import Judgement, NotChecked
from draftproof.configs.rules.versions import READ
from draftproof.core.finding import Evidence, Finding, Severity

_WIDTH = 110
_INDENT = " " * 10
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}
_COUNTED = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def document(asked: Asked, judgement: Judgement) -> dict[str, Any]:
    case = asked.cases[0]
    return {
        "engine": {
            "name": asked.engine,
            "version": asked.version,
            "version_from": asked.version_from,
            "read_version": READ.get(asked.engine),
        },
        "target": case.deployment.target.name if case.deployment.target else None,
        "drafters": [item.speculation.drafter.name for item in asked.cases if item.speculation.drafter],
        "methods": [item.method for item in asked.cases],
        "findings": [finding.as_dict() for finding in judgement.findings],
        "checked": list(judgement.checked),
        "not_checked": [item.as_dict() for item in judgement.not_checked],
    }


def show(asked: Asked, judgement: Judgement) -> None:
    for line in (*_head(asked), "", *_findings(judgement.findings), *_closing(judgement)):
        click.echo(line)


def show_findings(title: str, findings: Sequence[Finding]) -> None:
    for line in (title, "", *_findings(findings)):
        click.echo(line)


def _head(asked: Asked) -> Iterator[str]:
    methods = ", ".join(case.method for case in asked.cases)
    case = asked.cases[0]
    names = [case.deployment.target.name if case.deployment.target else "?"]
    names += [f"drafter {item.speculation.drafter.name}" for item in asked.cases if item.speculation.drafter]
    version = f" {asked.version}" if asked.version else ""
    yield f"{asked.engine}{version} · {methods} · {' · '.join(names)}"
    if asked.engine_from not in ("--engine", "the command"):
        yield f"engine not given: {asked.engine}, for it is {asked.engine_from}"
    if asked.version is not None and asked.version_from is None and asked.engine != "draftproof":
        yield (
            f"version not given: rules of the version read, {asked.version}, were applied; "
            f"name yours with --engine {asked.engine}==VERSION"
        )
    elif asked.version_from not in (None, "--engine"):
        yield f"version by {asked.version_from}"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    counts = Counter(finding.severity for finding in findings)
    said = [
        f"{counts[severity]} {word}{'s' * (counts[severity] > 1)}"
        for severity, word in _COUNTED.items()
        if counts[severity]
    ]
    yield ", ".join(said) if said else "nothing found"
    for finding in findings:
        yield ""
        yield f"{_painted(finding.severity)} {finding.code}  {finding.title}"
        yield from _wrapped("", finding.detail)
        for seen in finding.evidence:
            yield from _wrapped("seen", _evidence(seen))
        yield from _wrapped("do", finding.remedy)
        yield from _wrapped("source", _source(finding))
    yield ""


def _painted(severity: Severity) -> str:
    word = f"{severity.value:<9}"
    return click.style(word, fg=_COLOURS[severity], bold=True) if output.wants_colour("stdout") else word


def _wrapped(label: str, text: str) -> list[str]:
    first = f"{_INDENT}{label:<7}" if label else _INDENT
    return textwrap.wrap(
        _printable(text),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _printable(text: str) -> str:
    """Names and tokens come from files that may be hostile."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _evidence(seen: Evidence) -> str:
    place = f"{seen.where}: {seen.key}" if seen.key else seen.where
    expected = f"; expected {seen.expected}" if seen.expected else ""
    return f"{place}: {seen.found}{expected}"


def _source(finding: Finding) -> str:
    of = f" · {finding.engine} {finding.versions or ''}".rstrip() if finding.engine else ""
    return f"{finding.source.name}, read {finding.source.read}{of}"


def _closing(judgement: Judgement) -> Iterator[str]:
    families = Counter(code.partition("-")[0] for code in judgement.checked)
    counted = ", ".join(f"{family} {count}" for family, count in families.items())
    yield from textwrap.wrap(
        f"checked   {len(judgement.checked)} rules: {counted}", _WIDTH, subsequent_indent=_INDENT
    )
    for reason, codes in _by_reason(judgement.not_checked):
        yield from textwrap.wrap(
            f"not       {', '.join(codes)}: {_printable(reason)}", _WIDTH, subsequent_indent=_INDENT
        )


def _by_reason(entries: Iterable[NotChecked]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        found.setdefault(entry.reason, []).append(entry.code)
    return list(found.items())
