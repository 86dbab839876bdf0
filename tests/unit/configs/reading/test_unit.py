"""Units of systemd: its lines, quotes and resets, which are not those of a shell."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.started import read_start
from draftproof.configs.reading.unit import is_unit
from draftproof.core.errors import DraftproofError

COMMAND = ["vllm", "serve", "m", "-tp", "2"]


def started(text: str) -> tuple[dict[str, str], list[str]]:
    line = read_start(Place("vllm", text))
    return dict(line.environment), [word.text for word in line.words]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "text",
    [
        "[Service]\nExecStart=vllm serve m \\\n# tuned\n  -tp 2\n",
        "[Service]\nExecStart=vllm serve m \\\n  ; tuned \\\n\t# more\n  -tp \\\n#\n 2",
        "# of the pod\n\n; more\n[Service]\nExecStart=vllm serve m -tp 2\n",
        "[Unit]\nDescription=a b\n\n[Service]\n\tExecStart = vllm serve m -tp 2\nRestart=always\n",
        "Environment=\nExecStart=-vllm serve m -tp 2",
        "[Service]\nExecStart=vllm serve other\nExecStart=\nExecStart=@vllm name serve m -tp 2\n",
        "[Service]\nExecStart=!!:/usr/bin/env vllm serve \"m\" '-tp' \\x32\n",
        "[Service]\nExecStart=env 'vllm' serve m -t\"p\" 2 \\\n\nRestart=no",
    ],
)
def test_the_command_of_a_unit(text: str, end: str) -> None:
    assert started(text.replace("\n", end)) == ({}, COMMAND)


@pytest.mark.parametrize(
    ("said", "environment"),
    [
        ("Environment=A=1 \\\n# more\n B=2", {"A": "1", "B": "2"}),
        ("Environment=A=1\nEnvironment=\nEnvironment=B=2", {"B": "2"}),
        ("Environment = \"A=x y\" 'B=$HOME'\nEnvironment=A=100%%", {"A": "100%", "B": "$HOME"}),
        ("  Environment=A=a\\x20b B=", {"A": "a b", "B": ""}),
    ],
)
def test_its_variables_and_their_reset(said: str, environment: dict[str, str]) -> None:
    assert started(f"[Service]\n{said}\nExecStart=vllm serve m -tp 2\n") == (environment, COMMAND)
    assert started(f"{said}\nExecStart=vllm serve m -tp 2\n") == (environment, COMMAND)


def test_what_only_a_shell_knows_is_an_argument() -> None:
    _, words = started("[Service]\nExecStart=vllm a > b | c # d & e;f $$x 1%%\n")
    assert words == ["vllm", "a", ">", "b", "|", "c", "#", "d", "&", "e;f", "$x", "1%"]


def test_words_know_where_they_stand() -> None:
    text = "# x\n[Service]\nExecStart = -vllm \\\n# no \\\n  serve '--a=b c' \\\n m\n"
    words = read_start(Place("vllm", text)).words
    assert [text[word.position :].lstrip("'").startswith(word.text) for word in words] == [True] * 4


@pytest.mark.parametrize(
    ("text", "field", "found"),
    [
        ("[Service]\nUser=x\n", "line 1, column 1", "ExecStart"),
        ("[Service]\nExecStart=vllm\nExecStart=\n", "line 1, column 1", "ExecStart"),
        ("[Service]\nExecStart=vllm \\ \n  --a b\n", "line 3, column 3", "--a b"),
        ("[Service]\nExecStart=vllm\n  --a=b\n", "line 3, column 3", "--a=b"),
        ("[Service]\nExecStart=vllm \\\n 'a\n", "line 3, column 2", "not closed"),
        ("[Service]\nExecStart=vllm ; rm\n", "line 2, column 16", ";"),
    ],
)
def test_refused_with_place_and_finding(text: str, field: str, found: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        read_start(Place("vllm", text))
    assert (caught.value.code, caught.value.field) == ("DP111", f"vllm, {field}")
    assert found in caught.value.found


@pytest.mark.parametrize("text", ["A=1 vllm serve m", "# x\nvllm serve m", "HOME=x vllm", '["vllm"]', ""])
def test_other_texts_are_no_units(text: str) -> None:
    assert not is_unit(text)


@pytest.mark.parametrize("part", [" ", "\\\n", "#\n", "a ", "'", "\\", "[A]\n", "%", "$"])
def test_long_units_end(part: str) -> None:
    """Time that grows with the square would not."""
    text = "[Service]\nExecStart=x" + part * (250_000 // len(part)) + "x"
    with pytest.raises(DraftproofError) if part in ("[A]\n", "#\n") else nullcontext():
        read_start(Place("vllm", text))


@pytest.mark.parametrize("word", ["%i", "'/m/%i'", "${M}", "$M"])
def test_what_systemd_fills_in_stays_and_is_known_as_such(word: str) -> None:
    text = f"[Service]\nEnvironment=A=%h/x\nEnvironmentFile=-/etc/x\nExecStart=vllm serve {word} m\n"
    start = read_start(Place("vllm", text))
    assert [part.variable is not None for part in start.words] == [False, False, True, False]
    assert [(part.effect, part.setting) for part in start.unread] == [
        ("unread", "EnvironmentFile"),
        ("unknown", "A"),
    ]
