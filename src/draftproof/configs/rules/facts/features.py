"""What does not go together with speculation, by engine: features of the deployment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from draftproof.configs.rules.case import Case, whole
from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.facts import stages
from draftproof.configs.rules.rule import Reading
from draftproof.configs.speculation import HEADS, MODELS, Method
from draftproof.core.finding import Severity, Source

Feature = Literal["pipeline", "lora", "data_parallel", "dp_attention", "vision", "connector"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFact:
    """`methods` empty: all methods, less `not_methods`. `effect` in words, `severity` of it. `when`: of which
    deployments it holds, where feature and method alone do not tell."""

    feature: Feature
    reading: Reading
    effect: str
    severity: Severity
    methods: frozenset[Method] = frozenset()
    not_methods: frozenset[Method] = frozenset()
    when: Callable[[Case], bool] = lambda case: True

    def concerns(self, case: Case) -> bool:
        method = case.method
        return (
            (not self.methods or method in self.methods)
            and method not in self.not_methods
            and self.when(case)
        )


_VISION_OFF = Reading(
    "llamacpp",
    "<8000",
    Source(name="llama.cpp pull request 19493, which ended it; issue 17066", read="2026-11"),
)
_VISION = Reading(
    "llamacpp", "==11434", Source(name="llama.cpp build 11434: common/speculative.cpp", read="2026-11")
)


def _sees_no_images(case: Case) -> bool:
    """Whether a draft model has another width than the target, as far as both are at hand."""
    views = (case.target_view, case.drafter_view)
    widths = {whole(view.language_config, "hidden_size") for view in views if view is not None}
    return len(widths) != 1 or None in widths or None in views


_EAGLE: frozenset[Method] = frozenset({"eagle", "mtp"})
"""What SGLang calls EAGLE, NEXTN included."""

FEATURES: tuple[FeatureFact, ...] = (
    FeatureFact(
        feature="pipeline", reading=stages.VLLM_STAGES, severity=Severity.ERROR,
        effect=(
            "the target's class does not pass on the states that the drafter reads from stage to stage: vLLM does not "
            "start"
        ),
        methods=stages.READ_STATES, when=lambda case: stages.passes_states(case) is False,
    ),
    FeatureFact(
        feature="pipeline", reading=stages.VLLM_STAGES, severity=Severity.WARNING,
        effect=(
            "few targets pass the states that the drafter reads from stage to stage (Llama, Mistral, Phi-3, Qwen2, "
            "dense Qwen3, DeepSeek-V4, Kimi-K3, MiniMax-M3 and some more), others are refused; wrong output without "
            "async scheduling was reported (issue 52071)"
        ),
        methods=stages.READ_STATES, when=lambda case: stages.passes_states(case) is not False,
    ),
    FeatureFact(
        feature="pipeline", reading=stages.VLLM_STAGES, severity=Severity.ERROR,
        effect=(
            "vLLM cuts a draft model as it cuts the target, and the last stage, which drafts, holds its own part of "
            "the layers alone: 0.32.0 was run, reserved the cache of one of two layers, and ended while starting"
        ),
        methods=frozenset({"draft_model", "pard"}),
    ),
    FeatureFact(
        feature="pipeline", reading=read.VLLM, severity=Severity.WARNING,
        effect="these methods with pipeline parallelism are not among what was read as supported",
        methods=frozenset({"mtp", "eagle", "p_eagle"}),
    ),
    FeatureFact(
        feature="pipeline", reading=read.SGLANG, severity=Severity.ERROR,
        effect=(
            "only EAGLE and NEXTN run with pipeline parallelism, and DSPARK on servers that prefill for others: SGLang "
            "refuses to start"
        ),
        not_methods=frozenset({"eagle", "mtp", "dspark"}),
    ),
    FeatureFact(
        feature="pipeline", reading=read.SGLANG, severity=Severity.ERROR,
        effect=(
            "multi-layer EAGLE and Gemma 4 assistants (FROZEN_KV_MTP) do not run with pipeline parallelism: SGLang "
            "refuses to start"
        ),
        methods=_EAGLE, when=lambda case: not stages.is_plain_eagle(case),
    ),
    FeatureFact(
        feature="pipeline", reading=read.SGLANG, severity=Severity.ERROR,
        effect=(
            "DSPARK runs with pipeline parallelism under --disaggregation-mode prefill alone, without "
            "SGLANG_ENABLE_PP_SPEC: SGLang refuses to start"
        ),
        methods=frozenset({"dspark"}), when=stages.is_dspark_misplaced,
    ),
    FeatureFact(
        feature="pipeline", reading=read.SGLANG, severity=Severity.ERROR,
        effect=(
            "EAGLE runs with pipeline parallelism under --disaggregation-mode prefill, or without such a mode "
            "under SGLANG_ENABLE_PP_SPEC=1: SGLang refuses to start"
        ),
        methods=_EAGLE, when=stages.is_eagle_misplaced,
    ),
    FeatureFact(
        feature="pipeline", reading=read.SGLANG, severity=Severity.ERROR,
        effect=(
            "SGLANG_ENABLE_PP_SPEC goes with neither --disaggregation-mode nor adaptive steps nor DP attention: SGLang "
            "refuses to start"
        ),
        methods=_EAGLE, when=stages.is_variable_misplaced,
    ),
    FeatureFact(
        feature="pipeline", reading=read.SGLANG, severity=Severity.WARNING,
        effect=(
            "EAGLE with pipeline parallelism asks for --disaggregation-mode prefill or SGLANG_ENABLE_PP_SPEC=1, and "
            "neither is in the command"
        ),
        methods=_EAGLE, when=stages.is_eagle_unsettled,
    ),
    FeatureFact(
        feature="pipeline", reading=read.TRTLLM, severity=Severity.ERROR,
        effect="speculation and pipeline parallelism exclude each other",
    ),
    FeatureFact(
        feature="lora", reading=read.VLLM, severity=Severity.INFO,
        effect=(
            "adapters act on the target alone: drafts come from the unadapted model and are accepted less often "
            "(the feature matrix says that LoRA is not supported, code and a test that it is)"
        ),
        methods=MODELS | HEADS | {"mtp"},
    ),
    FeatureFact(
        feature="lora", reading=read.SGLANG, severity=Severity.ERROR,
        effect="LoRA runs with NGRAM, EAGLE, EAGLE3, DFLASH and DSPARK only: SGLang refuses to start",
        methods=frozenset({"draft_model", "custom"}),
    ),
    FeatureFact(
        feature="lora", reading=read.SGLANG, severity=Severity.ERROR,
        effect="LoRA does not run with Gemma 4 assistants (FROZEN_KV_MTP): SGLang refuses to start",
        methods=_EAGLE, when=stages.is_frozen,
    ),
    FeatureFact(
        feature="lora", reading=read.SGLANG, severity=Severity.ERROR,
        effect="LoRA does not run with adaptive steps: SGLang refuses to start",
        methods=_EAGLE | {"eagle3"}, when=stages.is_adaptive,
    ),
    FeatureFact(
        feature="lora", reading=read.TRTLLM, severity=Severity.WARNING, effect="LoRA with speculation is untested",
    ),
    FeatureFact(
        feature="data_parallel", reading=read.SGLANG, severity=Severity.WARNING,
        effect="data parallelism with speculation needs DP attention to be off for STANDALONE and NGRAM",
        methods=frozenset({"draft_model", "ngram"}),
    ),
    FeatureFact(
        feature="dp_attention", reading=read.SGLANG, severity=Severity.ERROR,
        effect="STANDALONE and NGRAM do not run with DP attention",
        methods=frozenset({"draft_model", "ngram"}),
    ),
    FeatureFact(
        feature="dp_attention", reading=read.SGLANG, severity=Severity.ERROR,
        effect="DFLASH and DSPARK with DP attention ask for --enable-dp-lm-head: SGLang refuses to start",
        methods=frozenset({"dflash", "dspark"}), when=lambda case: not case.is_on("enable_dp_lm_head"),
    ),
    FeatureFact(
        feature="vision", reading=_VISION_OFF, severity=Severity.WARNING,
        effect="a multimodal projector switches speculation off",
        when=lambda case: case.is_within(_VISION_OFF.versions),
    ),
    FeatureFact(
        feature="vision", reading=_VISION, severity=Severity.INFO,
        effect=(
            "a draft model of another width than the target gets zeros in place of an image: behind images drafts are "
            "accepted less often"
        ),
        methods=frozenset({"draft_model"}), when=_sees_no_images,
    ),
    FeatureFact(
        feature="vision", reading=_VISION, severity=Severity.INFO,
        effect="EAGLE-3 heads are not shown images: behind them drafts are accepted less often",
        methods=frozenset({"eagle3"}),
    ),
    FeatureFact(
        feature="connector", reading=read.SGLANG, severity=Severity.ERROR,
        effect="the LMCache connector does not run with speculation",
    ),
)  # fmt: skip


def of_feature(feature: Feature, case: Case) -> tuple[FeatureFact, ...]:
    return tuple(
        fact
        for fact in FEATURES
        if fact.reading.engine == case.engine and fact.feature == feature and fact.concerns(case)
    )
