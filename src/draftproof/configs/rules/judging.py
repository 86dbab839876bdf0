"""Runs rules over a case: what was found, which rules were checked, what was not checked and why.

Called by `check`, by our engine and by tests. Knows no rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from draftproof.configs.own import normal
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.rule import Hit, MissingError, Reading, Rule
from draftproof.core.finding import Finding, Severity

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A rule that applies but could not be judged."""

    code: str
    title: str
    reason: str

    def as_dict(self) -> dict[str, object]:
        return {"code": self.code, "title": self.title, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Judgement:
    """findings     worst first
    checked      codes of the rules that were judged to the end
    not_checked  rules that apply and were not, or whose fact was not read for the version
    """

    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    not_checked: tuple[NotChecked, ...]

    @property
    def worst(self) -> Severity | None:
        return self.findings[0].severity if self.findings else None


def judge(case: Case, rules: Iterable[Rule]) -> Judgement:
    """Judges every rule that applies to the case's engine and method. Raises DP402 where a file is broken."""
    found: list[tuple[Rule, Hit, Finding]] = []
    checked: list[str] = []
    not_checked: list[NotChecked] = []
    for rule in rules:
        if not rule.applies_to(case.engine, case.method):
            continue
        try:
            hits = tuple(rule.judge(case))
        except MissingError as missing:
            not_checked.append(NotChecked(rule.code, rule.title, missing.what))
            continue
        known = [hit for hit in hits if _was_read(case, _reading(case, rule, hit))]
        found += [(rule, hit, _finding(case, rule, hit)) for hit in known]
        unread = _unread(case, rule, hits)
        if unread is None:
            checked.append(rule.code)
        else:
            not_checked.append(NotChecked(rule.code, rule.title, unread))
    findings = sorted(_once(case, found), key=lambda finding: _ORDER.index(finding.severity))
    return Judgement(tuple(findings), tuple(checked), tuple(not_checked))


def _once(case: Case, found: Sequence[tuple[Rule, Hit, Finding]]) -> Iterator[Finding]:
    """One fault, one finding: without what another finding covers."""
    covered = {code for rule, _, _ in found for code in rule.covers}
    worst: dict[str, int] = {}
    for _, hit, finding in found:
        for seen in finding.evidence if hit.setting is None else ():
            name, rank = normal(seen.key or "", case.engine), _ORDER.index(finding.severity)
            worst[name] = min(rank, worst.get(name, rank))
    for rule, hit, finding in found:
        better = None if hit.setting is None else worst.get(normal(hit.setting, case.engine))
        if rule.code not in covered and (better is None or better > _ORDER.index(finding.severity)):
            yield finding


def _reading(case: Case, rule: Rule, hit: Hit) -> Reading | None:
    return hit.reading or rule.reading_for(case.engine)


def _was_read(case: Case, reading: Reading | None) -> bool:
    return reading is None or case.is_within(reading.versions)


def _unread(case: Case, rule: Rule, hits: Iterable[Hit]) -> str | None:
    """Why the rule says nothing of this version; None where it was read for it."""
    unknown = [hit for hit in hits if not _was_read(case, _reading(case, rule, hit))]
    reading = rule.reading_for(case.engine)
    if not unknown and _was_read(case, reading):
        return None
    readings = {found.versions for hit in unknown if (found := _reading(case, rule, hit)) is not None}
    read = ", ".join(sorted(readings)) or (reading.versions if reading else "")
    said = f", where it says: {unknown[0].detail}" if unknown else ""
    return f"not known for {case.engine} {case.version}; read for {read}{said}"


def _finding(case: Case, rule: Rule, hit: Hit) -> Finding:
    reading = _reading(case, rule, hit)
    return Finding(
        code=rule.code,
        severity=hit.severity or rule.severity,
        title=rule.title,
        detail=hit.detail,
        evidence=hit.evidence,
        remedy=hit.remedy or rule.remedy,
        source=rule.source if reading is None else reading.source,
        engine=None if reading is None else reading.engine,
        versions=None if reading is None or not reading.versions else reading.versions,
    )
