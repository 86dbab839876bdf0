"""COMBO: features of the deployment that do not go together with speculation in this engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from draftproof.configs.rules.case import Case
from draftproof.configs.rules.facts.features import Feature, of_feature
from draftproof.configs.rules.facts.runners import forced
from draftproof.configs.rules.rule import Hit, Reading, Rule, on_command
from draftproof.core.finding import Severity, Source

_SOURCE = Source(name="sources and feature matrices of the engines", read="2026-11")

Found = tuple[str, str] | None
"""Key and value that show that a feature is used."""


def _count(key: str, value: int | None) -> Found:
    return (key, str(value)) if value is not None and value > 1 else None


def _first_on(case: Case, *keys: str) -> Found:
    return next(((key, str(case.extra(key))) for key in keys if case.is_on(key)), None)


_USED: dict[Feature, Callable[[Case], Found]] = {
    "pipeline": lambda case: _count("pipeline_parallel", case.deployment.pipeline_parallel),
    "lora": lambda case: (
        ("lora", "on") if case.deployment.lora else _first_on(case, "enable_lora", "lora_paths")
    ),
    "data_parallel": lambda case: _count("data_parallel", case.deployment.data_parallel),
    "dp_attention": lambda case: (
        _first_on(case, "enable_dp_attention") or _count("attn_dp_size", case.size("attn_dp_size"))
    ),
    "vision": lambda case: _first_on(case, "mmproj", "mm", "mmproj_url"),
    "connector": lambda case: _first_on(case, "enable_lmcache"),
}


_CPU_WORDS = ("vllm-openai-cpu", "vllm-cpu", "+cpu", "VLLM_CPU_")
_EXPANDS = Reading(
    "vllm",
    ">=0.32,<=0.33.0",
    Source(name="vLLM 0.32.0 and 0.33.0 source: cpu_triton_utils.py, rejection_sampler.py", read="2026-11"),
)


def _cpu_without_triton(case: Case) -> Iterator[Hit]:
    if case.method == "none" or forced(case) == "V2":
        return
    launcher, environment = case.extra("launcher"), case.extra("env")
    words = [case.deployment.version or ""]
    words += [str(word) for word in launcher] if isinstance(launcher, tuple | list) else []
    words.append(str(case.extra("image") or ""))
    words += list(environment) if isinstance(environment, Mapping) else []
    seen = next((word for word in words if any(sign in word for sign in _CPU_WORDS)), None)
    if seen is None:
        return
    is_certain = any(sign in word for word in words for sign in ("arm64", "aarch64"))
    yield on_command(
        f"vLLM's CPU build {'for Arm, which has no Triton,' if is_certain else 'without Triton'} runs model runner "
        "V1, whose C++ code spreads temperature, top_p and top_k over the drafted rows into a copy that nobody "
        "reads: rows are sampled with what memory held, and top_k can end the engine. Requests with temperature 0 "
        "are not concerned.",
        "CPU build",
        seen,
        severity=Severity.ERROR if is_certain else None,
    )


def _together(feature: Feature) -> Callable[[Case], Iterator[Hit]]:
    def judge(case: Case) -> Iterator[Hit]:
        found = None if case.method == "none" else _USED[feature](case)
        if found is None:
            return
        for fact in of_feature(feature, case):
            yield on_command(
                f"{found[0]} is {found[1]}: {fact.effect}.",
                found[0],
                found[1],
                severity=fact.severity,
                reading=fact.reading,
            )

    return judge


def _rule(number: int, feature: Feature, title: str, about: str, remedy: str) -> Rule:
    return Rule(
        code=f"COMBO-{number:02}",
        title=title,
        severity=Severity.ERROR,
        about=about,
        remedy=remedy,
        source=_SOURCE,
        judge=_together(feature),
    )


RULES = (
    _rule(
        1,
        "pipeline",
        "Speculation with pipeline parallelism",
        "Drafts need hidden states or tokens of the last stage at the first. Few engines and targets carry them.",
        "Use tensor parallelism instead, or decode plainly.",
    ),
    _rule(
        2,
        "lora",
        "Speculation with LoRA adapters",
        "A drafter knows the base model. Some engines refuse adapters, others draft unadapted and accept less.",
        "Measure acceptance with an adapter, or serve adapters without speculation.",
    ),
    _rule(
        3,
        "data_parallel",
        "Speculation with data parallelism",
        "Ranks that choose different depths wait for each other.",
        "Test with several ranks under load, and compare outputs.",
    ),
    _rule(
        4,
        "dp_attention",
        "Speculation with DP attention",
        "The drafter's attention is not split as the target's is.",
        "Switch DP attention off, or use EAGLE or MTP (DFLASH, DSPARK: add --enable-dp-lm-head).",
    ),
    _rule(
        5,
        "vision",
        "Speculation with a multimodal projector",
        "Rows of an image are no tokens that every drafter could read.",
        "Measure acceptance on requests with images, or serve these from an instance of their own.",
    ),
    _rule(
        6,
        "connector",
        "Speculation with an external cache",
        "A cache that comes from outside holds nothing for the drafter.",
        "Switch the connector off, or decode plainly.",
    ),
    Rule(
        code="COMBO-07",
        title="Sampled requests under speculation on vLLM's CPU build",
        severity=Severity.WARNING,
        about=(
            "On x86-64 the CPU build takes Triton for CPUs along and runs model runner V2. Where Triton is missing, "
            "the older runner verifies sampled drafts with parameters that it never filled in: other text than without "
            "speculation, or a crash."
        ),
        remedy=(
            'Look for "Using V2 Model Runner" in the log of the start. Where it is missing, install Triton for CPUs '
            "(x86-64), send requests with temperature 0 alone, or decode plainly."
        ),
        source=_EXPANDS.source,
        judge=_cpu_without_triton,
        readings=(_EXPANDS,),
    ),
)
