"""YAML as PyYAML's safe loader reads it, with places, bounds and a word on the surprises of YAML 1.1."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from draftproof.configs.reading.node import MAX_DEPTH
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.yamltext import MAX_YAML_CHARS, YamlText, plain_yaml, read_yaml
from draftproof.core.errors import DraftproofError

TEXT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.text(TEXT, max_size=12)
    | st.sampled_from(["no", "1e3", "010"])
)
VALUES = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(TEXT, max_size=6), inner, max_size=4),
    max_leaves=15,
)


def read(text: str) -> YamlText:
    return read_yaml(Place("trtllm", text))


def refused(text: str) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        read(text)
    assert caught.value.code == "DP111"
    assert "line" in caught.value.field
    return caught.value


def listed(value: object) -> object:
    if isinstance(value, tuple):
        return [listed(part) for part in value]
    return {key: listed(part) for key, part in value.items()} if hasattr(value, "items") else value


@given(VALUES)
@example(["a\x85b", {"\x85": "\u2028\u2029"}])
@settings(deadline=None, max_examples=60)
def test_what_is_written_is_read_again_as_the_safe_loader_reads_it(value: object) -> None:
    text = plain_yaml(value)
    assert listed(read(text).node.plain()) == yaml.safe_load(text) == value


@pytest.mark.parametrize(
    "text", ["", "a: 1", "- x\n- {y: [1, 2.5, null]}", "a: |\n  # no comment\n  text\n", "\"x\" : '#y'"]
)
def test_texts_without_comments(text: str) -> None:
    found = read(text)
    assert listed(found.node.plain()) == yaml.safe_load(text)
    assert found.comment is None
    assert found.surprises == ()


def test_where_a_comment_stands() -> None:
    assert read("a: b#c\nd: 'x # y' # here\n").comment == 18
    assert read("# first\na: 1\n").comment == 0


@pytest.mark.parametrize(
    ("written", "value"),
    [("no", False), ("On", True), ("1e3", "1e3"), ("010", 8), ("1:30", 90), ("1_000", 1000), ("0x10", 16)],
)
def test_surprises_of_yaml_1_1_are_read_as_the_loader_does(written: str, value: object) -> None:
    found = read(f"a: {written}")
    assert found.node.members("file")["a"].value == value == yaml.safe_load(written)
    assert bool(found.surprises) == (written != "0x10")
    assert read(f"a: '{written}'").surprises == ()


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("a: 1\na: 2", "line 2, column 1", "second time"),
        ("a: &x {b: *x}", "line 1, column 11", "nothing complete"),
        ("a: *x", "line 1, column 4", "nothing complete"),
        ("a: 2026-01-01", "line 1, column 4", "a date"),
        ("<<: {a: 1}", "line 1, column 1", "merge"),
        ("on: 1", "line 1, column 1", "True"),
        ("? [a]\n: 1", "line 1, column 3", "key"),
        ("a: !!python/name:os.system x", "line 1, column 4", "tag"),
        ("a: !!binary aGk=", "line 1, column 4", "tag"),
        ("a: .inf", "line 1, column 4", ".inf"),
        ("a: 1\n---\nb: 2", "line 2, column 1", "second document"),
        ("a: [1", "line 1, column 6", "expected"),
        ("a: \x00", "line 1, column 4", "not allowed"),
        ("a: " + "9" * 50, "line 1, column 4", "999"),
    ],
)
def test_refusals(text: str, where: str, what: str) -> None:
    error = refused(text)
    assert where in error.field
    assert what in error.found


def test_bombs_are_counted_where_they_are_used() -> None:
    bomb = "a0: &a0 [x, x]\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))
    assert "values" in refused(bomb).found or "nested" in refused(bomb).found
    assert "nested" in refused("[" * (MAX_DEPTH + 2)).found
    assert "characters" in refused(" " * (MAX_YAML_CHARS + 1)).found
