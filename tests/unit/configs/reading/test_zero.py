"""A zero character, written or escaped, is refused by every reader: no argument or file name can hold one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from draftproof.configs.reading.jsontext import read_json
from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.started import read_start
from draftproof.configs.reading.yamltext import read_yaml
from draftproof.core.errors import DraftproofError


@pytest.mark.parametrize(
    ("read", "text", "column"),
    [
        (read_start, "vllm serve a\0b", 13),
        (read_start, "vllm serve 'a\0b'", 14),
        (read_start, '["vllm", "a\\u0000"]', 10),
        (read_start, 'command: [vllm, "a\\0b"]', 17),
        (read_start, "ExecStart=vllm serve a\\x00", 23),
        (read_json, '{"a": "\\u0000"}', 7),
        (read_json, '{"a": 1, "b\\u0000": 2}', 10),
        (read_yaml, 'a: "\\0"', 4),
        (read_yaml, '"a\\x00": 1', 1),
    ],
)
def test_zero_characters_are_refused_with_their_place(
    read: Callable[[Place], object], text: str, column: int
) -> None:
    with pytest.raises(DraftproofError) as caught:
        read(Place("vllm", text))
    assert (caught.value.code, caught.value.field) == ("DP111", f"vllm, line 1, column {column}")
    assert caught.value.found == "a zero character"
