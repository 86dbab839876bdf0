"""The content of a deployment record, and its file. Knows neither how it is filled nor what it is compared with."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from draftproof.checkpoints.files import parse_json
from draftproof.checkpoints.hub_settings import cached_name
from draftproof.core.errors import DraftproofError
from draftproof.core.files import open_regular, write_whole

SCHEMA_VERSION = 1
KIND = "draftproof deployment record"
MAX_BYTES = 8 << 20


def template_digest(template: str) -> str:
    """sha256 of a chat template but for a last end of line, which Jinja drops and llama.cpp does not show."""
    return hashlib.sha256(template.removesuffix("\n").encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """`files`: name → sha256 of each file that decides what is computed. `chat_template`: sha256 of the default one,
    wherever it is kept. `revision`: the hub's commit, where known."""

    reference: str
    kind: str
    source: str
    revision: str | None
    files: Mapping[str, str]
    chat_template: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRecord:
    """`version_from`: in words, who said the version; None where it is not known."""

    name: str
    version: str | None
    version_from: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRecord:
    """A report of a measurement: where it lies, its sha256, and what it says. `model`: what was measured, None where
    the report does not say it."""

    path: str
    sha256: str
    verdicts: tuple[str, ...]
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRecord:
    """`arguments` are the words of the command, or the one text of a configuration; `deployment` is the neutral
    description (`configs.speculation.as_dict`), `hardware` that of the machine on which the record was made."""

    created: str
    made_by: str
    engine: EngineRecord
    target: CheckpointRecord | None
    drafter: CheckpointRecord | None
    arguments: tuple[str, ...]
    deployment: Mapping[str, Any]
    hardware: Mapping[str, Any]
    verdict: VerdictRecord | None

    def names_target(self, name: str) -> bool:
        """Whether a name or path may stand for the target: its last part is that of a name which the record has."""
        return plain_name(name) in self.names()

    def names(self) -> frozenset[str]:
        """What the target is called: by its reference, in the configuration, and by the flags that name it anew."""
        named = self.deployment.get("target")
        configured = str(named.get("name", "")) if isinstance(named, Mapping) else ""
        reference = "" if self.target is None else self.target.reference
        return frozenset(map(plain_name, (reference, configured, *_served_names(self.arguments)))) - {""}

    def as_dict(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "kind": KIND, **asdict(self)}


def plain_name(reference: str) -> str:
    """The last part of a path or hub id, without revision and suffix; of the hub's own cache the repository's."""
    place = cached_name(reference) or reference
    plain = place.rstrip("/").replace("\\", "/").rpartition("/")[2]
    return plain.partition("@")[0].removesuffix(".gguf").lower()


def _served_names(arguments: Sequence[str]) -> list[str]:
    """Names that the recorded command gives the model: --served-model-name, --alias."""
    found: list[str] = []
    taking = False
    for word in arguments:
        flag, equals, value = word.partition("=")
        if word.startswith("-"):
            taking = flag in ("--served-model-name", "--alias", "-a")
            if taking and equals:
                found.append(value)
        elif taking:
            found += word.split(",")
    return found


def write_record(path: Path, record: DeploymentRecord, *, over: bool = True) -> None:
    """Writes the file whole or not at all. Raises OSError; with `over` false FileExistsError for what is there."""
    text = json.dumps(record.as_dict(), indent=1, ensure_ascii=True, allow_nan=False) + "\n"
    write_whole(path, text, over=over)


def read_record(path: Path) -> DeploymentRecord:
    """Raises DP002 where there is no file to read, DP431 for one that is no deployment record."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        found = error.strerror if isinstance(error, OSError) else error
        raise DraftproofError(
            "DP002", "--lock", f"{path}: {found}", "a deployment record", "Check the path."
        ) from error
    if len(content) > MAX_BYTES:
        raise _no_record(path, f"more than {MAX_BYTES} bytes")
    try:
        document = parse_json(path, content.decode("utf-8"))
    except (UnicodeDecodeError, DraftproofError) as error:
        raise _no_record(path, error.found if isinstance(error, DraftproofError) else "not UTF-8") from error
    if document.get("kind") != KIND:
        raise _no_record(path, f"kind {str(document.get('kind'))[:60]!r}")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise _no_record(path, f"schema_version {str(document.get('schema_version'))[:20]}")
    return _Reader(path, document).record()


def _no_record(path: Path, found: str) -> DraftproofError:
    return DraftproofError(
        "DP431",
        str(path),
        found,
        f"a deployment record of schema_version {SCHEMA_VERSION}",
        "Name a file that `draftproof lock` wrote, or write it anew.",
    )


class _Reader:
    """Typed access to a document that anyone may have written."""

    def __init__(self, path: Path, document: Mapping[str, Any], place: str = "") -> None:
        self._path = path
        self._document = document
        self._place = place

    def record(self) -> DeploymentRecord:
        engine, verdict = self._part("engine"), self._optional("verdict")
        assert engine is not None
        return DeploymentRecord(
            created=self._text("created"),
            made_by=self._text("made_by"),
            engine=EngineRecord(
                name=engine._text("name"),
                version=engine._text_or_none("version"),
                version_from=engine._text_or_none("version_from"),
            ),
            target=self._checkpoint("target"),
            drafter=self._checkpoint("drafter"),
            arguments=self._texts("arguments"),
            deployment=self._object("deployment"),
            hardware=self._object("hardware"),
            verdict=None
            if verdict is None
            else VerdictRecord(
                path=verdict._text("path"),
                sha256=verdict._text("sha256"),
                verdicts=verdict._texts("verdicts"),
                model=verdict._text_or_none("model"),
            ),
        )

    def _checkpoint(self, key: str) -> CheckpointRecord | None:
        part = self._optional(key)
        if part is None:
            return None
        files = part._object("files")
        if not all(isinstance(digest, str) for digest in files.values()):
            raise part._fault("files", files)
        return CheckpointRecord(
            reference=part._text("reference"),
            kind=part._text("kind"),
            source=part._text("source"),
            revision=part._text_or_none("revision"),
            files=files,
            chat_template=part._text_or_none("chat_template"),
        )

    def _part(self, key: str) -> _Reader:
        return _Reader(self._path, self._object(key), f"{self._place}{key}.")

    def _optional(self, key: str) -> _Reader | None:
        return None if self._document.get(key) is None else self._part(key)

    def _object(self, key: str) -> dict[str, Any]:
        value = self._document.get(key)
        if not isinstance(value, dict) or not _is_finite(value):
            raise self._fault(key, value)
        return value

    def _text(self, key: str) -> str:
        value = self._document.get(key)
        if not isinstance(value, str):
            raise self._fault(key, value)
        return value

    def _text_or_none(self, key: str) -> str | None:
        return None if self._document.get(key) is None else self._text(key)

    def _texts(self, key: str) -> tuple[str, ...]:
        value = self._document.get(key)
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise self._fault(key, value)
        return tuple(value)

    def _fault(self, key: str, value: object) -> DraftproofError:
        return _no_record(self._path, f"{self._place}{key}: a {type(value).__name__}")


def _is_finite(value: Any) -> bool:
    """Whether it can be written as JSON again, and is not nested beyond reason."""
    pending = [(value, 0)]
    while pending:
        part, depth = pending.pop()
        if depth > 50 or (isinstance(part, float) and not math.isfinite(part)):
            return False
        if isinstance(part, dict | list):
            inner = part.values() if isinstance(part, dict) else part
            pending += [(value, depth + 1) for value in inner]
    return True
