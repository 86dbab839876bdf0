"""What does not go together with speculation, by engine: features of the deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from draftproof.configs.rules.facts import readings as read
from draftproof.configs.rules.rule import Reading
from draftproof.configs.speculation import HEADS, MODELS, Method
from draftproof.core.finding import Severity, Source

Feature = Literal["pipeline", "lora", "data_parallel", "dp_attention", "vision", "connector", "beam", "eager"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFact:
    """`methods` empty: all methods, less `not_methods`. `effect` in words, `severity` of it."""

    feature: Feature
    reading: Reading
    effect: str
    severity: Severity
    methods: frozenset[Method] = frozenset()
    not_methods: frozenset[Method] = frozenset()

    def concerns(self, method: Method) -> bool:
        return (not self.methods or method in self.methods) and method not in self.not_methods


_LLAMACPP_VISION = Reading(
    "llamacpp", "<=11434", Source(name="LM Studio bug tracker 1519, llama.cpp build 11434", read="2026-11")
)

FEATURES: tuple[FeatureFact, ...] = (
    FeatureFact(
        feature="pipeline", reading=read.VLLM, severity=Severity.WARNING,
        effect=(
            "EAGLE-3 with pipeline parallelism runs for a few targets only (Llama, Qwen2, Sarvam, DeepSeek-V4, "
            "Kimi-K3, MiniMax-M3), and wrong output without async scheduling was reported (issue 52071)"
        ),
        methods=frozenset({"eagle3", "eagle", "p_eagle"}),
    ),
    FeatureFact(
        feature="pipeline", reading=read.VLLM, severity=Severity.WARNING,
        effect="draft models and MTP with pipeline parallelism are not among what was read as supported",
        methods=frozenset({"draft_model", "pard", "mtp", "dflash", "dspark"}),
    ),
    FeatureFact(
        feature="pipeline", reading=read.SGLANG, severity=Severity.ERROR,
        effect="only EAGLE runs with pipeline parallelism, in PD-prefill or with SGLANG_ENABLE_PP_SPEC=1",
        not_methods=frozenset({"eagle", "eagle3", "mtp"}),
    ),
    FeatureFact(
        feature="pipeline", reading=read.SGLANG, severity=Severity.WARNING,
        effect=(
            "pipeline parallelism with EAGLE asks for PD-prefill or SGLANG_ENABLE_PP_SPEC=1, without adaptive "
            "steps"
        ),
        methods=frozenset({"eagle", "eagle3", "mtp"}),
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
        effect="LoRA runs with NGRAM, EAGLE, EAGLE3, DFLASH and DSPARK only",
        methods=frozenset({"draft_model"}),
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
        feature="vision", reading=_LLAMACPP_VISION, severity=Severity.WARNING,
        effect="a multimodal projector switches speculation off",
    ),
    FeatureFact(
        feature="connector", reading=read.SGLANG, severity=Severity.ERROR,
        effect="the LMCache connector does not run with speculation",
    ),
)  # fmt: skip


def of_feature(engine: str, feature: Feature, method: Method) -> tuple[FeatureFact, ...]:
    return tuple(
        fact
        for fact in FEATURES
        if fact.reading.engine == engine and fact.feature == feature and fact.concerns(method)
    )
