"""`draftproof check TARGET [--draft D]` without a configuration: what the files alone say, for every engine.

The drafter's own files tell its method. Settings, flags and requests are not judged, for there are none. Called by
`check_input` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from draftproof.checkpoints.heads import KIND_NAMES, Kind, find_mtp, identify
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.facts.methods import METHODS, MethodFact
from draftproof.configs.rules.versions import READ, is_within, parse_version
from draftproof.configs.speculation import Method
from draftproof.core.errors import DraftproofError

FAMILIES = ("VOCAB", "EAGLE", "PAIR", "FORMAT", "MTP", "CONTEXT", "CACHE", "QUANT", "ECON")
"""Families that judge files."""
_METHODS: Mapping[Kind, Method] = {
    "model": "draft_model", "eagle": "eagle", "eagle3": "eagle3", "mtp": "mtp", "medusa": "medusa",
    "mlp_speculator": "mlp_speculator", "dflash": "dflash", "dspark": "dspark",
}  # fmt: skip


def method_of(case: Case) -> Method:
    """By what the files are; "none" for a target alone without layers that predict further. Raises DP001 where a
    drafter's files do not tell, and what reading them raises."""
    if case.drafter_view is not None:
        drafting = identify(case.drafter_view)
        if drafting.is_told:
            return _METHODS[drafting.kind]
    if case.has_drafter:
        raise DraftproofError(
            "DP001",
            "--speculative-config",
            f"nothing; what kind of drafter it is, is not told: {case.absent.get('drafter', 'no weights at hand')}",
            "a configuration that names the method",
            "Give what starts the engine with --command, or --speculative-config.",
        )
    if case.target_view is not None and find_mtp(case.target_view).declared is not None:
        return "mtp"
    return "none"


def engines_of(case: Case, engine: str | None, version: str | None) -> tuple[Case, ...]:
    """The case in each engine that has its method, ours first; in `engine` alone where one is named."""
    method = method_of(case)
    names = [fact.reading.engine for fact in METHODS if fact.method == method and _is_there(fact)]
    if case.target_view is not None and "speculators_model_type" in case.target_view.config:
        names = ["vllm"]  # which serves such a checkpoint as a pair
    if engine is not None:
        names = [engine]
    return tuple(
        replace(
            case,
            is_files_alone=True,
            deployment=replace(
                case.deployment,
                engine=name,
                version=version,
                speculation=replace(case.speculation, method=method),
            ),
        )
        for name in dict.fromkeys(names or ["draftproof"])
    )


def _is_there(fact: MethodFact) -> bool:
    """Whether the version that was read has the method."""
    engine = fact.reading.engine
    version = READ.get(engine)
    return (
        fact.gone is None
        or version is None
        or not is_within(parse_version(engine, version), fact.gone.versions)
    )


def told_by(case: Case) -> str:
    """In words, what told the method."""
    if case.drafter_view is not None:
        return f"the drafter's files: {KIND_NAMES[identify(case.drafter_view).kind]}"
    return "the target's files: MTP layers" if case.method == "mtp" else "no drafter and no configuration"
