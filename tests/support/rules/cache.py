"""Cases of the CACHE family."""

from __future__ import annotations

from typing import Any

from draftproof.configs.speculation import Method, ModelRef, Speculation
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case


def run(
    engine: str, method: Method, target: dict[str, Any], drafter: dict[str, Any] | None = None, **fields: Any
) -> Build:
    second = None if drafter is None else Checkpoint({**QWEN, **drafter})
    named = None if drafter is None else ModelRef(name="org/drafter")
    return case(
        engine,
        Speculation(method=method, depth=4, drafter=named),
        Checkpoint({**QWEN, **target}),
        second,
        **fields,
    )


HYBRID = {"model_type": "qwen3_next"}
LAYERS = {"layer_types": ["linear_attention", "full_attention"]}
RECURRENT = ("minimax", "olmo_hybrid", "bailing_hybrid", "kimi_k3", "lfm2_moe", "qwen3_5_moe_text", "xlstm")
"""Of every way in which families name themselves."""
WINDOW = {"sliding_window": 1024}

FIXTURES = {
    "CACHE-01": Fixtures(
        positive=(
            run("transformers", "ngram", HYBRID),
            run("llamacpp", "ngram", LAYERS),
            run("transformers", "draft_model", {}, {"model_type": "mamba2"}),
            *(run("transformers", "ngram", {"model_type": name}) for name in RECURRENT),
            *(run("llamacpp", "mtp", {"model_type": name}) for name in ("qwen35", "qwen3_5_text", "qwen3next")),
        ),
        negative=(
            run("transformers", "ngram", {}),
            run("transformers", "ngram", {"model_type": "minimax_m2"}),
            run("llamacpp", "draft_model", {}, {}),
            run("vllm", "mtp", HYBRID),
        ),
    ),
    "CACHE-02": Fixtures(
        positive=(run("llamacpp", "draft_model", WINDOW, {}), run("llamacpp", "draft_model", {}, WINDOW)),
        negative=(
            run("llamacpp", "draft_model", {}, {}),
            run("llamacpp", "ngram", WINDOW, rest=("--swa-full",)),
            run("llamacpp", "ngram", {**WINDOW, "use_sliding_window": False}),
        ),
    ),
    "CACHE-03": Fixtures(
        positive=(run("vllm", "ngram", {}, kv_dtype="turboquant_4bit"),),
        negative=(run("vllm", "ngram", {}, kv_dtype="fp8"), run("vllm", "ngram", {})),
    ),
    "CACHE-04": Fixtures(
        positive=(run("vllm", "mtp", {}), run("vllm", "eagle3", HYBRID, prefix_caching=True)),
        negative=(run("vllm", "mtp", {}, prefix_caching=False), run("vllm", "ngram", {})),
    ),
}  # fmt: skip
