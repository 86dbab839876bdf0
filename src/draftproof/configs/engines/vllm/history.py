"""Whether a version of vLLM has something: yes, no, or not known because that version was not read.

Called by this dialect's reading and writing with the tables of `facts`.
"""

from __future__ import annotations

from packaging.version import Version

from draftproof.configs.engines.base import Effect
from draftproof.configs.engines.vllm.facts import Presence, Removed

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


def effect_of(removed: Removed, version: str) -> Effect | None:
    """What a name of the past does in this version; None: it acted then."""
    there = has(removed.gone, version)
    if there is None:
        return "unknown"
    if there:
        return "ignored" if removed.idle else None
    return "removed"
