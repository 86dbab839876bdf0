"""Cases of the COMBO family."""

from __future__ import annotations

from typing import Any

from draftproof.configs.speculation import Method, Speculation
from support.rules.building import Build, Fixtures, case


def run(engine: str, method: Method, **fields: Any) -> Build:
    return case(engine, Speculation(method=method, depth=4), **fields)


def launched(*words: str) -> dict[str, Any]:
    return {"vllm.launcher": words}


FIXTURES = {
    "COMBO-01": Fixtures(
        positive=(
            run("trtllm", "mtp", pipeline_parallel=2),
            run("sglang", "ngram", pipeline_parallel=2),
            run("sglang", "eagle3", pipeline_parallel=2),
            run("vllm", "eagle3", pipeline_parallel=2),
        ),
        negative=(run("trtllm", "mtp", pipeline_parallel=1), run("vllm", "ngram", pipeline_parallel=2)),
    ),
    "COMBO-02": Fixtures(
        positive=(
            run("sglang", "draft_model", lora=True),
            run("vllm", "eagle3", lora=True),
            run("trtllm", "mtp", lora=True),
            run("sglang", "draft_model", rest=("--lora-paths", "a=b")),
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
        ),
        negative=(
            run("sglang", "eagle", rest=("--enable-dp-attention",)),
            run("sglang", "draft_model"),
            run("sglang", "draft_model", rest=("--attn-dp-size", "1")),
        ),
    ),
    "COMBO-05": Fixtures(
        positive=(run("llamacpp", "draft_model", rest=("--mmproj", "file.gguf")),),
        negative=(run("llamacpp", "draft_model"), run("llamacpp", "none", rest=("--mmproj", "file.gguf"))),
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
