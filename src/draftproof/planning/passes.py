"""What a pass has to hold besides weights and cache: activations, logits, probabilities of drafts, graphs.

Formulas that the engines' rules share. Estimates follow from shapes: what must exist at the same time in one layer of
one pass. What depends on an engine's kernels is an assumption, labelled as such.
"""

from __future__ import annotations

from draftproof.checkpoints.layers import state_of
from draftproof.planning.setup import MIB, Certainty, Item, Setup


def activation_bytes(setup: Setup) -> int:
    """The widest moment of one layer for the rows of the largest pass: the residual stream twice, and either queries,
    keys and values, what a running state's projections make, or the feed-forward layer's three vectors (of the experts
    that a row visits)."""
    shape = setup.target
    states = [state for layer in shape.layers if (state := state_of(layer)) is not None]
    attention = max(
        (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim,
        *(state.row_elements for state in states),
        0,
    )
    feed_forward = 3 * (shape.intermediate_size or 0)
    if shape.experts is not None:
        visits = shape.experts.num_used * (2 * shape.experts.size + shape.hidden_size + shape.experts.size)
        feed_forward = max(feed_forward, visits + 3 * shape.experts.shared_size)
    per_row = 2 * shape.hidden_size + max(attention, feed_forward) // setup.tensor_parallel
    return setup.max_batched_tokens * per_row * setup.activation_bytes


def activations(setup: Setup) -> Item:
    given = setup.allowances.activations
    if given is not None:
        return Item("activations", given, Certainty.ASSUMPTION, "as you set it", is_dynamic=True)
    why = f"one layer's widest moment for {setup.max_batched_tokens} rows; the engine measures its own peak at start"
    return Item("activations", activation_bytes(setup), Certainty.ESTIMATE, why, is_dynamic=True)


def verify_logits(setup: Setup, chunk_bytes: int | None = None) -> Item:
    """Logits of every verified row in the model's type, and once more in float32 to sample from (at most
    `chunk_bytes` of it at a time)."""
    elements = setup.verify_rows * setup.target.vocab_size
    sampled = 4 * elements if chunk_bytes is None else min(4 * elements, chunk_bytes)
    whole = setup.max_num_seqs * (1 + setup.draft_tokens)
    rows = f"{setup.max_num_seqs} requests × {1 + setup.draft_tokens} rows"
    if setup.verify_rows < whole:
        rows += f", of which a pass takes {setup.verify_rows},"
    rows += f" × {setup.target.vocab_size} tokens"
    return Item(
        "logits to verify" if setup.draft_tokens else "logits",
        elements * setup.activation_bytes + sampled,
        Certainty.COMPUTED,
        rows,
        is_dynamic=True,
    )


def drawing(setup: Setup, chunk_bytes: int | None = None, element_bytes: int = 4) -> tuple[Item, ...]:
    """Of devices that compute logits: logits, and what is kept of drafts that are drawn, for rejection sampling:
    probabilities, or logits in the model's type as vLLM's model runner V2 keeps them."""
    if not setup.draws:
        return ()
    logits = verify_logits(setup, chunk_bytes)
    if not setup.is_probabilistic or setup.drafter is None:
        return (logits,)
    rows = f"{setup.max_num_seqs} requests × {setup.levels} drafts"
    size = setup.max_num_seqs * setup.levels * setup.target.vocab_size * element_bytes
    why = f"{rows} × {setup.target.vocab_size} tokens in {8 * element_bytes} bits"
    return (logits, Item("draft probabilities", size, Certainty.COMPUTED, why, is_dynamic=True))


def runtime(setup: Setup) -> Item:
    given = setup.allowances.runtime
    why = "the device's context and libraries" + (", links between devices" if _is_linked(setup) else "")
    size = DEFAULT_RUNTIME + (DEFAULT_LINKS if _is_linked(setup) else 0) if given is None else given
    return Item("runtime", size, Certainty.ASSUMPTION, why, is_dynamic=True)


def _is_linked(setup: Setup) -> bool:
    return setup.tensor_parallel > 1 or setup.num_stages > 1


def graphs(setup: Setup) -> Item:
    given = setup.allowances.graphs
    if given is not None:
        return Item("graphs", given, Certainty.ASSUMPTION, "as you set it", is_dynamic=True)
    has_drafter = setup.drafter is not None and setup.draws
    size = DEFAULT_GRAPHS + (DEFAULT_DRAFT_GRAPHS if has_drafter else 0)
    why = "captured graphs of the target" + (" and of the drafter" if has_drafter else "")
    return Item(
        "graphs", size, Certainty.ASSUMPTION, why + ": depends on kernels and devices", is_dynamic=True
    )


DEFAULT_RUNTIME = 700 * MIB
DEFAULT_LINKS = 300 * MIB
DEFAULT_GRAPHS = 400 * MIB
DEFAULT_DRAFT_GRAPHS = 128 * MIB
"""Allowances where nothing is known: in the order of what users report (a context of half a gigabyte, graphs of tens to
hundreds of megabytes). They are labelled as assumptions wherever they are shown."""
