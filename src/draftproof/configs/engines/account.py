"""The account of a translation: every said setting, by its neutral path, and what became of it.

Called by every dialect. `said` takes a deployment apart into paths, `build` puts it together again, `Account` collects
exactly one note per path while a dialect renders. Knows no engine's words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, cast

from draftproof.configs.engines.base import Default, Note, NoteKind
from draftproof.configs.speculation import (
    BatchRange,
    Deployment,
    LookUp,
    ModelRef,
    Speculation,
    Tree,
    Value,
    schedule_fault,
)
from draftproof.core.errors import DraftproofError
from draftproof.core.finding import Source

Settings = dict[str, Any]
"""Neutral path ("dtype", "target.revision", "speculation.tree.depth", "speculation.extras.sglang.token-map") → value.
A model's path alone stands for its name. What is not said is not there."""

_MODELS = ("target", "speculation.drafter")
_GROUPS: Mapping[str, type[Tree | LookUp]] = {"speculation.tree": Tree, "speculation.lookup": LookUp}
_EXTRAS = ("extras", "speculation.extras")
_HOW_STARTED = {
    "launcher": "how {0} is started", "env": "variables of {0}'s own process", "image": "the image that {0} runs in",
}  # fmt: skip
_UNCOUNTED = ("engine", "version")
"""Whose configuration it is: no setting."""


def said(deployment: Deployment) -> Settings:
    """What the deployment says, apart from engine and version. The method is always said, "none" included."""
    found: Settings = {}
    for item in fields(Deployment):
        value = getattr(deployment, item.name)
        if item.name == "speculation":
            for inner in fields(Speculation):
                _take(found, f"speculation.{inner.name}", getattr(value, inner.name))
        elif item.name not in _UNCOUNTED:
            _take(found, item.name, value)
    return found


def _take(found: Settings, path: str, value: Any) -> None:
    if value is None or (isinstance(value, tuple | Mapping) and not value):
        return
    if path in _MODELS:
        found[path] = value.name
        for name in ("revision", "quantization"):
            _take(found, f"{path}.{name}", getattr(value, name))
    elif path in _GROUPS:
        for item in fields(value):
            _take(found, f"{path}.{item.name}", getattr(value, item.name))
    elif path in _EXTRAS:
        found.update({f"{path}.{key}": inner for key, inner in value.items()})
    else:
        found[path] = value


def build(engine: str, settings: Mapping[str, Any], version: str | None = None) -> Deployment:
    """The inverse of `said`. Paths must exist: this is the dialects' own mistake otherwise."""
    top: dict[str, Any] = {"engine": engine, "version": version}
    inner: dict[str, Any] = {}
    for path, value in settings.items():
        where, name = (
            (inner, path.removeprefix("speculation.")) if path.startswith("speculation.") else (top, path)
        )
        group, _, key = name.partition(".")
        if not key:
            where[name] = {"name": value} | where.get(name, {}) if name in ("target", "drafter") else value
        else:
            where.setdefault(group, {})[key] = value
    for where, name, kind in ((top, "target", ModelRef), (inner, "drafter", ModelRef)):
        if name in where:
            where[name] = kind(**where[name])
    for name, group_kind in (("tree", Tree), ("lookup", LookUp)):
        if name in inner:
            inner[name] = group_kind(**inner[name])
    return Deployment(speculation=Speculation(**inner), **top)


def shown(value: object) -> str:
    """A value in a note: as JSON would write it, text without quotes, a schedule as batch ranges."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple) and value and all(isinstance(part, BatchRange) for part in value):
        return ", ".join(
            f"{part.low}–{part.high or '…'}: {part.depth}" for part in cast(tuple[BatchRange, ...], value)
        )
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Speculation):
        return {
            path.removeprefix("speculation."): part
            for path, part in said(Deployment(engine="", speculation=value)).items()
        }
    return str(value)


class Account:
    """What there is to say, and one note for each part of it.

    A dialect asks `value(path)`, writes it down or not, and calls one of `kept`, `converted`, `dropped`, `impossible`.
    `finish` notes as dropped what nobody asked for. Values that the source engine's defaults supply are offered like
    said ones; they are noted where they are written out, and where `dropped` is called for them. Raises DP104 for a
    description that contradicts itself.
    """

    def __init__(self, deployment: Deployment, title: str, defaults: Iterable[Default] = ()) -> None:
        _sound(deployment.speculation)
        self.title = title
        self.said = said(deployment)
        self._implied = {item.setting: item for item in defaults if item.setting not in self.said}
        self._source_engine = deployment.engine
        self._notes: dict[str, Note] = {}

    def value(self, path: str) -> Any:
        """What is said, else what acts on drafting by the source engine's default, else None. A default of the service
        (its limit of requests, its caches) is nobody's wish: it is remarked, never written."""
        if path in self.said:
            return self.said[path]
        offered = path in self._implied and path.startswith("speculation.")
        return self._implied[path].value if offered else None

    def is_said(self, path: str) -> bool:
        return path in self.said

    def is_implied(self, path: str) -> bool:
        """Whether the source engine has a default for it, known or not."""
        return path in self._implied

    def under(self, prefix: str) -> list[str]:
        """Said paths below `prefix`, in order."""
        return [path for path in self.said if path.startswith(prefix + ".")]

    def kept(self, path: str, after: str, reason: str = "the same meaning") -> None:
        if path in self.said:
            self._note(NoteKind.KEPT, path, after, reason, None)
        else:
            self._note(NoteKind.CONVERTED, path, after, "written out, so that it acts here, too", None)

    def converted(self, path: str, after: str, reason: str, source: Source | None = None) -> None:
        self._note(NoteKind.CONVERTED, path, after, reason, source)

    def dropped(self, path: str, reason: str, source: Source | None = None) -> None:
        self._note(NoteKind.DROPPED, path, None, reason, source)

    def impossible(self, path: str, reason: str, source: Source | None = None) -> None:
        self._note(NoteKind.IMPOSSIBLE, path, None, reason, source)

    @property
    def has_impossible(self) -> bool:
        return any(note.kind is NoteKind.IMPOSSIBLE for note in self._notes.values())

    def is_noted(self, path: str) -> bool:
        return path in self._notes

    def finish(self) -> tuple[Note, ...]:
        for path in self.said:
            if path not in self._notes:
                self.dropped(path, self.why_unsaid(path))
        return tuple(self._notes.values())

    def why_unsaid(self, path: str) -> str:
        """Why a setting is dropped, where the dialect knows nothing better."""
        from draftproof.configs.registry import DIALECTS, dialect

        for extras in _EXTRAS:
            if path.startswith(extras + "."):
                owner = path.removeprefix(extras + ".").partition(".")[0]
                key = path.removeprefix(f"{extras}.{owner}.")
                own = owner in DIALECTS and dialect(owner).title == self.title
                if own and key not in _HOW_STARTED:
                    return "it says nothing beside what is written"
                return _HOW_STARTED.get(key, "a key of {0}'s own that {1} does not have").format(
                    owner, self.title
                )
        if path == "rest":
            return f"arguments of {self._source_engine}'s own command, which say nothing about speculation"
        return f"{self.title} has no such setting"

    def _note(self, kind: NoteKind, path: str, after: str | None, reason: str, source: Source | None) -> None:
        assert path not in self._notes, f"{path} is noted twice"
        if path in self.said:
            before = shown(self.said[path])
        elif path in self._implied:
            default = self._implied[path]
            before = None
            taken = (
                f"takes {shown(default.value)} ({default.reason})"
                if default.value is not None
                else default.reason
            )
            reason = f"not said, and {self._source_engine} {taken}; {reason}"
            source = source or default.source
        else:
            before = None
        self._notes[path] = Note(
            kind=kind, setting=path, before=before, after=after, reason=reason, source=source
        )


def _sound(speculation: Speculation) -> None:
    fault = schedule_fault(speculation.schedule)
    if fault:
        expected = "ranges from 1 on, without gaps, the last one open"
        raise DraftproofError("DP104", "speculation.schedule", fault, expected, "Correct the ranges.")
    if speculation.depth is not None and speculation.tree not in (None, Tree()):
        raise DraftproofError(
            "DP104",
            "speculation.depth",
            "a depth and a tree",
            "one of the two",
            "With a tree, give tree.depth.",
        )


def unchanged(value: Value) -> Value:
    """A value of an engine's own key, made immutable: lists become tuples, objects read-only mappings."""
    from types import MappingProxyType

    if isinstance(value, list | tuple):
        return tuple(unchanged(part) for part in value)
    if isinstance(value, Mapping):
        return MappingProxyType({key: unchanged(part) for key, part in value.items()})
    return value


def changeable(value: Any) -> Any:
    """The inverse of `unchanged`: lists and dictionaries, for writing JSON."""
    if isinstance(value, Mapping):
        return {key: changeable(part) for key, part in value.items()}
    return [changeable(part) for part in value] if isinstance(value, tuple) else value
