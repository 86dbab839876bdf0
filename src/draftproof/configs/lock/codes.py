"""What the codes of a comparison with a deployment record stand for. Data: `drift` gives them, `rules` lists them."""

from __future__ import annotations

from draftproof.configs.rules.rule import Statement
from draftproof.core.finding import Severity, Source

_SOURCE = Source(name="draftproof: comparison with a deployment record", read="2026-11")
_AGAIN = "Deploy what was recorded, or measure again and write a new record with `draftproof lock`."


def _code(number: int, severity: Severity, title: str, about: str, remedy: str = _AGAIN) -> Statement:
    return Statement(
        code=f"LOCK-{number:02}", title=title, severity=severity, about=about, remedy=remedy, source=_SOURCE
    )


STATEMENTS: tuple[Statement, ...] = (
    _code(
        1, Severity.ERROR, "The target's weights or configuration are not those of the record",
        "Another file decides what is computed: what was measured says nothing of it.",
    ),
    _code(
        2, Severity.ERROR, "The drafter's weights or configuration are not those of the record",
        "Acceptance and speed were measured with another drafter.",
    ),
    _code(
        3, Severity.ERROR, "Tokenizer or chat template are not those of the record",
        "The same request becomes other tokens, for target and drafter.",
    ),
    _code(
        4, Severity.WARNING, "The name stands for another revision than at the time of the record",
        "A name on a hub moves with every commit.",
        "Name the recorded revision in the engine's arguments.",
    ),
    _code(
        5, Severity.WARNING, "The engine has another version than at the time of the record",
        "Speed, acceptance and even the text may change between versions of an engine.",
        "Install the recorded version, or measure again and write a new record.",
    ),
    _code(
        6, Severity.ERROR, "The engine runs with other settings than the record says",
        "A setting was changed after it had been decided on, or is not what the engine took.",
    ),
    _code(
        7, Severity.WARNING, "The hardware is not that of the record",
        "Whether speculation pays depends on the machine.",
        "Measure on this machine and write a new record.",
    ),
    _code(
        8, Severity.WARNING, "The measurement that the record refers to is gone or was changed",
        "The report is not the one on which this deployment was decided.",
        "Find the recorded report, or measure again and write a new record.",
    ),
    _code(
        9, Severity.ERROR, "Another model is served than the record says",
        "The endpoint answers for a model of another name.",
        "Check the address, or write a new record for this deployment.",
    ),
    _code(
        10, Severity.INFO, "Not visible: it could not be compared",
        "What could not be seen is neither equal nor different.",
        "Run the check where this can be seen, for example on the machine that serves.",
    ),
)  # fmt: skip
