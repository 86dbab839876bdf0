"""What reading and writing an engine's configuration hands out: deployments with remarks, artifacts with notes.

Made by the dialects (`configs.engines.dialect`); read by `translate`, `check`, `advise`, `lock`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from draftproof.configs.speculation import Deployment, Value
from draftproof.core.errors import DraftproofError
from draftproof.core.finding import Source

Effect = Literal[
    "deprecated", "removed", "ignored", "rewritten", "inferred", "refused", "unsettled", "unread", "lost", "unknown",
    "stray",
]  # fmt: skip
Reader = Callable[[str], str]
"""Gives the text of a file that a configuration names (`--config cfg.yaml`). Raises DP002 where there is none."""


def read_or_why(read: Reader | None, name: str) -> tuple[str | None, str]:
    """A named file's text; else None and the reason. Paths of a configuration are those of the machine that serves."""
    if read is None:
        return None, "the file was not at hand"
    try:
        return read(name), ""
    except DraftproofError as error:
        if error.code != "DP002":
            raise
        return None, error.found


class NoteKind(StrEnum):
    """kept: said with the same meaning. converted: the same meaning in other numbers or words. dropped: the engine has
    no such setting, and its behaviour differs by just that. impossible: without it the configuration makes no sense, so
    nothing is rendered."""

    KEPT = "kept"
    CONVERTED = "converted"
    DROPPED = "dropped"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What became of one setting. `setting` is the neutral field or the source engine's key; `before` and `after` are
    how both engines write it (None where one cannot)."""

    kind: NoteKind
    setting: str
    before: str | None
    after: str | None
    reason: str
    source: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What parsing noticed: a spelling that is deprecated, removed, or corrected by the engine itself.

    `effect`: deprecated (works, and warns), removed (a spelling that is gone), ignored (accepted without effect),
    rewritten (the engine replaces the value), inferred (the engine deduces it from something else), refused (the
    engine does not start with it), unsettled (what its documents and its code say differs), unread (a part of the
    configuration that was not at hand), lost (cannot be kept, as comments), unknown (not read for the version), stray
    (a name that this version does not have: it ends at start).
    `setting` is the engine's own key.
    `position` is the character offset in the text, or None where there is none."""

    effect: Effect
    setting: str
    found: str
    today: str | None
    reason: str
    versions: str | None = None
    source: Source | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """A value that acts although the text does not say it: `setting` is the neutral field as `account.said` names it.

    `value` None: something acts, and the text alone does not tell what."""

    setting: str
    value: Value
    reason: str
    source: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    deployment: Deployment
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One text that the engine reads: `name` says what it is ("command", "config.yaml", "speculative-config")."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """`artifacts` is empty exactly if a note says impossible. The first is what `parse` reads; further ones are files
    that it names, by their `name`."""

    artifacts: tuple[Artifact, ...]
    notes: tuple[Note, ...]
