"""VERSION: whether the rules were read for the version that runs."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.rules.case import Case
from draftproof.configs.rules.facts.readings import BY_ENGINE
from draftproof.configs.rules.rule import Hit, Rule, on_command
from draftproof.configs.rules.versions import READ
from draftproof.core.finding import Severity, Source


def _unread(case: Case) -> Iterator[Hit]:
    reading = BY_ENGINE.get(case.engine)
    if reading is None or case.version is None or case.deployment.version is None:
        return
    if not case.is_within(reading.versions):
        yield on_command(
            f"{case.engine} {case.deployment.version} was not read; most rules are of {READ[case.engine]} and "
            "say 'not known' here.",
            "version",
            case.deployment.version,
            reading.versions,
            where="engine",
        )


RULES = (
    Rule(
        code="VERSION-01",
        title="A version that was not read",
        severity=Severity.INFO,
        about="Flags and behaviour change with releases. What was not read is not guessed.",
        remedy="Let the engine itself confirm the configuration, or compare with the version that was read.",
        source=Source(name="draftproof's rule base", read="2026-11"),
        judge=_unread,
    ),
)
