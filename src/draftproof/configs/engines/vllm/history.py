"""Whether a version of vLLM has something: yes, no, or not known because that version was not read.

Called by this dialect's reading and writing with the tables of `facts`.
"""

from __future__ import annotations

from packaging.version import Version

from draftproof.configs.engines.base import Effect
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.vllm.facts import HISTORY, Presence, Removed

EVERYTHING = ">=0.1"
"""Versions that are taken at all; what is not known of one is said, not refused."""


def has(presence: Presence | None, version: str) -> bool | None:
    """None: neither a version with it nor one without it was read on this side of `version`."""
    if presence is None:
        return True
    asked = Version(Version(version).base_version)
    if presence.absent_until and asked <= Version(presence.absent_until):
        return False
    if presence.absent_from and asked >= Version(presence.absent_from):
        return False
    after = presence.present_from is None or asked >= Version(presence.present_from)
    before = presence.present_until is None or asked <= Version(presence.present_until)
    return True if after and before else None


def told(presence: Presence) -> str:
    """The versions that were read, in words."""
    parts = []
    if presence.present_from:
        parts.append(f"present in {presence.present_from}, absent in {presence.absent_until}")
    if presence.absent_from:
        parts.append(f"present in {presence.present_until}, absent from {presence.absent_from}")
    return "; ".join(parts)


def remark_absence(found: Gathering, setting: str, said: str, presence: Presence | None) -> None:
    """Remarks a name of today that the version gone by does not have, or is not known to have."""
    there = has(presence, found.version)
    if presence is None or there:
        return
    effect, reason = _UNKNOWN if there is None else _ABSENT
    reason = reason.format(found.version)
    found.remark(effect, setting, reason, found=said, versions=told(presence), source=HISTORY)


def remark_removed(found: Gathering, setting: str, said: str, removed: Removed) -> None:
    """Remarks a name of the past, unless it acted in the version gone by."""
    there = has(removed.gone, found.version)
    if there and not removed.idle:
        return
    effect: Effect = "unknown" if there is None else "ignored" if there else "removed"
    found.remark(
        effect, setting, removed.reason, found=said, today=removed.today or None, versions=told(removed.gone),
        source=HISTORY,
    )  # fmt: skip


_UNKNOWN: tuple[Effect, str] = ("unknown", "not known for {}")
_ABSENT: tuple[Effect, str] = ("removed", "vLLM {} does not have it")
