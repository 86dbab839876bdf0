"""What the findings on vocabularies say beyond that they are made."""

from pathlib import Path

import pytest

from draftproof.configs.rules.judging import judge
from draftproof.configs.rules.registry import rule
from support.rules.vocab import PADDED, pair


@pytest.mark.parametrize(("engine", "is_doubted"), [("sglang", True), ("draftproof", False)])
def test_padding_names_what_speaks_against_an_engines_documentation(
    tmp_path: Path, engine: str, is_doubted: bool
) -> None:
    [finding] = judge(pair(engine, PADDED)(tmp_path), [rule("VOCAB-01")]).findings
    assert ("ValueError" in finding.detail) == is_doubted
