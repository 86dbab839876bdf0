"""Every method of the speculation object that proposes has one row, and the row builds it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from draftproof.core.intent import METHODS as INTENTS
from draftproof.core.intent import (
    Auto,
    Cascade,
    DraftModel,
    NGram,
    NoSpeculation,
    Predicted,
    SpeculationIntent,
    Suffix,
)
from draftproof.core.params import SamplingParams
from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import ProposerNeeds, SequenceView, Source
from draftproof.proposers.evidence import assumed_prices
from draftproof.proposers.look_up import LookUpProposer, library
from draftproof.proposers.ngram import NGramProposer
from draftproof.proposers.predicted import PredictedProposer
from draftproof.proposers.registry import METHODS, Method, create_proposer
from draftproof.proposers.suffix import SuffixProposer
from draftproof.verify.types import Verdict


def test_one_row_per_method_that_proposes() -> None:
    assert set(METHODS) == set(INTENTS) - {"none"}


@pytest.mark.parametrize(
    "intent", [NGram(), Suffix(), Predicted(), Auto(), Cascade(proposers=(NGram(), Suffix()))]
)
def test_a_proposer_bears_the_name_of_its_method(intent: NGram | Suffix | Predicted | Auto | Cascade) -> None:
    assert create_proposer(intent).name == intent.method


def test_plain_decoding_has_no_proposer() -> None:
    with pytest.raises(AssertionError):
        create_proposer(NoSpeculation())


def test_each_part_of_a_cascade_keeps_its_own_depth() -> None:
    text = [*range(40), *range(20)]
    intent = Cascade(proposers=(Predicted(num_speculative_tokens=12), NGram(num_speculative_tokens=3)))
    proposer = create_proposer(intent)
    sequence = SequenceView("r", text, len(text), SamplingParams(), depth=intent.num_speculative_tokens)
    proposer.begin(sequence)
    assert proposer.propose([sequence], [16]).tokens.tolist() == [20, 21, 22]


def test_auto_prefers_the_prediction_then_own_text() -> None:
    text = [*range(40), *range(20)]
    proposer = create_proposer(Auto())
    plain = SequenceView("p", text, len(text), SamplingParams(), depth=2)
    hinted = SequenceView("h", list(text), len(text), SamplingParams(), prediction=[77, 78, 79], depth=2)
    proposer.begin(plain)
    proposer.begin(hinted)
    assert proposer.propose([plain, hinted], [2, 2]).tokens.tolist() == [20, 21, 77, 78]


def test_look_up_that_is_not_sure_leaves_the_draft_to_a_model_behind_it() -> None:
    """Its guess is learned from all the same: once its guesses come true it drafts."""
    text = [5, 6, 7, 8, 9, 10, 11, 6]
    for proposer in (NGramProposer(4, 1, 5), SuffixProposer(Suffix()), PredictedProposer(4)):
        sequence = SequenceView("r", list(text), 7, SamplingParams(), prediction=[1, 6, 7, 8, 9, 10], depth=4)
        sequence.prices = assumed_prices(3, 4, instead=0.5)
        proposer.begin(sequence)
        assert proposer.propose([sequence], [4]).num_nodes == 0
        for token in (7, 8, 9, 10):
            sequence.token_ids.append(token)
            proposer.commit([sequence], [Verdict((), (), token)])
            proposer.propose([sequence], [4])
        assert proposer.propose([sequence], [1]).num_nodes == (0 if proposer.name == "predicted" else 1)


LOOK_UPS = [NGram(), Suffix(), Predicted(), Auto(), Cascade(proposers=(NGram(), Suffix()))]


@pytest.mark.parametrize("intent", LOOK_UPS)
def test_look_up_runs_in_python_without_a_compiler(
    intent: SpeculationIntent,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("DRAFTPROOF_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    library.cache_clear()
    try:
        proposer = create_proposer(intent)
        create_proposer(intent)
    finally:
        library.cache_clear()
    assert not isinstance(proposer, LookUpProposer)
    assert proposer.name == intent.method
    assert caplog.text.count("look-up runs in Python") == 1
    assert "no C++ compiler" in caplog.text


@pytest.mark.skipif(library() is None, reason="look-up cannot be compiled here")
@pytest.mark.parametrize("kernels", ["python", "native"])
@pytest.mark.parametrize("intent", LOOK_UPS)
def test_look_up_runs_where_the_target_runs(intent: SpeculationIntent, kernels: str) -> None:
    target: Any = SimpleNamespace(
        model=SimpleNamespace(kernels=kernels), config=SimpleNamespace(vocab_size=10)
    )
    resources: Any = SimpleNamespace(target=target, reserves_weights=False)
    assert isinstance(create_proposer(intent, resources), LookUpProposer) == (kernels == "native")


@pytest.mark.skipif(library() is None, reason="look-up cannot be compiled here")
def test_only_neighbours_in_a_cascade_are_looked_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model between two ways of looking up is asked between them."""
    asked = []

    class Model:
        name = "draft_model"
        needs = ProposerNeeds()
        sources = (Source(follows_prices=False),)

        def begin(self, sequence: SequenceView) -> None: ...

        def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
            asked.extend(sequence.req_id for sequence in sequences)
            return DraftBatch.chains([[8] if sequence.req_id == "m" else [] for sequence in sequences])

    monkeypatch.setitem(METHODS, "draft_model", Method(lambda intent, resources: Model(), ""))  # type: ignore[arg-type,return-value]
    proposer = create_proposer(Cascade(proposers=(Predicted(), DraftModel(model="m"), NGram())))
    texts = {"p": [5], "m": [1, 2, 1], "n": [1, 2, 1]}
    views = [
        SequenceView(req_id, text, len(text), SamplingParams(), prediction=[9] if req_id == "p" else ())
        for req_id, text in texts.items()
    ]
    for view in views:
        proposer.begin(view)
    assert proposer.propose(views, [1, 1, 1]).tokens.tolist() == [9, 8, 2]
    assert asked == ["m", "n"]
