"""Which proposer serves which intent: one row per method.

The engine calls `create_proposer` once per distinct intent, so that requests of one configuration share a pool.
Nothing outside this file names a proposer's class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from draftproof.core.intent import (
    OWN_WEIGHTS,
    Auto,
    Cascade,
    DraftModel,
    NGram,
    NoSpeculation,
    Predicted,
    SelfDraft,
    SpeculationIntent,
    Suffix,
)
from draftproof.kv.budget import ByteBudget
from draftproof.proposers.base import Proposer
from draftproof.proposers.cascade import CascadeProposer
from draftproof.proposers.draft_model import DraftModelProposer
from draftproof.proposers.drafter import load_drafter, quantised_target
from draftproof.proposers.look_up import LookUpIntent, LookUpProposer, library
from draftproof.proposers.ngram import NGramProposer
from draftproof.proposers.occurrences import Indexes
from draftproof.proposers.predicted import PredictedProposer
from draftproof.proposers.resources import Resources
from draftproof.proposers.self_draft import SelfDraftProposer
from draftproof.proposers.suffix import SIZES, SuffixProposer

AUTO_MODEL_DEPTH = 4
"""Most tokens that a drafter with weights drafts under `auto`, whose own bound is meant for look-up."""
AUTO_TAIL = 128
"""Tokens of the text that a draft model reads before its first draft under `auto`: a whole prompt takes as long as ten
rounds and more, and what lies farther back is copied by look-up."""


@dataclass(frozen=True, slots=True)
class Method:
    """One row. `create` takes the intent whose `method` is the row's key.

    summary          one line for `draftproof methods`
    uses_prediction  drafts from the user's expected text
    needs_prediction drafts from nothing else, so that a request without one cannot draft
    shares_text      remembers outputs for later requests of the same scope
    """

    create: Callable[[Any, Resources | None], Proposer]
    summary: str
    uses_prediction: bool = False
    needs_prediction: bool = False
    shares_text: bool = False


def create_proposer(intent: SpeculationIntent, resources: Resources | None = None) -> Proposer:
    """The proposer of an intent; plain decoding has none, so `NoSpeculation` is a caller's mistake.

    Look-up needs no resources. Raises a DraftproofError where a drafter cannot be loaded or does not fit.
    """
    assert not isinstance(intent, NoSpeculation), "plain decoding needs no proposer"
    return METHODS[intent.method].create(intent, resources)


def draws(intent: SpeculationIntent) -> bool:
    """Whether drafts for sampled requests may be drawn from a distribution, so that rejection can use it."""
    if isinstance(intent, Cascade):
        return any(draws(part) for part in intent.proposers)
    if isinstance(intent, DraftModel | SelfDraft):
        return intent.draft_sample_method != "greedy"
    return isinstance(intent, Auto) and intent.model is not None


def without_weights(intent: SpeculationIntent) -> SpeculationIntent | None:
    """What `auto` falls back to when its drafter does not fit; None for methods that were asked for by name."""
    if isinstance(intent, Auto) and intent.model is not None:
        return replace(intent, model=None, draft_weights="auto")
    return None


def _look_up(intent: LookUpIntent, resources: Resources | None) -> Proposer:
    if has_library(resources):
        return LookUpProposer([intent], budget=_limit(resources))
    return _in_python(intent, budget=_limit(resources))


def has_library(resources: Resources | None) -> bool:
    """Whether look-up runs in C++: where it can be compiled, unless the target runs in Python."""
    return (resources is None or resources.target.model.kernels == "native") and library() is not None


def _limit(resources: Resources | None) -> ByteBudget | None:
    """What remembered outputs are drawn from, where all memory is limited."""
    return resources.budget if resources is not None and resources.reserves_weights else None


def _in_python(
    intent: LookUpIntent,
    indexes: Indexes | None = None,
    budget: ByteBudget | None = None,
) -> NGramProposer | SuffixProposer | PredictedProposer:
    if isinstance(intent, NGram):
        sizes = intent.prompt_lookup_min, intent.prompt_lookup_max
        return NGramProposer(intent.num_speculative_tokens, *sizes, indexes)
    if isinstance(intent, Suffix):
        return SuffixProposer(intent, indexes, budget)
    return PredictedProposer(intent.num_speculative_tokens)


def _draft_model(intent: DraftModel, resources: Resources | None, tail: int | None = None) -> Proposer:
    assert resources is not None
    drafter = load_drafter(intent.model, intent.draft_weights, resources)
    return DraftModelProposer(drafter, resources, intent.num_speculative_tokens, draws(intent), tail)


def _self(intent: SelfDraft, resources: Resources | None) -> Proposer:
    assert resources is not None
    drafter = quantised_target(intent.draft_weights, resources)
    return SelfDraftProposer(drafter, resources, intent.num_speculative_tokens, draws(intent))


def _cascade(intent: Cascade, resources: Resources | None) -> Proposer:
    """Ways of looking up that follow one another are one part in C++."""
    if not has_library(resources):
        parts = [create_proposer(part, resources) for part in intent.proposers]
        return CascadeProposer(parts, vocab_size=_vocab_size(resources))
    parts = []
    for _, group in groupby(intent.proposers, lambda part: isinstance(part, LookUpIntent)):
        run = list(group)
        looked_up = [part for part in run if isinstance(part, LookUpIntent)]
        if looked_up:
            parts.append(LookUpProposer(looked_up, intent.method, budget=_limit(resources)))
        else:
            parts += [create_proposer(part, resources) for part in run]
    if len(parts) == 1 and isinstance(parts[0], LookUpProposer):
        return parts[0]
    return CascadeProposer(parts, vocab_size=_vocab_size(resources))


def _vocab_size(resources: Resources | None) -> int | None:
    return None if resources is None else resources.target.config.vocab_size


def _auto(intent: Auto, resources: Resources | None) -> Proposer:
    """The suffix part may draft two tokens per agreeing one: `Evidence` bounds it, and measured better than one."""
    depth = intent.num_speculative_tokens
    ngram = NGram(num_speculative_tokens=depth)
    suffix = Suffix(num_speculative_tokens=depth, suffix_decoding_max_spec_factor=2.0)
    look_up: list[LookUpIntent] = [Predicted(num_speculative_tokens=depth), suffix, ngram]
    parts: list[Proposer]
    if has_library(resources):
        parts = [LookUpProposer(look_up, intent.method, _limit(resources))]
        if intent.model is None:
            return parts[0]
    else:
        indexes = Indexes((*SIZES, *range(ngram.prompt_lookup_min, ngram.prompt_lookup_max + 1)))
        parts = [_in_python(part, indexes, _limit(resources)) for part in look_up]
    if intent.model is not None:
        parts.append(_auto_drafter(intent, intent.model, resources))
    return CascadeProposer(parts, "auto", _vocab_size(resources))


def _auto_drafter(intent: Auto, model: str, resources: Resources | None) -> Proposer:
    depth, weights = min(intent.num_speculative_tokens, AUTO_MODEL_DEPTH), intent.draft_weights
    if model == OWN_WEIGHTS:
        return _self(SelfDraft(num_speculative_tokens=depth, draft_weights=weights), resources)
    drafter = DraftModel(model=model, num_speculative_tokens=depth, draft_weights=weights)
    return _draft_model(drafter, resources, AUTO_TAIL)


METHODS: dict[str, Method] = {
    "ngram": Method(_look_up, "what followed the newest tokens when they stood in this request before"),
    "suffix": Method(_look_up, "the same, with earlier outputs of the same scope", shares_text=True),
    "predicted": Method(
        _look_up,
        "the text that the user expects, realigned after edits",
        uses_prediction=True,
        needs_prediction=True,
    ),
    "draft_model": Method(_draft_model, "a second, smaller model"),
    "self": Method(_self, "the target's own weights, quantised"),
    "cascade": Method(_cascade, "several methods in order; the first that has a draft"),
    "auto": Method(
        _auto,
        "predicted if given, then suffix, then ngram, then a drafter if one is named",
        uses_prediction=True,
        shares_text=True,
    ),
}
"""Capabilities are data: read here, never asked of a class."""
