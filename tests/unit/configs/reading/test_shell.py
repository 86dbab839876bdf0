"""Command lines: split as a shell splits them, and refused with line and column where the text does not say enough."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.configs.reading.options import Option, Options, read_options
from draftproof.configs.reading.refusal import MAX_CHARS, Place
from draftproof.configs.reading.shell import assignment, read_command, read_commands, write_command
from draftproof.core.errors import DraftproofError

TEXT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")


def words(text: str) -> list[str]:
    return [word.text for word in read_command(Place("vllm", text)).words]


def refused(text: str) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        read_command(Place("vllm", text))
    assert caught.value.code == "DP111"
    return caught.value


@given(st.lists(st.text(TEXT, max_size=20), max_size=8))
@settings(deadline=None)
def test_written_words_are_read_again(arguments: list[str]) -> None:
    text = write_command(["run", *arguments], width=30)
    assert words(text) == ["run", *arguments]


@given(st.text(alphabet="ab -='\"\\\t", max_size=30))
@settings(deadline=None)
def test_as_the_standard_library_splits(text: str) -> None:
    try:
        expected = shlex.split(f"run {text}")
    except ValueError:
        refused(f"run {text}")
    else:
        assert words(f"run {text}") == expected


def test_continuations_comments_environment_and_prompt() -> None:
    line = read_command(
        Place("vllm", "# as documented\n$ A=1 B='x y' vllm serve m \\\n   --a=1 \\\r\n   -b 'c d'  # done\n")
    )
    assert [assignment(word) for word in line.environment] == [("A", "1"), ("B", "x y")]
    assert [word.text for word in line.words] == ["vllm", "serve", "m", "--a=1", "-b", "c d"]


@pytest.mark.parametrize(
    ("text", "column", "found"),
    [
        ("vllm serve $(cat x", 12, "not closed"),
        ('vllm serve "${X"', 13, "not closed"),
        ("vllm serve `cat x", 12, "not closed"),
        ("vllm serve 'm", 12, "quote"),
        ('vllm serve "m', 12, "quote"),
        ("vllm serve m | tee log | grep x", 14, "|"),
        ("vllm serve m | grep x", 14, "|"),
        ("vllm serve m | teepot", 14, "|"),
        ("vllm serve m < text", 14, "<"),
        ("vllm serve m & rm x", 14, "&"),
        ("vllm serve m --a 1>2 --b", 19, ">"),
        ("vllm\u00a0serve m", 5, "U+00A0"),
        ("vllm serve “m”", 12, "U+201C"),
        ("vllm serve m —host x", 14, "U+2014"),
        ("vllm serve m \\ \n --host x", 14, "with a blank behind it"),
        ("# vllm serve m \\\n --host x", 1, "comment"),
        ("```\nvllm serve m\n```", 1, "fence"),
        ("vllm serve m \\", 14, "backslash"),
    ],
)
def test_what_no_shell_would_read_as_one_command_is_refused(text: str, column: int, found: str) -> None:
    error = refused(text)
    assert error.field == f"vllm, line 1, column {column}"
    assert found in error.found


@pytest.mark.parametrize(
    "text",
    [
        "$MODEL",
        '"$X"',
        "a$1b",
        "${X:-a b}",
        '"$(cat "x y")"',
        "$(a $(b) c)",
        "`cat x`",
        "--port=$PORT",
        '"$@"',
        "$'a'",
    ],
)
def test_a_word_with_a_variable_stays_and_knows_where_it_is(text: str) -> None:
    word, last = read_command(Place("vllm", f"a {text} b")).words[1:]
    at = re.search("[$`]", text)
    assert at is not None
    assert (word.variable, word.position, last.text) == (2 + at.start(), 2, "b")
    with pytest.raises(DraftproofError) as caught:
        word.known(Place("vllm", f"a {text} b"))
    assert caught.value.field == f"vllm, line 1, column {3 + at.start()}"


@pytest.mark.parametrize("text", ["'$MODEL'", "\\$X", '"\\$X"', "a$", '"$"', "$.", "'`a`'"])
def test_a_dollar_that_is_no_variable_is_a_sign(text: str) -> None:
    assert read_command(Place("vllm", f"a {text} b")).words[1].variable is None


@pytest.mark.parametrize("between", ["\n", "\r\n", " ; ", " && ", ";", "&&", "\n\n# and\n", " && \\\n"])
def test_commands_are_parted(between: str) -> None:
    lines = read_commands(Place("vllm", f"cd x{between}A=1 vllm serve m\n"))
    assert [[word.text for word in line.words] for line in lines] == [["cd", "x"], ["vllm", "serve", "m"]]


@pytest.mark.parametrize(
    "end",
    [
        "> log", ">>log 2>&1 &", "2>'err' 1> out;", "&> all", "&", ";", " # done", "&\n# done", "2>&1 | tee log",
        "| tee -a $DIR/log &", "|& tee 'a b' c # kept", '> "$LOG" 2>&1 &', "> logs/$(date +%s).log", "> ${D:-x}/l",
    ],
)  # fmt: skip
def test_where_the_output_goes_is_passed_over(end: str) -> None:
    line = read_command(Place("vllm", f"vllm serve m {end}"))
    assert [word.text for word in line.words] == ["vllm", "serve", "m"]


def test_typographic_signs_are_taken_in_quotes_and_inside_of_words() -> None:
    line = read_command(Place("vllm", "\ufeffvllm serve '“a\u00a0b”' a–b"))
    assert [word.text for word in line.words] == ["vllm", "serve", "“a\u00a0b”", "a–b"]


def test_a_second_command_is_refused_where_it_starts() -> None:
    assert refused("vllm serve m\n\n # and then\nrm x").field == "vllm, line 4, column 1"


def test_size_is_bounded() -> None:
    assert "characters" in refused("a " * MAX_CHARS).found


TABLE = {
    spelling: option
    for option in (
        Option("--depth", "int", aliases=("-d",)),
        Option("--fraction", "float"),
        Option("--fast", "flag"),
        Option("--sizes", "list"),
        Option("--size-limit", "int"),
        Option("--mode", choices=("a", "b")),
    )
    for spelling in (option.name, *option.aliases)
}


def options(text: str) -> Options:
    place = Place("sglang", text)
    return read_options(place, read_command(place).words, TABLE, abbreviated="--")


def test_options_as_argparse_reads_them() -> None:
    found = options("m --dep 3 --fraction=-.5 --sizes 1 2 3 --fast --other x y --other2=z -d 4 --mode a")
    assert {name: item.value for name, item in found.given.items()} == {
        "--depth": 4,
        "--fraction": -0.5,
        "--sizes": ("1", "2", "3"),
        "--fast": True,
        "--mode": "a",
    }
    assert [item.value for item in found.overridden] == [3]
    assert [word.text for word in found.positional] == ["m"]
    assert [word.text for word in found.rest] == ["--other", "x", "y", "--other2=z"]


@pytest.mark.parametrize(
    "text",
    [
        "--depth",
        "--depth --fast",
        "--depth x",
        "--depth 1e999",
        "--fraction nan",
        "--fast=1",
        "--sizes",
        "--mode c",
        "--siz 3",
        f"--depth {'9' * 5000}",
    ],
)
def test_options_without_a_sound_value(text: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        options(text)
    assert (caught.value.code, caught.value.field) == ("DP111", "sglang, line 1, column 1")


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("~", "~"),
        ("~/m", "~/m"),
        ("~llm/m", "~llm/m"),
        ("~/a b/$c", "~/'a b/$c'"),
        ("~a b", "'~a b'"),
        ("a~", "'a~'"),
        ("--f=~/m", "'--f=~/m'"),
    ],
)
def test_a_leading_tilde_stays_one_for_the_shell(word: str, written: str) -> None:
    assert write_command(["run", word], {"A": word}.items()) == f"A={written} run {written}"
    assert words(write_command(["run", word])) == ["run", word]


@pytest.mark.parametrize("word", ["{a,b}", "x{1..3}y", '{"a":1,"b":2}', "{a,'b c'}", "a/{b,}.gguf"])
def test_braces_that_a_shell_expands_are_refused(word: str) -> None:
    error = refused(f"run {word}")
    assert error.field == f"vllm, line 1, column {5 + word.index('{')}"


@pytest.mark.parametrize(
    "word", ["{a}", "{", "a,b", "}{,", "'{a,b}'", '"{a,b}"', r"\{a,b}", ".ffn_.*_exps.=CPU"]
)
def test_others_are_words(word: str) -> None:
    assert words(f"run {word}") == ["run", word.strip("'\"\\")]
