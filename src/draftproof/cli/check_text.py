"""What `draftproof check` says: findings for people, a document for programs. Called by `check` alone."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import click

from draftproof.cli import output
from draftproof.cli.check_input import Asked
from draftproof.cli.check_verdict import Verdict
from draftproof.configs.rules.judging import Judgement, NotChecked
from draftproof.configs.rules.versions import READ
from draftproof.core.finding import Evidence, Finding, Severity

_WIDTH = 110
_INDENT = " " * 10
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}
_COUNTED = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_NOTHING = "nothing could be checked without a drafter or a configuration"


def document(asked: Asked, judgement: Judgement, verdict: Verdict) -> dict[str, Any]:
    case = asked.cases[0]
    return {
        "engine": {
            "name": asked.engine,
            "version": asked.version,
            "version_from": asked.version_from,
            "read_version": READ.get(asked.engine),
        },
        "engines": [row.as_dict() for row in verdict.engines],
        "target": case.deployment.target.name if case.deployment.target else None,
        "drafters": [item.speculation.drafter.name for item in asked.cases if item.speculation.drafter],
        "methods": list(dict.fromkeys(item.method for item in asked.cases))
        if asked.told
        else [item.method for item in asked.cases],
        **verdict.as_dict(),
        "checked": list(judgement.checked),
        "not_checked": [item.as_dict() for item in judgement.not_checked],
    }


def show(asked: Asked, judgement: Judgement, verdict: Verdict, record: str | None) -> None:
    head = [*_head(asked), *([record] if record else [])]
    seen = (
        judgement.checked,
        judgement.not_checked,
        verdict.engines,
        verdict.open,
        verdict.allowed,
        verdict.unused,
    )
    said = _findings(verdict) if any(seen) else (_NOTHING, "")
    for line in (*head, "", *said, *_closing(asked, judgement)):
        click.echo(line)


def show_findings(title: str, verdict: Verdict) -> None:
    for line in (title, "", *_findings(verdict)):
        click.echo(line)


def _head(asked: Asked) -> Iterator[str]:
    yield from _title(asked)
    for reason in dict.fromkeys(reason for case in asked.cases for reason in case.absent.values()):
        yield from textwrap.wrap(f"not read  {_printable(reason)}", _WIDTH, subsequent_indent=_INDENT)


def _title(asked: Asked) -> Iterator[str]:
    methods = ", ".join(case.method for case in asked.cases)
    case = asked.cases[0]
    if asked.told is not None:
        named = [case.deployment.target.name if case.deployment.target else "?"]
        named += [f"drafter {case.speculation.drafter.name}"] if case.speculation.drafter else []
        yield f"files alone · {case.method} · {' · '.join(named)}"
        yield f"no configuration given; method by {asked.told}"
        if case.method == "none":
            yield "next: draftproof advise TARGET says what to try; --draft or --command name what is to be checked"
        return
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


def _findings(verdict: Verdict) -> Iterator[str]:
    said = _counted(verdict.open)
    said += [f"{len(verdict.allowed)} allowed"] if verdict.allowed else []
    if verdict.engines:
        yield from _engines(verdict)
        for names, findings in _by_engines(verdict):
            yield f"── {names}: {', '.join(_counted(findings))}"
            for finding in findings:
                yield from _finding(finding)
            yield ""
    else:
        yield ", ".join(said) or "nothing found"
        for finding in verdict.open:
            yield from _finding(finding)
    for finding in verdict.allowed:
        yield ""
        yield f"allowed   {finding.code}  {finding.title} ({finding.severity.value})"
        yield from _wrapped("", finding.detail)
    for code in verdict.unused:
        yield ""
        yield f"allowed   {code}, and nothing of it was found: leave --allow {code} out"
    yield ""


def _counted(findings: Iterable[Finding]) -> list[str]:
    counts = Counter(finding.severity for finding in findings)
    return [
        f"{counts[severity]} {word}{'s' * (counts[severity] > 1)}"
        for severity, word in _COUNTED.items()
        if counts[severity]
    ]


def _finding(finding: Finding) -> Iterator[str]:
    yield ""
    yield f"{_painted(finding.severity)} {finding.code}  {finding.title}"
    yield from _wrapped("", finding.detail)
    for seen in finding.evidence:
        yield from _wrapped("seen", _evidence(seen))
    yield from _wrapped("do", finding.remedy)
    yield from _wrapped("source", _source(finding))


def _engines(verdict: Verdict) -> Iterator[str]:
    """Which engines run the pair, and one line for each, where no engine was asked for."""
    good, rows = verdict.without_errors, verdict.engines
    names = ", ".join(row.name for row in good)
    yield from textwrap.wrap(
        f"no error in {len(good)} of {len(rows)} engines{': ' if good else ''}{names}",
        _WIDTH,
        subsequent_indent=_INDENT,
    )
    width = max(len(row.name) for row in rows)
    written = max(len(row.written) for row in rows)
    for row in rows:
        codes = [f"errors {', '.join(row.errors)}"] if row.errors else []
        codes += [f"warnings {', '.join(row.warnings)}"] if row.warnings else []
        said = "; ".join(codes) or "nothing that speaks against it"
        yield f"{row.name:<{width}}  {row.written:<{written}}  {said}".rstrip()
    yield ""


def _by_engines(verdict: Verdict) -> list[tuple[str, list[Finding]]]:
    """Findings under the engines that they stand for, what stands for all first."""
    found: dict[tuple[str, ...], list[Finding]] = {}
    for finding in verdict.open:
        found.setdefault(verdict.concerned(finding), []).append(finding)
    whole = len(verdict.engines)
    return [
        ("every engine" if len(names) == whole else ", ".join(names), findings)
        for names, findings in sorted(found.items(), key=lambda item: len(item[0]) != whole)
    ]


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


def _closing(asked: Asked, judgement: Judgement) -> Iterator[str]:
    families = Counter(code.partition("-")[0] for code in judgement.checked)
    counted = ", ".join(f"{family} {count}" for family, count in families.items())
    if judgement.checked:
        yield from textwrap.wrap(
            f"checked   {len(judgement.checked)} rules: {counted}", _WIDTH, subsequent_indent=_INDENT
        )
    if asked.told is not None:
        yield "not       settings, flags and versions: give what starts the engine, --command or --speculative-config"
    for reason, codes in _by_reason(judgement.not_checked):
        yield from textwrap.wrap(
            f"not       {', '.join(codes)}: {_printable(reason)}", _WIDTH, subsequent_indent=_INDENT
        )


def _by_reason(entries: Iterable[NotChecked]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        found.setdefault(entry.reason, []).append(entry.code)
    return list(found.items())
