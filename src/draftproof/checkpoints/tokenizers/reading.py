"""Which of a folder's files is its tokenizer, and the vocabulary in it. Called by `folder_view`.

The order is that of Transformers 5.24: tokenizer.json, else what it converts (tekken.json, tokenizer.model,
tiktoken.model, vocab.json with merges.txt); `*.tiktoken` belongs to the code of its model's own repository.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from draftproof.checkpoints.files import CONFIG_MAX_BYTES, TOKENIZER_MAX_BYTES, broken, decode, parse_json
from draftproof.checkpoints.folder import Folder, sha256_of
from draftproof.checkpoints.tokenizers import ranks, sentencepiece, vocab_json
from draftproof.checkpoints.tokenizers.added import FILES, read_added
from draftproof.checkpoints.tokenizers.base import MAX_BYTES, Added, Base, UnreadError, vocabulary_of
from draftproof.checkpoints.vocabulary import Vocabulary, parse_vocabulary

_READ = (
    "tokenizer.json", "tekken.json", "tokenizer.model", r"tokenizer\.(mm\.)?model\.v\d[\w.]*", "tiktoken.model",
    r"[\w.-]+\.tiktoken", "vocab.json",
)  # fmt: skip
_UNREAD = (
    "sentencepiece.bpe.model", "spiece.model", "vocab.txt", r"rwkv_vocab[\w.]*\.txt", r"[\w.-]+\.(bpe|codes|spm|vocab)",
)  # fmt: skip
"""Kinds that are told by name: ids that are shifted against the file's, WordPiece, RWKV and others."""


def is_tokenizer_file(name: str) -> bool:
    """Whether a file of this name decides what token ids stand for, of whichever kind."""
    return name in (*FILES, "merges.txt") or _first(frozenset((name,)), (*_READ, *_UNREAD)) is not None


def max_bytes_of(name: str) -> int:
    """What a tokenizer's file may be long."""
    return (
        TOKENIZER_MAX_BYTES if name == "tokenizer.json" else CONFIG_MAX_BYTES if name in FILES else MAX_BYTES
    )


class TokenizerFiles:
    """The tokenizer of one folder; read when it is asked for, once."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    @cached_property
    def file(self) -> str | None:
        """The file that holds the vocabulary; None where there is none that is read."""
        names = self._folder.names()
        found = _first(names, _READ)
        return None if found == "vocab.json" and "merges.txt" not in names else found

    @property
    def kind(self) -> str:
        """In words: the file, or why none is read."""
        unread = self._outcome[1]
        if unread is not None:
            return f"{unread}, which is not read"
        if self.file is not None:
            return self.file
        other = _first(self._folder.names(), (*_UNREAD, "vocab.json"))
        return "no tokenizer file" if other is None else f"{other}, of a kind that is not read"

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Raises DP402 for a broken file, DP405 as `parse_vocabulary`."""
        return self._outcome[0]

    def digest(self) -> str | None:
        """SHA-256 of the files that the vocabulary is made of; of tokenizer.json its own. Raises DP402 for one that is
        too long."""
        if self.file is None:
            return None
        if self.file == "tokenizer.json":
            return sha256_of(self._folder, self.file, max_bytes_of(self.file))
        present = [name for name in (self.file, *FILES) if name in self._folder.names()]
        hashes = [(name, sha256_of(self._folder, name, max_bytes_of(name))) for name in present]
        return hashlib.sha256(repr(hashes).encode()).hexdigest()

    @cached_property
    def _outcome(self) -> tuple[Vocabulary | None, str | None]:
        if self.file is None:
            return None, None
        label = self._folder.label(self.file)
        content = self._folder.read(self.file, max_bytes_of(self.file)) or b""
        if self.file == "tokenizer.json":
            return parse_vocabulary(label, decode(label, content)), None
        added = self._added()
        try:
            base, added = self._parse(self.file, content, added)
            return vocabulary_of(base, added), None
        except UnreadError as unread:
            return None, str(unread)
        except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
            raise broken(
                label, f"{type(error).__name__}: {error}"[:200], "a vocabulary with token ids"
            ) from error

    def _parse(self, name: str, content: bytes, added: Added) -> tuple[Base, Added]:
        if name == "vocab.json":
            return vocab_json.parse(self._json(name, content), added)
        if name == "tekken.json":
            return ranks.parse_tekken(self._json(name, content)), Added()
        if name.endswith(".tiktoken") or ranks.looks_like_tiktoken(content):
            own = ranks.QWEN_SPECIAL if name == "qwen.tiktoken" else ()
            return ranks.parse_tiktoken(content, own), added
        if sentencepiece.looks_like_it(content):
            return sentencepiece.parse(content), added
        raise ValueError(f"first bytes {content[:8]!r}, neither SentencePiece's nor tiktoken's")

    def _added(self) -> Added:
        config, added, special = (self._document(name) for name in FILES)
        try:
            return read_added(config, added, special)
        except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
            label = self._folder.label(FILES[0])
            raise broken(label, f"{type(error).__name__}: {error}"[:200], "added tokens with ids") from error

    def _document(self, name: str) -> Mapping[str, Any]:
        content = self._folder.read(name, max_bytes_of(name)) if name in self._folder.names() else None
        return {} if content is None else self._json(name, content)

    def _json(self, name: str, content: bytes) -> Mapping[str, Any]:
        label = self._folder.label(name)
        return parse_json(label, decode(label, content))


def _first(names: frozenset[str], patterns: tuple[str, ...]) -> str | None:
    """The first name in the order of the patterns; of several for one pattern, the first by alphabet."""
    for pattern in patterns:
        found = [name for name in sorted(names) if name == pattern or re.fullmatch(pattern, name)]
        if found:
            return found[0]
    return None
