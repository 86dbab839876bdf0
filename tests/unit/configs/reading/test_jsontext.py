"""JSON with positions: the same values as Python's reader, stricter, and bounded."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.configs.reading.jsontext import read_json
from draftproof.configs.reading.node import MAX_DEPTH, MAX_NODES
from draftproof.configs.reading.refusal import MAX_CHARS, Place
from draftproof.core.errors import DraftproofError

TEXT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(TEXT),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(TEXT), inner, max_size=4),
    max_leaves=20,
)


def refused(text: str) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        read_json(Place("fireworks", text))
    assert caught.value.code == "DP111"
    return caught.value


def listed(value: object) -> object:
    """Tuples as lists and mappings as dicts, as Python's reader gives them."""
    if isinstance(value, tuple):
        return [listed(part) for part in value]
    return {key: listed(part) for key, part in value.items()} if hasattr(value, "items") else value


@given(VALUES, st.sampled_from([None, 2]))
@settings(deadline=None, max_examples=60)
def test_values_are_those_of_the_standard_library(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert listed(read_json(Place("fireworks", text)).plain()) == json.loads(text)


@given(st.text(alphabet='{}[]",:01.eE-+truefalsn \\u\n', max_size=30))
@settings(deadline=None)
def test_whatever_is_no_json_is_refused(text: str) -> None:
    try:
        json.loads(text, parse_constant=lambda word: int(word), object_pairs_hook=lambda pairs: pairs)
    except ValueError:
        assert "line" in refused(text).field
    else:
        with suppress(DraftproofError):  # stricter: duplicates, infinities, long numbers
            read_json(Place("fireworks", text))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"a": 1,\n "a": 2}', "line 2, column 2"),
        ('{"a": NaN}', "line 1, column 7"),
        ("[1e999]", "line 1, column 2"),
        ("[" + "9" * 5000 + "]", "line 1, column 2"),
        ('{"a": 1} x', "line 1, column 10"),
        ("{'a': 1}", "line 1, column 2"),
        ('"open', "line 1, column 1"),
        ("", "line 1, column 1"),
    ],
)
def test_refusals_name_the_place(text: str, where: str) -> None:
    assert refused(text).field == f"fireworks, {where}"


def test_depth_nodes_and_size_are_bounded() -> None:
    assert "nested" in refused("[" * (MAX_DEPTH + 2)).found
    assert "nested" in refused("[" * 200_000).found
    assert "values" in refused("[" + "1," * MAX_NODES + "1]").found
    assert "characters" in refused(" " * (MAX_CHARS + 1)).found
