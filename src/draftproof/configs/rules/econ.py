"""ECON: whether the drafter can pay at all, from sizes alone. Thresholds, not promises: nothing here was measured."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.rules.case import Case
from draftproof.configs.rules.rule import Hit, Rule, on_command
from draftproof.configs.speculation import DRAFTING, MODELS
from draftproof.core.breakeven import acceptance_needed
from draftproof.core.finding import Evidence, Severity, Source

_SOURCE = Source(
    name="Leviathan et al. 2023 (arXiv 2211.17192), theorem 3.8; mlx-lm issue 1132", read="2026-11"
)
_DEMANDING = 0.8
"""Acceptance that only well matched pairs reach."""
_MANY_REQUESTS = 64


def _larger(case: Case) -> Iterator[Hit]:
    if not case.has_drafter:
        return
    ours, theirs = case.target_geometry.parameters.total, case.drafter_geometry.parameters.total
    if theirs > ours:
        yield Hit(
            detail=f"The drafter has {_billions(theirs)} parameters, more than the target's {_billions(ours)}.",
            evidence=(
                Evidence(
                    where=case.drafter.reference,
                    key="parameters",
                    found=str(theirs),
                    expected=f"at most {_billions(ours)}, as many as the target has",
                ),
            ),
        )


def _billions(count: int) -> str:
    if count >= 10**9:
        return f"{count / 1e9:.1f} billion"
    return f"{count / 1e6:.1f} million" if count >= 10**5 else str(count)


def _price(case: Case) -> Iterator[Hit]:
    depth = case.speculation.levels
    if not case.has_drafter or depth is None:
        return
    ours, theirs = case.target_geometry.parameters, case.drafter_geometry.parameters
    if theirs.total > ours.total:
        return
    cost = theirs.active / ours.active
    needed = acceptance_needed(1 + depth * cost, depth)
    share = (
        f"{_billions(theirs.active)} of the drafter's parameters per token against {_billions(ours.active)} "
        "active ones"
    )
    if needed is not None and needed < _DEMANDING:
        detail = (
            f"{share}: {depth} draft tokens pay from an acceptance of about {needed:.0%}, if time goes with "
            "weights read."
        )
        severity = Severity.INFO
    else:
        wanted = "at no acceptance" if needed is None else f"only from an acceptance of about {needed:.0%}"
        detail = f"{share}: {depth} draft tokens pay {wanted}, if time goes with weights read."
        severity = Severity.WARNING
    yield Hit(
        detail=detail,
        evidence=(
            Evidence(
                where=case.drafter.reference, key="active parameters", found=f"{cost:.0%} of the target's"
            ),
        ),
        severity=severity,
    )


def _experts(case: Case) -> Iterator[Hit]:
    experts, depth = case.target_geometry.experts, case.speculation.draft_tokens
    if experts is None or depth is None:
        return
    share = experts.num_used / experts.num
    touched = experts.num * (1 - (1 - share) ** (depth + 1))
    yield Hit(
        detail=(
            f"One token visits {experts.num_used} of {experts.num} experts; {depth + 1} rows visit about "
            f"{touched:.0f}, so a verification reads more weights than a plain step does."
        ),
        evidence=(
            Evidence(
                where=case.target.reference, key="experts", found=f"{experts.num_used} of {experts.num}"
            ),
        ),
    )


def _crowd(case: Case) -> Iterator[Hit]:
    requests, speculation = case.deployment.max_num_seqs, case.speculation
    if requests is None or requests < _MANY_REQUESTS or speculation.schedule or speculation.adaptive:
        return
    yield on_command(
        f"Up to {requests} requests run at once, and every round drafts the same number of tokens whatever "
        "the load.",
        "max_num_seqs",
        requests,
    )


RULES = (
    Rule(
        code="ECON-01",
        title="The drafter is larger than the target",
        severity=Severity.ERROR,
        about="A drafter that reads more weights than the target cannot be faster than it.",
        remedy="Draft with the smaller of the two; a drafter of a tenth to a third of the target pays best.",
        source=_SOURCE,
        judge=_larger,
        methods=MODELS | {"auto"},
    ),
    Rule(
        code="ECON-02",
        title="What acceptance the drafter's size asks for",
        severity=Severity.WARNING,
        about=(
            "At small batches a pass costs about what its weights do. Against a mixture of experts the drafter "
            "competes with the active parameters only: a 9-billion drafter made a target with 17 billion active "
            "ones 35 % slower."
        ),
        remedy="Use a smaller drafter or fewer draft tokens; `draftproof breakeven` takes measured times.",
        source=_SOURCE,
        judge=_price,
        methods=MODELS | {"auto"},
    ),
    Rule(
        code="ECON-03",
        title="More experts per verification",
        severity=Severity.INFO,
        about=(
            "Rows of one verification visit different experts. Reported: a verification of two rows took 112 ms "
            "where a plain step took 51."
        ),
        remedy="Start with one or two draft tokens and measure the verification's time, not acceptance alone.",
        source=Source(
            name="mlx-lm issue 1132, vLLM issues 37625 and 46295, SpecForge issue 339", read="2026-11"
        ),
        judge=_experts,
        methods=DRAFTING,
    ),
    Rule(
        code="ECON-04",
        title="The same depth at every load",
        severity=Severity.INFO,
        about=(
            "At large batches verification is bound by computing, and rejected rows are paid for in full: "
            "speculation was reported slower above some tens of requests."
        ),
        remedy="Measure at your peak load; a schedule by batch size or an adaptive depth lets go in time.",
        source=Source(name="vLLM issues 8439, 17984, 19254; SGLang issues 4759, 6949, 12411", read="2026-11"),
        judge=_crowd,
        methods=DRAFTING,
    ),
)
