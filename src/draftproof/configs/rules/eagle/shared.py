"""What all rules about EAGLE heads ask first."""

from __future__ import annotations

from draftproof.checkpoints.heads import Kind, NamedTensor
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.rule import MissingError
from draftproof.configs.speculation import Method
from draftproof.core.finding import Source

EAGLE: frozenset[Method] = frozenset({"eagle", "eagle3", "p_eagle"})
EAGLE3: frozenset[Method] = frozenset({"eagle3", "p_eagle"})


SHAPES = Source(
    name="EAGLE (arXiv 2401.15077), EAGLE-3 (arXiv 2503.01840) and published heads", read="2026-11"
)


def kind_of(case: Case) -> Kind:
    drafting = case.drafting
    if not drafting.is_told:
        raise MissingError(
            f"what kind of drafter it is: {'; '.join(case.drafter.remarks) or 'no weights at hand'}"
        )
    return drafting.kind


def fc_of(case: Case) -> NamedTensor:
    """The projection of the target's states into the head."""
    case.tensors(case.drafter, "drafter")
    if case.drafting.fc is None:
        raise MissingError("the head's fc.weight")
    return case.drafting.fc
