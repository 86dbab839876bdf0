"""What each token id of a checkpoint stands for, in bytes, and how well two vocabularies fit together.

Called when a drafter is loaded and by commands that check a pair. Reads tokenizer.json or GGUF metadata itself: no
torch, no tokenizer library. Two tokens are equal when they add the same bytes to a text, however their files spell
them. Special tokens stand for no text, so between different vocabularies they have no counterpart.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftproof.checkpoints.files import TOKENIZER_MAX_BYTES, broken, member, parse_json, read_text
from draftproof.core.errors import DraftproofError

if TYPE_CHECKING:
    from draftproof.checkpoints.gguf import Checkpoint

MAX_TOKEN_ID = 1 << 24

_GGUF_UNKNOWN, _GGUF_CONTROL, _GGUF_USER_DEFINED, _GGUF_UNUSED = 2, 3, 4, 5
_GGUF_NOT_ORDINARY = frozenset((_GGUF_UNKNOWN, _GGUF_CONTROL, _GGUF_USER_DEFINED, _GGUF_UNUSED))
_ZERO_BYTE = "Ā"
"""How GPT-2's alphabet spells it."""


class Vocabulary:
    """What token ids stand for. Equal ones have equal tokens and special ids.

    special     ids that stand for no text: control tokens and the unknown token
    spelled     by id, the same in GPT-2's alphabet, where every token was written in it: as good to compare, and turned
                into bytes only when these are asked for; else None
    """

    def __init__(
        self,
        tokens: Sequence[bytes | None],
        special: frozenset[int],
        spelled: tuple[str | None, ...] | None = None,
    ) -> None:
        self.special, self.spelled = special, spelled
        if spelled is None:
            self.tokens = tuple(tokens)

    @cached_property
    def tokens(self) -> tuple[bytes | None, ...]:
        """By id: the bytes that the token adds to a text (special tokens: their spelling), or None for an id without a
        token (padding of the embedding)."""
        assert self.spelled is not None
        return tuple(_contents(self.spelled, is_byte_level=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        ours, theirs = _alike(self, other)
        return ours == theirs and self.special == other.special

    def __hash__(self) -> int:
        return hash((self.tokens, self.special))


_Tokens = tuple[bytes | str | None, ...]
"""By id: all as bytes, or all in GPT-2's alphabet."""


def _alike(ours: Vocabulary, theirs: Vocabulary) -> tuple[_Tokens, _Tokens]:
    """The tokens of both, in the alphabet where both are, else as bytes."""
    if ours.spelled is not None and theirs.spelled is not None:
        return ours.spelled, theirs.spelled
    return ours.tokens, theirs.tokens


@dataclass(frozen=True)
class VocabularyFit:
    """How a drafter's token ids relate to a target's.

    same_ids          every id that has a token in both has the same token in both
    covers_target     each of the target's tokens has a counterpart
    num_target        ordinary tokens of the target
    num_drafter       ordinary tokens of the drafter
    num_shared        ordinary tokens that both have
    first_difference  in words, the lowest id that stands for different tokens; None with `same_ids`
    """

    target: Vocabulary = field(repr=False)
    drafter: Vocabulary = field(repr=False)
    same_ids: bool
    covers_target: bool
    num_target: int
    num_drafter: int
    num_shared: int
    first_difference: str | None

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(target id, drafter id) of equal tokens, ascending by target id. With `same_ids` the ids are equal, and
        special tokens are among them."""
        if self.same_ids:
            both = enumerate(zip(self.target.tokens, self.drafter.tokens, strict=False))
            return tuple(
                (token_id, token_id) for token_id, (our, their) in both if our is not None and our == their
            )
        ours, theirs = _lowest_ids(self.target), _lowest_ids(self.drafter)
        return tuple(sorted((ours[token], theirs[token]) for token in ours.keys() & theirs.keys()))

    @property
    def overlap(self) -> float:
        """Share of the smaller vocabulary's ordinary tokens that the other one has, too."""
        return self.num_shared / max(1, min(self.num_target, self.num_drafter))

    def describe(self) -> str:
        """The overlap in words."""
        if self.same_ids and self.covers_target:
            return "the same vocabulary"
        shared = f"{self.num_shared} of the target's {self.num_target} tokens"
        if self.same_ids:
            return f"the same token ids, {shared}"
        return f"another vocabulary with {shared} ({self.num_drafter} in the drafter)"


def tokenizer_path(directory: Path) -> Path:
    """tokenizer.json of a safetensors directory. Raises DP405 if there is none."""
    path = member(directory, "tokenizer.json")
    if path is None:
        raise DraftproofError(
            "DP405",
            "tokenizer",
            f"{directory} without tokenizer.json",
            "tokenizer.json",
            "Save the tokenizer with `save_pretrained` of Transformers, which writes tokenizer.json.",
        )
    return path


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """The vocabulary of a checkpoint. Raises DP402 for a broken one, DP405 where there is none."""
    if not isinstance(checkpoint, Path):
        return parse_gguf_vocabulary(checkpoint.metadata)
    path = tokenizer_path(checkpoint)
    return parse_vocabulary(path, read_text(path, TOKENIZER_MAX_BYTES))


def parse_vocabulary(path: Path | str, text: str) -> Vocabulary:
    """The vocabulary of a tokenizer.json; `path` stands in messages. Raises DP402."""
    document = parse_json(path, text)
    try:
        return _from_tokenizer_json(document)
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise broken(path, f"{type(error).__name__}: {error}"[:200], "a vocabulary with token ids") from error


def compare(target: Vocabulary, drafter: Vocabulary) -> VocabularyFit:
    """Maps the drafter's tokens to the target's: by id where all ids agree, else by their bytes."""
    our_tokens, their_tokens = _alike(target, drafter)
    differs = _first_difference(our_tokens, their_tokens)
    ours = set(_texts(our_tokens, target.special))
    theirs = ours if target == drafter else set(_texts(their_tokens, drafter.special))
    ours.discard(None)
    theirs.discard(None)
    num_shared = len(ours & theirs)
    num_pairs = num_shared
    if differs is None:
        both = zip(our_tokens, their_tokens, strict=False)
        num_pairs = sum(our is not None and our == their for our, their in both)
    return VocabularyFit(
        target=target,
        drafter=drafter,
        same_ids=differs is None,
        covers_target=num_pairs == len(our_tokens) - our_tokens.count(None),
        num_target=len(ours),
        num_drafter=len(theirs),
        num_shared=num_shared,
        first_difference=None
        if differs is None
        else f"id {differs} is {_shown(our_tokens[differs])} in the target and {_shown(their_tokens[differs])} in the "
        "drafter",
    )


def bytes_of_tokens(tokens: Sequence[str], is_byte_level: bool) -> list[bytes]:
    """`bytes_of_token` of each, all at once where every token keeps to the alphabet: there are 150,000 and more."""
    content = _encoded("".join(tokens)) if is_byte_level else None
    if content is None:
        return [bytes_of_token(token, is_byte_level) for token in tokens]
    return [content[start:end] for start, end in pairwise(accumulate(map(len, tokens), initial=0))]


def _contents(spelled: Sequence[str | None], is_byte_level: bool) -> list[bytes | None]:
    """The same by id, None where there is none."""
    contents: list[bytes | None] = [*bytes_of_tokens([token or "" for token in spelled], is_byte_level)]
    if None in spelled:
        contents = [
            None if token is None else content for token, content in zip(spelled, contents, strict=True)
        ]
    return contents


def _encoded(text: str) -> bytes | None:
    """A byte for each character of GPT-2's alphabet; None where there are others."""
    if "\0" in text:
        return None
    try:
        return codecs.charmap_encode(text.replace(_ZERO_BYTE, "\0"), "strict", _byte_level_map())[0]
    except UnicodeEncodeError:
        return None


def bytes_of_token(token: str, is_byte_level: bool) -> bytes:
    """What an ordinary token adds to a text. `token` is spelled as in the vocabulary of its tokenizer."""
    if is_byte_level:
        content = _encoded(token)
        return token.encode() if content is None else content
    byte = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token) if token.startswith("<0x") else None
    if byte is not None:
        return bytes.fromhex(byte[1])
    return token.replace("▁", " ").encode()


def added_token_bytes(content: str, is_special: bool, is_byte_level: bool) -> bytes:
    """The same of a token that was added to a vocabulary: it is matched as it is spelled, and decoded like others.

    Byte-level decoders leave it alone; others turn its `▁` into spaces. Special tokens keep their spelling.
    """
    return content.encode() if is_special or is_byte_level else bytes_of_token(content, False)


@cache
def byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes for characters from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + rank): byte for rank, byte in enumerate(others)
    }


@cache
def character_of_byte() -> dict[int, str]:
    return {byte: character for character, byte in byte_of_character().items()}


@cache
def _byte_level_map() -> Any:
    """The same as a map that the interpreter encodes with at once; it cannot hold the zero byte's character."""
    characters = character_of_byte()
    return codecs.charmap_build("\0" + "".join(characters[byte] for byte in range(1, 256)))


def _shown(token: bytes | str | None) -> str:
    """As text in quotes; bytes that are none as escapes. `token`: as `_alike` has it."""
    content = bytes_of_token(token, True) if isinstance(token, str) else token or b""
    return repr(content.decode("utf-8", "backslashreplace"))


def _first_difference(ours: _Tokens, theirs: _Tokens) -> int | None:
    """The lowest id that stands for different tokens."""
    if ours == theirs:
        return None
    for token_id, (our, their) in enumerate(zip(ours, theirs, strict=False)):
        if our != their and our is not None and their is not None:
            return token_id
    return None


def _texts(tokens: _Tokens, special: frozenset[int]) -> list[bytes | str | None]:
    """By id the text that the token stands for; None for tokens that stand for none."""
    texts = [token or None for token in tokens]
    for token_id in special:
        if 0 <= token_id < len(texts):
            texts[token_id] = None
    return texts


def _lowest_ids(vocabulary: Vocabulary) -> dict[bytes | str, int]:
    """Text → lowest id of the tokens that stand for it."""
    numbered = list(enumerate(_texts(vocabulary.tokens, vocabulary.special)))
    return {text: token_id for token_id, text in reversed(numbered) if text is not None}


def parse_gguf_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary in a GGUF file's metadata. Raises DP405 where there is none."""
    spellings = metadata.get("tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    if types is None and isinstance(spellings, list):
        types = [1] * len(spellings)
    if not isinstance(spellings, list) or not isinstance(types, list) or not 0 < len(spellings) == len(types):
        raise _no_vocabulary("no tokens, or not as many types")
    if set(map(type, spellings)) != {str} or set(map(type, types)) != {int}:
        raise _no_vocabulary("tokens that are no text, or types that are no whole numbers")
    is_byte_level = metadata.get("tokenizer.ggml.model") == "gpt2"
    ordinary: list[str | None] = list(spellings)
    apart: dict[int, bytes | None] = {}
    special = set()
    for token_id in [token_id for token_id, kind in enumerate(types) if kind in _GGUF_NOT_ORDINARY]:
        if types[token_id] == _GGUF_UNUSED:
            apart[token_id] = None
        elif types[token_id] == _GGUF_USER_DEFINED:
            apart[token_id] = added_token_bytes(spellings[token_id], False, is_byte_level)
        else:
            special.add(token_id)
            apart[token_id] = spellings[token_id].encode()
    return _vocabulary(ordinary, apart, special, is_byte_level)


def _vocabulary(
    ordinary: list[str | None], apart: Mapping[int, bytes | None], special: set[int], is_byte_level: bool
) -> Vocabulary:
    """Of tokens by id as they are spelled in the file; `apart` has those that are not spelled as ordinary ones."""
    for token_id in apart:
        ordinary[token_id] = None
    if is_byte_level and _encoded("".join(filter(None, ordinary))) is not None:
        characters = character_of_byte()
        for token_id, content in apart.items():
            if content is not None:
                ordinary[token_id] = "".join(map(characters.__getitem__, content))
        return Vocabulary((), frozenset(special), tuple(ordinary))
    tokens = _contents(ordinary, is_byte_level)
    for token_id, content in apart.items():
        tokens[token_id] = content
    return Vocabulary(tokens, frozenset(special))


def _no_vocabulary(found: str) -> DraftproofError:
    return DraftproofError(
        "DP405",
        "GGUF: tokenizer.ggml.tokens",
        found,
        "a vocabulary",
        "Convert the model again with a current converter.",
    )


def _from_tokenizer_json(document: Mapping[str, Any]) -> Vocabulary:
    model = document["model"]
    vocab = model["vocab"]
    if isinstance(vocab, list):  # Unigram: pairs of token and score
        vocab = {entry[0]: token_id for token_id, entry in enumerate(vocab)}
        if not all(isinstance(token, str) for token in vocab):
            raise TypeError("a token that is no text")
    is_byte_level = '"ByteLevel"' in json.dumps(document.get("decoder"))
    listed = document.get("added_tokens") or ()
    added = {int(entry["id"]): entry for entry in listed}
    ids = list(vocab.values())
    is_in_order = ids == list(range(len(ids))) and set(map(type, ids)) == {int}  # as in most files
    if (not is_in_order and len(set(ids)) < len(ids)) or len(added) < len(listed):
        raise ValueError("a token id twice")
    known = [*((0, len(ids) - 1) if is_in_order else map(int, ids)), *added]
    size = 1 + max(known, default=-1)
    if size > MAX_TOKEN_ID or min(known, default=0) < 0:
        raise ValueError(f"token ids from {min(known)} to {size - 1}")
    ordinary: list[str | None] = [None] * size
    if is_in_order:
        ordinary[: len(ids)] = vocab
    else:
        for token_id, token in zip(ids, vocab, strict=True):
            ordinary[token_id] = token
    apart = {
        token_id: added_token_bytes(str(entry["content"]), bool(entry.get("special")), is_byte_level)
        for token_id, entry in added.items()
    }
    special = {token_id for token_id, entry in added.items() if entry.get("special")}
    unknown = vocab.get(model.get("unk_token"))
    if unknown is None and isinstance(model.get("unk_id"), int):
        unknown = model["unk_id"]
    return _vocabulary(ordinary, apart, special if unknown is None else special | {unknown}, is_byte_level)
