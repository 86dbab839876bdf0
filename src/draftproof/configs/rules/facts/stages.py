"""Speculation over several pipeline stages: which vLLM targets pass a drafter's states on, what SGLang asks for."""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.configs.rules.case import Case
from draftproof.configs.rules.facts.runners import runner
from draftproof.configs.rules.rule import Reading
from draftproof.configs.speculation import Method
from draftproof.core.finding import Source

VLLM_STAGES = Reading(
    "vllm",
    ">=0.32,<=0.33.0",
    Source(name="vLLM 0.32.0 and 0.33.0 source: eagle3_utils.py, supports_aux_hidden_states_over_pp", read="2026-11"),
)  # fmt: skip
READ_STATES: frozenset[Method] = frozenset({"eagle3", "dflash", "dspark"})
"""Methods whose drafters read states of the target's inner layers."""
_PASSING = frozenset(
    {
        "llama", "llama4", "llama4_text", "mistral", "ministral3", "phi3", "teleflm", "telechat2", "telechat3",
        "ernie4_5", "internlm3", "iquestcoder", "qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text",
        "qwen3", "qwen3_vl_text", "domyn_edge", "sarvam_mla", "deepseek_v4", "kimi_linear", "minimax_m3_text",
        "musespark1x_text", "muse_spark_text",
    }
)  # fmt: skip
"""model_type of the language models whose class, or the one that it inherits from, passes such states on."""


def passes_states(case: Case) -> bool | None:
    """Whether the target does, on vLLM's model runner V2, which asks; None where nobody asks or nothing is known."""
    if case.target_view is None or runner(case) != "V2":
        return None
    group = {} if case.drafter_view is None else case.drafter_view.config.get("eagle_config")
    if case.method == "eagle3" and isinstance(group, Mapping) and group.get("use_aux_hidden_state") is False:
        return None
    return case.target.language_config.get("model_type") in _PASSING


_FROZEN = frozenset({"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"})
"""Drafters for which SGLang makes FROZEN_KV_MTP of EAGLE and NEXTN."""
_VARIABLE = "SGLANG_ENABLE_PP_SPEC"


def _is_asked(case: Case) -> bool | None:
    """What the variable says; None where it is not in the command."""
    said = case.environment(_VARIABLE)
    return None if said is None else said.lower() in ("true", "1", "yes", "y")


def _mode(case: Case) -> str:
    return str(case.extra("disaggregation-mode") or "null")


def is_frozen(case: Case) -> bool:
    """Whether EAGLE, or NEXTN, becomes FROZEN_KV_MTP."""
    named = () if case.drafter_view is None else case.drafter_view.config.get("architectures")
    return case.extra("speculative-algorithm") == "FROZEN_KV_MTP" or (
        isinstance(named, list | tuple)
        and not _FROZEN.isdisjoint(name for name in named if isinstance(name, str))
    )


def is_plain_eagle(case: Case) -> bool:
    """Whether EAGLE, or NEXTN, stays what SGLang calls EAGLE, in one layer."""
    return not is_frozen(case) and not case.is_on("enable_multi_layer_eagle")


def is_dspark_misplaced(case: Case) -> bool:
    return _mode(case) != "prefill" or _is_asked(case) is True


def is_eagle_misplaced(case: Case) -> bool:
    """Neither a server that prefills for others nor the variable, for sure."""
    is_refused = _mode(case) == "decode" or (_mode(case) == "null" and _is_asked(case) is False)
    return is_plain_eagle(case) and is_refused


def is_eagle_unsettled(case: Case) -> bool:
    """The same as far as the command tells: the variable may be set elsewhere."""
    return is_plain_eagle(case) and _mode(case) == "null" and _is_asked(case) is None


def is_adaptive(case: Case) -> bool:
    """A schedule is written as adaptive steps, too."""
    speculation = case.speculation
    return bool(speculation.adaptive or speculation.schedule) or case.is_on("speculative-adaptive")


def is_variable_misplaced(case: Case) -> bool:
    return (
        is_plain_eagle(case)
        and _is_asked(case) is True
        and (
            _mode(case) == "prefill"
            or is_adaptive(case)
            or case.is_on("enable_dp_attention")
            or case.size("attn_dp_size") > 1
        )
    )
