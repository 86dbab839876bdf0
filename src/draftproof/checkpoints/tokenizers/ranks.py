"""Vocabularies by rank: tiktoken's lines (`*.tiktoken`, tiktoken.model) and Mistral's tekken.json.

tiktoken's load.py at 01ebb7f: a line is a token in base64, a blank and its rank, which is its id. mistral-common's
tekken.py at bc022b9: special tokens come first, `default_num_special_tokens` of them, names that are missing are
`<SPECIAL_n>`; then the tokens by rank, cut at `default_vocab_size`. Both read 2026-11.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from draftproof.checkpoints.tokenizers.base import MAX_TOKENS, Base

_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d{1,9}")

QWEN_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    *(f"<|extra_{number}|>" for number in range(205)),
)
"""What the first Qwen's tokenization_qwen.py adds behind the ranks of qwen.tiktoken; no file of its own says so."""

_TEKKEN_SPECIAL = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip
"""Of files up to version v7, which do not list them."""


def looks_like_tiktoken(content: bytes) -> bool:
    """Whether the first line is a token and a rank."""
    return _LINE.fullmatch(content[: 1 << 12].split(b"\n", 1)[0].rstrip(b"\r")) is not None


def parse_tiktoken(content: bytes, special: tuple[str, ...] = ()) -> Base:
    """`special` get the ids behind the last rank. Raises ValueError."""
    tokens: dict[int, bytes] = {}
    lines = content.split(b"\n", 2 * MAX_TOKENS)
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line:
            continue
        if len(tokens) == MAX_TOKENS or _LINE.fullmatch(line) is None:
            raise ValueError(f"line {number}: {line[:60]!r}")
        token, rank = line.split(b" ")
        if int(rank) in tokens:
            raise ValueError(f"line {number}: rank {int(rank)} twice")
        tokens[int(rank)] = _decode(token)
    first = 1 + max(tokens, default=-1)
    names = {name: first + place for place, name in enumerate(special)}
    tokens |= {token_id: name.encode() for name, token_id in names.items()}
    return Base(tokens, set(names.values()), names, is_byte_level=True)


def parse_tekken(document: Mapping[str, Any]) -> Base:
    """Raises ValueError, KeyError or TypeError."""
    config = document["config"]
    size, num_special = config["default_vocab_size"], config["default_num_special_tokens"]
    if type(size) is not int or type(num_special) is not int or not 0 <= num_special <= size <= MAX_TOKENS:
        raise ValueError(f"{num_special!r} of {size!r} tokens are special"[:120])
    listed = document.get("special_tokens")
    if listed is None:
        listed = [{"rank": rank, "token_str": name} for rank, name in enumerate(_TEKKEN_SPECIAL)]
    names = {rank: f"<SPECIAL_{rank}>" for rank in range(len(listed), num_special)}
    for entry in listed:
        rank, name = entry["rank"], entry["token_str"]
        if type(rank) is not int or not 0 <= rank < num_special or not isinstance(name, str):
            raise ValueError(f"the special token {rank!r}"[:120])
        names[rank] = name
    if len({entry["rank"] for entry in listed}) < len(listed):
        raise ValueError("the rank of a special token twice")
    vocab = document["vocab"][: size - num_special]
    if len(vocab) < size - num_special:
        raise ValueError(f"{len(vocab)} of {size - num_special} tokens")
    tokens = {rank: name.encode() for rank, name in names.items()}
    for rank, entry in enumerate(vocab):
        if entry["rank"] != rank:
            raise ValueError(f"rank {entry['rank']!r} in place of {rank}"[:120])
        tokens[num_special + rank] = _decode(entry["token_bytes"])
    return Base(tokens, set(names), {name: rank for rank, name in names.items()}, is_byte_level=True)


def _decode(token: bytes | str) -> bytes:
    try:
        return base64.b64decode(token, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{token[:40]!r} is not base64") from error
