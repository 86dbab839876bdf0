"""Cases of the CONTEXT family."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from draftproof.checkpoints.rope import ROPE_KEYS
from draftproof.configs.rules.case import Traffic
from draftproof.configs.speculation import Method, ModelRef, Speculation, Tree
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case


def run(
    engine: str = "vllm",
    drafter: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
    method: Method = "eagle3",
    speculation: dict[str, Any] | None = None,
    **fields: Any,
) -> Build:
    said = {"method": method, "drafter": ModelRef(name="org/head"), "depth": 4, **(speculation or {})}
    return case(
        engine,
        Speculation(**said),
        Checkpoint({**QWEN, **(target or {})}),
        Checkpoint({**QWEN, **(drafter or {})}),
        **fields,
    )


SHORT = {"max_position_embeddings": 2048}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
LLAMA3 = {**YARN, "rope_type": "llama3", "factor": 32.0}
LINEAR = {"type": "linear", "factor": 2.0}


def short(rule: dict[str, Any], key: str = "rope_scaling") -> dict[str, Any]:
    """A head of 2,048 positions, before scaling, or with it where the kind's length counts it in."""
    return {**SHORT, key: rule}


OVERRIDE = ("--hf-overrides", '{"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}')
TREE = {"tree": Tree(depth=4, branching=2, num_nodes=8), "depth": None}

FIXTURES = {
    "CONTEXT-01": Fixtures(
        positive=(
            run(drafter=SHORT),
            run("sglang", drafter=SHORT, max_model_len=4096),
            run(drafter=SHORT, traffic=Traffic(num_requests=2, prompt_chars=(100, 40_000))),
            *(run(drafter=short(rule, key)) for rule in (YARN, LLAMA3) for key in ROPE_KEYS),
            run("sglang", drafter=short(LLAMA3)),
        ),
        negative=(
            run(),
            run(drafter=SHORT, max_model_len=2048),
            *(run("sglang", drafter=short(YARN, key)) for key in ROPE_KEYS),
            *(run(drafter=short(LINEAR, key)) for key in ROPE_KEYS),
            run("sglang", drafter=short(LINEAR)),
            run(drafter=short({"full_attention": LINEAR}, "rope_parameters")),
        ),
    ),
    "CONTEXT-02": Fixtures(
        positive=(
            run(method="mtp", rest=OVERRIDE),
            run(extras=MappingProxyType({"vllm.hf_overrides": MappingProxyType({"rope_scaling": "x"})})),
        ),
        negative=(run(), run(rest=("--hf-overrides", '{"architectures": ["A"]}')), run("sglang", rest=OVERRIDE)),
    ),
    "CONTEXT-03": Fixtures(
        positive=(
            run(target={"partial_rotary_factor": 0.5}),
            run(target={"rope_parameters": {"partial_rotary_factor": 0.25}}),
            run(target={"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.25}}}),
        ),
        negative=(
            run(),
            run(target={"partial_rotary_factor": 0.5}, drafter={"partial_rotary_factor": 0.5}),
            run(target={"partial_rotary_factor": 1.0}),
        ),
    ),
    "CONTEXT-04": Fixtures(
        positive=(
            run(speculation={"draft_max_model_len": 8192}),
            run(drafter={"rope_scaling": LLAMA3}, speculation={"draft_max_model_len": 8192}),
        ),
        negative=(run(speculation={"draft_max_model_len": 4096}), run()),
    ),
    "CONTEXT-05": Fixtures(
        positive=(
            run("trtllm", target={"sliding_window": 512}, speculation=TREE),
            run("trtllm", target={"kv_lora_rank": 512}, speculation=TREE),
        ),
        negative=(
            run("trtllm", speculation=TREE),
            run("trtllm", target={"sliding_window": 512, "use_sliding_window": False}, speculation=TREE),
            run("trtllm", target={"sliding_window": 512}),
        ),
    ),
    "CONTEXT-06": Fixtures(
        positive=(
            run(max_model_len=8192),
            run("sglang", max_model_len=8192),
            run("llamacpp", max_model_len=8192),
            run("llamacpp", max_model_len=8192, rest=("--rope-scaling", "linear", "--rope-scale", "4")),
            run("llamacpp", max_model_len=8192, rest=("--rope-scaling", "yarn")),
            run("llamacpp", max_model_len=8192, rest=("--rope-scale", "4")),
            run("llamacpp", target=short(YARN), max_model_len=4096),
            run(target=short(YARN), max_model_len=8192),
            run("sglang", target=short(YARN), max_model_len=16384),
            run(max_model_len=8192, extras={"vllm.env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "0"}}),
        ),
        negative=(
            run(),
            run(max_model_len=4096),
            run("sglang", target=short(YARN), max_model_len=8192),
            run(target={"model_max_length": 8192}, max_model_len=8192),
            run(target={"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, max_model_len=8192),
            run(max_model_len=8192, rest=OVERRIDE),
            run("trtllm", max_model_len=8192),
            run("llamacpp", max_model_len=8192, rest=("--rope-scaling", "yarn", "--rope-scale", "4")),
            run("llamacpp", target=short(YARN), max_model_len=8192, rest=("--rope-freq-scale", "0.125")),
            run("llamacpp", max_model_len=8192, rest=("--override-kv", "qwen2.context_length=int:8192")),
        ),
    ),
}  # fmt: skip
