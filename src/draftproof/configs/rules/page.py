"""The page `docs/rules.md`, out of the rule base. Called by whoever writes generated pages."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.rules.registry import FAMILIES, statements_of
from draftproof.configs.rules.rule import Reading, Rule, Statement

_RULES_INTRO = """\
# Rules of check

This page is generated from the rule base by `python -m draftproof.cli.docs`; do not edit it.

A rule has a stable code, says what it saw where, and what to do. Severity: *error*, it will not start, will not
speculate, or will change the text; *warning*, it may cost speed, memory or acceptance; *info*, worth knowing. The
severity named here is the worst that a rule gives. "Read for" is the range of versions for which the fact was read:
for other versions `check` says "not known for X" instead of guessing. Figures in the texts are what others reported.
"""


def rules_page() -> str:
    sections = [_RULES_INTRO]
    for family in (*FAMILIES, "LOCK"):
        lines = [line for found in statements_of([family]) for line in _statement(found)]
        sections.append("\n".join([f"## {family}\n", *lines]))
    return "\n".join(sections)


def _statement(found: Statement) -> Iterator[str]:
    yield f"### {found.code}: {found.title}\n"
    yield f"At worst {found.severity.value}. {found.about}\n"
    yield f"- What to do: {found.remedy}"
    if isinstance(found, Rule):
        if found.methods:
            yield f"- Methods: {', '.join(sorted(found.methods))}"
        for reading in found.readings:
            yield f"- Read for {_read(reading)}"
    yield f"- Source: {found.source.name}, read {found.source.read}\n"


def _read(reading: Reading) -> str:
    return f"{reading.engine} {in_words(reading)}: {reading.source.name}, read {reading.source.read}"


def in_words(reading: Reading) -> str:
    """The versions that a fact was read for."""
    return reading.versions.replace(",", ", ") or "(all versions)"
