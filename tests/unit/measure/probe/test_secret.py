"""Keys: where they come from, and that no form of them stays in a text."""

import base64
import copy
import json
import pickle
from urllib.parse import quote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from draftproof.core.errors import DraftproofError
from draftproof.measure.probe.secret import HIDDEN, ApiKey, key_from_environment

KEY = 'sk-PLANTED/4f+9&Zx"q7Lm2'


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        quote(KEY, safe=""),
        json.dumps(KEY)[1:-1],
        base64.b64encode(KEY.encode()).decode(),
        KEY[:10],
        KEY[5:15],
    ],
)
def test_no_form_and_no_piece_of_it_stays(form: str) -> None:
    scrubbed = ApiKey(KEY).scrub(f"Bearer {form}, wrong key {form}.")
    assert form not in scrubbed
    assert scrubbed.count(HIDDEN) >= 2


@given(
    before=st.text(max_size=30),
    after=st.text(max_size=30),
    start=st.integers(0, 16),
    length=st.integers(8, 24),
)
@settings(max_examples=100, deadline=None)
def test_whatever_surrounds_a_piece_it_goes_and_the_rest_stays(
    before: str, after: str, start: int, length: int
) -> None:
    piece = KEY[start : start + length]
    assume(len(piece) >= 8)
    scrubbed = ApiKey(KEY).scrub(before + piece + after)
    assert not any(KEY[at : at + 8] in scrubbed for at in range(len(KEY) - 7))
    assert scrubbed.startswith(before[:-1])
    assert scrubbed.endswith(after[1:])


@given(text=st.text(alphabet=KEY + "#", max_size=60))
@settings(max_examples=200, deadline=None)
def test_no_piece_of_it_is_left_in_a_text_of_its_own_characters(text: str) -> None:
    pieces = [KEY[at : at + 8] for at in range(len(KEY) - 7)]
    scrubbed = ApiKey(KEY).scrub(text)
    assert not any(piece in scrubbed for piece in pieces)
    assert (scrubbed == text) == (not any(piece in text for piece in pieces))


def test_other_text_is_left_alone() -> None:
    text = "The model `gpt-4o` does not exist. sk-PLAN"
    assert ApiKey(KEY).scrub(text) == text


def test_it_has_no_text_and_is_not_stored() -> None:
    key = ApiKey(KEY)
    assert KEY not in f"{key} {key!r}"
    with pytest.raises(TypeError):
        pickle.dumps(key)
    with pytest.raises(TypeError):
        copy.copy(key)


def test_headers_by_the_way_of_signing() -> None:
    assert ApiKey("k").header("bearer") == {"Authorization": "Bearer k"}
    assert ApiKey("k").header("api-key") == {"api-key": "k"}


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_no_key_is_dp126(value: str | None) -> None:
    environment = {} if value is None else {"MY_KEY": value}
    with pytest.raises(DraftproofError) as caught:
        key_from_environment("MY_KEY", environment)
    assert caught.value.code == "DP126"
    assert "MY_KEY" in caught.value.found


@pytest.mark.parametrize("value", ["two words", "zwei\nzeilen", "schlüssel"])
def test_a_key_that_no_header_carries_is_dp126_and_not_shown(value: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        key_from_environment("MY_KEY", {"MY_KEY": value})
    assert caught.value.code == "DP126"
    assert value not in str(caught.value)


def test_a_line_end_behind_a_key_is_taken_off() -> None:
    assert key_from_environment("K", {"K": "abc\n"}).header("bearer")["Authorization"] == "Bearer abc"
