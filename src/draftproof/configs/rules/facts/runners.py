"""Which of vLLM's two model runners a deployment runs on, as far as its command tells.

0.32.0 and 0.33.0 take V2 unless it lacks something or VLLM_USE_V2_MODEL_RUNNER says otherwise; without Triton (some CPU
builds) they take V1. Of other releases only the variable is known to decide.
"""

from __future__ import annotations

from typing import Literal

from draftproof.configs.rules.case import Case
from draftproof.configs.rules.rule import Reading
from draftproof.configs.speculation import Method
from draftproof.core.finding import Source

Runner = Literal["V1", "V2"]
VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
READING = Reading(
    "vllm", ">=0.32,<=0.33.0", Source(name="vLLM 0.32.0 and 0.33.0 source: config/vllm.py", read="2026-11")
)
_V1_ALONE: frozenset[Method] = frozenset({"suffix", "custom", "pard", "p_eagle", "medusa", "mlp_speculator"})


def forced(case: Case) -> Runner | None:
    """The runner that the variable asks for."""
    written = case.environment(VARIABLE)
    return None if written not in ("0", "1") else "V2" if written == "1" else "V1"


def lacking_in_v2(case: Case) -> str | None:
    """In words, what of this deployment runner V2 does not have."""
    if case.method in _V1_ALONE and case.extra("method") != "extract_hidden_states":
        return f"method {case.method}"
    if case.speculation.different_vocabulary:
        return "use_heterogeneous_vocab"
    if (case.deployment.pipeline_parallel or 1) > 1 and case.extra(
        "distributed-executor-backend"
    ) == "external_launcher":
        return "pipeline parallelism with external_launcher"
    return None


def lacking_in_v1(case: Case) -> str | None:
    """The same of runner V1. Adaptive verification has a rule of its own."""
    if case.method == "dspark":
        return "method dspark"
    if case.extra("draft_lm_head_quantization") is not None:
        return "draft_lm_head_quantization"
    return None


def runner(case: Case) -> Runner | None:
    """None: not known for this engine or version."""
    if case.engine != "vllm":
        return None
    if (said := forced(case)) is not None or not case.is_within(READING.versions):
        return said
    return "V2" if lacking_in_v2(case) is None else "V1"
