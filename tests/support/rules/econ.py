"""Cases of the ECON family."""

from __future__ import annotations

from typing import Any

from draftproof.configs.speculation import BatchRange, ModelRef, Speculation
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case

BIG = {**QWEN, "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 24, "intermediate_size": 1024}
SMALL = {**QWEN, "vocab_size": 1000}
MIXTURE = {
    **BIG, "model_type": "qwen3_moe", "num_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 256,
    "norm_topk_prob": True, "decoder_sparse_step": 1, "head_dim": 64,
}  # fmt: skip


def run(target: dict[str, Any], drafter: dict[str, Any] | None = None, **fields: Any) -> Build:
    said = {
        "method": "draft_model",
        "drafter": ModelRef(name="org/d"),
        "depth": 4,
        **fields.pop("speculation", {}),
    }
    return case(
        "vllm",
        Speculation(**said),
        Checkpoint(target),
        None if drafter is None else Checkpoint(drafter),
        **fields,
    )


SCHEDULE = {"schedule": (BatchRange(low=1, high=8, depth=4), BatchRange(low=9, high=None, depth=0))}

FIXTURES = {
    "ECON-01": Fixtures(positive=(run(SMALL, BIG),), negative=(run(BIG, SMALL), run(BIG, BIG))),
    "ECON-02": Fixtures(
        positive=(run(BIG, SMALL), run(BIG, BIG), run(MIXTURE, BIG)),
        negative=(run(SMALL, BIG), run(BIG, SMALL, speculation={"depth": None})),
    ),
    "ECON-03": Fixtures(positive=(run(MIXTURE, SMALL),), negative=(run(BIG, SMALL),)),
    "ECON-04": Fixtures(
        positive=(run(BIG, SMALL, max_num_seqs=256),),
        negative=(
            run(BIG, SMALL, max_num_seqs=16),
            run(BIG, SMALL),
            run(BIG, SMALL, max_num_seqs=256, speculation=SCHEDULE),
            run(BIG, SMALL, max_num_seqs=256, speculation={"adaptive": True}),
        ),
    ),
}
