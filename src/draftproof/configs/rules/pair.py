"""PAIR: whether anybody vouches for this drafter with this target. A name of the same family does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from draftproof.configs.identity import identify, is_hub_id
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.rule import Hit, Rule
from draftproof.configs.speculation import HEADS, Method
from draftproof.core.finding import Evidence, Severity, Source

if TYPE_CHECKING:
    from draftproof.configs.pairs import Pair

_TRAINED: frozenset[Method] = HEADS | {"pard", "medusa", "mlp_speculator"}
_SOURCE = Source(name="speculators format, `speculators_config.verifier`", read="2026-11")
_MEASURE = (
    "Measure acceptance on some of your own requests before you rely on it: an hour of use costs less than a head "
    "that was made for another revision."
)
_QUANTISED = re.compile(
    r"[-_.](fp8|fp4|nvfp4|mxfp4|w\d+a\d+|awq|gptq|int[48]|[48]bit|bnb|quantized|dynamic|gguf|block|bf16|autoround|marlin)",
    re.IGNORECASE,
)


def _declared(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """The key and the name of the target that the drafter says it was made for."""
    inner = config.get("speculators_config")
    verifier = inner.get("verifier") if isinstance(inner, Mapping) else None
    if (
        isinstance(verifier, Mapping)
        and isinstance(verifier.get("name_or_path"), str)
        and verifier["name_or_path"]
    ):
        return "speculators_config.verifier.name_or_path", verifier["name_or_path"]
    for key in (
        "base_model_name_or_path",
        "target_model_name_or_path",
        "verifier_name_or_path",
        "target_model",
    ):
        if isinstance(config.get(key), str) and config[key]:
            return key, config[key]
    return None


def _names_of_target(case: Case) -> tuple[str, ...]:
    named = [case.deployment.target.name] if case.deployment.target is not None else []
    if case.target_view is not None:
        identity = identify(case.target_view.reference, case.target_view)
        named += [claim.name for claim in identity.claims]
        named.append(case.target_view.reference)
    return tuple(dict.fromkeys(named))


def _known(case: Case) -> Pair | None:
    from draftproof.configs.pairs import load_catalogue

    catalogue = load_catalogue()
    names = [case.speculation.drafter.name] if case.speculation.drafter is not None else []
    if case.drafter_view is not None:
        names += [claim.name for claim in identify(case.drafter_view.reference, case.drafter_view).claims]
    for target in _names_of_target(case):
        for drafter in names:
            pairs = catalogue.find(target, drafter)
            if pairs:
                return pairs[0]
    return None


def _tail(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].casefold()


_SIZED = re.compile(r"\d[bm](?![a-z0-9])|\d+x\d+b", re.IGNORECASE)


def _tells(name: str) -> bool:
    """Whether a name says which model it stands for: a hub id does, a path where a part of it names a size."""
    return is_hub_id(name) or _SIZED.search(name) is not None


def _agrees(declared: str, names: tuple[str, ...]) -> bool:
    """A path names its model in any of its parts: models--owner--name/snapshots/commit is the hub's own cache."""
    return any(_tail(declared) in re.split(r"/|--", name.casefold()) for name in names)


def _unproven(case: Case) -> Iterator[Hit]:
    if not case.has_drafter or _known(case) is not None:
        return
    if case.drafter_view is not None:
        declared = _declared(case.drafter.config)
        if declared is not None:
            return
        evidence = Evidence(where=case.drafter.reference, key="verifier", found="no target is declared")
    else:
        assert case.speculation.drafter is not None
        evidence = Evidence(
            where=case.speculation.drafter.name, found="no source for this pair in our catalogue"
        )
    yield Hit(
        detail="No source says that this drafter was made for, or served with, this target.",
        evidence=(evidence,),
    )


def _another_target(case: Case) -> Iterator[Hit]:
    if case.drafter_view is None or _known(case) is not None:
        return
    declared, names = _declared(case.drafter.config), _names_of_target(case)
    if declared is None or _agrees(declared[1], names) or not names:
        return
    if not (_tells(declared[1]) and any(map(_tells, names))):
        yield from _untold(case, declared, names[0])
        return
    is_copy = any(
        _tail(_QUANTISED.split(name)[0]) == _tail(_QUANTISED.split(declared[1])[0]) for name in names
    )
    why = "a copy in another precision" if is_copy else "another model, or one under another name"
    yield Hit(
        detail=f"The drafter was made for {declared[1]}; the target is {names[0]}: {why}.",
        evidence=(
            Evidence(where=case.drafter.reference, key=declared[0], found=declared[1], expected=names[0]),
        ),
        severity=Severity.INFO if is_copy else Severity.WARNING,
    )


def _untold(case: Case, declared: tuple[str, str], name: str) -> Iterator[Hit]:
    """A path as /mnt/models says nothing of what lies there: architectures are all that can be compared."""
    inner = case.drafter.config.get("speculators_config")
    verifier = inner.get("verifier") if isinstance(inner, Mapping) else None
    made_for = verifier.get("architectures") if isinstance(verifier, Mapping) else None
    served = case.target_view.config.get("architectures") if case.target_view is not None else None
    differ = isinstance(made_for, list) and isinstance(served, list) and made_for and served != made_for
    path = name if not _tells(name) else declared[1]
    yield Hit(
        detail=(
            f"The drafter was made for {declared[1]}, a {made_for[0]}; {name} holds a {served[0]}."
            if differ and made_for and served
            else f"The drafter was made for {declared[1]}; the target is {name}. Whether both are one model cannot be "
            f"known: {path} is a path that does not name one."
        ),
        evidence=(Evidence(where=case.drafter.reference, key=declared[0], found=declared[1], expected=name),),
        severity=Severity.WARNING if differ else Severity.INFO,
        remedy=f"Compare config.json of {name} with that of {declared[1]}. {_MEASURE}",
    )


def _another_revision(case: Case) -> Iterator[Hit]:
    if case.drafter_view is None:
        return
    inner = case.drafter.config.get("speculators_config")
    verifier = inner.get("verifier") if isinstance(inner, Mapping) else None
    declared = verifier.get("revision") if isinstance(verifier, Mapping) else None
    target = case.deployment.target
    served = (target.revision if target is not None else None) or (
        case.target_view.revision if case.target_view is not None else None
    )
    if isinstance(declared, str) and declared and served and not _same_revision(declared, served):
        yield Hit(
            detail=f"The drafter was made for revision {declared} of its target; revision {served} is served.",
            evidence=(
                Evidence(
                    where=case.drafter.reference,
                    key="speculators_config.verifier.revision",
                    found=declared,
                    expected=served,
                ),
            ),
        )


def _same_revision(one: str, other: str) -> bool:
    """Commits may be shortened."""
    return one.startswith(other) or other.startswith(one)


RULES = (
    Rule(
        code="PAIR-01",
        title="Nobody vouches for this pair",
        severity=Severity.INFO,
        about=(
            "That two checkpoints are of one family, or that shapes fit, does not say that the drafter was trained "
            "on this target. Proof is a source that names both, or a measurement."
        ),
        remedy=_MEASURE,
        source=_SOURCE,
        judge=_unproven,
        methods=_TRAINED | {"draft_model", "auto"},
    ),
    Rule(
        code="PAIR-02",
        title="The drafter names another target",
        severity=Severity.WARNING,
        about=(
            "Heads are trained on one target's hidden states. With a fine-tune, another size or another release of "
            "it they run, and are accepted less often."
        ),
        remedy=f"Use a drafter that was made for this target. {_MEASURE}",
        source=_SOURCE,
        judge=_another_target,
        methods=_TRAINED,
    ),
    Rule(
        code="PAIR-03",
        title="The drafter names another revision of its target",
        severity=Severity.WARNING,
        about="Weights or template of the target changed after the drafter was trained.",
        remedy=f"Pin the target's revision to the declared one. {_MEASURE}",
        source=_SOURCE,
        judge=_another_revision,
        methods=_TRAINED,
    ),
)
