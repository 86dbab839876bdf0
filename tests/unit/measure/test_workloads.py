"""The built-in workloads are real, distinct, in two languages, and ship with the package."""

import ast
from collections import Counter

import pytest

from draftproof.measure.workloads import NAMES, load, load_all


@pytest.mark.parametrize("name", NAMES)
def test_each_has_eight_prompts_half_of_them_german(name: str) -> None:
    workload = load(name)
    assert Counter(prompt.language for prompt in workload.prompts) == {"en": 4, "de": 4}
    assert len({prompt.name for prompt in workload.prompts}) == 8
    assert len({prompt.text for prompt in workload.prompts}) == 8
    # At four at a time a group has both languages, and so has a shortened run.
    for first in (0, 4):
        assert {prompt.language for prompt in workload.prompts[first : first + 4]} == {"en", "de"}


def test_the_prediction_of_an_edit_is_the_file_itself_and_valid_python() -> None:
    for prompt in load("edit").prompts:
        assert prompt.prediction is not None
        assert f"```python\n{prompt.prediction}```" in prompt.text
        ast.parse(prompt.prediction)
        assert len(prompt.prediction.splitlines()) >= 20


def test_only_edits_have_a_prediction() -> None:
    for name in ("chat", "passage"):
        assert all(prompt.prediction is None for prompt in load(name).prompts)


def test_passages_are_long_and_end_with_the_question() -> None:
    for prompt in load("passage").prompts:
        assert len(prompt.text) > 1000
        assert len(prompt.text.split("\n\n")[-1]) < 200


def test_an_unknown_name_is_refused() -> None:
    assert [workload.name for workload in load_all()] == list(NAMES)
    with pytest.raises(KeyError):
        load("poetry")
