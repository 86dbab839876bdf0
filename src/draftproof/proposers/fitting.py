"""Whether a drafter fits the target, by the rules of `draftproof check`: what check refuses, the engine refuses.

Called before a drafter's weights are loaded. Knows no weights and no requests.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from draftproof.checkpoints.view import open_view
from draftproof.checkpoints.vocabulary import VocabularyFit
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import rules_of
from draftproof.configs.speculation import Deployment, ModelRef, Speculation
from draftproof.core.errors import DraftproofError
from draftproof.core.finding import Finding, Severity

REFUSALS: Mapping[str, str] = {"VOCAB": "DP801", "ECON": "DP802", "EAGLE": "DP803"}
"""Families that judge target and drafter together from their files → code of the refusal. No others are asked."""

logger = logging.getLogger("draftproof.proposers")


def check_pair(target: Path, drafter: Path) -> VocabularyFit:
    """How the vocabularies relate. Raises DP801 to DP803 with the finding of the rule that refuses the pair, and what
    reading the files raises."""
    case = Case(
        deployment=Deployment(
            engine="draftproof",
            target=ModelRef(name=str(target)),
            speculation=Speculation(method="draft_model", drafter=ModelRef(name=str(drafter))),
        ),
        target_view=open_view(str(target)),
        drafter_view=open_view(str(drafter)),
    )
    for finding in judge(case, rules_of(REFUSALS)).findings:
        if finding.severity is Severity.ERROR:
            raise _refused(finding)
        if finding.severity is Severity.WARNING:
            logger.warning("%s: %s", finding.code, finding.detail)
    return case.fit


def _refused(finding: Finding) -> DraftproofError:
    expected = next((seen.expected for seen in finding.evidence if seen.expected), None)
    return DraftproofError(
        REFUSALS[finding.code.partition("-")[0]],
        "speculation.model",
        f"{finding.code}: {finding.detail}",
        expected or f"a drafter of which `draftproof check` does not say: {finding.title}",
        finding.remedy,
    )
