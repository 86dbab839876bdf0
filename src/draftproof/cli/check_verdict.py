"""What `draftproof check` concludes: findings of all cases together, what the user allows, and the exit status.

Called by `check`. Each thing is said once, whether parts of a cascade or several engines have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from draftproof.cli import output
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.facts.methods import find_method
from draftproof.configs.rules.judging import Judgement, judge
from draftproof.configs.rules.registry import rules_of, statement
from draftproof.core.finding import Finding, Severity

_ORDER = tuple(Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """What one engine makes of the files, and how it writes the method."""

    name: str
    written: str
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[str, ...]:
        return self._codes(Severity.ERROR)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._codes(Severity.WARNING)

    def _codes(self, severity: Severity) -> tuple[str, ...]:
        return tuple(dict.fromkeys(found.code for found in self.findings if found.severity is severity))

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "written": self.written,
            "errors": list(self.errors),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`findings` worst first; `allow`: codes that the user knows of. `engines`: where none was asked for."""

    findings: tuple[Finding, ...]
    allow: tuple[str, ...] = ()
    engines: tuple[EngineRow, ...] = field(default=())

    @property
    def open(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.code not in self.allow)

    @property
    def allowed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.code in self.allow)

    @property
    def unused(self) -> tuple[str, ...]:
        """Codes that were allowed and not found."""
        found = {finding.code for finding in self.findings}
        return tuple(code for code in self.allow if code not in found)

    @property
    def without_errors(self) -> tuple[EngineRow, ...]:
        """Engines for which nothing was found that is an error and not allowed."""
        return tuple(row for row in self.engines if not set(row.errors) - set(self.allow))

    def concerned(self, finding: Finding) -> tuple[str, ...]:
        """Names of the engines for which it was found."""
        return tuple(row.name for row in self.engines if finding in row.findings)

    @property
    def status(self) -> int:
        """Where several engines were looked at, one without an error is enough."""
        if self.engines:
            return output.DONE if self.without_errors else output.VIOLATION
        errors = any(finding.severity is Severity.ERROR for finding in self.open)
        return output.VIOLATION if errors else output.DONE

    def as_dict(self) -> dict[str, object]:
        return {
            "findings": [
                {
                    **finding.as_dict(),
                    "allowed": finding.code in self.allow,
                    **({"engines": list(self.concerned(finding))} if self.engines else {}),
                }
                for finding in self.findings
            ],
            "allowed_unused": list(self.unused),
        }


def read_allowed(codes: Iterable[str]) -> tuple[str, ...]:
    """Raises DP001 for a code that nothing has."""
    named = (name for text in codes for name in text.split(",") if name.strip())
    return tuple(dict.fromkeys(statement(name, "--allow").code for name in named))


def judge_all(cases: Sequence[Case], families: Iterable[str]) -> tuple[Judgement, tuple[Judgement, ...]]:
    """All cases together, and each: what is found in several is said once, what was checked in one was checked."""
    rules = rules_of(families)
    judged = tuple(judge(case, rules) for case in cases)
    checked = tuple(dict.fromkeys(code for part in judged for code in part.checked))
    together = Judgement(
        worst_first(finding for part in judged for finding in part.findings),
        checked,
        tuple(dict.fromkeys(entry for part in judged for entry in part.not_checked)),
    )
    return together, judged


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each once."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: _ORDER.index(finding.severity)))


def engine_rows(cases: Sequence[Case], judged: Sequence[Judgement]) -> tuple[EngineRow, ...]:
    rows = []
    for case, judgement in zip(cases, judged, strict=True):
        fact = find_method(case.engine, case.method)
        version = f" {case.version}" if case.version is not None else ""
        rows.append(
            EngineRow(
                name=f"{case.engine}{version}",
                written=fact.written if fact is not None else case.method,
                findings=judgement.findings,
            )
        )
    return tuple(rows)
