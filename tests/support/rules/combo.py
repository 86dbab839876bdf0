"""Cases of the COMBO family."""

from __future__ import annotations

from typing import Any

from draftproof.configs.speculation import Method, Speculation
from support.rules.building import QWEN, Build, Checkpoint, Fixtures, case


def run(engine: str, method: Method, **fields: Any) -> Build:
    return case(engine, Speculation(method=method, depth=4), **fields)


def launched(*words: str) -> dict[str, Any]:
    return {"vllm.launcher": words}


def staged(engine: str, method: Method, *rest: str, **fields: Any) -> Build:
    return run(engine, method, pipeline_parallel=2, rest=rest, **fields)


def asked(value: str) -> dict[str, Any]:
    return {"extras": {"sglang.env": {"SGLANG_ENABLE_PP_SPEC": value}}}


def of_type(model_type: str) -> dict[str, Any]:
    return {"target_files": Checkpoint({**QWEN, "model_type": model_type}, tokens=None)}


PREFILL, DECODE = ("--disaggregation-mode", "prefill"), ("--disaggregation-mode", "decode")
ASSISTANT = Checkpoint({**QWEN, "architectures": ["Gemma4AssistantForCausalLM"]}, tokens=None)
NO_STATES = Checkpoint({**QWEN, "eagle_config": {"use_aux_hidden_state": False}}, tokens=None)
SEES = {"rest": ("--mmproj", "file.gguf")}
PLAIN = Checkpoint(QWEN, tokens=None)
NARROW = Checkpoint({**QWEN, "hidden_size": 32}, tokens=None)
V1 = {"extras": {"vllm.env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}}

REFUSED_STAGES = (
    staged("trtllm", "mtp"),
    *(staged("vllm", method) for method in ("draft_model", "pard")),
    *(staged("vllm", method, **of_type("gpt_oss")) for method in ("eagle3", "dflash", "dspark")),
    staged("vllm", "eagle3", **of_type("deepseek_v41"), version="0.32.0"),
    *(staged("sglang", method, *PREFILL) for method in ("ngram", "eagle3", "draft_model", "dflash")),
    staged("sglang", "mtp", *PREFILL, drafter_files=ASSISTANT),
    staged("sglang", "mtp", *PREFILL, extras={"sglang.speculative-algorithm": "FROZEN_KV_MTP"}),
    staged("sglang", "eagle", *PREFILL, "--enable-multi-layer-eagle"),
    staged("sglang", "dspark"),
    staged("sglang", "dspark", *PREFILL, **asked("1")),
    staged("sglang", "mtp", *DECODE),
    staged("sglang", "mtp", **asked("0")),
    staged("sglang", "mtp", *PREFILL, **asked("1")),
    staged("sglang", "mtp", "--attn-dp-size", "2", **asked("true")),
    staged("sglang", "eagle", "--speculative-adaptive", **asked("1")),
)
"""The engine does not start."""
DOUBTFUL_STAGES = (
    staged("vllm", "eagle3"),
    staged("vllm", "dflash", **of_type("qwen3")),
    staged("vllm", "eagle3", **of_type("gpt_oss"), **V1),
    staged("vllm", "eagle3", **of_type("gpt_oss"), drafter_files=NO_STATES),
    staged("vllm", "mtp"),
    staged("sglang", "eagle"),
    staged("sglang", "mtp"),
)
"""It may."""

FIXTURES = {
    "COMBO-01": Fixtures(
        positive=(*REFUSED_STAGES, *DOUBTFUL_STAGES),
        negative=(
            run("trtllm", "mtp", pipeline_parallel=1),
            staged("vllm", "ngram"),
            staged("sglang", "dspark", *PREFILL),
            staged("sglang", "eagle", *PREFILL),
            staged("sglang", "mtp", *PREFILL, **asked("0")),
            staged("sglang", "mtp", **asked("1")),
            staged("sglang", "mtp", "--attn-dp-size", "1", **asked("1")),
        ),
    ),
    "COMBO-02": Fixtures(
        positive=(
            run("sglang", "draft_model", lora=True),
            run("vllm", "eagle3", lora=True),
            run("trtllm", "mtp", lora=True),
            run("sglang", "draft_model", rest=("--lora-paths", "a=b")),
            run("sglang", "custom", lora=True),
            run("sglang", "mtp", lora=True, drafter_files=ASSISTANT),
            run("sglang", "eagle3", lora=True, rest=("--speculative-adaptive",)),
        ),
        negative=(
            run("sglang", "eagle3", lora=True),
            run("vllm", "ngram", lora=True),
            run("sglang", "draft_model"),
        ),
    ),
    "COMBO-03": Fixtures(
        positive=(run("sglang", "ngram", data_parallel=2),),
        negative=(run("sglang", "eagle", data_parallel=2), run("sglang", "ngram", data_parallel=1)),
    ),
    "COMBO-04": Fixtures(
        positive=(
            run("sglang", "draft_model", rest=("--enable-dp-attention", "--tp-size", "4")),
            run("sglang", "ngram", rest=("--attn-dp-size", "2")),
            *(run("sglang", method, rest=("--attn-dp-size", "2")) for method in ("dflash", "dspark")),
        ),
        negative=(
            run("sglang", "dspark", rest=("--attn-dp-size", "2", "--enable-dp-lm-head")),
            run("sglang", "eagle", rest=("--enable-dp-attention",)),
            run("sglang", "draft_model"),
            run("sglang", "draft_model", rest=("--attn-dp-size", "1")),
        ),
    ),
    "COMBO-05": Fixtures(
        positive=(
            run("llamacpp", "draft_model", **SEES),
            run("llamacpp", "draft_model", **SEES, target_files=PLAIN, drafter_files=NARROW),
            run("llamacpp", "eagle3", **SEES),
            run("llamacpp", "mtp", **SEES, version="7000"),
        ),
        negative=(
            run("llamacpp", "draft_model"),
            run("llamacpp", "none", **SEES),
            run("llamacpp", "draft_model", **SEES, target_files=PLAIN, drafter_files=PLAIN),
            *(run("llamacpp", method, **SEES) for method in ("mtp", "ngram", "dflash", "dspark")),
        ),
    ),
    "COMBO-06": Fixtures(
        positive=(run("sglang", "eagle", rest=("--enable-lmcache",)),),
        negative=(run("sglang", "eagle"),),
    ),
    "COMBO-07": Fixtures(
        positive=(
            run("vllm", "ngram", version="0.33.0+cpu"),
            run("vllm", "eagle3", extras=launched("docker", "run", "vllm/vllm-openai-cpu:v0.33.0-arm64")),
            run("vllm", "mtp", extras={"vllm.env": {"VLLM_CPU_KVCACHE_SPACE": "40"}}),
        ),
        negative=(
            run("vllm", "ngram", version="0.33.0"),
            run("vllm", "none", version="0.33.0+cpu"),
            run("vllm", "ngram", extras=launched("docker", "run", "vllm/vllm-openai:v0.33.0")),
            run(
                "vllm", "ngram", version="0.33.0+cpu", extras={"vllm.env": {"VLLM_USE_V2_MODEL_RUNNER": "1"}}
            ),
        ),
    ),
}
