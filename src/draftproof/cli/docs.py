"""Writes the generated pages of `docs`: `python -m draftproof.cli.docs [--check]`.

`cli.md` comes from --help, `errors.md` from the codes, `pairs.md` from the catalogue of pairs,
`providers.md` from the providers table, `rules.md` from the rule base, `methods.md` from
the rule base and the dialects.

Called by developers and by `scripts/check`. With --check nothing is written, and a file that differs is named.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from draftproof.cli.main import cli
from draftproof.cli.pairs_page import pairs_page
from draftproof.configs.compared import methods_page
from draftproof.configs.providers.page import providers_page
from draftproof.configs.rules.page import rules_page
from draftproof.core.errors import CODES

ROOT = Path(__file__).resolve().parents[3]

_GROUPS = {
    "DP0": "The command line",
    "DP1": "The speculation object, translation, providers and endpoints",
    "DP2": "Sampling parameters",
    "DP3": "Requests",
    "DP4": "Checkpoints",
    "DP5": "The model while it runs",
    "DP6": "Installation and downloads",
    "DP7": "The engine",
    "DP8": "Drafters",
    "DP9": "Faults of our own",
}

_CLI_INTRO = """\
# Command line

This page is generated from `--help` by `python -m draftproof.cli.docs`; do not edit it.

Every command takes `--json`: one JSON document on standard output, with `schema_version`; everything else goes to
standard error. A bad input gives `{"schema_version": 1, "error": {"code", "field", "found", "expected", "remedy"}}`.

| exit status | meaning |
|---|---|
| 0 | done; also when the reader of a pipe closed it |
| 1 | a fault of ours; `DRAFTPROOF_DEBUG=1` shows the traceback |
| 2 | bad usage or bad input: one `DP…` code ([errors.md](errors.md)) |
| 5 | `check`: a finding of severity error |
| 130 | interrupted, by Ctrl-C or SIGTERM |
"""

_ERRORS_INTRO = """\
# Error codes

This page is generated from `draftproof/core/errors.py` by `python -m draftproof.cli.docs`; do not edit it.

An error names its code, the field (an option, a key path or a file), what was found, what was expected and what to
do. Codes are stable. On the command line the exit status is 2.
"""


def cli_page() -> str:
    sections = [_CLI_INTRO]
    sections += [f"## {path}\n\n```text\n{text}\n```\n" for path, text in _helps(cli, None)]
    return "\n".join(sections)


def errors_page() -> str:
    known = {code for code in CODES if code[:3] in _GROUPS}
    assert known == set(CODES), f"no heading for {set(CODES) - known}"
    sections = [_ERRORS_INTRO]
    for prefix, title in _GROUPS.items():
        rows = [
            f"| {code} | {meaning} |" for code, meaning in sorted(CODES.items()) if code.startswith(prefix)
        ]
        sections.append("\n".join([f"## {title}\n", "| code | meaning |", "|---|---|", *rows, ""]))
    return "\n".join(sections)


def _helps(command: click.Command, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    """(path, help) of a command and of everything below it, at a fixed width."""
    name = "draftproof" if parent is None else command.name
    settings = {**command.context_settings, "terminal_width": 100, "max_content_width": 100}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from _helps(found, context)


def main(arguments: list[str]) -> int:
    """Returns 1 if --check found a page that differs."""
    made = {
        "cli.md": cli_page(),
        "errors.md": errors_page(),
        "pairs.md": pairs_page(),
        "providers.md": providers_page(),
        "rules.md": rules_page(),
        "methods.md": methods_page(),
    }
    pages = {ROOT / "docs" / name: text for name, text in made.items()}
    if arguments == ["--check"]:
        stale = [
            path
            for path, text in pages.items()
            if not path.exists() or path.read_text(encoding="utf-8") != text
        ]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the program says: run python -m draftproof.cli.docs")
        return 1 if stale else 0
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
