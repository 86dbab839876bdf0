"""Names of GGUF files: which of many hold models, and of which quantisation. Knows no file's content.

What counts as a model, a quantisation and a part follows llama.cpp (common/download.cpp at 0216dab, read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from draftproof.core.errors import DraftproofError

PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_TAG = re.compile(r"[-.]([A-Za-z0-9_]+)$")
LLAMACPP_PREFERRED = ("Q4_K_M", "Q8_0")
"""What llama.cpp takes of a repository without being told, else the first model."""
_MAX_SHOWN = 24
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


def parts_of(name: str) -> tuple[str, ...]:
    """All parts that the name of one promises, in order; the name itself where it is none."""
    match = PART.fullmatch(name)
    if match is None:
        return (name,)
    numbers = range(1, 1 + int(match["count"]))
    return tuple(f"{match['stem']}-{number:05}-of-{match['count']}.gguf" for number in numbers)


def with_quantisation(models: Sequence[str], quantisation: str) -> str | None:
    """The first model whose name has the word, before a dot or dash, in any case; or that is the file so named."""
    word = re.compile(re.escape(quantisation) + "[.-]", re.IGNORECASE)
    exact = [name for name in models if name.rpartition("/")[2] == quantisation]
    return next(iter(exact or [name for name in models if word.search(name)]), None)


def choose(
    place: str,
    reference: str,
    names: Iterable[str],
    file: str | None,
    quantisation: str | None,
    preferred: Sequence[str] = (),
) -> str:
    """Which of a repository's GGUF files is meant; its models are listed where that is not clear.

    place       where it is, in words; `reference` is how it was named, without file and quantisation
    preferred   quantisations to take, else the first model, where none is named; without it a choice is asked for

    Raises DP401.
    """
    names = sorted(names)
    models = models_among(names)
    found: str | None
    if file is not None:
        found = file if file in names else None
    elif quantisation is not None:
        found = with_quantisation(models, quantisation)
    else:
        wanted = (with_quantisation(models, word) for word in preferred)
        single = models[0] if models and (preferred or len(models) == 1) else None
        found = next((name for name in wanted if name is not None), single)
    if found is not None:
        return found
    shown = [_named(reference, name, models) for name in models[:_MAX_SHOWN]]
    more = f" and {len(models) - _MAX_SHOWN} more" if len(models) > _MAX_SHOWN else ""
    if not models:
        what, expected = "without config.json, safetensors or a GGUF model", "a repository with a model"
    else:
        asked = file or quantisation
        what = f"without {asked}" if asked else f"which holds {len(models)} GGUF models"
        expected = "one of its GGUF models"
    remedy = f"Name one: {', '.join(shown)}{more}." if models else "Check the name."
    raise DraftproofError("DP401", "checkpoint", f"{place}, {what}", expected, remedy)


def _named(reference: str, name: str, models: Sequence[str]) -> str:
    """By its quantisation where that leads to it, else by its file."""
    word = quantisation_of(name)
    if word is not None and with_quantisation(models, word) == name:
        return f"{reference}:{word}"
    return f"{reference.partition('@')[0]}/{name}"
