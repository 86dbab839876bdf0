"""Generated pages: every command and every code is on them, and --check tells a stale page."""

import re
from collections.abc import Iterator

import click
import pytest

from draftproof.cli import docs
from draftproof.cli.main import cli
from draftproof.core.errors import CODES


def commands(command: click.Command = cli, path: str = "draftproof") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, f"{path} {name}")


ALL = dict(commands())


@pytest.mark.parametrize("path", ALL)
def test_help_ends_with_two_examples_of_that_command(path: str, invoke) -> None:
    result = invoke(*path.split()[1:], "--help")
    assert result.status == 0
    lines = result.stdout.rstrip().splitlines()
    assert lines[-3] == "  Examples:"
    assert all(f"{path}" in line for line in lines[-2:])


@pytest.mark.parametrize(
    "path", [path for path, command in ALL.items() if not isinstance(command, click.Group)]
)
def test_every_command_takes_json_and_every_option_says_what_it_does(path: str) -> None:
    command = ALL[path]
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert "--json" in {name for option in options for name in option.opts}
    for option in options:
        assert option.help or option.name in ("top_p", "min_p"), option.name


def test_the_pages_name_every_command_and_every_code() -> None:
    headings = re.findall(r"^## (draftproof.*)$", docs.cli_page(), re.MULTILINE)
    assert headings == list(ALL)
    assert re.findall(r"^\| (DP\d{3}) ", docs.errors_page(), re.MULTILINE) == sorted(CODES)


def test_check_tells_stale_pages_and_writes_nothing(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    assert docs.main(["--check"]) == 1
    assert "docs/cli.md" in capsys.readouterr().out
    assert not (tmp_path / "docs" / "cli.md").exists()
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0
    (tmp_path / "docs" / "errors.md").write_text("old")
    assert docs.main(["--check"]) == 1
