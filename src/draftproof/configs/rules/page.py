"""The pages `docs/rules.md` and `docs/methods.md`, out of the rule base. Called by whoever writes generated pages."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.rules.facts.features import FEATURES
from draftproof.configs.rules.facts.methods import METHODS
from draftproof.configs.rules.facts.parameters import FACTS
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

_METHODS_INTRO = """\
# Methods by engine

This page is generated from the rule base by `python -m draftproof.cli.docs`; do not edit it.

What is not listed was not found in the version read; that is no promise about other versions.
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
    return f"{reading.engine} {_versions(reading)}: {reading.source.name}, read {reading.source.read}"


def _versions(reading: Reading) -> str:
    return reading.versions.replace(",", ", ") or "(all versions)"


def methods_page() -> str:
    parts = [_METHODS_INTRO]
    for engine in dict.fromkeys(fact.reading.engine for fact in METHODS):
        own = [fact for fact in METHODS if fact.reading.engine == engine]
        rows = [
            f"| {fact.method} | `{fact.written}` | {_versions(fact.reading)} | "
            f"{'; '.join(fact.needs) or '–'}{f' (removed: {fact.gone.versions})' if fact.gone else ''} |"
            for fact in own
        ]
        parts.append(
            "\n".join(
                [f"## {engine}\n", "| method | written | versions | needs |", "|---|---|---|---|", *rows, ""]
            )
        )
    parts.append(_features())
    parts.append(_parameters())
    return "\n".join(parts)


def _features() -> str:
    rows = [
        f"| {fact.reading.engine} {_versions(fact.reading)} | {fact.feature.replace('_', ' ')} | "
        f"{_which(fact.methods, fact.not_methods)} | {fact.severity.value} | {fact.effect} |"
        for fact in FEATURES
    ]
    head = ["| engine | feature | methods | severity | what happens |", "|---|---|---|---|---|"]
    return "\n".join(["## Together with other features\n", *head, *rows, ""])


def _which(methods: frozenset[str], not_methods: frozenset[str] = frozenset()) -> str:
    if methods:
        return ", ".join(sorted(methods))
    return f"all but {', '.join(sorted(not_methods))}" if not_methods else "all"


def _parameters() -> str:
    rows = [
        f"| {fact.reading.engine} {_versions(fact.reading)} | {', '.join(fact.parameters)} | "
        f"{_which(fact.methods)} | {fact.effect} | {fact.words} |"
        for fact in FACTS
    ]
    head = ["| engine | parameters | methods | effect | what happens |", "|---|---|---|---|---|"]
    return "\n".join(
        [
            "## Request parameters under speculation\n",
            '"reported": others met faults, and in which versions is not known.\n',
            *head,
            *rows,
            "",
        ]
    )
