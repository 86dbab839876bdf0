"""Spellings that the engine refuses, warns of, ignores or rewrites: what a dialect noticed (`Remark`) as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from draftproof.configs.engines.base import Effect, Remark
from draftproof.configs.reading.start import FROM_OUTSIDE, IN_A_VARIABLE
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.rule import ANY_VERSION, Hit, Reading, Rule
from draftproof.configs.rules.versions import is_range
from draftproof.core.finding import Evidence, Severity, Source

_SOURCE = Source(name="sources of the engines, per flag", read="2026-11")


def _remarks(*effects: Effect) -> Callable[[Case], Iterator[Hit]]:
    def judge(case: Case) -> Iterator[Hit]:
        for remark in case.remarks:
            if remark.effect not in effects or _is_of_no_concern(remark):
                continue
            today = f" Today: {remark.today}." if remark.today else ""
            yield Hit(
                setting=remark.setting,
                severity=Severity.INFO if remark.reason in _ELSEWHERE else _SEVERITY.get(remark.effect),
                detail=f"{remark.setting}: {remark.reason.rstrip('.')}.{today}",
                evidence=(
                    Evidence(
                        where="command",
                        key=remark.setting,
                        found=remark.found or "not given",
                        expected=remark.today,
                    ),
                ),
                remedy=_remedy(remark),
                reading=_reading_of(case, remark),
            )

    return judge


_SEVERITY: Mapping[Effect, Severity] = {"unknown": Severity.WARNING, "unread": Severity.WARNING}
"""Where it is not the rule's own."""
_ELSEWHERE = (IN_A_VARIABLE, FROM_OUTSIDE)
"""A known name whose value the text does not hold: nothing is wrong with that."""
_OF_ENGINES = ("VLLM_", "SGLANG_", "SGL_", "LLAMA_ARG_", "TLLM_", "TRTLLM_")


def _is_of_no_concern(remark: Remark) -> bool:
    """A token, a port or the like whose value is elsewhere: no engine's own variable."""
    return remark.reason in _ELSEWHERE and not remark.setting.startswith(_OF_ENGINES)


def _remedy(remark: Remark) -> str | None:
    if remark.reason in _ELSEWHERE:
        return "Give the text with its value where it may matter."
    return f"Write {remark.today}." if remark.today and remark.effect != "inferred" else None


def _reading_of(case: Case, remark: Remark) -> Reading | None:
    """vLLM's dialect has judged the version already, and its ranges may be words; other dialects know the version that
    was read."""
    if remark.versions and is_range(remark.versions) and remark.source is not None:
        return Reading(case.engine, remark.versions, remark.source)
    if case.engine == "vllm":
        return None if remark.source is None else Reading(case.engine, ANY_VERSION, remark.source)
    engine = read.BY_ENGINE.get(case.engine)
    return engine if engine is None or remark.source is None else replace(engine, source=remark.source)


def _from_remarks(
    number: int, effect: Effect, severity: Severity, title: str, about: str, remedy: str
) -> Rule:
    return Rule(
        code=f"FLAG-{number:02}",
        title=title,
        severity=severity,
        about=about,
        remedy=remedy,
        source=_SOURCE,
        judge=_remarks(effect),
    )


RULES = (
    _from_remarks(
        1,
        "removed",
        Severity.ERROR,
        "A setting that no longer exists",
        "The engine refuses it at start, or takes it for something else. Pages and scripts live longer than flags.",
        "Leave it out, or write what replaced it.",
    ),
    _from_remarks(
        2,
        "deprecated",
        Severity.WARNING,
        "A setting that still works and will go",
        "The engine warns and rewrites it.",
        "Write today's spelling.",
    ),
    _from_remarks(
        3,
        "ignored",
        Severity.WARNING,
        "A setting without effect",
        "The engine accepts it and does not act on it: what you read in the command is not what runs.",
        "Leave it out, so that the command says what runs.",
    ),
    _from_remarks(
        4,
        "rewritten",
        Severity.WARNING,
        "A value that the engine replaces",
        "Two settings contradict each other, and the engine decides for one of them.",
        "Write the value that the engine takes.",
    ),
    _from_remarks(
        5,
        "inferred",
        Severity.INFO,
        "A setting that the engine deduces",
        "What is not written is deduced from paths, files or other settings, and can change with them.",
        "Write it down.",
    ),
    Rule(
        code="FLAG-13",
        title="Settings that the engine refuses together",
        severity=Severity.ERROR,
        about="Each value is one that the engine knows; in this combination it ends at start with an error.",
        remedy="Add the setting that is missing, or leave this one out.",
        source=_SOURCE,
        judge=_remarks("refused"),
    ),
    Rule(
        code="FLAG-14",
        title="A setting that the engine does not have, or that is not known here",
        severity=Severity.ERROR,
        about=(
            "Engines refuse to start with a flag that they do not have: an error where all flags of the version were "
            "read. A setting of another version, or in a file that was not at hand, was not checked: a warning."
        ),
        remedy="Correct its name, or ask the engine (its --help); give a file's contents as part of the command.",
        source=_SOURCE,
        judge=_remarks("stray", "unknown", "unread"),
    ),
)
