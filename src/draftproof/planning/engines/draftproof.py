"""Our own engine: memory is a limit for the whole process, caches get what process and passes leave.

The formulas are the engine's own (`core.footprint`). Windowed layers keep every token; drafts take blocks as they need
them and yield when blocks run short, so nothing is reserved for them.
"""

from __future__ import annotations

from draftproof.core import footprint
from draftproof.planning.engines.layers import draft_layers, target_layers
from draftproof.planning.paging import Pool, plain_pool
from draftproof.planning.setup import MIB, Certainty, EngineMemory, Item, Setup

_LIBRARIES = 235 * MIB
_PER_TOKEN = 800
"""Python and PyTorch, and the tokenizer per token of the vocabulary: resident besides the weights, as measured with
vocabularies of 49,152 (271 to 290 MiB) and 151,936 tokens (350 MiB)."""


def _pool(setup: Setup) -> Pool:
    layers = [*target_layers(setup), *draft_layers(setup)]
    return plain_pool(layers, footprint.BLOCK_SIZE, keeps_windows=False, in_flight=0)


def _buffers(setup: Setup) -> tuple[Item, ...]:
    shape, experts = setup.target, setup.target.experts
    whole = footprint.PassShape(
        shape.hidden_size,
        shape.intermediate_size or (experts.size if experts else 0),
        shape.num_heads,
        shape.num_kv_heads,
        shape.head_dim,
        shape.vocab_size,
        (footprint.ExpertShape(experts.num, experts.num_used, experts.size),) if experts else (),
    )
    size = footprint.workspace_bytes(whole, setup.max_batched_tokens, setup.max_num_seqs)
    why = f"activations and logits of a pass of {setup.max_batched_tokens} rows, from above, by the engine's formula"
    given = setup.allowances.runtime
    libraries = Item(
        "runtime",
        _LIBRARIES + _PER_TOKEN * shape.vocab_size if given is None else given,
        Certainty.ASSUMPTION,
        "Python, libraries and tokenizer; the engine measures its own process",
        is_dynamic=True,
    )
    return (Item("workspace", size, Certainty.RULE, why, is_dynamic=True), libraries)


rules = EngineMemory(
    name="draftproof",
    title="Draftproof",
    read_version="0.1",
    page_tokens=footprint.BLOCK_SIZE,
    max_num_seqs=lambda memory: 16,
    max_batched_tokens=lambda memory: 512,
    fraction=None,
    fraction_covers="whole",
    lookahead=lambda setup: 0,
    pool=_pool,
    buffers=_buffers,
    knobs={
        "target weights": "--weights int8 or int4",
        "concurrent requests": "max_num_seqs",
        "largest pass": "max_num_rows",
        "cache dtype": "--dtype bfloat16",
        "draft weights": "draft_weights int4 in --speculative-config",
    },
)
