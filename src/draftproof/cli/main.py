"""The program `draftproof`: finds the command, runs it, turns whatever happens into an exit status.

Commands are modules that load when they are asked for, so that `draftproof --help` answers at once and needs
neither torch nor numpy. What a command does is not known here.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import click

from draftproof import __version__
from draftproof.cli import output
from draftproof.core.errors import DraftproofError

COMMANDS: dict[str, str] = {
    "advise": "draftproof.cli.advise",
    "check": "draftproof.cli.check",
    "demo": "draftproof.cli.demo",
    "generate": "draftproof.cli.generate",
    "lock": "draftproof.cli.lock",
    "methods": "draftproof.cli.methods",
    "models": "draftproof.cli.models",
    "plan": "draftproof.cli.plan",
    "breakeven": "draftproof.cli.breakeven",
    "pairs": "draftproof.cli.pairs",
    "probe": "draftproof.cli.probe",
    "rules": "draftproof.cli.rules",
    "translate": "draftproof.cli.translate",
    "version": "draftproof.cli.version",
}
"""Command name → module that holds it as `command`, in the order of `--help`."""


class LazyGroup(click.Group):
    """A group whose commands are imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        command = import_module(module).command if module else None
        assert command is None or isinstance(command, click.Command)
        return command


EXAMPLES = (
    "draftproof demo --quick",
    'draftproof generate smollm2-135m --prompt "Name three rivers in Germany."',
)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=output.examples(*EXAMPLES),
)
@click.version_option(__version__, "--version", message="draftproof %(version)s")
def cli() -> None:
    """Run speculative decoding, prove that it changed nothing, and measure whether it pays.

    Every command takes --json: one JSON document on standard output, everything else on standard error.
    Exit status: 0 done, 1 a fault of ours, 2 bad input (one DP code, see docs/errors.md), 5 check found an
    error, 130 interrupted.
    """


def run(arguments: Sequence[str]) -> int:
    """Runs one command line (without the program's name) and returns its exit status."""
    try:
        return _run(arguments)
    except BrokenPipeError:
        # The reader (`| head`) has what it wanted.
        _mute()
        return output.DONE
    except OSError as error:
        # A stream takes nothing more (a full disk), not even the report of that: the other one may.
        with suppress(OSError):
            output.report_mistake(_system_mistake(error), as_json=False)
        _mute()
        return output.BAD_INPUT


def _mute() -> None:
    """Python would complain once more while closing a stream that takes nothing."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nothing, number)


def _run(arguments: Sequence[str]) -> int:
    as_json = "--json" in arguments
    try:
        # Not `cli.main()`: it turns a closed pipe and Ctrl-C into statuses of its own.
        with cli.make_context("draftproof", list(arguments)) as context:
            status = cli.invoke(context)
        sys.stdout.flush()
        return status if isinstance(status, int) else output.DONE
    except click.exceptions.Exit as done:
        return done.exit_code
    except DraftproofError as error:
        return output.report_mistake(error, as_json)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message(), err=True)
        return output.BAD_INPUT
    except click.ClickException as error:
        return output.report_mistake(_usage_mistake(error), as_json, _usage_line(error))
    except (KeyboardInterrupt, click.Abort):
        output.note("interrupted")
        return output.INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        return output.report_mistake(_system_mistake(error), as_json)
    except Exception as error:
        return output.report_fault(error, as_json)


def _system_mistake(error: OSError) -> DraftproofError:
    """What the operating system refused is about a path or a stream of the user's."""
    named = os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else "input or output"
    return DraftproofError(
        "DP002",
        str(named)[:200],
        error.strerror or error,
        "a file or stream that can be used",
        "Check it and its permissions.",
    )


def _usage_mistake(error: click.ClickException) -> DraftproofError:
    """click's own complaints in the product's shape."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context else "draftproof"
    field = command
    if isinstance(error, click.BadParameter | click.NoSuchOption | click.BadOptionUsage):
        parameter = getattr(error, "param", None)
        name = parameter.opts[0] if parameter is not None and parameter.opts else None
        field = getattr(error, "option_name", None) or name or command
    found = error.format_message()
    if isinstance(error, click.BadParameter) and error.message:
        found = error.message  # without "Invalid value for '--option'", which the field says
    remedy = f"`{command} --help` lists the arguments and shows examples."
    return DraftproofError("DP001", field, found, "the usage that --help shows", remedy)


def _usage_line(error: click.ClickException) -> str | None:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return context.get_usage() if context else None


def main() -> None:
    """The entry point of the installed program."""
    # What a command reads has no cycles; looking for some after every 700 objects doubles the time of large headers.
    gc.set_threshold(100_000, 20, 100)
    # A program started with a closed stream has none: it writes, or reads, nothing then.
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # As Ctrl-C: what is open is closed, nothing is left half done. The first process of a container would be deaf.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = output.INTERRUPTED
    try:
        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        pass  # once more, while the first was told
    finally:
        # The status is known: Ctrl-C again must not change it, nor break what is freed at exit.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    sys.exit(status)
