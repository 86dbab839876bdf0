"""Known-good pairs as directories: configuration, tokenizer, and weights that have names and shapes and no values.

Used by tests that must raise no false alarm. The facts are `pairs/known_good.json`, with a source each. A weight file
is a header and a hole of the right size (sparse), so that the largest checkpoint costs a few megabytes of disk;
only d2t and t2d, the maps of a smaller draft vocabulary, have real values.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.tensor_layouts import Shape, tensors_of

_FILE = Path(__file__).parent / "pairs" / "known_good.json"
_BYTES = {"BF16": 2, "F32": 4, "I64": 8, "BOOL": 1, "U8": 1, "F8_E4M3": 1}


@dataclass(frozen=True, slots=True)
class KnownPair:
    """`drafter` None: the target's own MTP layers."""

    target: str
    method: str
    drafter: str | None

    def __str__(self) -> str:
        return f"{self.target}+{self.drafter or self.method}"


@functools.cache
def _facts() -> dict[str, Any]:
    document = json.loads(_FILE.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def known_pairs() -> tuple[KnownPair, ...]:
    return tuple(KnownPair(*entry) for entry in _facts()["pairs"])


def config_of(name: str) -> dict[str, Any]:
    """config.json of a repository, as far as it is public fact."""
    config = _facts()["models"][name]["config"]
    assert isinstance(config, dict)
    return config


def write_model(name: str, folder: Path) -> Path:
    """The directory of one repository; written once per folder. Raises KeyError for one without facts."""
    facts = _facts()["models"][name]
    directory = folder / name.replace("/", "--")
    if directory.exists():
        return directory
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(facts["config"]), encoding="utf-8")
    if facts["tokenizer"] is not None:
        (directory / "tokenizer.json").write_text(_tokenizer(facts["tokenizer"]), encoding="utf-8")
    if facts["layout"] is not None:
        tensors = tensors_of(facts["layout"], facts["config"])
        write_headers(directory / "model.safetensors", tensors)
    return directory


def write_pair(pair: KnownPair, folder: Path) -> tuple[Path, Path | None]:
    """Directories of target and drafter."""
    target = write_model(pair.target, folder)
    return target, None if pair.drafter is None else write_model(pair.drafter, folder)


def write_headers(path: Path, tensors: Mapping[str, tuple[str, Shape]]) -> None:
    """A safetensors file of these tensors whose data are zeros that take no room, apart from d2t and t2d."""
    header: dict[str, Any] = {}
    end = 0
    starts = {}
    for name, (dtype, shape) in tensors.items():
        starts[name] = end
        end += _BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [starts[name], end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
        if "d2t" in tensors and "t2d" in tensors:
            offsets, used = _draft_map(tensors["d2t"][1][0], tensors["t2d"][1][0])
            for name, values in (("d2t", offsets), ("t2d", used)):
                file.seek(8 + len(text) + starts[name])
                file.write(values)


def _draft_map(num_draft: int, num_target: int) -> tuple[bytes, bytes]:
    """The first half of the draft vocabulary stands for the first tokens, the second half for the last ones."""
    gap = num_target - num_draft
    offsets = [0 if token < num_draft // 2 else gap for token in range(num_draft)]
    used = {token + offset for token, offset in enumerate(offsets)}
    return (
        b"".join(offset.to_bytes(8, "little", signed=True) for offset in offsets),
        bytes(token in used for token in range(num_target)),
    )


@functools.cache
def _tokenizer(family: str) -> str:
    """tokenizer.json with as many tokens as the family's; families share no ordinary token beyond single bytes."""
    from draftproof.checkpoints.vocabulary import byte_of_character

    num_tokens = _facts()["tokenizers"][family]
    letters = [*byte_of_character()]
    made = [f"{family}{rank}" for rank in range(num_tokens - len(letters) - 1)]
    vocab = {token: token_id for token_id, token in enumerate([*letters, *made])}
    document = {
        "version": "1.0",
        "added_tokens": [{"id": num_tokens - 1, "content": f"<|{family}-end|>", "special": True}],
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    return json.dumps(document, ensure_ascii=False)
