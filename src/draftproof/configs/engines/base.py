"""What every dialect offers: text of an engine → `Deployment`, and back, with an account of every setting.

Implemented by one module per engine; called by `translate`, `check`, `advise`, `lock`. A dialect never guesses: text
that it does not understand is refused with the position and the reason, and a setting that the engine cannot say is
noted as dropped or impossible.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from draftproof.configs.speculation import Deployment
from draftproof.core.finding import Source


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

    `effect`: deprecated (works, and warns), removed (the engine refuses it), ignored (accepted without effect),
    rewritten (the engine replaces the value), inferred (the engine deduces it from something else).
    `position` is the character offset in the text, or None where there is none."""

    effect: str
    setting: str
    found: str
    today: str | None
    reason: str
    versions: str | None = None
    source: Source | None = None
    position: int | None = None


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
    """`artifacts` is empty exactly if a note says impossible."""

    artifacts: tuple[Artifact, ...]
    notes: tuple[Note, ...]


class Dialect(Protocol):
    """One engine's way of writing. `read_version` is the version whose source or documents the dialect was made from;
    `version` None stands for it."""

    engine: str
    title: str
    read_version: str

    def parse(self, text: str, version: str | None = None) -> Parsed:
        """Reads a command line, a JSON object, a YAML file: whatever this engine takes.

        Raises DP111 with the position for text that it does not understand, DP112 for a version outside its range.
        """
        ...

    def render(self, deployment: Deployment, version: str | None = None) -> Rendered:
        """Writes `deployment` for this engine, whatever engine it came from. Raises DP112."""
        ...
