"""What our own engine takes for a page of its cache and for a pass: one formula for the engine and for the planner.

Called by `kv.cache`, `engine.memory`, `proposers.drafter` and `planning.engines.draftproof`. Knows shapes and bytes;
no tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_SIZE = 32
"""Tokens per block of the cache. Native kernels are compiled for this number (`DP_BLOCK_SIZE`)."""

TYPICAL_DEPTH = 16
"""Drafted tokens per request of which the logits are planned for; deeper drafts of all requests at once are rare."""

FIRST_USE_BYTES = 16 * 2**20
"""Allowance for what the first passes leave behind besides: code that is loaded when it is first called (3 MiB, as
measured), and memory that the allocator had returned to the system after loading and takes again (up to 11 MiB)."""

INDEX_BYTES = 80
"""Most that look-up takes per token of a running request for its text and index (as compiled; Python takes more)."""

BYTES_PER_WEIGHT = {"int8": 1.0625, "int4": 0.5625}
"""Of the rounded forms of weights; embedding and head of a target keep eight bits."""


@dataclass(frozen=True, slots=True)
class ExpertShape:
    num: int
    num_used: int
    size: int


@dataclass(frozen=True, slots=True)
class PassShape:
    """The sizes of a model that a pass's memory follows from; `experts` are those of the widest mixture."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    experts: tuple[ExpertShape, ...] = ()


def mib(num_bytes: int) -> str:
    """An amount of memory for messages, in MiB, rounded up."""
    return f"{-(-num_bytes // 2**20)} MiB"


def block_bytes(num_layers: int, num_kv_heads: int, head_dim: int, element_bytes: int) -> int:
    """Bytes of one block of keys and values over all layers."""
    return num_layers * 2 * num_kv_heads * BLOCK_SIZE * head_dim * element_bytes


def workspace_bytes(shape: PassShape, max_rows: int, max_requests: int) -> int:
    """A pass of `max_rows` rows: activations and logits of sampled rows, in float32; and `FIRST_USE_BYTES`."""
    heads = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    per_row = 2 * shape.hidden_size + heads + 3 * shape.intermediate_size
    # What a row's visits to experts take: their inputs, gate and up, and results.
    per_row += max(
        (each.num_used * (2 * shape.hidden_size + 3 * each.size) + each.num for each in shape.experts),
        default=0,
    )
    num_logit_rows = min(max_rows, max_requests * (1 + TYPICAL_DEPTH))
    return 4 * (max_rows * per_row + num_logit_rows * shape.vocab_size) + FIRST_USE_BYTES
