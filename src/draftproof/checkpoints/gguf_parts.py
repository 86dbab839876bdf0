"""Which files a split GGUF model consists of, by the `split.*` keys and the names. Called by `gguf`; opens no file.

As llama.cpp does it (src/llama-model-loader.cpp at 0034764, read 2026-11): metadata is the first part's, parts lie
beside each other under one name with their numbers, `split.no` counts from 0, `split.tensors.count` is of all parts.
It must be given the first part; here any will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.checkpoints.files import broken
from draftproof.checkpoints.gguf_naming import PART, parts_of
from draftproof.core.errors import DraftproofError

MAX_PARTS = 1 << 10


def part_names(label: str, name: str, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """All files of the model that `name` belongs to, in order; `label` stands in messages.

    Raises DP402 where the header contradicts itself or the name, DP406 where the name has no number to count by.
    """
    count = metadata.get("split.count", 0)
    if count in (0, 1):
        return (name,)
    if type(count) is not int or not 0 < count <= MAX_PARTS:
        raise broken(label, f"split.count {str(count)[:80]}", f"at most {MAX_PARTS} parts")
    match = PART.fullmatch(name)
    if match is None:
        raise DraftproofError(
            "DP406",
            label,
            f"one of {count} parts under a name without its number",
            f"a name that ends in -00001-of-{count:05}.gguf",
            "Give the parts their names back, or join them: llama-gguf-split --merge FIRST_PART JOINED.gguf",
        )
    if int(match["count"]) != count:
        raise broken(label, f"split.count {count}", f"{int(match['count'])}, as its name says")
    check_part(label, metadata, int(match["number"]) - 1, count)
    return parts_of(name)


def check_part(label: str, metadata: Mapping[str, Any], index: int, count: int) -> None:
    """Raises DP402 where a file is another part than its name says. `index` counts from 0, as `split.no` does."""
    for key, expected in (("split.no", index), ("split.count", count)):
        found = metadata.get(key)
        if type(found) is not int or found != expected:
            raise broken(label, f"{key} {str(found)[:80]}", f"{expected}, as its name says")


def require_all(label: str, names: tuple[str, ...], present: frozenset[str]) -> None:
    """Raises DP401 with the names of parts that are not there."""
    missing = [name for name in names if name not in present]
    if missing:
        shown = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        raise DraftproofError(
            "DP401",
            label,
            f"{len(missing)} of {len(names)} parts are missing: {shown}",
            "all parts of the split model in one directory",
            "Get the missing parts, and keep the names they have at the source.",
        )
