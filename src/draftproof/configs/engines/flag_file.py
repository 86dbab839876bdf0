"""`--config FILE`, a YAML file of flags beside a command: what it says counts where the command line says nothing.

Called by the dialects of vLLM and SGLang, whose parsers put the file's flags in front of those of the command line
(vLLM 0.33.0, `FlexibleArgumentParser`; SGLang 0.5.23, `ConfigArgumentMerger`). Both know the flag as a word of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from draftproof.configs.engines.account import changeable
from draftproof.configs.engines.base import Reader, read_or_why
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.reading.node import Node
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.shell import Word

FLAG = "--config"

Truth = Callable[[str, bool], Sequence[str]]
"""The words for a flag that the file calls true or false."""


@dataclass(frozen=True, slots=True)
class FlagFile:
    """`place` of the file's text, `words` with their places in it."""

    place: Place
    words: tuple[Word, ...]


def take_file(
    place: Place, words: Sequence[Word], read: Reader | None, truth: Truth, found: Gathering
) -> tuple[list[Word], FlagFile | None]:
    """`words` without `--config FILE`, and the file; None, and with a remark, where it could not be read.

    Raises DP111 for two files, none, one of another kind, and for text that is no YAML of flags."""
    for word in words:
        if word.text.startswith(f"{FLAG}="):
            found.remark(
                "ignored",
                FLAG,
                "the file is read where it is a word of its own",
                found=word.text,
                today=f"{FLAG} FILE",
            )
    words = [word for word in words if not word.text.startswith(f"{FLAG}=")]
    at = [index for index, word in enumerate(words) if word.text == FLAG]
    if not at:
        return words, None
    here = place.at(words[at[-1]].position)
    if len(at) > 1 or at[0] + 1 == len(words):
        raise here.refused(FLAG, f"{FLAG} with one file", "Name one file.")
    name = words[at[0] + 1].text
    if name.rpartition(".")[2].lower() not in ("yaml", "yml"):
        raise here.refused(
            f"{FLAG} {name}", "a file that ends in .yaml or .yml", "Rename it: others are refused."
        )
    text, why = read_or_why(read, name)
    if text is None:
        found.remark("unread", FLAG, f"{why}: what it sets is not known here", found=name)
        return words, None
    left = [*words[: at[0]], *words[at[0] + 2 :]]
    return left, _flags(Place(place.engine, text, name=name), truth, found)


def _flags(place: Place, truth: Truth, found: Gathering) -> FlagFile:
    from draftproof.configs.reading.yamltext import read_yaml

    document = read_yaml(place)
    for surprise in document.surprises:
        found.remark(
            "rewritten", FLAG, f"YAML 1.1 reads it as {surprise.read}; quotes keep it", found=surprise.written,
            today=surprise.read,
        )  # fmt: skip
    node = document.node
    members = {} if node.value is None else node.members("a file of flags")
    return FlagFile(
        place,
        tuple(
            Word(text, (part.key_place or part.place).position, quoted=True)
            for key, part in members.items()
            for text in _words(f"--{key}", part, truth)
        ),
    )


def _words(flag: str, node: Node, truth: Truth) -> Sequence[str]:
    if isinstance(node.value, bool):
        return truth(flag, node.value)
    if isinstance(node.value, tuple):
        return [flag, *(str(changeable(part.plain())) for part in node.value)] if node.value else []
    if isinstance(node.value, Mapping):
        return [flag, json.dumps(changeable(node.plain()))]
    return [flag, str(node.value)]
