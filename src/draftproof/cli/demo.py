"""`draftproof demo`: does speculation pay on this machine, shown on the default model in a few minutes."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from draftproof import __version__
from draftproof.cli import output
from draftproof.cli.options import ModelOptions, announce_engine, json_option, load_engine, model_options
from draftproof.core.errors import DraftproofError
from draftproof.core.files import write_whole

DEFAULT_MODEL = "smollm2-135m"


EXAMPLES = (
    "draftproof demo",
    "draftproof demo --quick --json --out results/demo",
)


@click.command(
    name="demo",
    short_help="Measure speculation on the default model, end to end.",
    epilog=output.examples(*EXAMPLES),
)
@click.argument("model", default=DEFAULT_MODEL)
@click.option(
    "--quick", is_flag=True, help="Fewer prompts and shorter answers: about a minute, wider intervals."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("draftproof-demo"),
    show_default=True,
    help="Folder for report.md and report.json; made if it is missing, the two files are replaced.",
)
@model_options
@json_option
def command(model: str, quick: bool, out: Path, as_json: bool, **model_flags: Any) -> int:
    """Measure three workloads with and without speculation on MODEL (default: smollm2-135m, fetched once).

    Workloads: edit a file of Python source, open chat, answer from a long passage; in English and German,
    at one and at four requests at a time. Plain and speculative runs alternate, prompt by prompt. Takes up
    to five minutes on two cores.
    """
    _make_folder(out)
    from draftproof.core.provenance import birth_certificate, command_line
    from draftproof.measure import demo_report
    from draftproof.measure.demo import QUICK, Demo, DemoSettings
    from draftproof.measure.workloads import load_all

    engine = load_engine(model, ModelOptions(**model_flags))
    description = engine.describe()
    announce_engine(description)
    settings = QUICK if quick else DemoSettings()
    progress = output.ProgressLine()
    try:
        result = Demo(engine, load_all(), settings, progress.show).run()
    finally:
        progress.clear()
    # Greedy decoding draws nothing: there is no seed to name.
    provenance = birth_certificate(command_line(), seeds={}, settings=asdict(settings))
    document = demo_report.as_document(result, description, provenance)
    _write(
        out / "report.md",
        demo_report.as_markdown(result, description, provenance, f"draftproof {__version__}"),
    )
    _write(out / "report.json", json.dumps({"schema_version": output.SCHEMA_VERSION, **document}, indent=1))
    if as_json:
        output.print_json(document)
    else:
        click.echo(demo_report.as_text(result, description))
    output.note(f"written: {out / 'report.md'}, {out / 'report.json'}")
    if description["exactness"]["promise"] and not result.all_identical:
        output.note(
            "The answers differ although they were promised to be equal: please report this with report.json."
        )
        return output.FAULT
    return output.DONE if result.is_whole else output.INTERRUPTED


def _make_folder(out: Path) -> None:
    """Before anything is measured: five minutes later would be too late to learn of it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(out, error) from error
    if not os.access(out, os.W_OK):
        raise _cannot_write(out, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> DraftproofError:
    return DraftproofError(
        "DP002",
        "--out",
        f"{path}: {error.strerror or error}",
        "a folder that can be written",
        "Name another one.",
    )
