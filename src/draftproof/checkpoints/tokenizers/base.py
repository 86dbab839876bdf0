"""What every kind of tokenizer file is turned into before the tokens that were added to it are laid over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from draftproof.checkpoints.vocabulary import Vocabulary, added_token_bytes

MAX_BYTES = 1 << 26
"""Of one tokenizer file; published ones have up to twenty million."""
MAX_TOKENS = 1 << 20
"""Of one vocabulary; published ones have up to a quarter of a million."""


class UnreadError(Exception):
    """A tokenizer of a kind that is not read; the text names file and kind."""


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that was added to a vocabulary, as it is spelled in texts."""

    content: str
    is_special: bool


@dataclass(frozen=True, slots=True)
class Added:
    """by_id     tokens that files beside the vocabulary give an id
    special   spellings that they call special, with or without an id
    """

    by_id: Mapping[int, AddedToken] = field(default_factory=dict)
    special: frozenset[str] = frozenset()


@dataclass(slots=True)
class Base:
    """tokens          id → bytes; of special tokens their spelling
    special         ids that stand for no text
    ids             spelling in the file → id, where special tokens may be looked up by it
    is_byte_level   whether added tokens are decoded as they are spelled
    """

    tokens: dict[int, bytes]
    special: set[int]
    ids: Mapping[str, int]
    is_byte_level: bool


def vocabulary_of(base: Base, added: Added) -> Vocabulary:
    """The map with added tokens over the base's. Raises ValueError for ids that no vocabulary has."""
    tokens, special = dict(base.tokens), set(base.special)
    for token_id, token in added.by_id.items():
        tokens[token_id] = added_token_bytes(token.content, token.is_special, base.is_byte_level)
        (special.add if token.is_special else special.discard)(token_id)
    for spelling in added.special & base.ids.keys():
        token_id = base.ids[spelling]
        tokens[token_id] = spelling.encode()
        special.add(token_id)
    check_ids(tokens)
    size = 1 + max(tokens, default=-1)
    return Vocabulary(tuple(map(tokens.get, range(size))), frozenset(special))


def check_ids(ids: Iterable[object]) -> None:
    """Raises ValueError unless all are whole numbers from 0 to below `MAX_TOKENS`."""
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < MAX_TOKENS:
            raise ValueError(f"the token id {token_id!r}"[:80])
