"""Names of GGUF files: which of many hold models, and of which quantisation. Knows no file's content.

What counts as a model, a quantisation and a part follows llama.cpp (common/download.cpp at 0216dab, read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_TAG = re.compile(r"[-.]([A-Za-z0-9_]+)$")
_COMPANIONS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
"""Parts of the names of files that only accompany a model."""


def models_among(names: Iterable[str]) -> list[str]:
    """The file to name for each model, ascending: itself, or the first part that is there of a split one.

    Names may have folders in front; other kinds of files are left out.
    """
    found: dict[str, str] = {}
    for name in sorted(names):
        file = name.rpartition("/")[2]
        if name.endswith(".gguf") and not any(word in file for word in _COMPANIONS):
            match = PART.fullmatch(name)
            found.setdefault(name if match is None else f"{match['stem']} of {match['count']}", name)
    return list(found.values())


def quantisation_of(name: str) -> str | None:
    """The last word of the name in capitals, as `Q4_K_M` of `tiny-q4_k_m-00001-of-00002.gguf`."""
    match = PART.fullmatch(name)
    tag = _TAG.search(name.removesuffix(".gguf") if match is None else match["stem"])
    return None if tag is None else tag[1].upper()
