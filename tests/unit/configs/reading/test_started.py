"""What starts a program: prefixes, shells, containers and units, with positions."""

from __future__ import annotations

import pytest

from draftproof.configs.reading.refusal import Place
from draftproof.configs.reading.started import read_start
from draftproof.core.errors import DraftproofError

COMMAND = ["vllm", "serve", "m", "-tp", "2"]


def started(text: str) -> tuple[dict[str, str], list[str]]:
    line = read_start(Place("vllm", text))
    return dict(line.environment), [word.text for word in line.words]


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m -tp 2",
        "sudo -E -u llm /usr/bin/env nohup vllm serve m -tp 2 &",
        "nice -n 5 time -o log numactl --membind=0 -C 0-7 vllm serve m -tp 2",
        "bash -lc 'exec vllm serve m -tp 2'",
        '["vllm", "serve", "m", "-tp", "2"]',
        '["sh", "-c", "vllm serve m \\\\\\n -tp 2"]',
        'CMD ["vllm", "serve", "m", "-tp", "2"]',
        '\nENTRYPOINT ["vllm", "serve", "m", "-tp", "2"]\n',
        "- vllm\n- serve\n- m\n- -tp\n- '2'\n",
        "# of the pod\ncommand: [vllm, serve]\nargs:\n  - m\n  - -tp\n  - '2'\n",
        "args: [m, -tp, '2']\nimage: x\ncommand: [vllm, serve]\n",
        "ExecStart=vllm serve m \\\n  -tp 2\nRestart=always\n",
        "[Unit]\nDescription=x\n[Service]\nExecStart=\nExecStart=-vllm serve m -tp 2\n[Install]\nWantedBy=y\n",
    ],
)
def test_the_program_and_its_arguments(text: str) -> None:
    assert started(text) == ({}, COMMAND)


@pytest.mark.parametrize(
    "text",
    [
        "A=1 B='x y' vllm serve m -tp 2",
        "A=1 sudo env B='x y' vllm serve m -tp 2",
        "sh -c \"A=1 exec env 'B=x y' vllm serve m -tp 2\"",
        "command: [vllm, serve, m, -tp, '2']\nenv:\n- {name: A, value: '1'}\n- {name: B, value: x y}\n"
        "- {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}\n",
        "[Service]\nEnvironment=\"A=1\" 'B=x y'\nExecStart=vllm serve m -tp 2\n",
    ],
)
def test_its_environment(text: str) -> None:
    assert started(text) == ({"A": "1", "B": "x y"}, COMMAND)


def test_words_know_where_they_stand() -> None:
    for text in (
        "sudo vllm serve m",
        '["vllm", "serve", "m"]',
        "[Service]\nExecStart=vllm serve m\n",
        "- vllm\n- serve\n- m",
    ):
        for word in read_start(Place("vllm", text)).words:
            at = text[word.position :].lstrip("\"'")
            assert at.startswith(word.text)


@pytest.mark.parametrize(
    ("text", "field", "found"),
    [
        ('["vllm", 8000]', "vllm, line 1, column 10", "8000"),
        ('["vllm" "serve"]', "vllm, line 1, column 9", '"serve"]'),
        ("- vllm\n- 8000", "vllm, line 2, column 3", "8000"),
        ("command: vllm serve m\nargs: []", "vllm, line 1, column 10", "vllm serve m"),
        ("kind: Service\ncontainers: {}", "vllm, line 1, column 1", "without a container"),
        ("command: [a]\nenv: [{name: A, value: 0}]", "vllm, line 2, column 24", "0"),
        ("image: a/b\nenvironment: {A: true}", "vllm, line 2, column 18", "True"),
        ("docker run --rm", "vllm, line 1, column 1", "without an image"),
        ("args:\n- m\n- {a: b}", "vllm, line 3, column 3", "an object"),
        ("[Service]\nUser=llm\n", "vllm, line 1, column 1", "ExecStart"),
        ("- &a x\n- *b", "vllm, line 2, column 3", "*b"),
        ("model: m\nport: 80\n", "vllm, line 1, column 1", "YAML"),
        ("# ours\nmodels:\n  one:\n    cmd: vllm serve m\n", "vllm, line 1, column 1", "YAML"),
        ("from vllm import LLM\n\nllm = LLM('m')\n", "vllm, line 1, column 1", "Python"),
        ("import os\nfrom vllm import LLM\n", "vllm, line 1, column 1", "Python"),
    ],
)
def test_refused_with_place_and_finding(text: str, field: str, found: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        read_start(Place("vllm", text))
    assert (caught.value.code, caught.value.field) == ("DP111", field)
    assert found in caught.value.found


@pytest.mark.parametrize("text", ["bash -c " * 5_000 + "x", "sudo " * 40_000 + "x", "A=1 env " * 20_000])
def test_nesting_is_bounded(text: str) -> None:
    read_start(Place("vllm", text))


@pytest.mark.parametrize(
    "text",
    [
        "env -S 'A=1 vllm serve m' -tp 2",
        "env '-SA=1 vllm serve' m -tp 2",
        "/usr/bin/env -iS 'A=1 vllm' serve m -tp 2",
        "sudo env --split-string='A=1 vllm serve m -tp 2'",
    ],
)
def test_a_string_that_env_splits(text: str) -> None:
    found = read_start(Place("vllm", text))
    assert dict(found.environment) == {"A": "1"}
    assert [word.text for word in found.words] == COMMAND
