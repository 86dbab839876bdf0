"""What `draftproof check` says of a pair is what the engine refuses it with, word for word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.checkpoints.view import open_view
from draftproof.configs.rules.case import Case
from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import FAMILIES, rule
from draftproof.configs.speculation import Deployment, ModelRef, Speculation
from draftproof.core.errors import CODES, DraftproofError
from draftproof.core.intent import DraftModel
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.proposers.fitting import REFUSALS, check_pair
from support.checkpoints import write_checkpoint
from support.rules.building import Checkpoint
from support.rules.eagle import eagle, eagle3
from support.tiny_views import write_view


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "target", layers=2, vocab=320)


def write_head(path: Path, head: Checkpoint) -> Path:
    return write_view(path, head.config, tensors=head.tensors, values=head.values)


def test_a_pair_that_fits_gives_how_the_vocabularies_relate(target: Path, tmp_path: Path) -> None:
    fit = check_pair(target, write_checkpoint(tmp_path / "drafter", layers=1, vocab=320))
    assert fit.same_ids
    assert fit.covers_target


@pytest.mark.parametrize("head", [eagle(), eagle3()], ids=["EAGLE-1/2", "EAGLE-3"])
def test_a_head_is_refused_as_what_it_is(head: Checkpoint, target: Path, tmp_path: Path) -> None:
    path = write_head(tmp_path / "head", head)
    engine = Engine.load(target, config=EngineConfig())
    with pytest.raises(DraftproofError) as caught:
        engine.generate(["text"], intent=DraftModel(model=str(path)))
    assert caught.value.code == "DP803"
    assert "EAGLE-03" in caught.value.found
    assert "fc.weight" in caught.value.found
    assert "look-up" in caught.value.remedy


def test_every_family_that_is_asked_has_a_code_of_its_own() -> None:
    assert set(REFUSALS) <= set(FAMILIES)
    assert set(REFUSALS.values()) <= set(CODES)
    assert len(set(REFUSALS.values())) == len(REFUSALS)


def test_the_words_are_those_of_the_rule(target: Path, tmp_path: Path) -> None:
    drafter = write_checkpoint(tmp_path / "drafter", layers=1, vocab=320)
    document = json.loads((drafter / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = document["model"]["vocab"]
    document["model"] |= {
        "vocab": {f"Ġ{token}{number}": number for token, number in vocab.items()},
        "merges": [],
    }
    (drafter / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    case = Case(
        deployment=Deployment(
            engine="draftproof",
            speculation=Speculation(method="draft_model", drafter=ModelRef(name=str(drafter))),
        ),
        target_view=open_view(str(target)),
        drafter_view=open_view(str(drafter)),
    )
    [finding] = judge(case, [rule("VOCAB-04")]).findings
    with pytest.raises(DraftproofError) as caught:
        check_pair(target, drafter)
    assert caught.value.code == "DP801"
    assert finding.detail in caught.value.found
    assert caught.value.remedy == finding.remedy


def test_a_drafter_larger_than_the_target(target: Path, tmp_path: Path) -> None:
    with pytest.raises(DraftproofError, match="ECON-01") as caught:
        check_pair(target, write_checkpoint(tmp_path / "large", layers=3, vocab=320))
    assert caught.value.code == "DP802"
