"""Text to token ids and back, with the model's own tokenizer.

Called by the engine, the commands and the server. Stands on the `tokenizers` library: read from a directory's
tokenizer.json, or built from a GGUF file's metadata (`tokenizer_gguf.py`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import tokenizers

from draftproof.checkpoints.files import TOKENIZER_MAX_BYTES, broken, read_text
from draftproof.checkpoints.gguf import Checkpoint, GgufFile
from draftproof.checkpoints.vocabulary import added_token_bytes, bytes_of_token, tokenizer_path
from draftproof.core.errors import DraftproofError
from draftproof.models.tokenizer_gguf import tokenizer_from_gguf


class Tokenizer:
    """Text ↔ token ids. Special tokens are recognised in text, as chat templates need it.

    Decoding does not "clean up" spaces before punctuation: text comes back as it went in.
    """

    def __init__(self, backend: tokenizers.Tokenizer, vocab_size: int | None = None) -> None:
        """`vocab_size` where it is known, for to find it out the whole vocabulary is copied."""
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        if vocab_size is None:
            vocab_size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.vocab_size = vocab_size
        """One more than the highest token id; a model may have more rows than that."""
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._added = {token_id: (token.content, token.special) for token_id, token in added.items()}

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """Token ids of `text`. `add_special` also adds what the model begins texts with, such as <s>: right for
        raw prompts, wrong for rendered chats, whose template writes it."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DraftproofError(
                "DP307",
                "prompt",
                f"{error.object[error.start : error.end]!r} at character {error.start}",
                "Unicode text",
                "Give the text in UTF-8.",
            ) from error
        with _library_faults():
            ids: list[int] = self._backend.encode(text, add_special_tokens=add_special).ids
        return ids

    def decode(self, token_ids: Iterable[int], skip_special: bool = True) -> str:
        """Text of the tokens; ids without a token stand for nothing, broken characters become U+FFFD."""
        with _library_faults():
            text: str = self._backend.decode(list(token_ids), skip_special_tokens=skip_special)
        return text

    def token_id(self, token: str) -> int | None:
        """The id of a token by its spelling in the vocabulary, or None."""
        token_id: int | None = self._backend.token_to_id(token)
        return token_id

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text, in bytes; b"" for an id without a token.

        Exact also where a token is part of a character. Special tokens give their spelling.
        """
        if token_id in self._added:
            return added_token_bytes(*self._added[token_id], self._is_byte_level)
        token: str | None = self._backend.id_to_token(token_id)
        if token is None:
            return b""
        return bytes_of_token(token, self._is_byte_level)

    @functools.cached_property
    def _is_byte_level(self) -> bool:
        return '"ByteLevel"' in json.dumps(json.loads(self._backend.to_str()).get("decoder"))


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The checkpoint's tokenizer. Raises DP405 if there is none or it is of another kind, DP402 if it is broken."""
    if isinstance(checkpoint, GgufFile):
        backend = tokenizer_from_gguf(checkpoint.metadata)
        return Tokenizer(backend, len(checkpoint.metadata["tokenizer.ggml.tokens"]))
    path = tokenizer_path(checkpoint)
    text = read_text(path, TOKENIZER_MAX_BYTES)
    with _library_faults():
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises bare Exception for whatever it cannot read
            raise broken(path, f"{error}"[:300], "a tokenizer of the `tokenizers` library") from error
        return Tokenizer(backend)


@contextmanager
def _library_faults() -> Iterator[None]:
    """What the library raises for a tokenizer that it read but cannot use, panics included, becomes DP405."""
    try:
        yield
    except DraftproofError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DraftproofError(
            "DP405",
            "tokenizer",
            f"{type(error).__name__}: {error}"[:300],
            "a tokenizer that encodes and decodes",
            "The tokenizer's files are damaged or contradict themselves: get them again.",
        ) from error
