"""Recorded requests: the shapes that people have, what counts as a parameter in use, and lines that are none."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.configs import traffic
from draftproof.configs.traffic import RecordedRequest, read_traffic
from draftproof.core.errors import DraftproofError


def read(path: Path, *records: Any) -> tuple[RecordedRequest, ...]:
    file = path / "requests.jsonl"
    file.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    return read_traffic(file).requests


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
]
REPLY = {"choices": [{"message": {"role": "assistant", "content": "Hello."}}]}


@pytest.mark.parametrize(
    ("record", "prompt", "answer"),
    [
        ({"prompt": "p", "output": "o"}, "p", "o"),
        ({"prompt": "p"}, "p", None),
        ({"messages": CHAT}, "Be brief.\n\nHi", None),
        ({"messages": [*CHAT, {"role": "assistant", "content": "Hello."}]}, "Be brief.\n\nHi", "Hello."),
        ({"request": {"messages": CHAT}, "response": REPLY}, "Be brief.\n\nHi", "Hello."),
        (
            {"custom_id": "1", "body": {"messages": CHAT}, "response": {"body": REPLY}},
            "Be brief.\n\nHi",
            "Hello.",
        ),
        ({"prompt": "p", "response": {"choices": [{"text": "o"}]}}, "p", "o"),
    ],
)
def test_shapes_that_people_have(
    tmp_path: Path, record: dict[str, Any], prompt: str, answer: str | None
) -> None:
    [request] = read(tmp_path, record)
    assert (request.prompt, request.answer) == (prompt, answer)


IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}


@pytest.mark.parametrize("record", [{"prompt": [1, 2, 3]}, {"prompt": [[1], [2]]}, {"messages": [IMAGE]}])
def test_requests_without_text_are_taken_for_what_they_ask(tmp_path: Path, record: dict[str, Any]) -> None:
    file = tmp_path / "r.jsonl"
    lines = [record | {"min_p": 0.1}, {"body": record}, {"prompt": "p"}]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    traffic = read_traffic(file)
    assert [request.prompt for request in traffic.requests] == [None, None, "p"]
    assert traffic.parameters == {"min_p": 1}
    assert traffic.unread is not None
    assert traffic.unread.startswith("r.jsonl: 2 of 3 requests have no text")


def test_texts_in_a_list_are_one_prompt_and_nothing_is_left_unread(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(json.dumps({"prompt": ["a", "b"]}), encoding="utf-8")
    traffic = read_traffic(file)
    assert (traffic.requests[0].prompt, traffic.unread) == ("ab", None)


@pytest.mark.parametrize("prediction", ["text", {"type": "content", "content": "text"}, [{"text": "text"}]])
def test_predictions_in_every_shape(tmp_path: Path, prediction: Any) -> None:
    [request] = read(tmp_path, {"prompt": "p", "prediction": prediction})
    assert request.prediction == "text"


def test_parameters_in_use_are_counted_and_neutral_values_are_not(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    records = [
        {"prompt": "p", "min_p": 0.1, "presence_penalty": 0.0, "n": 1},
        {"request": {"messages": CHAT, "extra_body": {"min_p": 0.2}, "tools": [{"type": "function"}]}},
        {"prompt": "p", "response_format": {"type": "text"}, "stop": [], "seed": 0},
    ]
    file.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    assert read_traffic(file).parameters == {"min_p": 2, "tools": 1, "seed": 1}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{",
        '{"text": 3}',
        '{"messages": [3]}',
        "{}",
        "[" * 5000,
        '{"prompt": ""}',
        '{"prompt": []}',
        '{"prompt": [1, 2.5]}',
        '{"prompt": [[]]}',
    ],
)
def test_a_line_that_is_no_request_is_dp003_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text('{"prompt": "p"}\n\n' + line if line else "", encoding="utf-8")
    with pytest.raises(DraftproofError) as caught:
        read_traffic(file)
    assert caught.value.code == "DP003"
    assert ("line 3" if line else "line 1") in caught.value.field


def test_files_that_cannot_be_read_are_dp002(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "latin").write_bytes(b'{"prompt": "\xfc"}')
    (tmp_path / "large").write_text('{"prompt": "p"}\n' * 5, encoding="utf-8")
    monkeypatch.setattr(traffic, "MAX_REQUESTS", 3)
    for name in ("none", "latin", "large", "."):
        with pytest.raises(DraftproofError) as caught:
            read_traffic(tmp_path / name)
        assert caught.value.code == "DP002"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["messages", "prompt", "content", "role", "request", "body", "response", "choices", "text"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=200, deadline=None)
def test_any_json_is_a_request_or_is_refused(tmp_path_factory: pytest.TempPathFactory, record: Any) -> None:
    codes = set()
    try:
        [request] = read(tmp_path_factory.mktemp("fuzz"), record)
    except DraftproofError as error:
        codes.add(error.code)
    assert codes == {"DP003"} if codes else request.prompt != ""
