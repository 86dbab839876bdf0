"""Which proposer serves which intent: one row per method.

The engine calls `create_proposer` once per distinct intent, so that requests of one configuration share a pool.
Nothing outside this file names a proposer's class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from draftproof.core.intent import Auto, Cascade, NGram, NoSpeculation, Predicted, SpeculationIntent, Suffix
from draftproof.proposers.base import Proposer
from draftproof.proposers.cascade import CascadeProposer
from draftproof.proposers.ngram import NGramProposer
from draftproof.proposers.predicted import PredictedProposer
from draftproof.proposers.suffix import SuffixProposer


@dataclass(frozen=True, slots=True)
class Method:
    """One row. `create` takes the intent whose `method` is the row's key.

    summary          one line for `draftproof methods`
    uses_prediction  drafts from the user's expected text
    needs_prediction drafts from nothing else, so that a request without one cannot draft
    shares_text      remembers outputs for later requests of the same scope
    """

    create: Callable[[Any], Proposer]
    summary: str
    uses_prediction: bool = False
    needs_prediction: bool = False
    shares_text: bool = False


def create_proposer(intent: SpeculationIntent) -> Proposer:
    """The proposer of an intent; plain decoding has none, so `NoSpeculation` is a caller's mistake."""
    assert not isinstance(intent, NoSpeculation), "plain decoding needs no proposer"
    return METHODS[intent.method].create(intent)


def _ngram(intent: NGram) -> Proposer:
    return NGramProposer(intent.num_speculative_tokens, intent.prompt_lookup_min, intent.prompt_lookup_max)


def _suffix(intent: Suffix) -> Proposer:
    return SuffixProposer(intent)


def _predicted(intent: Predicted) -> Proposer:
    return PredictedProposer(intent.num_speculative_tokens)


def _cascade(intent: Cascade) -> Proposer:
    return CascadeProposer([create_proposer(part) for part in intent.proposers])


def _auto(intent: Auto) -> Proposer:
    """The suffix part may draft two tokens per agreeing one: `Evidence` bounds it, and measured better than one."""
    depth = intent.num_speculative_tokens
    parts = (
        Predicted(num_speculative_tokens=depth),
        Suffix(num_speculative_tokens=depth, suffix_decoding_max_spec_factor=2.0),
        NGram(num_speculative_tokens=depth),
    )
    return CascadeProposer([create_proposer(part) for part in parts], name="auto")


METHODS: dict[str, Method] = {
    "ngram": Method(_ngram, "what followed the newest tokens when they stood in this request before"),
    "suffix": Method(_suffix, "the same, with earlier outputs of the same scope", shares_text=True),
    "predicted": Method(
        _predicted,
        "the text that the user expects, realigned after edits",
        uses_prediction=True,
        needs_prediction=True,
    ),
    "cascade": Method(_cascade, "several methods in order; the first that has a draft"),
    "auto": Method(
        _auto, "predicted if given, then suffix, then ngram", uses_prediction=True, shares_text=True
    ),
}
"""Capabilities are data: read here, never asked of a class."""
