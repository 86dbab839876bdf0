"""Versions as engines write them, ranges as pip writes them, and one truth about which versions were read."""

from __future__ import annotations

import pytest

from draftproof.configs.registry import DIALECTS, dialect
from draftproof.configs.rules.facts.readings import BY_ENGINE
from draftproof.configs.rules.registry import rules_of
from draftproof.configs.rules.versions import READ, TITLES, is_range, is_within, parse_version
from draftproof.core.errors import DraftproofError


@pytest.mark.parametrize(
    ("engine", "text", "same"),
    [
        ("vllm", "v0.33.0", "0.33.0"),
        ("sglang", "0.5.23-cu129", "0.5.23"),
        ("vllm", "0.33.0+cpu", "0.33.0"),
        ("llamacpp", "b11434", "11434"),
        ("trtllm", "1.3.0rc5", "1.3.0"),
    ],
)
def test_versions_as_they_are_written(engine: str, text: str, same: str) -> None:
    assert parse_version(engine, text) == parse_version(engine, same)


@pytest.mark.parametrize("text", ["", "latest", "1.x", "9" * 100])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(DraftproofError, match="DP112"):
        parse_version("vllm", text)


def test_ranges() -> None:
    assert is_within(parse_version("vllm", "0.33.0"), ">=0.24,<=0.33.0")
    assert not is_within(parse_version("vllm", "0.9.1"), "==0.33.0")
    assert is_within(parse_version("vllm", "0.9.1"), "")
    assert is_range(">=0.20,<=0.33.0")
    assert not is_range("removed between 0.16 and 0.20")


def test_every_range_of_a_rule_holds_the_version_that_was_read() -> None:
    for engine, reading in BY_ENGINE.items():
        if engine in READ:
            assert is_within(parse_version(engine, READ[engine]), reading.versions), engine
    for rule in rules_of():
        for reading in rule.readings:
            assert is_range(reading.versions), rule.code


@pytest.mark.parametrize("engine", [name for name in DIALECTS if name in READ])
def test_rules_and_dialects_were_read_from_the_same_version(engine: str) -> None:
    assert parse_version(engine, dialect(engine).read_version) == parse_version(engine, READ[engine])


def test_engines_are_called_in_sentences_as_their_dialects_call_them() -> None:
    assert {name: dialect(name).title for name in DIALECTS} == dict(TITLES)
