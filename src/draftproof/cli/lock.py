"""`draftproof lock`: writes the deployment record, one file that says exactly what is deployed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from draftproof.cli import output
from draftproof.cli.options import file_of, files_beside, json_option, path_of, read_text, with_model
from draftproof.core.errors import DraftproofError

if TYPE_CHECKING:
    from draftproof.configs.lock.making import Subject
    from draftproof.configs.lock.record import CheckpointRecord, DeploymentRecord
    from draftproof.configs.speculation import Deployment

EXAMPLES = (
    "draftproof lock smollm2-135m --speculative-config "
    """'{"method": "ngram", "num_speculative_tokens": 4}'""",
    "draftproof lock ./Qwen3-8B --command 'vllm serve Qwen/Qwen3-8B --spec-method ngram --spec-tokens 5' "
    "--engine vllm==0.33.0",
)
DEFAULT_FILE = "draftproof.lock.json"


@click.command(
    name="lock",
    short_help="Write down exactly what is deployed, to see later what has drifted.",
    epilog=output.examples(*EXAMPLES),
)
@click.argument("target", required=False)
@click.option("--draft", metavar="DRAFTER", help="The drafter: a directory, a GGUF file or a hub id.")
@click.option(
    "--command",
    "text",
    metavar="TEXT",
    help="What starts the engine: its command line or configuration; @FILE reads a file.",
)
@click.option(
    "--speculative-config",
    metavar="JSON",
    help="For draftproof itself: JSON, or @FILE. Instead of --command.",
)
@click.option(
    "--engine",
    metavar="ENGINE[==VERSION]",
    help="Default: what --command says by its program or image, and what is installed.",
)
@click.option(
    "--verdict",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The report.json of the measurement on which this deployment was decided.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=DEFAULT_FILE,
    show_default=True,
    metavar="FILE",
    help="Where to write the record.",
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@json_option
def command(
    target: str | None,
    draft: str | None,
    text: str | None,
    speculative_config: str | None,
    engine: str | None,
    verdict: Path | None,
    out: Path,
    force: bool,
    as_json: bool,
) -> int:
    """Write the deployment record: files with their SHA-256, engine, arguments, hardware, and the measurement.

    TARGET and --draft say where the checkpoints lie on this machine; without them, the names in --command are used.
    Keys, tokens and passwords are left out. `draftproof check --lock FILE` tells later what has drifted, also
    against a running endpoint.
    """
    from draftproof.configs.lock.making import make_record
    from draftproof.configs.lock.record import write_record

    _require_place(out, force)
    deployment, given, version = _deployment(text, speculative_config, engine, draft)
    subject = _subject(deployment, given, version, target, draft, verdict)
    line = output.ProgressLine()
    try:
        record = make_record(subject, lambda name: line.show(0, 1, f"reading {name}"))
    finally:
        line.clear()
    try:
        write_record(out, record, over=force)
    except FileExistsError as error:  # it came while files were read
        raise _there_already(out) from error
    except OSError as error:
        raise _cannot_write(out, error.strerror or error) from error
    if as_json:
        output.print_json({"path": str(out), "record": record.as_dict()})
        return output.DONE
    _show(out, record)
    return output.DONE


def _require_place(out: Path, force: bool) -> None:
    """Before anything is read: gigabytes later would be too late to learn of it. Raises DP002."""
    if out.is_dir() or not out.parent.is_dir():
        raise _cannot_write(out, "a folder" if out.is_dir() else f"no folder {out.parent}")
    if out.exists() and not force:
        raise _there_already(out)


def _there_already(out: Path) -> DraftproofError:
    return DraftproofError(
        "DP002",
        "--out",
        f"{out}: there already",
        "a file that is not there yet",
        "Name another file, or write over it with --force.",
    )


def _cannot_write(out: Path, why: object) -> DraftproofError:
    return DraftproofError(
        "DP002", "--out", f"{out}: {why}", "a file that can be written", "Name another one."
    )


def _deployment(
    text: str | None, speculative_config: str | None, engine: str | None, draft: str | None
) -> tuple[Deployment, str, str | None]:
    """What is deployed, the text that says it, and the version that --engine names."""
    from draftproof.configs.engines.told import told_by
    from draftproof.configs.registry import DIALECTS, dialect

    if (text is None) == (speculative_config is None):
        both = "neither --command nor" if text is None else "both --command and"
        raise DraftproofError(
            "DP001",
            "--command",
            f"{both} --speculative-config",
            "one of them",
            "Give what starts the engine, or --speculative-config for draftproof itself.",
        )
    given = _read(
        text or speculative_config or "", "--command" if text is not None else "--speculative-config"
    )
    if text is None:
        given = with_model(given, draft, only_unsaid=True)
    name, _, version = (engine or "").partition("==")
    if not name:
        name = "draftproof" if text is None else told_by(given).engine or ""
    if not name:
        raise DraftproofError(
            "DP110",
            "--engine",
            "a text that does not say its engine",
            ", ".join(DIALECTS),
            "Name it: --engine vllm==0.33.0",
        )
    parsed = dialect(name).parse(given, version or None, files_beside(file_of(text or "")))
    return parsed.deployment, given, version or None


def _read(text: str, option: str) -> str:
    file = file_of(text)
    return text if file is None else read_text(file, option)


def _subject(
    deployment: Deployment,
    text: str,
    version: str | None,
    target: str | None,
    draft: str | None,
    verdict: Path | None,
) -> Subject:
    from draftproof.configs.lock.making import Subject

    if target is None and deployment.target is None:
        raise DraftproofError(
            "DP001",
            "TARGET",
            "no target",
            "a directory, a GGUF file, a hub id, or a name from `draftproof models list`",
            "Name the target before the options.",
        )
    return Subject(
        deployment=deployment,
        text=text,
        version=version,
        target=None if target is None else path_of(target),
        drafter=None if draft is None else path_of(draft),
        verdict=verdict,
    )


def _show(out: Path, record: DeploymentRecord) -> None:
    engine = record.engine
    lines = {
        "record": str(out),
        "engine": f"{engine.name} {engine.version or 'of unknown version'}"
        + (f" ({engine.version_from})" if engine.version_from else ""),
        "target": _described(record.target),
        "drafter": _described(record.drafter),
        "arguments": " ".join(record.arguments)[:200],
        "hardware": f"{record.hardware['cpu']}, {record.hardware['num_cores']} cores",
        "measurement": _measured(record),
    }
    width = max(map(len, lines))
    for name, value in lines.items():
        click.echo(f"{name.ljust(width)}  {value}")
    output.note(f"later: draftproof check --lock {out}")


def _described(checkpoint: CheckpointRecord | None) -> str:
    if checkpoint is None:
        return "none"
    revision = f" at {checkpoint.revision[:12]}" if checkpoint.revision else ""
    count = len(checkpoint.files)
    return f"{checkpoint.reference}{revision}, {count} file{'s' if count != 1 else ''}"


def _measured(record: DeploymentRecord) -> str:
    verdict = record.verdict
    if verdict is None:
        return "none: nothing shows that this deployment pays"
    said = ", ".join(verdict.verdicts) or verdict.path
    if verdict.model is None or record.names_target(verdict.model):
        return said
    return f"{said}; of {verdict.model}, which is another name than this target's: is it the same model?"
