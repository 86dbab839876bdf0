"""Python text: read by its syntax tree, never evaluated, with places and bounds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.configs.reading.node import Node
from draftproof.configs.reading.pythontext import Call, Code, Script, read_python
from draftproof.configs.reading.refusal import Place
from draftproof.core.errors import DraftproofError

TEXT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | FLOATS | st.text(TEXT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(TEXT), inner, max_size=3),
    max_leaves=10,
)


def read(text: str) -> Script:
    return read_python(Place("transformers", text))


def listed(value: object) -> object:
    if isinstance(value, tuple):
        return [listed(part) for part in value]
    return {key: listed(part) for key, part in value.items()} if hasattr(value, "items") else value


@given(LITERALS)
@settings(deadline=None, max_examples=60)
def test_literals_have_their_values(value: object) -> None:
    argument = read(f"f(x={value!r})").calls[0].keywords["x"]
    assert isinstance(argument, Node)
    assert listed(argument.plain()) == value


def test_statements_calls_and_attributes() -> None:
    script = read(
        "import a\nx = A.load('m', n=-1)\nx.y.z = 3  # three\nout = model.generate(**inputs, k=x, d=1 + 1)\n"
    )
    call = script.called("generate")
    assert call is not None
    assert (call.name, call.stars) == ("model.generate", ("inputs",))
    assert isinstance(script.value(call.keywords["k"]), Call)
    assert isinstance(call.keywords["d"], Code)
    assert isinstance(script.attributes("x")["y.z"], Node)
    assert script.comment == 42


@pytest.mark.parametrize("text", ["a=1, b='x'", "**inputs, a=1, b='x'", "a=1,\n  b='x',\n", "f(a=1, b='x')"])
def test_arguments_alone_are_a_call(text: str) -> None:
    assert {
        key: item.plain() for key, item in read(text).calls[0].keywords.items() if isinstance(item, Node)
    } == {
        "a": 1,
        "b": "x",
    }


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("f(x=", "line 1, column"),
        ("ä = 1\nfor x in y:\n  pass", "line 2, column 1"),
        ("'ä' + f(x={1: 2})\nf(x={1: 2})", "line 2, column 5"),
        ("a=1, b={'ä': 'é', 'ä': 2}", "line 1, column 19"),
        ("x = 1e999", "line 1, column 5"),
        ("f(x=" + "9" * 60 + ")", "line 1, column 5"),
        ("a\0", "line 1, column"),
        ("f()()", "line 1, column 1"),
        ("a[0] = 1", "line 1, column 1"),
    ],
)
def test_refusals_name_the_place(text: str, where: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        read(text)
    assert caught.value.code == "DP111"
    assert where in caught.value.field


def test_nothing_is_evaluated() -> None:
    assert isinstance(read("f(x=exit(1))").calls[0].keywords["x"], Call)
    assert isinstance(read("f(x=[exit(1) for y in z])").calls[0].keywords["x"], Code)
