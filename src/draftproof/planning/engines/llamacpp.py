"""llama.cpp: caches are allocated whole at start for `--ctx-size` tokens; there is no fraction, memory is a limit.

Read at build 11434. Slots (`--parallel`) divide the context; layers with windows keep the window and one batch.
"""

from __future__ import annotations

from draftproof.configs.engines.llamacpp.words import KEEPS_STATES, WITH_STATES
from draftproof.planning import passes
from draftproof.planning.engines.layers import draft_layers, target_layers
from draftproof.planning.paging import Pool, plain_pool
from draftproof.planning.setup import Certainty, EngineMemory, Item, Setup


def _pool(setup: Setup) -> Pool:
    """Running states are float32, whatever the cache's type."""
    keeps = setup.target.model_type in KEEPS_STATES and setup.method in WITH_STATES
    states = 1 + setup.levels if keeps else 1
    layers = [
        *target_layers(setup, lambda state: 4 * states * (state.state_elements + state.conv_elements)),
        *draft_layers(setup),
    ]
    return plain_pool(layers, setup.page_tokens, keeps_windows=True, in_flight=setup.max_batched_tokens)


def _buffers(setup: Setup) -> tuple[Item, ...]:
    rows = max(setup.verify_rows, setup.max_num_seqs)
    size = 4 * rows * setup.target.vocab_size
    logits = Item("logits", size, Certainty.COMPUTED, f"{rows} rows in float32", is_dynamic=True)
    return (passes.activations(setup), logits, passes.runtime(setup))


rules = EngineMemory(
    name="llamacpp",
    title="llama.cpp",
    read_version="b11434",
    page_tokens=256,
    max_num_seqs=lambda memory: 4,
    max_batched_tokens=lambda memory: 512,
    fraction=None,
    fraction_covers="whole",
    lookahead=lambda setup: 0,
    pool=_pool,
    buffers=_buffers,
    knobs={
        "target weights": "a GGUF file of fewer bits",
        "draft depth": "--spec-draft-n-max",
        "concurrent requests": "--parallel",
        "largest pass": "--ubatch-size",
        "cache dtype": "--cache-type-k q8_0 --cache-type-v q8_0",
        "draft cache dtype": "--spec-draft-type-k q8_0 --spec-draft-type-v q8_0 (-ctkd, -ctvd)",
        "draft weights": "a GGUF file of fewer bits",
    },
    unknowns=("compute buffers depend on the backend; what is shown is an estimate from shapes",),
)
