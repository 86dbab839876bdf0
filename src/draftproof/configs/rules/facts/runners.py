"""Which of vLLM's two model runners a deployment runs on, as far as its command tells.

0.32.0 and 0.33.0 take V2 unless it lacks something or VLLM_USE_V2_MODEL_RUNNER says otherwise; without Triton (some CPU
builds) they take V1. Of other releases only the variable is known to decide.
"""

from __future__ import annotations

from typing import Literal

from draftproof.checkpoints.view import CheckpointView
from draftproof.configs.engines.vllm.facts import ONLY_V1
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.rule import Reading
from draftproof.core.finding import Source

Runner = Literal["V1", "V2"]
VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
READING = Reading(
    "vllm", ">=0.32,<=0.33.0", Source(name="vLLM 0.32.0 and 0.33.0 source: config/vllm.py", read="2026-11")
)


def forced(case: Case) -> Runner | None:
    """The runner that the variable asks for."""
    written = case.environment(VARIABLE)
    return None if written not in ("0", "1") else "V2" if written == "1" else "V1"


def lacking_in_v2(case: Case) -> str | None:
    """In words, what of this deployment runner V2 does not have."""
    if case.method in ONLY_V1 and case.extra("method") != "extract_hidden_states":
        return f"method {case.method}"
    if case.speculation.different_vocabulary:
        return "use_heterogeneous_vocab"
    if _has_stages(case) and case.extra("distributed-executor-backend") == "external_launcher":
        return "pipeline parallelism with external_launcher"
    if case.is_on("enable-dbo") or case.size("ubatch-size") > 1:
        if forced(case) is None:
            return "dual batch overlap"
        if case.method != "none":
            return "dual batch overlap with speculation"
    return None


def lacking_in_v1(case: Case) -> str | None:
    """The same of runner V1. Adaptive verification has a rule of its own."""
    if max(case.size(key) for key in ("prefill-context-parallel-size", "pcp")) > 1:
        return "prefill context parallelism"
    if _has_stages(case) and case.is_on("async-scheduling"):
        return "pipeline parallelism with async scheduling"
    if case.is_on("enable-batch-sharded-sampling"):
        return "batch-sharded sampling"
    if case.method == "dspark":
        return "method dspark"
    if case.extra("draft_lm_head_quantization") is not None:
        return "draft_lm_head_quantization"
    if not _architectures(case.target_view).isdisjoint(STEP5):
        return "Step 5"
    if "ParseAuxMTPModel" in _architectures(case.drafter_view):
        return "Parse 3.5's MTP layers"
    return _lacking_for_dflash(case) if case.method == "dflash" else None


STEP5 = frozenset({"Step5ForCausalLM", "Step5ForConditionalGeneration"})
CANDIDATE_HEADS = frozenset({"DFlash2DraftModel", "DFlash2BeamDraftModel", "LiLiCorrDraftModel"})
"""DFlash drafters that choose among candidates, by architecture."""
XPRESS = frozenset({"Qwen3XPressModel", "DFlashQwen3XPressModel"})
"""DFlash drafters with an XPress refiner."""


def _lacking_for_dflash(case: Case) -> str | None:
    named = _architectures(case.drafter)
    if not named.isdisjoint(XPRESS):
        return "XPress drafters"
    if (
        not named.isdisjoint(CANDIDATE_HEADS)
        or case.drafter.config.get("speculators_model_type") == "dflash2"
    ):
        return "DFlash drafters with candidate heads"
    kinds = case.drafter.language_config.get("layer_types")
    windowed = [kind == "sliding_attention" for kind in kinds] if isinstance(kinds, list) else []
    if any(windowed) and not all(windowed):
        return "DFlash drafters that mix windows and full attention"
    return None


def _has_stages(case: Case) -> bool:
    return (case.deployment.pipeline_parallel or 1) > 1


def _architectures(view: CheckpointView | None) -> frozenset[str]:
    named = None if view is None else view.config.get("architectures")
    return (
        frozenset(name for name in named if isinstance(name, str)) if isinstance(named, list) else frozenset()
    )


def runner(case: Case) -> Runner | None:
    """None: not known for this engine or version."""
    if case.engine != "vllm":
        return None
    if (said := forced(case)) is not None or not case.is_within(READING.versions):
        return said
    return "V2" if lacking_in_v2(case) is None else "V1"
