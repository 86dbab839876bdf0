"""What a rule is: data about it, and one function from a case to what it saw there.

Families define them, `judging` runs them, `rules list|show` and the documentation print them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftproof.configs.speculation import Method
from draftproof.core.finding import Evidence, Severity, Source

if TYPE_CHECKING:
    from draftproof.configs.rules.case import Case

ANY_VERSION = ""
"""For what is mathematics or file format, or an engine without versions."""


@dataclass(frozen=True, slots=True)
class Reading:
    """In which engine and which versions of it a fact was read, as pip writes ranges ("==0.33.0", ">=0.20,<=0.33.0"),
    and where."""

    engine: str
    versions: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """What a rule saw. `severity`, `remedy` and `reading` stand in place of the rule's own where they are given.

    `setting`: what a dialect remarked on; a rule that saw the same setting, no less severely, says it in its place."""

    detail: str
    evidence: tuple[Evidence, ...]
    setting: str | None = None
    severity: Severity | None = None
    remedy: str | None = None
    reading: Reading | None = None


def on_command(
    detail: str, key: str, found: object, expected: object = None, *, where: str = "command", **more: Any
) -> Hit:
    """A hit on one setting of the command, or of the file or the requests that `where` names; `more` as in `Hit`."""
    wanted = None if expected is None else str(expected)
    seen = Evidence(where=where, key=key, found=str(found), expected=wanted)
    return Hit(detail=detail, evidence=(seen,), **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a code stands for, whoever finds it. `code` is stable: FAMILY-NN.

    severity  the worst that it can give
    about     why it matters and how it shows, two or three sentences for people
    remedy    what to do, unless a finding knows better
    source    where the kind of fault was read
    """

    code: str
    title: str
    severity: Severity
    about: str
    remedy: str
    source: Source

    @property
    def family(self) -> str:
        return self.code.partition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Statement):
    """One rule.

    judge     case → hits; it asks the case for what it needs and stops (`MissingError`) where that is not at hand
    methods   to which it applies; empty: to all
    covers    codes of rules that see the same fault from another side: what this one finds, they need not say
    readings  the engines and versions for which it was read; empty: it holds in any engine, or its hits name one
    """

    judge: Callable[[Case], Iterable[Hit]]
    methods: frozenset[Method] = frozenset()
    covers: frozenset[str] = frozenset()
    readings: tuple[Reading, ...] = ()

    def reading_for(self, engine: str) -> Reading | None:
        return next((reading for reading in self.readings if reading.engine == engine), None)

    def applies_to(self, engine: str, method: Method) -> bool:
        return (not self.methods or method in self.methods) and (
            not self.readings or self.reading_for(engine) is not None
        )


class MissingError(Exception):
    """A rule needs something that is not at hand; `what` says what, in words. Never leaves `judging`."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(what)
