"""Fills a deployment record from what is deployed. Called by `draftproof lock` and, for files, by `local`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from draftproof.checkpoints.files import parse_json
from draftproof.checkpoints.folder import sha256_of_file
from draftproof.checkpoints.view import CheckpointView, open_view
from draftproof.configs.lock.record import (
    CheckpointRecord,
    DeploymentRecord,
    EngineRecord,
    VerdictRecord,
    template_digest,
)
from draftproof.configs.lock.redaction import redact, redact_text, redact_words
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.shell import assignment, read_command
from draftproof.configs.speculation import Deployment, ModelRef, as_dict
from draftproof.core.errors import DraftproofError, named_by
from draftproof.core.files import open_regular
from draftproof.core.provenance import hardware
from draftproof.core.version import __version__

REPORT_MAX_BYTES = 256 << 20
_DISTRIBUTIONS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "tensorrt-llm",
    "transformers": "transformers",
    "openvino": "openvino-genai",
}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What shall be recorded. `text` is what starts the engine; `target` and `drafter` say where the checkpoints lie
    on this machine, where the configuration names another place."""

    deployment: Deployment
    text: str
    version: str | None = None
    target: str | None = None
    drafter: str | None = None
    verdict: Path | None = None


def make_record(subject: Subject, progress: Progress = lambda what: None) -> DeploymentRecord:
    """Reads every file that decides what is computed; `progress` is told which one is being read.

    Raises what `open_view` raises, and DP432 for a verdict that is no report.
    """
    deployment = subject.deployment
    return DeploymentRecord(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        made_by=f"draftproof {__version__}",
        engine=_engine(deployment, subject.version),
        target=_checkpoint("TARGET", subject.target, deployment.target, progress),
        drafter=_checkpoint("--draft", subject.drafter, deployment.speculation.drafter, progress),
        arguments=tuple(arguments_of(subject.text)),
        deployment=plain(deployment),
        hardware=asdict(hardware()),
        verdict=None if subject.verdict is None else read_verdict(subject.verdict, deployment.engine),
    )


def plain(deployment: Deployment) -> Mapping[str, Any]:
    """As a record holds it, without secrets."""
    found = redact(as_dict(deployment))
    assert isinstance(found, dict)
    return found


def _checkpoint(
    argument: str, reference: str | None, model: ModelRef | None, progress: Progress
) -> CheckpointRecord | None:
    if reference is None and model is None:
        return None
    if reference is None:
        argument = "--command"
        assert model is not None
        reference = os.path.expanduser(model.name)
        if model.revision is not None and not os.path.exists(reference):
            reference = f"{reference}@{model.revision}"
    if os.path.exists(reference):
        reference = os.path.abspath(reference)
    with named_by(argument):
        view = open_view(reference)
    return record_checkpoint(view, progress)


def record_checkpoint(view: CheckpointView, progress: Progress = lambda what: None) -> CheckpointRecord:
    """What identifies a checkpoint; reads all of its files, however large."""
    template = view.chat_template
    return CheckpointRecord(
        reference=redact_text(view.reference),
        kind=view.kind,
        source=view.source,
        revision=view.revision,
        files=dict(view.hashes(progress)),
        chat_template=None if template is None else template_digest(template),
    )


def arguments_of(text: str) -> list[str]:
    """The words of a command line, variables before it included; any other text as one. Without secrets."""
    if not text.lstrip().startswith(("{", "[")):
        try:
            command = read_command(Place("command", text))
        except DraftproofError:
            return [redact_text(text)]
        if command.words and command.words[0].text.endswith(":"):  # YAML in one line
            return [redact_text(text)]
        variables = redact(dict(filter(None, map(assignment, command.environment))))
        return [f"{name}={value}" for name, value in variables.items()] + redact_words(
            word.text for word in command.words
        )
    return [redact_text(text)]


def _engine(deployment: Deployment, version: str | None) -> EngineRecord:
    for said, by in (
        (version, "as named for the record"),
        (deployment.version, "the configuration"),
        (__version__ if deployment.engine == "draftproof" else None, "this program"),
        (installed_version(deployment.engine), "the package that is installed here"),
    ):
        if said is not None:
            return EngineRecord(name=deployment.engine, version=said, version_from=by)
    return EngineRecord(name=deployment.engine, version=None, version_from=None)


def installed_version(engine: str) -> str | None:
    """Of the engine's package in this Python, or None."""
    distribution = _DISTRIBUTIONS.get(engine)
    if engine == "draftproof":
        return __version__
    if distribution is None:
        return None
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def read_verdict(path: Path, engine: str) -> VerdictRecord:
    """Hash, verdicts and model of a report.json. Raises DP002, and DP432 for no report, or one of another engine."""
    try:
        with open_regular(path) as file:
            content = file.read(REPORT_MAX_BYTES + 1)
        digest = sha256_of_file(path)
    except OSError as error:
        raise DraftproofError(
            "DP002",
            "--verdict",
            f"{path}: {error.strerror}",
            "a report.json",
            "Name the report of a measurement.",
        ) from error
    try:
        if len(content) > REPORT_MAX_BYTES:
            raise ValueError
        report = parse_json(path, content.decode("utf-8"))
        cells = report.get("cells")
        verdicts = tuple(str(cell["verdict"]) for cell in cells or ())
        if not isinstance(cells, list):
            raise ValueError
    except (DraftproofError, ValueError, TypeError, KeyError) as error:
        raise DraftproofError(
            "DP432",
            str(path),
            "no cells with verdicts",
            "the report.json of a measurement",
            "Name that file.",
        ) from error
    measured, model = report.get("engine"), report.get("model")
    if isinstance(measured, str) and measured != engine:
        raise DraftproofError(
            "DP432",
            str(path),
            f"a measurement of {measured}",
            f"one of {engine}, which is deployed",
            "Leave --verdict out: the record then says that nothing shows that this deployment pays.",
        )
    name = model.get("model") if isinstance(model, dict) else None
    return VerdictRecord(
        path=os.path.abspath(path),
        sha256=digest,
        verdicts=verdicts,
        model=redact_text(name) if isinstance(name, str) else None,
    )
