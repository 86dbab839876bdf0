"""Checkpoints of a few kilobytes that look real: configuration, tokenizer, headers of safetensors with true shapes.

The weights are holes in a sparse file, so that shapes may be those of published models. For rules and commands that
never read a weight.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1, "F8_E4M3": 1}
_CODES = {"I64": "q", "I32": "i", "BOOL": "?", "U8": "B"}

Shape = tuple[int, ...]


def write_view(
    directory: Path,
    config: Mapping[str, Any],
    *,
    tensors: Mapping[str, Shape | tuple[str, Shape]] | None = None,
    values: Mapping[str, tuple[str, Sequence[int]]] | None = None,
    tokens: Sequence[str] | None = None,
    special: Sequence[str] = (),
    documents: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """`tensors`: name → shape (BF16) or (dtype, shape); `values`: name → (dtype, numbers); `tokens` by id."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, document in {"config.json": config, **(documents or {})}.items():
        (directory / name).write_text(json.dumps(document), encoding="utf-8")
    if tokens is not None:
        (directory / "tokenizer.json").write_text(json.dumps(tokenizer(tokens, special)), encoding="utf-8")
    if tensors or values:
        write_safetensors(directory / "model.safetensors", tensors or {}, values or {})
    return directory


def tokenizer(tokens: Sequence[str], special: Sequence[str]) -> dict[str, Any]:
    """A tokenizer.json whose ids are positions in `tokens`; empty entries stand for no token."""
    by_name = {token: token_id for token_id, token in enumerate(tokens) if token}
    return {
        "model": {
            "type": "BPE",
            "vocab": {token: token_id for token, token_id in by_name.items() if token not in special},
            "merges": [],
        },
        "added_tokens": [{"id": by_name[token], "content": token, "special": True} for token in special],
        "decoder": {"type": "ByteLevel"},
    }


def write_safetensors(
    path: Path,
    tensors: Mapping[str, Shape | tuple[str, Shape]],
    values: Mapping[str, tuple[str, Sequence[int]]],
) -> None:
    header: dict[str, Any] = {}
    contents: list[tuple[int, bytes]] = []
    offset = 0
    for name, (dtype, numbers) in values.items():
        data = struct.pack(f"<{len(numbers)}{_CODES[dtype]}", *numbers)
        header[name] = {
            "dtype": dtype,
            "shape": [len(numbers)],
            "data_offsets": [offset, offset + len(data)],
        }
        contents.append((offset, data))
        offset += len(data)
    for name, spec in tensors.items():
        dtype, shape = spec if isinstance(spec[0], str) else ("BF16", spec)  # type: ignore[misc, assignment]
        num_bytes = math.prod(shape) * _BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + num_bytes]}
        offset += num_bytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for at, data in contents:
            file.seek(8 + len(encoded) + at)
            file.write(data)
        file.truncate(8 + len(encoded) + offset)
