"""The view of a folder as Transformers saves it: config.json, tokenizer files, safetensors. Local or on a hub.

Made by `opening`. Reads each file once and only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from draftproof.checkpoints.files import (
    CONFIG_MAX_BYTES,
    decode,
    is_pickled,
    parse_json,
)
from draftproof.checkpoints.folder import Folder, sha256_of
from draftproof.checkpoints.gguf_naming import models_among
from draftproof.checkpoints.integers import unpack_integers
from draftproof.checkpoints.naming import language_config
from draftproof.checkpoints.shards import Shards, find_shards, read_header, read_headers
from draftproof.checkpoints.tokenizers.reading import TokenizerFiles, is_tokenizer_file, max_bytes_of
from draftproof.checkpoints.view import Header, Kind, TensorInfo
from draftproof.checkpoints.vocabulary import Vocabulary

_DECIDING = (
    "config.json", "generation_config.json", "hf_quant_config.json", "chat_template.jinja", "chat_template.json",
)  # fmt: skip
"""Files beside weights and tokenizer that decide what is computed from a text."""


class FolderView:
    """`CheckpointView` of a folder. `remarks` come before its own."""

    def __init__(self, reference: str, folder: Folder, remarks: tuple[str, ...] = ()) -> None:
        self.reference = reference
        self._folder = folder
        self._remarks = remarks

    @property
    def revision(self) -> str | None:
        return self._folder.commit

    @property
    def source(self) -> str:
        return self._folder.place

    @cached_property
    def files(self) -> frozenset[str]:
        return self._folder.names()

    @property
    def kind(self) -> Kind:
        return "config" if self._shards is None else "safetensors"

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        remarks = list(self._remarks)
        shards = self._shards
        if shards is None:
            pickled = sorted(filter(is_pickled, self.files))
            remarks.append(
                f"only pickled weights ({pickled[0]}), which are not read: they can run code"
                if pickled
                else f"of {len(gguf)} GGUF models none was named"
                if (gguf := models_among(self.files))
                else "no weights at hand"
            )
            return tuple(remarks)
        if shards.missing:
            named = ", ".join(shards.missing[:3]) + (" …" if len(shards.missing) > 3 else "")
            remarks.append(f"{len(shards.missing)} of {len(shards.files)} weight files are missing: {named}")
        if shards.ignored:
            remarks.append(f"not part of the model by its index: {', '.join(shards.ignored[:3])}")
        return tuple(remarks)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        return self._document("config.json")

    @cached_property
    def language_config(self) -> Mapping[str, Any]:
        return language_config(self.config)

    @cached_property
    def quantization_config(self) -> Mapping[str, Any]:
        for config in (self.config, self.language_config):
            for key in ("quantization_config", "compression_config"):
                if isinstance(config.get(key), dict):
                    found: Mapping[str, Any] = config[key]
                    return found
        document = self._document("hf_quant_config.json")
        inner = document.get("quantization")
        return inner if isinstance(inner, dict) else document

    @cached_property
    def generation_config(self) -> Mapping[str, Any]:
        return self._document("generation_config.json")

    @cached_property
    def tokenizer_config(self) -> Mapping[str, Any]:
        return self._document("tokenizer_config.json")

    @cached_property
    def chat_template(self) -> str | None:
        plain = self._text("chat_template.jinja")
        if plain is not None:
            return plain
        found = self._document("chat_template.json").get("chat_template")
        found = found or self.tokenizer_config.get("chat_template")
        if isinstance(found, list):
            by_name = {
                str(entry.get("name")): entry.get("template") for entry in found if isinstance(entry, dict)
            }
            found = by_name.get("default")
        return found if isinstance(found, str) else None

    @cached_property
    def tensor_names(self) -> frozenset[str] | None:
        shards = self._shards
        if shards is not None and shards.weight_map is not None:
            return frozenset(shards.weight_map)
        return None if self._entries is None else frozenset(self._entries)

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo] | None:
        if self._entries is None:
            return None
        return {name: info for name, (info, _) in self._entries.items()}

    @property
    def tokenizer(self) -> str:
        return self._tokenizer.kind

    def tokenizer_digest(self) -> str | None:
        return self._tokenizer.digest()

    def vocabulary(self) -> Vocabulary | None:
        return self._tokenizer.vocabulary

    @cached_property
    def _tokenizer(self) -> TokenizerFiles:
        return TokenizerFiles(self._folder)

    def integers(self, tensor: str, limit: int = 1 << 20) -> list[int] | None:
        found = self._entry(tensor)
        if found is None:
            return None
        info, place = found
        label = f"{self._folder.label(info.where)}: {tensor}"
        return unpack_integers(
            label,
            info.dtype,
            info.num_bytes,
            limit,
            lambda: self._folder.read_range(info.where, place, info.num_bytes),
        )

    def hashes(self, progress: Callable[[str], None] = lambda name: None) -> Mapping[str, str]:
        weights = () if self._shards is None else self._shards.files
        beside = [name for name in sorted(self.files) if name in _DECIDING or is_tokenizer_file(name)]
        wanted = [*beside, *(name for name in weights if name in self.files)]
        found = {}
        for name in wanted:
            progress(name)
            if name in _DECIDING:
                found[name] = sha256_of(self._folder, name, CONFIG_MAX_BYTES)
            elif is_tokenizer_file(name):
                found[name] = sha256_of(self._folder, name, max_bytes_of(name))
            else:
                found[name] = self._folder.sha256(name)
        return found

    @cached_property
    def _shards(self) -> Shards | None:
        return find_shards(self._folder)

    @cached_property
    def _entries(self) -> Header | None:
        shards = self._shards
        return None if shards is None or shards.missing else read_headers(self._folder, shards)

    def _entry(self, tensor: str) -> tuple[TensorInfo, int] | None:
        """From its own shard alone where the index says which."""
        shards = self._shards
        if shards is None:
            return None
        if shards.weight_map is None:
            return None if self._entries is None else self._entries.get(tensor)
        file = shards.weight_map.get(tensor)
        if file is None or file in shards.missing:
            return None
        return read_header(self._folder, file).get(tensor)

    def _document(self, name: str) -> Mapping[str, Any]:
        text = self._text(name)
        return {} if text is None else parse_json(self._folder.label(name), text)

    def _text(self, name: str) -> str | None:
        content = self._folder.read(name, CONFIG_MAX_BYTES) if name in self.files else None
        return None if content is None else decode(self._folder.label(name), content)
