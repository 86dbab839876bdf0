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


FIXTURES = {
    "MEMORY-01": Fixtures(
        positive=(run(vocab_size=150_000, draft_sampling="probabilistic", max_num_seqs=512),),
        negative=(
            run(vocab_size=150_000, draft_sampling="greedy", max_num_seqs=512),
            run(vocab_size=150_000, draft_sampling="probabilistic", max_num_seqs=16),
        ),
    ),
    "MEMORY-02": Fixtures(
        positive=(run("sglang", graph_max_batch=2, max_num_seqs=20),),
        negative=(run("sglang", graph_max_batch=32, max_num_seqs=20), run("sglang", graph_max_batch=8)),
    ),
    "MEMORY-03": Fixtures(
        positive=(
            run(max_num_batched_tokens=512, max_num_seqs=256),
            run(max_num_batched_tokens=512, max_num_seqs=256, lora=True),
        ),
        negative=(run(max_num_batched_tokens=2048, max_num_seqs=256), run(max_num_seqs=256)),
    ),
    "MEMORY-04": Fixtures(
        positive=(run("sglang"),),
        negative=(run("sglang", max_num_seqs=128), run("vllm")),
    ),
}
