"""Cases of the MEMORY family."""

from __future__ import annotations

from typing import Any

from draftproof.configs.speculation import ModelRef, Speculation
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case


def run(engine: str = "vllm", vocab_size: int = 16, draft_sampling: Any = None, **fields: Any) -> Build:
    speculation = Speculation(
        method="draft_model", depth=4, drafter=ModelRef(name="org/drafter"), draft_sampling=draft_sampling
    )
    return case(engine, speculation, Checkpoint({**QWEN, "vocab_size": vocab_size}), **fields)


GRAPHS_OF_64 = (
    ("--max-cudagraph-capture-size", "64"),
    ("--cudagraph-capture-sizes", "1", "64", "--port", "8000"),
    ("--compilation-config", '{"cudagraph_capture_sizes": [8, 64]}'),
    ("-cc", '{"max_cudagraph_capture_size": 64}'),
)
V1 = {"extras": {"vllm.env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}}

FIXTURES = {
    "MEMORY-01": Fixtures(
        positive=(
            run(vocab_size=150_000, draft_sampling="probabilistic", max_num_seqs=1024),
            run(vocab_size=150_000, draft_sampling="probabilistic", max_num_seqs=512, dtype="float32"),
            run(vocab_size=150_000, draft_sampling="probabilistic", max_num_seqs=512, **V1),
            run(vocab_size=600_000, draft_sampling="probabilistic"),
        ),
        negative=(
            run(vocab_size=150_000, draft_sampling="greedy", max_num_seqs=1024),
            run(vocab_size=150_000, draft_sampling="probabilistic", max_num_seqs=512),
            run(vocab_size=150_000, draft_sampling="probabilistic", max_num_seqs=16),
        ),
    ),
    "MEMORY-02": Fixtures(
        positive=(
            run("sglang", graph_max_batch=2, max_num_seqs=20),
            run("sglang", graph_max_batch=2),
            run(max_num_seqs=103),
            *(run(max_num_seqs=20, rest=rest) for rest in GRAPHS_OF_64),
        ),
        negative=(
            run("sglang", graph_max_batch=32, max_num_seqs=20),
            run("sglang", graph_max_batch=48),
            run(max_num_seqs=102),
            run(max_num_seqs=103, enforce_eager=True),
            run(max_num_seqs=103, rest=("--max-cudagraph-capture-size", "515")),
            run(max_num_seqs=103, rest=("-cc", '{"cudagraph_mode": "NONE"}')),
            *(run(max_num_seqs=12, rest=rest) for rest in GRAPHS_OF_64),
        ),
    ),
    "MEMORY-03": Fixtures(
        positive=(
            run(max_num_batched_tokens=512, max_num_seqs=256),
            run(max_num_batched_tokens=512, max_num_seqs=256, lora=True),
            run(max_num_batched_tokens=4),
        ),
        negative=(run(max_num_batched_tokens=2048, max_num_seqs=256), run(max_num_seqs=256)),
    ),
    "MEMORY-04": Fixtures(
        positive=(run("sglang"),),
        negative=(run("sglang", max_num_seqs=128), run("vllm")),
    ),
}
