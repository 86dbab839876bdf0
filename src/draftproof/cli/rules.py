"""`draftproof rules`: what `check` knows, rule by rule, with source and date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from draftproof.cli import output
from draftproof.cli.options import json_option

if TYPE_CHECKING:
    from draftproof.configs.rules.rule import Reading, Statement


@click.group(
    name="rules",
    short_help="What check knows: every rule with source and date.",
    epilog=output.examples(
        "draftproof rules list --engine vllm --family EAGLE", "draftproof rules show EAGLE-01"
    ),
)
def command() -> None:
    """List the rules of `draftproof check`, or show one."""


@command.command(
    "list",
    short_help="All rules, or those of an engine or a family.",
    epilog=output.examples(
        "draftproof rules list --family MTP", "draftproof rules list --engine sglang --json"
    ),
)
@click.option("--engine", metavar="ENGINE", help="Only rules that can apply to this engine.")
@click.option("--family", metavar="FAMILY", help="Only this family, such as EAGLE.")
@json_option
def list_rules(engine: str | None, family: str | None, as_json: bool) -> int:
    """List rules: code, worst severity, title, and the engines that they were read for."""
    from draftproof.configs.registry import dialect
    from draftproof.configs.rules.registry import statements_of

    if engine is not None:
        dialect(engine)
    found = [rule for rule in statements_of(_families(family)) if engine is None or _concerns(rule, engine)]
    if as_json:
        output.print_json({"rules": [describe(rule) for rule in found]})
        return output.DONE
    for rule in found:
        engines = ", ".join(reading.engine for reading in _readings(rule)) or "any engine"
        click.echo(f"{rule.code:<11} {rule.severity.value:<8} {rule.title} ({engines})")
    return output.DONE


@command.command(
    "show",
    short_help="One rule: why it matters, what to do, where it was read.",
    epilog=output.examples("draftproof rules show VOCAB-04", "draftproof rules show MTP-01 --json"),
)
@click.argument("code")
@json_option
def show_rule(code: str, as_json: bool) -> int:
    """Show the rule CODE."""
    from draftproof.configs.rules.registry import statement

    found = statement(code)
    if as_json:
        output.print_json(describe(found))
        return output.DONE
    click.echo(f"{found.code}  {found.title} (at worst {found.severity.value})\n\n{found.about}\n")
    click.echo(f"do       {found.remedy}")
    click.echo(f"methods  {', '.join(sorted(_methods(found))) or 'all'}")
    for reading in _readings(found):
        click.echo(f"read for {reading.engine} {reading.versions or 'all versions'}: {reading.source.name}")
    click.echo(f"source   {found.source.name}, read {found.source.read}")
    return output.DONE


def _readings(found: Statement) -> tuple[Reading, ...]:
    from draftproof.configs.rules.rule import Rule

    return found.readings if isinstance(found, Rule) else ()


def _methods(found: Statement) -> frozenset[str]:
    from draftproof.configs.rules.rule import Rule

    return frozenset(found.methods) if isinstance(found, Rule) else frozenset()


def describe(rule: Statement) -> dict[str, Any]:
    return {
        "code": rule.code,
        "title": rule.title,
        "severity": rule.severity.value,
        "about": rule.about,
        "remedy": rule.remedy,
        "methods": sorted(_methods(rule)),
        "readings": [
            {
                "engine": reading.engine,
                "versions": reading.versions,
                "source": reading.source.name,
                "read": reading.source.read,
            }
            for reading in _readings(rule)
        ],
        "source": {"name": rule.source.name, "read": rule.source.read, "url": rule.source.url},
    }


def _families(family: str | None) -> tuple[str, ...]:
    from draftproof.configs.rules.registry import FAMILIES
    from draftproof.core.errors import DraftproofError

    families = (*FAMILIES, "LOCK")
    if family is None:
        return families
    if family.upper() not in families:
        raise DraftproofError(
            "DP001", "--family", family[:40], f"one of {', '.join(families)}", "Name one of these families."
        )
    return (family.upper(),)


def _concerns(rule: Statement, engine: str) -> bool:
    readings = _readings(rule)
    return not readings or any(reading.engine == engine for reading in readings)
