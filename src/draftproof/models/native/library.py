"""The compiled kernels as ctypes sees them: structures, signatures, errors. Used by this package alone."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from draftproof.checkpoints.gguf import TENSOR_TYPES
from draftproof.core import compilation
from draftproof.core.compilation import Sources, build, find_compiler
from draftproof.core.errors import DraftproofError
from draftproof.kv.cache import BLOCK_SIZE
from draftproof.models.blocks import KERNEL_TYPES, BlockTensor, block_size, empty_blocks

SOURCES = Sources(
    "draftproof", Path(__file__).parent / "kernels", "draftproof.cpp", (f"-DDP_BLOCK_SIZE={BLOCK_SIZE}",)
)

SOURCE_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}
"""Element types that packing reads, by GGUF's numbers; mirrors SourceType in formats.h."""

BLOCK_TYPES = {name: number for number, (name, _, _) in TENSOR_TYPES.items() if name in KERNEL_TYPES}
"""GGUF's quantised types that the kernels compute with; mirrors SourceType in formats.h."""

ROUNDED_TYPES = ("Q4_0", "Q8_0")
"""To which the library rounds floats."""


class ShapeStruct(ctypes.Structure):
    """Mirrors dp::Shape in model.h."""

    _fields_ = [
        *((name, c_int32) for name in ("vocab_size", "hidden_size", "intermediate_size", "num_layers")),
        *((name, c_int32) for name in ("num_heads", "num_kv_heads", "head_dim", "tie_embeddings")),
        *((name, c_int32) for name in ("qkv_bias", "o_bias", "mlp_bias", "num_threads", "activation")),
        *((name, c_float) for name in ("rms_norm_eps", "embedding_scale", "score_scale")),
    ]


class LayerStruct(ctypes.Structure):
    """Mirrors dp::LayerShape in model.h."""

    _fields_ = [
        *((name, c_int32) for name in ("rope", "rotary_dim", "window")),
        *((name, c_int32) for name in ("num_experts", "num_used", "expert_size", "is_normalised")),
    ]


class BatchStruct(ctypes.Structure):
    """Mirrors dp::Batch in batch.h: addresses of arrays of int64 (`is_tree`: bytes; `cos`, `sin`: addresses of the
    tables of each rotary embedding), then their lengths."""

    _fields_ = [
        *((name, c_void_p) for name in ("token_ids", "positions", "logit_rows")),
        *((name, c_void_p) for name in ("context_lens", "first_rows", "row_counts", "block_offsets")),
        *((name, c_void_p) for name in ("block_ids", "parent_rows", "is_tree", "cos", "sin")),
        *((name, c_int64) for name in ("num_rows", "num_logit_rows", "num_segments", "num_positions")),
    ]


_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "dp_description": (c_char_p, []),
    "dp_model_new": (c_char_p, [POINTER(ShapeStruct), POINTER(LayerStruct), c_int32, POINTER(c_void_p)]),
    "dp_model_free": (None, [c_void_p]),
    "dp_model_load": (c_char_p, [c_void_p, c_int32, c_int32, c_int32, c_void_p, c_int32]),
    "dp_model_forward": (c_char_p, [c_void_p, POINTER(BatchStruct), c_void_p, c_int64, c_void_p, c_int32]),
    "dp_model_linears_only": (c_char_p, [c_void_p, c_int32]),
    "dp_linear_new": (
        c_char_p,
        [c_int32, c_int32, c_void_p, c_int32, c_int32, c_void_p, c_int32, POINTER(c_void_p)],
    ),
    "dp_linear_free": (None, [c_void_p]),
    "dp_linear_read_channel": (None, [c_void_p, c_int32, c_void_p]),
    "dp_linear_apply": (c_char_p, [c_void_p, c_void_p, c_int32, c_void_p, c_int32]),
    "dp_round": (c_char_p, [c_void_p, c_int32, c_int64, c_int32, c_void_p, c_int32]),
    "dp_advise_huge_pages": (None, [c_void_p, c_int64]),
    "dp_read_memory": (c_int64, [c_void_p, c_int64, c_int32]),
}


class Status(NamedTuple):
    """Whether the native kernels can be used here, why (not), and what they were built with."""

    available: bool
    reason: str
    details: str


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded kernels, compiled first if need be. Raises DraftproofError DP702."""
    return load(build(SOURCES))


def load(path: Path) -> ctypes.CDLL:
    """The kernels at `path`, ready to be called. Raises DraftproofError DP702."""
    loaded = compilation.load(path, _SIGNATURES)
    if not loaded.dp_description():
        raise DraftproofError(
            "DP702",
            "kernels",
            "a processor without fused multiply-add",
            "AVX2 with FMA, AVX-512 or 64-bit ARM",
            "Use --kernels python.",
        )
    return loaded


def status() -> Status:
    """What `draftproof version` prints. Compiles the kernels if that has not been done yet."""
    try:
        loaded = library()
        compiler = find_compiler()
    except DraftproofError as error:
        return Status(False, f"{error.found}; {error.remedy}", "")
    vectors = loaded.dp_description().decode()
    return Status(True, f"built for {vectors}", f"{compiler.path}: {compiler.version.splitlines()[0]}")


def source_of(weight: Tensor | BlockTensor) -> tuple[Tensor, int]:
    """What packing reads: contiguous elements or blocks, and the number of their type. Keep them during the call."""
    if isinstance(weight, BlockTensor):
        return weight.data.contiguous(), BLOCK_TYPES[weight.type_name]
    source = weight.detach().cpu()
    source = (source if source.dtype in SOURCE_TYPES else source.float()).contiguous()
    return source, SOURCE_TYPES[source.dtype]


OUT_OF_MEMORY = b"out of memory"
"""What the library says where the system gave it none."""


def check(error: bytes | None) -> None:
    """Raises ValueError with the library's words, where it has any: the caller broke the interface.

    DP701 where memory ran out.
    """
    if error == OUT_OF_MEMORY:
        raise DraftproofError(
            "DP701",
            "memory",
            "none left for weights or for a pass",
            "memory for both",
            "Take a smaller model or --weights int4, fewer rows or requests at a time, or close other programs.",
        )
    if error is not None:
        raise ValueError(error.decode())


def address(tensor: Tensor) -> int:
    """Address of a contiguous CPU tensor's elements."""
    assert tensor.device.type == "cpu"
    assert tensor.is_contiguous()
    return tensor.data_ptr()


def quantize(tensor: Tensor, type_name: str) -> BlockTensor:
    """`models.blocks.quantize` for `ROUNDED_TYPES`: the same bits in a third to a tenth of the time.

    Where a value is not finite, its block's scale is not. Raises DP702.
    """
    num_rows, num_columns = tensor.shape
    size = block_size(type_name)
    assert num_columns % size == 0
    source, source_type = source_of(tensor)
    blocks = empty_blocks(type_name, num_rows, num_columns)
    check(
        library().dp_round(
            address(source),
            source_type,
            tensor.numel() // size,
            BLOCK_TYPES[type_name],
            address(blocks.data),
            torch.get_num_threads(),
        )
    )
    return blocks


def read_memory(data: Tensor, num_threads: int) -> None:
    """Reads `data` once from first to last byte, as the kernels read weights; for benchmarks of bandwidth."""
    library().dp_read_memory(address(data), data.numel() * data.element_size(), num_threads)
