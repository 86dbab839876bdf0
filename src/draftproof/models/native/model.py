"""`NativeModel`: one ctypes call per forward pass. Implements `models.base.Model`.

Called by `models.loading` and the engine. Knows nothing of files; weights come as a mapping by name.
"""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from draftproof.core.errors import DraftproofError
from draftproof.kv.cache import BLOCK_SIZE, KVCache
from draftproof.models.base import ForwardBatch, ModelConfig, Segment
from draftproof.models.blocks import BlockTensor
from draftproof.models.native.library import (
    OUT_OF_MEMORY,
    BatchStruct,
    LayerStruct,
    ShapeStruct,
    address,
    check,
    library,
    source_of,
)
from draftproof.models.rope import RopeTable
from draftproof.models.tensors import TensorSpec, tensor_specs

MAX_HEAD_DIM = 512
HEAD_DIM_MULTIPLE = 16
MAX_THREADS = 256
_NO_WINDOW = 2**31 - 1


class NativeModel:
    """A target in packed form. Several threads may call it; their passes run one after the other.

    weights      tensors under Transformers' names: float32, bfloat16 or float16, or a matrix in blocks of one of
                 `KERNEL_TYPES`, computed with as it is; each is asked for once, packed and dropped, so a mapping
                 that produces them on demand keeps the peak low
    dtype        storage of the cache and of weights in floats: torch.float32 or torch.bfloat16
    num_threads  threads of a pass, the caller's included

    Raises DraftproofError DP702 where the kernels cannot be had or do not serve this shape, DP404 for a tensor
    that is missing, has another shape, or scales that are not finite.
    """

    kernels: Literal["native", "python"] = "native"

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor] | Mapping[str, Tensor | BlockTensor],
        dtype: torch.dtype,
        num_threads: int,
    ) -> None:
        _check_supported(config, dtype, num_threads)
        self.config = config
        self.dtype = dtype
        self.num_threads = num_threads
        self._library = library()
        self._ropes = [RopeTable(rope, config.head_dim, config.context_length) for rope in config.ropes]
        handle = ctypes.c_void_p()
        shape, layers = _shape_of(config, dtype, num_threads), _layers_of(config)
        check(self._library.dp_model_new(shape, layers, dtype == torch.bfloat16, ctypes.byref(handle)))
        self._handle = handle
        weakref.finalize(self, self._library.dp_model_free, handle)
        for spec in tensor_specs(config):
            self._load(spec, weights)

    def new_cache(self, num_blocks: int) -> KVCache:
        """An empty cache of this model's shape and type, in huge pages where the system grants them.

        Attention hops between blocks; with small pages it waits longer for addresses than for data.
        """
        config = self.config
        shape = (config.num_layers, num_blocks, config.num_kv_heads, config.head_dim)
        cache = KVCache(*shape, self.dtype, wordwise_keys=True)
        self._library.dp_advise_huge_pages(address(cache.data), cache.data.nbytes)
        return cache

    def forward(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        """Writes keys and values into `cache`; returns fresh logits, float32 [num_logit_rows, vocab].

        A batch that contradicts itself or points outside `cache` raises ValueError and writes nothing.
        """
        return self._forward(batch, cache, reference=False)

    def forward_reference(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        """The same pass by the slow scalar code that defines its bits; for tests."""
        return self._forward(batch, cache, reference=True)

    def linears_only(self, num_rows: int) -> None:
        """Runs the matrix products of a pass of `num_rows` rows alone, head on every row; for benchmarks."""
        if num_rows < 1:
            raise ValueError(f"num_rows: {num_rows}")
        check(self._library.dp_model_linears_only(self._handle, num_rows))

    def _load(
        self, spec: TensorSpec, weights: Mapping[str, Tensor] | Mapping[str, Tensor | BlockTensor]
    ) -> None:
        try:
            tensor = weights[spec.name]
        except KeyError as error:
            raise DraftproofError(
                "DP404", spec.name, "nothing", "a tensor of this name", "Check the files for completeness."
            ) from error
        if tuple(tensor.shape) != spec.shape:
            raise DraftproofError(
                "DP404",
                spec.name,
                list(tensor.shape),
                f"shape {list(spec.shape)}",
                "The weights do not fit config.json.",
            )
        source, source_type = source_of(tensor)
        problem = self._library.dp_model_load(
            self._handle, spec.part, spec.layer, spec.expert, address(source), source_type
        )
        if problem == OUT_OF_MEMORY:
            check(problem)
        if problem is not None:
            remedy = "Get the checkpoint again, or from another source."
            raise DraftproofError("DP404", spec.name, problem.decode(), "finite weights", remedy)

    def _forward(self, batch: ForwardBatch, cache: KVCache, reference: bool) -> Tensor:
        struct, keep = _describe(batch)
        self._check_cache(cache)
        num_positions = int(batch.positions.max()) + 1 if batch.positions.numel() else 0
        tables = [rope.tables(num_positions) for rope in self._ropes]
        cos, sin = (_addresses([table[part] for table in tables]) for part in (0, 1))
        struct.cos, struct.sin = ctypes.addressof(cos), ctypes.addressof(sin)
        struct.num_positions = min([self.config.context_length, *(len(table[0]) for table in tables)])
        logits = torch.empty((batch.logit_rows.shape[0], self.config.vocab_size), dtype=torch.float32)
        check(
            self._library.dp_model_forward(
                self._handle, struct, address(cache.data), cache.num_blocks, address(logits), reference
            )
        )
        del keep, tables, cos, sin  # the arrays whose addresses the call used
        return logits

    def _check_cache(self, cache: KVCache) -> None:
        config = self.config
        expected = (cache.num_blocks, config.num_layers, 2, config.num_kv_heads, BLOCK_SIZE, config.head_dim)
        if tuple(cache.data.shape) != expected or cache.data.dtype != self.dtype:
            raise ValueError(f"cache of {cache.data.dtype} {tuple(cache.data.shape)}, expected {expected}")


def _check_supported(config: ModelConfig, dtype: torch.dtype, num_threads: int) -> None:
    if not 1 <= num_threads <= MAX_THREADS:
        raise ValueError(f"num_threads: {num_threads}")
    problem = None
    if config.head_dim % HEAD_DIM_MULTIPLE or not 0 < config.head_dim <= MAX_HEAD_DIM:
        problem = f"head_dim {config.head_dim}"
    elif config.num_heads % config.num_kv_heads:
        problem = f"{config.num_heads} heads on {config.num_kv_heads} key/value heads"
    elif dtype not in (torch.float32, torch.bfloat16):
        problem = str(dtype)
    elif any((rope.rotary_dim or 0) % HEAD_DIM_MULTIPLE for rope in config.ropes):
        odd = next(rope.rotary_dim for rope in config.ropes if (rope.rotary_dim or 0) % HEAD_DIM_MULTIPLE)
        problem = f"{odd} rotated elements of a head"
    if problem:
        raise DraftproofError(
            "DP702",
            "kernels",
            problem,
            f"float32 or bfloat16, whole head groups, head_dim and what of it is rotated a multiple of "
            f"{HEAD_DIM_MULTIPLE} up to {MAX_HEAD_DIM}",
            "Use --kernels python.",
        )


def _shape_of(config: ModelConfig, dtype: torch.dtype, num_threads: int) -> ShapeStruct:
    return ShapeStruct(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        tie_embeddings=config.tie_embeddings,
        qkv_bias=config.qkv_bias,
        o_bias=config.o_bias,
        mlp_bias=config.mlp_bias,
        num_threads=num_threads,
        activation=("silu", "gelu_tanh").index(config.activation),
        rms_norm_eps=config.rms_norm_eps,
        embedding_scale=float(torch.tensor(config.embedding_scale).to(dtype)),
        score_scale=config.score_scale,
    )


def _layers_of(config: ModelConfig) -> ctypes.Array[LayerStruct]:
    return (LayerStruct * config.num_layers)(
        *(
            LayerStruct(
                rope=0 if layer.rope is None else config.ropes.index(layer.rope),
                rotary_dim=0 if layer.rope is None else layer.rope.rotary_dim or config.head_dim,
                window=_NO_WINDOW if layer.window is None else layer.window,
                num_experts=0 if layer.experts is None else layer.experts.num_experts,
                num_used=0 if layer.experts is None else layer.experts.num_used,
                expert_size=0 if layer.experts is None else layer.experts.intermediate_size,
                is_normalised=layer.experts is not None and layer.experts.is_normalised,
            )
            for layer in config.layers
        )
    )


def _addresses(tensors: list[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(address(tensor) for tensor in tensors))


def _is_tree(segment: Segment) -> bool:
    parents = segment.parent_rows
    if parents is None:
        return False
    if len(parents) != segment.num_rows:
        raise ValueError(f"{len(parents)} parents for {segment.num_rows} rows")
    return any(parent != max(row - 1, 0) for row, parent in enumerate(parents))


def _describe(batch: ForwardBatch) -> tuple[BatchStruct, list[object]]:
    """The batch as the kernels read it, and the arrays that must live as long as the call."""
    num_rows = batch.token_ids.shape[0]
    tensors = [batch.token_ids, batch.positions, batch.logit_rows]
    if any(tensor.dtype != torch.int64 or tensor.dim() != 1 for tensor in tensors):
        raise ValueError("token_ids, positions and logit_rows must be int64 vectors")
    if batch.positions.shape[0] != num_rows:
        raise ValueError(f"{batch.positions.shape[0]} positions for {num_rows} rows")
    tensors = [tensor.contiguous() for tensor in tensors]
    segments = batch.segments
    context_lens = array("q", [segment.context_len for segment in segments])
    first_rows = array("q", [segment.first_row for segment in segments])
    row_counts = array("q", [segment.num_rows for segment in segments])
    block_ids, block_offsets = array("q"), array("q", [0])
    for segment in segments:
        block_ids.extend(segment.block_ids)
        block_offsets.append(len(block_ids))
    keep: list[object] = [*tensors]
    arrays = [context_lens, first_rows, row_counts, block_offsets, block_ids]
    is_tree = bytearray(_is_tree(segment) for segment in segments)
    parents = array("q")
    if any(is_tree):
        parents = _flat_parents(segments)
        arrays.append(parents)
    keep.extend(arrays)
    flags = (ctypes.c_uint8 * len(is_tree)).from_buffer(is_tree) if any(is_tree) else None
    keep.append(flags)
    struct = BatchStruct(
        *(address(tensor) for tensor in tensors),
        *(values.buffer_info()[0] for values in arrays[:5]),
        parents.buffer_info()[0] if flags is not None else None,
        ctypes.addressof(flags) if flags is not None else None,
        num_rows=num_rows,
        num_logit_rows=batch.logit_rows.shape[0],
        num_segments=len(segments),
    )
    return struct, keep


def _flat_parents(segments: list[Segment]) -> array[int]:
    """Parents of all rows, within their segments; those of chains are never read."""
    parents = array("q")
    for segment in segments:
        own = segment.parent_rows
        parents.extend(own if own is not None else [0] * segment.num_rows)
    return parents
