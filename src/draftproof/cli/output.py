"""What a command says and where: one JSON document on standard output, people's text on standard error.

Called by every command and by `main`. Knows streams and exit statuses; nothing of what the commands do.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping

import click

from draftproof.core.errors import DraftproofError

SCHEMA_VERSION = 1

DONE, FAULT, BAD_INPUT, VIOLATION, INTERRUPTED = 0, 1, 2, 5, 130


def print_json(document: Mapping[str, object]) -> None:
    """The one document of a `--json` command. ASCII only, so that no terminal's encoding can spoil it."""
    click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **document}, allow_nan=False))


def examples(*lines: str) -> str:
    """The end of a command's --help: command lines that work as written."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def note(text: str = "") -> None:
    """A line for people, on standard error."""
    click.echo(text, err=True)


def is_terminal(stream_name: str) -> bool:
    stream = getattr(sys, stream_name)
    return bool(stream is not None and stream.isatty())


def wants_colour(stream_name: str) -> bool:
    """A terminal that takes colours, and nobody asked for none (https://no-color.org)."""
    return is_terminal(stream_name) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class ProgressLine:
    """One line on standard error that is written over and over; where that is no terminal, a line per new part.

    What is done is told up to its last comma: "edit, 4 at a time, plain" and "…, speculative" are one part.
    """

    def __init__(self) -> None:
        self._visible = is_terminal("stderr")
        self._told: set[str] = set()
        self._started = time.monotonic()

    def show(self, done: int, total: int, what: str) -> None:
        if self._visible:
            minutes, seconds = divmod(round(time.monotonic() - self._started), 60)
            bar = ("█" * (20 * done // total)).ljust(20, "░")
            click.echo(f"\r\x1b[K{bar} {done:>3}/{total} {minutes}:{seconds:02} {what}", nl=False, err=True)
            return
        part = what.rpartition(", ")[0] or what
        if part not in self._told:
            self._told.add(part)
            note(part)

    def clear(self) -> None:
        if self._visible:
            click.echo("\r\x1b[K", nl=False, err=True)


def report_mistake(error: DraftproofError, as_json: bool, usage: str | None = None) -> int:
    """Says what was wrong with the input; returns the exit status."""
    if as_json:
        print_json({"error": error.as_dict()})
    if usage:
        note(usage)
    note(f"{_red('error')} {error.code}  {error.field}")
    note(f"  found     {error.found}")
    note(f"  expected  {error.expected}")
    note(f"  remedy    {error.remedy}")
    return BAD_INPUT


def report_fault(error: BaseException, as_json: bool) -> int:
    """Says that the fault is ours and how to report it; returns the exit status."""
    found = f"{type(error).__name__}: {error}"
    remedy = (
        "Please report it in the project's issue tracker with this message, the command and the output of "
        "`draftproof version`; DRAFTPROOF_DEBUG=1 shows the traceback."
    )
    if as_json:
        parts = {"code": "internal", "field": "draftproof", "found": found, "expected": "no fault of ours"}
        print_json({"error": {**parts, "remedy": remedy}})
    if os.environ.get("DRAFTPROOF_DEBUG"):
        traceback.print_exception(error)
    note(f"{_red('error')} a fault in draftproof, not in what you gave it: {found}")
    note(f"  {remedy}")
    return FAULT


def _red(text: str) -> str:
    return click.style(text, fg="red", bold=True) if wants_colour("stderr") else text
