"""`draftproof methods`: which engine speculates by which method, in which versions, how written, what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from draftproof.cli import output
from draftproof.cli.options import json_option

if TYPE_CHECKING:
    from draftproof.configs.rules.facts.methods import MethodFact


@click.command(
    name="methods",
    short_help="Engines, versions, methods and what each asks for.",
    epilog=output.examples("draftproof methods --engine vllm", "draftproof methods --method mtp --json"),
)
@click.option("--engine", metavar="ENGINE", help="Only this engine.")
@click.option("--method", metavar="METHOD", help="Only this method, such as eagle3.")
@json_option
def command(engine: str | None, method: str | None, as_json: bool) -> int:
    """List the methods of speculation by engine: how each is written there, since when, and its preconditions.

    What is not listed was not found in the version read; that is no promise about other versions.
    """
    from draftproof.configs.rules.facts.methods import METHODS
    from draftproof.core.errors import DraftproofError

    found = [
        fact
        for fact in METHODS
        if (engine is None or fact.reading.engine == engine) and (method is None or fact.method == method)
    ]
    if not found:
        engines = ", ".join(dict.fromkeys(fact.reading.engine for fact in METHODS))
        methods = ", ".join(sorted({fact.method for fact in METHODS}))
        raise DraftproofError(
            "DP001",
            "--engine, --method",
            " ".join(filter(None, (engine, method))),
            f"an engine of {engines} and a method of {methods}",
            "Leave one of the two out to see what there is.",
        )
    if as_json:
        output.print_json({"methods": [describe(fact) for fact in found]})
        return output.DONE
    seen = None
    for fact in found:
        if fact.reading.engine != seen:
            seen = fact.reading.engine
            click.echo(f"{'' if fact is found[0] else chr(10)}{seen}")
        needs = f"; needs {', '.join(fact.needs)}" if fact.needs else ""
        gone = f"; removed: {fact.gone.versions}" if fact.gone else ""
        click.echo(
            f"  {fact.method:<14} {fact.written} ({fact.reading.versions or 'all versions'}{needs}{gone})"
        )
    return output.DONE


def describe(fact: MethodFact) -> dict[str, Any]:
    return {
        "engine": fact.reading.engine,
        "method": fact.method,
        "versions": fact.reading.versions,
        "written": fact.written,
        "drafter": fact.drafter,
        "needs": list(fact.needs),
        "removed": None if fact.gone is None else {"versions": fact.gone.versions, "instead": fact.instead},
        "source": {"name": fact.reading.source.name, "read": fact.reading.source.read},
    }
