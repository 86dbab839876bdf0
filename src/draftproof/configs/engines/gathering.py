"""What a dialect collects while it parses: neutral settings, the engine's own keys, remarks.

Called by the dialects; `account.build` makes the deployment. Knows no engine's words.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from draftproof.configs.engines.account import Settings, build, unchanged
from draftproof.configs.engines.base import Effect, Parsed, Remark
from draftproof.configs.reading.refusal import cut
from draftproof.core.finding import Source


class Gathering:
    """One parse. `version` is what is gone by, `asked` what somebody named; `own` keeps a key that has no neutral
    counterpart, as "engine.key"."""

    def __init__(self, engine: str, version: str, source: Source, asked: str | None = None) -> None:
        self.engine, self.version, self.source, self.asked = engine, version, source, asked
        self.settings: Settings = {}
        self.remarks: list[Remark] = []

    def say(self, path: str, value: Any) -> None:
        """Says `path`, unless there is nothing to say."""
        if value is not None and value != ():
            self.settings[path] = value

    def own(self, key: str, value: Any, *, around: bool = False) -> None:
        """`around`: it belongs to the deployment and says nothing about speculation."""
        where = "extras" if around else "speculation.extras"
        self.settings[f"{where}.{self.engine}.{key}"] = unchanged(value)

    def remark(
        self,
        effect: Effect,
        setting: str,
        reason: str,
        *,
        found: str,
        today: str | None = None,
        position: int | None = None,
        versions: str | None = None,
        source: Source | None = None,
    ) -> None:
        """`found` may be a hostile text. `versions`, `source`: if it is known from elsewhere than the rest."""
        self.remarks.append(
            Remark(
                effect=effect,
                setting=setting,
                found=cut(found),
                today=today,
                reason=reason,
                versions=versions or self.source.name,
                source=source or self.source,
                position=position,
            )
        )

    def stray(
        self, name: str, known: Iterable[str], *, engine: str, is_complete: bool, position: int | None = None
    ) -> None:
        """Remarks a name that is not among the `known` ones; `is_complete`: these are all of the version gone by."""
        near = get_close_matches(name, list(known), n=1, cutoff=0.75)
        meant = f"; the nearest is {near[0]}" if near else ""
        if is_complete:
            self.remark(
                "stray", name, f"{engine} {self.version} has no such setting and refuses to start{meant}",
                found=name, position=position,
            )  # fmt: skip
        else:
            self.remark(
                "unknown", name, f"not known for {engine} {self.version}, whose settings were not all read{meant}",
                found=name, position=position,
            )  # fmt: skip

    def parsed(self) -> Parsed:
        deployment = build(self.engine, self.settings, self.asked)
        return Parsed(deployment=deployment, remarks=tuple(self.remarks))
