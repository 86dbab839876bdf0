"""Tensors of a checkpoint on demand, under Transformers' names, whichever format they lie in.

Called by `loading`; the decoders see a `Mapping[str, Tensor]`. Each access reads the tensor again and keeps
nothing, so that loading holds one tensor at a time beside the packed ones. Knows formats, no decoders.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from draftproof.checkpoints.files import broken
from draftproof.checkpoints.gguf import GgufFile, GgufTensor
from draftproof.checkpoints.safetensors import TensorEntry
from draftproof.core.errors import DraftproofError
from draftproof.models.base import ModelConfig
from draftproof.models.blocks import BlockTensor, dequantize

_SAFETENSORS_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

_GGUF_STEMS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}

ROPE_FREQS = "rope_freqs.weight"
"""A GGUF tensor that belongs to the configuration, not to the weights."""


class Weights(Mapping[str, Tensor]):
    """Names, shapes and, on access, values: float32, float16 or bfloat16, all finite.

    Access raises DP402 for a file that ends early, DP404 for values that are not finite.
    """

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape, without reading it."""

    @abstractmethod
    def stored(self, name: str) -> Tensor | BlockTensor:
        """The tensor as the file holds it: blocks where it is quantised. Their scales are checked by no one yet."""

    def __getitem__(self, name: str) -> Tensor:
        stored = self.stored(name)
        tensor = stored.dequantize() if isinstance(stored, BlockTensor) else stored
        # One sum finds any NaN or infinity; only a suspicious one is worth a look at each element.
        if not math.isfinite(tensor.sum(dtype=torch.float32)) and not bool(tensor.isfinite().all()):
            raise DraftproofError(
                "DP404",
                name,
                "NaN or infinite values",
                "finite weights",
                "Get the checkpoint again, or from another source.",
            )
        return tensor


class SafetensorsWeights(Weights):
    """Of a safetensors directory; tensors keep their stored type."""

    def __init__(self, entries: Mapping[str, TensorEntry]) -> None:
        self._entries = entries
        for name, entry in entries.items():
            if entry.dtype not in _SAFETENSORS_DTYPES:
                raise DraftproofError(
                    "DP406",
                    name,
                    f"element type {entry.dtype}",
                    f"one of {', '.join(_SAFETENSORS_DTYPES)}",
                    "Use a checkpoint that is not quantised, or a GGUF file.",
                )

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def stored(self, name: str) -> Tensor:
        entry = self._entries[name]
        if entry.num_bytes == 0:
            return torch.empty(entry.shape, dtype=_SAFETENSORS_DTYPES[entry.dtype])
        content = read_bytes(entry.path, entry.offset, entry.num_bytes)
        return torch.frombuffer(content, dtype=_SAFETENSORS_DTYPES[entry.dtype]).view(entry.shape)


class GgufWeights(Weights):
    """Of a GGUF file. Quantised tensors come as float32; rotary rows of `llama` files in Transformers' order."""

    def __init__(self, file: GgufFile, config: ModelConfig) -> None:
        self._path = file.path
        self._config = config
        self._tensors = {
            _hf_name(name): tensor for name, tensor in file.tensors.items() if name != ROPE_FREQS
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def stored(self, name: str) -> Tensor | BlockTensor:
        tensor = read_gguf_tensor(self._path, self._tensors[name])
        if self._config.architecture == "llama" and ".self_attn.q_proj." in name:
            return _to_halves(tensor, self._config.num_heads)
        if self._config.architecture == "llama" and ".self_attn.k_proj." in name:
            return _to_halves(tensor, self._config.num_kv_heads)
        return tensor


def _hf_name(name: str) -> str:
    """blk.3.attn_q.weight → model.layers.3.self_attn.q_proj.weight; an unknown name is marked as such."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in _GGUF_STEMS:
        return f"GGUF tensor {name}"
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{_GGUF_STEMS[match[2]]}.{match[3]}"


def _to_halves(tensor: Tensor | BlockTensor, num_heads: int) -> Tensor | BlockTensor:
    """Undoes the converter's reordering of rotary rows: pairs (2j, 2j + 1) become (j, j + head_dim / 2)."""
    if isinstance(tensor, BlockTensor):
        return replace(tensor, data=_rows_to_halves(tensor.data, num_heads))
    return _rows_to_halves(tensor, num_heads)


def _rows_to_halves(rows: Tensor, num_heads: int) -> Tensor:
    pairs = rows.view(num_heads, -1, 2, *rows.shape[1:])  # [num_heads, head_dim / 2, 2, …]
    return pairs.transpose(1, 2).reshape(rows.shape)


def read_gguf_tensor(path: Path, tensor: GgufTensor) -> Tensor | BlockTensor:
    """One tensor of a GGUF file as stored; a quantised one that is no matrix dequantised."""
    content = read_bytes(path, tensor.offset, tensor.num_bytes)
    stored = _SAFETENSORS_DTYPES.get(tensor.type_name)
    if stored is not None:
        return torch.frombuffer(content, dtype=stored).view(tensor.shape)
    rows = torch.frombuffer(content, dtype=torch.uint8)
    if len(tensor.shape) != 2:
        return dequantize(rows.numpy(), tensor.type_name).view(tensor.shape)
    num_rows, num_columns = tensor.shape
    return BlockTensor(tensor.type_name, (num_rows, num_columns), rows.view(num_rows, -1))


def read_values(path: Path, tensor: GgufTensor) -> Tensor:
    """One tensor of a GGUF file, dequantised where it is not stored as floats."""
    stored = read_gguf_tensor(path, tensor)
    return stored.dequantize() if isinstance(stored, BlockTensor) else stored


def read_bytes(path: Path, offset: int, num_bytes: int) -> bytearray:
    """That range of the file. Raises DP402 if the file ends before (it may have shrunk since its header)."""
    content = bytearray(num_bytes)
    with path.open("rb") as file:
        file.seek(offset)
        num_read = file.readinto(content)
    if num_read != num_bytes:
        raise broken(path, f"{offset + num_read} bytes", f"at least {offset + num_bytes} bytes")
    return content
