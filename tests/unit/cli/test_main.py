"""Exit statuses, error shapes and laziness of the program as a whole."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from draftproof.cli import main
from draftproof.cli.options import parse_bytes
from draftproof.core.errors import DraftproofError


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["generate", "--help"],
        ["demo", "--help"],
        ["models", "--help"],
        ["models", "list", "--help"],
        ["version", "--help"],
        ["--version"],
        ["generate", "model"],
    ],
)
def test_answers_without_loading_anything_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from draftproof.cli.main import run\n"
        f"status = run({arguments!r})\n"
        "heavy = {'torch', 'transformers', 'numpy', 'tokenizers', 'gguf', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == (2 if arguments == ["generate", "model"] else 0), done.stderr


def test_help_lists_the_commands_in_order_and_ends_with_two_examples(invoke) -> None:
    result = invoke("--help")
    assert result.status == 0
    names = [
        line.split()[0]
        for line in result.stdout.splitlines()
        if line.startswith("  ") and "  " in line.strip()
    ]
    assert [name for name in names if name in main.COMMANDS] == list(main.COMMANDS)
    assert result.stdout.rstrip().splitlines()[-3] == "  Examples:" or "Examples:" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        (["genrate"], "draftproof", "No such command"),
        (["generate"], "model", "Missing argument"),
        (["generate", "m", "--tempreature", "1"], "--tempreature", "--temperature"),
        (["generate", "m", "--prompt", "x", "--temperature", "warm"], "--temperature", "warm"),
        (["generate", "m", "--prompt", "x", "--dtype", "float16"], "--dtype", "float16"),
        (["generate", "m", "--prompt", "x", "--threads", "0"], "--threads", "0"),
        (["generate", "m", "--prompt"], "--prompt", "argument"),
        (["generate", "m", "--prompt", "x", "--memory", "lots"], "--memory", "lots"),
        (["generate", "m", "--prompt", "x", "--memory", "24"], "--memory", "24GiB"),
        (["plan", "m", "--memory", "1048575"], "--memory", "unit"),
        (["advise", "m", "--memory", "8"], "--memory", "8GiB"),
        (["demo", "--out", __file__], "--out", "is a file"),
        (["version", "extra"], "draftproof version", "extra"),
    ],
)
def test_bad_usage_is_dp001_with_status_2_in_words_and_as_json(invoke, arguments, field, words) -> None:
    plain = invoke(*arguments)
    assert plain.status == 2
    assert plain.code == "DP001"
    assert plain.stdout == ""
    assert f"DP001  {field}" in plain.stderr
    assert words in plain.stderr
    assert "--help` lists the arguments" in plain.stderr
    assert "Invalid value" not in plain.stderr, "the field says of what"
    if arguments[-1] != "--prompt":
        as_json = invoke(*arguments, "--json")
        assert as_json.status == 2
        error = as_json.document["error"]
        assert set(error) == {"code", "field", "found", "expected", "remedy"}
        assert error["code"] == "DP001"


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("1048576", 1 << 20), ("512MiB", 512 << 20), ("512Mi", 512 << 20), ("4Gi", 4 << 30), ("4gib", 4 << 30),
        ("1.5 GiB", 3 << 29), ("2GB", 2 * 10**9), ("1TiB", 1 << 40), ("1Ti", 1 << 40), ("2TB", 2 * 10**12),
    ],
)  # fmt: skip
def test_memory_is_taken_as_operators_write_it(text: str, num_bytes: int) -> None:
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["4G", "4g", "2T", "GiB", "-1GiB", "1e9", "4 G iB", "2000TiB", "0"])
def test_amounts_that_mean_nothing_or_two_things_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_bytes(text)


def test_no_command_shows_the_help_and_is_bad_usage(invoke) -> None:
    result = invoke()
    assert result.status == 2
    assert "Usage: draftproof" in result.stderr
    assert result.stdout == ""


def replace_version_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("draftproof.cli.version.describe", fail)


def test_a_fault_of_ours_is_short_has_status_1_and_says_where_to_report(invoke, monkeypatch) -> None:
    monkeypatch.delenv("DRAFTPROOF_DEBUG", raising=False)
    replace_version_command(monkeypatch, KeyError("lost"))
    result = invoke("version")
    assert result.status == 1
    assert "KeyError: 'lost'" in result.stderr
    assert "issue tracker" in result.stderr
    assert "Traceback" not in result.stderr
    assert invoke("version", "--json").document["error"]["code"] == "internal"


def test_the_traceback_is_shown_on_request(invoke, monkeypatch) -> None:
    monkeypatch.setenv("DRAFTPROOF_DEBUG", "1")
    replace_version_command(monkeypatch, KeyError("lost"))
    assert "Traceback" in invoke("version").stderr


def test_a_mistake_names_its_five_parts(invoke, monkeypatch) -> None:
    replace_version_command(
        monkeypatch, DraftproofError("DP402", "a.gguf", "3 bytes", "a header", "Fetch it again.")
    )
    result = invoke("version")
    assert result.status == 2
    for part in ("DP402", "a.gguf", "3 bytes", "a header", "Fetch it again."):
        assert part in result.stderr
    assert result.stdout == ""


def test_interruption_has_status_130(invoke, monkeypatch) -> None:
    replace_version_command(monkeypatch, KeyboardInterrupt())
    result = invoke("version")
    assert (result.status, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_both_signals_interrupt(number: str) -> None:
    program = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs behind it\n"
        "from draftproof.cli import main, version\n"
        f"version.describe = lambda: signal.raise_signal(signal.{number})\n"
        "main.main()\n"
    )
    command = [sys.executable, "-c", program, "version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("second", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    "when", ["output.note = lambda _: again()", "atexit.register(again)", "sys.modules['last'] = Last()"]
)
def test_a_second_signal_changes_nothing(second: str, when: str) -> None:
    """While the first is told, while the program ends, and while Python frees what is left."""
    program = (
        "import atexit, signal, sys\n"
        "from draftproof.cli import main, output, version\n"
        f"def again(): signal.raise_signal(signal.{second})\n"
        "class Last:\n"
        f"    def __del__(self, send=signal.raise_signal): send({int(getattr(signal, second))})\n"
        f"{when}\n"
        "version.describe = lambda: signal.raise_signal(signal.SIGINT)\n"
        "main.main()\n"
    )
    command = [sys.executable, "-c", program, "version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = "" if when.startswith("output") else "interrupted\n"
    assert (done.returncode, done.stderr) == (130, told)


def test_a_reader_that_closes_the_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m draftproof version --json | true"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0


def test_json_survives_a_terminal_that_knows_only_ascii() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "draftproof",
            "generate",
            "m",
            "--prompt",
            "x",
            "--dtype",
            "größe",
            "--json",
        ],
        capture_output=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 2
    assert "größe" in json.loads(done.stdout)["error"]["found"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "m", "--memory", "1GiB", "--fraction"), ("breakeven", "--hysteresis"),
        ("probe", "http://127.0.0.1:9", "--timeout"), ("probe", "http://127.0.0.1:9", "--price", "1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_numbers_between_bounds_are_numbers(invoke, arguments: tuple[str, ...], value: str) -> None:
    result = invoke(*arguments, value)
    assert (result.status, result.code) == (2, "DP001")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no device that is always full")
@pytest.mark.parametrize("full", ["stdout", "stderr"])
@pytest.mark.parametrize(
    "command", [("rules", "list"), ("check", "nowhere"), ("plan", "nowhere", "--memory", "1GiB")]
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_stream_on_a_full_disk_is_the_users(
    full: str, command: tuple[str, ...], form: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("w") as stream:
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, full: stream}
        words = [sys.executable, "-m", "draftproof", *command, *form]
        done = subprocess.run(words, text=True, check=False, **streams)
    assert done.returncode == (0 if command[0] == "rules" and full == "stderr" else 2)
    assert "Traceback" not in (done.stderr or "")
    if full == "stderr" and form:
        assert json.loads(done.stdout)["schema_version"] == 1
