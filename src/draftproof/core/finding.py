"""What a check found out: a stable code, how bad it is, what was seen where, and what to do.

Made by the rules that judge pairs and configurations, by the planner and by the probe; printed by the commands and
kept in reports. Knows nothing of how a rule comes to its conclusion.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """error: it will not start, will not speculate, or will change the text. warning: it may cost speed, memory or
    acceptance, or could not be confirmed. info: worth knowing, nothing to do."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a fact comes from: a page, a source file of a version, an issue, or our own run."""

    name: str
    """Such as "vLLM 0.33.0 source", "sglang PR 21272" or "config.json"."""
    read: str
    """Date on which it was read, ISO 8601 (2026-11)."""
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One thing that was seen: in which file, under which key or tensor, and what was there."""

    where: str
    """A file, an argument of the command, or the name of a checkpoint."""
    key: str | None = None
    """Key path, tensor name or flag in it."""
    found: str
    expected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One conclusion. `engine` None means that it holds in any engine; `versions` is the range that the rule was read
    for, as written ("0.33.0", ">=0.5.20,<0.6"), or "not known for X" where the asked version was not read."""

    code: str
    severity: Severity
    title: str
    detail: str
    evidence: tuple[Evidence, ...]
    remedy: str
    source: Source
    engine: str | None = None
    versions: str | None = None

    def as_dict(self) -> dict[str, object]:
        return {
            "code": self.code,
            "severity": self.severity.value,
            "title": self.title,
            "detail": self.detail,
            "engine": self.engine,
            "versions": self.versions,
            "evidence": [
                {"where": seen.where, "key": seen.key, "found": seen.found, "expected": seen.expected}
                for seen in self.evidence
            ],
            "remedy": self.remedy,
            "source": {"name": self.source.name, "read": self.source.read, "url": self.source.url},
        }
