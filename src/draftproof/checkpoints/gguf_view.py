"""The view of a GGUF model: one file, or the parts of a split one. Local or on a hub.

Made by `opening`; headers are read once, when the view is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from draftproof.checkpoints.folder import Folder
from draftproof.checkpoints.gguf import ALL_TENSOR_TYPES, read_model
from draftproof.checkpoints.gguf_cursor import StoredArray
from draftproof.checkpoints.integers import unpack_integers
from draftproof.checkpoints.naming import gguf_names
from draftproof.checkpoints.view import Kind, TensorInfo
from draftproof.checkpoints.vocabulary import Vocabulary, parse_gguf_vocabulary

_MAX_SHOWN_ARRAY = 1 << 12
_VOCABULARY_KEYS = ("tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type")
"""All that a vocabulary is made of."""
_NO_VALUES: Mapping[str, Any] = {}


class GgufView:
    """`CheckpointView` of the model that `name` is a file of."""

    kind: Kind = "gguf"

    def __init__(self, reference: str, folder: Folder, name: str, remarks: tuple[str, ...] = ()) -> None:
        self.reference = reference
        self._folder = folder
        self._file = read_model(folder, name, ALL_TENSOR_TYPES, _MAX_SHOWN_ARRAY)
        self._names = tuple(path.name for path in self._file.paths)
        is_first = name == self._names[0]
        self.remarks = (
            remarks if is_first else (*remarks, f"llama.cpp must be given the first part, {self._names[0]}")
        )

    @property
    def revision(self) -> str | None:
        return self._folder.commit

    @property
    def source(self) -> str:
        others = len(self._names) - 1
        more = f" and {others} more parts" if others else ""
        if self._folder.path_of(self._names[0]) is None:
            return f"{self._folder.place}, file {self._names[0]}{more}"
        return f"file {self._file.path}{more}"

    @property
    def files(self) -> frozenset[str]:
        return frozenset(self._names)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        return {
            key: value for key, value in self._file.metadata.items() if not isinstance(value, StoredArray)
        }

    @cached_property
    def language_config(self) -> Mapping[str, Any]:
        tokens = self._file.metadata.get("tokenizer.ggml.tokens")
        return gguf_names(
            self.config, self.tensors, len(tokens) if isinstance(tokens, list | StoredArray) else None
        )

    @property
    def quantization_config(self) -> Mapping[str, Any]:
        return _NO_VALUES

    @property
    def generation_config(self) -> Mapping[str, Any]:
        return _NO_VALUES

    @property
    def tokenizer_config(self) -> Mapping[str, Any]:
        return _NO_VALUES

    @property
    def chat_template(self) -> str | None:
        found = self._file.metadata.get("tokenizer.chat_template")
        return found if isinstance(found, str) else None

    @property
    def tensor_names(self) -> frozenset[str]:
        return frozenset(self._file.header)

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return {name: info for name, (info, _) in self._file.header.items()}

    @property
    def _vocabulary_parts(self) -> dict[str, Any] | None:
        metadata = self._file.metadata
        if "tokenizer.ggml.tokens" not in metadata:
            return None
        return {key: metadata[key] for key in _VOCABULARY_KEYS if key in metadata}

    @cached_property
    def _vocabulary(self) -> Vocabulary | None:
        parts = self._vocabulary_parts
        if parts is None:
            return None
        return parse_gguf_vocabulary(
            {key: part.elements() if isinstance(part, StoredArray) else part for key, part in parts.items()}
        )

    @property
    def tokenizer(self) -> str:
        has_tokens = "tokenizer.ggml.tokens" in self._file.metadata
        return "tokens of the GGUF file" if has_tokens else "no tokens in the GGUF file"

    def tokenizer_digest(self) -> str | None:
        parts = self._vocabulary_parts
        if parts is None:
            return None
        digest = hashlib.sha256()
        for key, part in parts.items():
            digest.update(repr((key, part)).encode("utf-8", "surrogatepass"))
            if isinstance(part, StoredArray):
                digest.update(part.content)
        return digest.hexdigest()

    def vocabulary(self) -> Vocabulary | None:
        return self._vocabulary

    def integers(self, tensor: str, limit: int = 1 << 20) -> list[int] | None:
        if tensor not in self._file.header:
            return None
        info, place = self._file.header[tensor]
        return unpack_integers(
            f"{self._folder.label(info.where)}: {tensor}",
            info.dtype,
            info.num_bytes,
            limit,
            lambda: self._folder.read_range(info.where, place, info.num_bytes),
        )

    def hashes(self, progress: Callable[[str], None] = lambda name: None) -> Mapping[str, str]:
        found = {}
        for name in self._names:
            progress(name)
            found[name] = self._folder.sha256(name)
        return found
