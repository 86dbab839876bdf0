"""Tokens that were added to a vocabulary: what tokenizer_config.json and the files beside it say.

As Transformers 5.24 does it (tokenization_utils_base.py): `added_tokens_decoder` of tokenizer_config.json, and only
where that is absent added_tokens.json, whose tokens are special if special_tokens_map.json or the configuration name
them. Named tokens without an id are looked up in the vocabulary; Transformers would give those it lacks new ids, which
no checkpoint has rows for, and they are left out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.checkpoints.tokenizers.base import Added, AddedToken, check_ids

FILES = ("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json")
_NAMED = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_LISTS = ("additional_special_tokens", "extra_special_tokens")


def read_added(config: Mapping[str, Any], added: Mapping[str, Any], special_map: Mapping[str, Any]) -> Added:
    """From the documents of `FILES`, empty ones where there are none. Raises ValueError."""
    special = frozenset(_named(config) + _named(special_map))
    decoder = config.get("added_tokens_decoder")
    told = decoder if isinstance(decoder, dict) else added
    if isinstance(decoder, dict):
        by_id = {_number(key): _token(entry, special) for key, entry in decoder.items()}
    else:
        by_id = {token_id: AddedToken(token, token in special) for token, token_id in added.items()}
    if len(by_id) < len(told):
        raise ValueError("a token id twice")
    check_ids(by_id)
    return Added(by_id, special)


def _number(key: str) -> int:
    if not key.isdecimal() or len(key) > 9:
        raise ValueError(f"added_tokens_decoder: {key!r} is no token id"[:120])
    return int(key)


def _token(entry: object, special: frozenset[str]) -> AddedToken:
    content = entry.get("content") if isinstance(entry, dict) else entry
    if not isinstance(content, str):
        raise ValueError("added_tokens_decoder: a token without content")
    is_special = entry.get("special") is True if isinstance(entry, dict) else content in special
    return AddedToken(content, is_special)


def _named(document: Mapping[str, Any]) -> list[str]:
    values = [document.get(name) for name in _NAMED]
    for name in _LISTS:
        several = document.get(name)
        values += (
            several if isinstance(several, list) else several.values() if isinstance(several, dict) else ()
        )
    spelled = [value.get("content") if isinstance(value, dict) else value for value in values]
    return [value for value in spelled if isinstance(value, str) and value]
