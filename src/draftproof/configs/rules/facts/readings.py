"""Where the tables' facts were read: one reading per engine, for versions whose source or documents were looked at."""

from __future__ import annotations

from draftproof.configs.rules.rule import ANY_VERSION, Reading
from draftproof.core.finding import Source

VLLM = Reading("vllm", "==0.33.0", Source(name="vLLM 0.33.0 source", read="2026-11"))
VLLM_BOTH = Reading("vllm", ">=0.32,<=0.33.0", Source(name="vLLM 0.32.0 and 0.33.0 source", read="2026-11"))
VLLM_RAN = Reading(
    "vllm",
    ">=0.32,<=0.33.0",
    Source(name="vLLM 0.33.0 source; tried with a CPU build of 0.32.0", read="2026-11"),
)
SGLANG = Reading("sglang", "==0.5.23", Source(name="SGLang 0.5.23 source", read="2026-11"))
TRTLLM = Reading(
    "trtllm",
    ">=1.2,<1.4",
    Source(name="TensorRT-LLM, main branch of mid-2026 and documentation of 1.2", read="2026-11"),
)
LLAMACPP = Reading("llamacpp", ">=9606,<=11434", Source(name="llama.cpp, build 11434", read="2026-11"))
TRANSFORMERS = Reading(
    "transformers", ">=5,<=5.24.0", Source(name="Transformers 5.24.0 source", read="2026-11")
)
OPENVINO = Reading("openvino", ANY_VERSION, Source(name="openvino.genai of 2026-08", read="2026-11"))
FIREWORKS = Reading(
    "fireworks", ANY_VERSION, Source(name="Fireworks documentation and SDK 1.2.30", read="2026-11")
)
DRAFTPROOF = Reading("draftproof", ANY_VERSION, Source(name="draftproof itself", read="2026-11"))

BY_ENGINE = {
    reading.engine: reading
    for reading in (DRAFTPROOF, VLLM, SGLANG, TRTLLM, LLAMACPP, TRANSFORMERS, OPENVINO, FIREWORKS)
}
