"""QUANT: precision of the drafter against that of the target."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.rules.case import Case
from draftproof.configs.rules.rule import Hit, Reading, Rule
from draftproof.core.finding import Evidence, Severity, Source

_SGLANG = Source(name="SGLang 0.5.23 source", read="2026-11")


def _copied(case: Case) -> Iterator[Hit]:
    target, drafter = case.deployment.target, case.speculation.drafter
    if target is None or target.quantization is None or drafter is None or drafter.quantization is not None:
        return
    if case.drafter.quantization_config:
        return
    yield Hit(
        detail=(
            f"--quantization {target.quantization} is copied to the drafter, whose weights are not quantised."
        ),
        evidence=(
            Evidence(where="command", key="--quantization", found=target.quantization),
            Evidence(where=case.drafter.reference, key="quantization_config", found="not there"),
        ),
    )


RULES = (
    Rule(
        code="QUANT-01",
        title="The target's quantisation is copied to the drafter",
        severity=Severity.WARNING,
        about=(
            "Without a setting of its own, the drafter is built with the target's quantisation and fails to "
            "load, or drafts badly."
        ),
        remedy="Add --speculative-draft-model-quantization unquant.",
        source=_SGLANG,
        judge=_copied,
        readings=(Reading("sglang", "==0.5.23", _SGLANG),),
    ),
)
