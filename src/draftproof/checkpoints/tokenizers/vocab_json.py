"""vocab.json with merges.txt: byte-level BPE as GPT-2 and Qwen2 have it, spelled in GPT-2's alphabet.

Merges do not change what an id stands for, so that only the vocabulary is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.checkpoints.tokenizers.base import Added, Base, UnreadError, check_ids
from draftproof.checkpoints.vocabulary import bytes_of_token

_END_OF_TEXT = "<|endoftext|>"
"""Special by default in the classes of GPT-2 and Qwen2 (Transformers 5.24), which need not be told so by a file."""


def parse(document: Mapping[str, Any], added: Added) -> tuple[Base, Added]:
    """The vocabulary, and the added tokens with the default. Raises ValueError; UnreadError for another alphabet."""
    check_ids(document.values())
    if "Ġ" not in document or "a</w>" in document:
        raise UnreadError("vocab.json, whose tokens are not spelled in the byte-level alphabet")
    ids: dict[str, int] = dict(document)
    if len(set(ids.values())) < len(ids):
        raise ValueError("a token id twice")
    tokens = {token_id: bytes_of_token(token, True) for token, token_id in ids.items()}
    return Base(tokens, set(), ids, is_byte_level=True), (
        added if added.special or added.by_id else Added(special=frozenset((_END_OF_TEXT,)))
    )
