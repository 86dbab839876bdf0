"""`draftproof probe`: what an endpoint documents, accepts and shows of speculation; and a prediction from a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftproof.cli import output
from draftproof.cli.options import Within, json_option
from draftproof.cli.prediction import predict
from draftproof.core.errors import DraftproofError
from draftproof.core.files import write_whole

if TYPE_CHECKING:
    from draftproof.configs.providers import DeploymentType
    from draftproof.measure.probe.client import Limits
    from draftproof.measure.probe.cost import Estimate, Price
    from draftproof.measure.probe.report import Report, Subject
    from draftproof.measure.probe.run import ProbePlan
    from draftproof.measure.workloads import Prompt

EXAMPLES = (
    "draftproof probe --offline --provider openai --deployment api --model gpt-4o",
    "draftproof probe http://127.0.0.1:8080 --yes --out probe",
)


@click.command(
    name="probe",
    short_help="What an endpoint documents, accepts and shows of speculation.",
    epilog=output.examples(*EXAMPLES),
)
@click.argument("url", required=False)
@click.option("--model", help="The model to ask for. Default: the one that the endpoint lists, if it is one.")
@click.option("--provider", help="Whose endpoint it is; docs/providers.md lists them.")
@click.option("--deployment", help="Its deployment type, as docs/providers.md names it.")
@click.option("--api-version", help="For Azure OpenAI: the api-version. Default: the documented one.")
@click.option(
    "--api-key-env",
    metavar="VAR",
    help="The environment variable that holds the key. Keys are taken from no option.",
)
@click.option(
    "--part",
    "parts",
    type=click.Choice(["documented", "accepted", "observed"]),
    multiple=True,
    help="Only this part; may be repeated. Default: all three.",
)
@click.option("--offline", is_flag=True, help="Send nothing: the documented part alone.")
@click.option(
    "--prompts",
    "num_prompts",
    type=click.IntRange(0, 8),
    default=6,
    show_default=True,
    help="How many edits are streamed; with 0 none is, and nothing is timed.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(16, 4096),
    default=256,
    show_default=True,
    help="Most tokens of a streamed answer.",
)
@click.option(
    "--budget", type=click.IntRange(1), metavar="TOKENS", help="Refuse, and stop, beyond so many tokens."
)
@click.option(
    "--price",
    type=(Within(min=0), Within(min=0)),
    metavar="IN OUT",
    help="Price of a million prompt and completion tokens, for the estimate.",
)
@click.option(
    "--timeout",
    type=Within(1, 3600),
    default=180.0,
    show_default=True,
    help="Most seconds of one request.",
)
@click.option("--yes", is_flag=True, help="Agree to the estimate without being asked.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write probe.json, probe.md and probe.html there.",
)
@click.option(
    "--prediction-file",
    type=click.Path(path_type=Path),
    help="Send nothing: build `prediction` from this file and say when not to use it.",
)
@click.option(
    "--request",
    "request_file",
    type=click.Path(path_type=Path),
    help="With --prediction-file: the JSON body that it is to go with.",
)
@click.option(
    "--expected",
    type=click.Path(path_type=Path),
    help="With --prediction-file: an answer of the expected kind, to compare.",
)
@json_option
def command(url: str | None, as_json: bool, **given: Any) -> int:
    """Say what the endpoint at URL documents, accepts and shows of speculation and predicted outputs.

    The three parts are kept apart: documented comes from a dated table, accepted from one small request for each
    parameter, observed from fields, headers, streams and times. What it costs is estimated and confirmed first.

    URL is a host, a base such as https://host/v1, or the full address of chat completions.
    """
    row = _row(given["provider"], given["deployment"])
    if given["prediction_file"] is not None:
        return predict(given, row, as_json)
    if given["request_file"] is not None or given["expected"] is not None:
        raise DraftproofError(
            "DP001",
            "--prediction-file",
            "--request or --expected without it",
            "--prediction-file",
            "Name the file that is being edited with --prediction-file.",
        )
    if given["offline"]:
        return _offline(url, given, row, as_json)
    if url is None:
        raise DraftproofError(
            "DP001",
            "URL",
            "no address",
            "the address of an endpoint, --offline, or --prediction-file",
            "Give the address, for example http://127.0.0.1:8080.",
        )
    return _online(url, given, row, as_json)


def _row(provider: str | None, deployment: str | None) -> DeploymentType | None:
    """The row of the providers table that was named. Raises DP120; DP001 for a deployment type without provider."""
    from draftproof.configs.providers import deployment_type, deployment_types

    if deployment is not None and provider is None:
        raise DraftproofError(
            "DP001",
            "--deployment",
            "a deployment type without its provider",
            "--provider as well",
            "Name the provider with --provider.",
        )
    if provider is None:
        return None
    if deployment is not None:
        return deployment_type(provider, deployment)
    rows = deployment_types(provider)
    return rows[0] if len(rows) == 1 else None


def _offline(url: str | None, given: dict[str, Any], row: DeploymentType | None, as_json: bool) -> int:
    from draftproof.core.provenance import command_line
    from draftproof.measure.probe.report import Report

    subject = _subject(url, given, row, key_sent=False)
    if subject.row is None and not subject.siblings:
        raise DraftproofError(
            "DP001",
            "--provider",
            "nothing that tells the provider",
            "--provider and --deployment, or a URL whose host is known",
            "docs/providers.md lists both.",
        )
    return _show(Report(subject=subject, argv=command_line()), given["out"], as_json)


def _subject(url: str | None, given: dict[str, Any], row: DeploymentType | None, key_sent: bool) -> Subject:
    """Who is asked. A provider is guessed from the host; its deployment type is not, unless there is but one."""
    from draftproof.configs.providers import deployment_types, provider_of_host
    from draftproof.measure.probe.endpoint import parse_endpoint
    from draftproof.measure.probe.report import Subject

    endpoint = guessed = None
    if url is not None:
        host = parse_endpoint(url, None, given["model"], given["api_version"]).host
        guessed = provider_of_host(host)
    named = given["provider"] or (guessed.name if guessed else None)
    siblings = deployment_types(named) if named else ()
    row = row or (siblings[0] if len(siblings) == 1 else None)
    if url is not None:
        endpoint = parse_endpoint(url, row or _any_of(siblings), given["model"], given["api_version"])
    return Subject(
        endpoint=endpoint,
        model=given["model"],
        row=row,
        guessed=guessed,
        siblings=siblings,
        key_sent=key_sent,
    )


def _any_of(siblings: tuple[DeploymentType, ...]) -> DeploymentType | None:
    """For path and header alone, where all deployment types of a provider share them."""
    same = len({(row.path, row.auth) for row in siblings}) == 1
    return siblings[0] if same else None


def _online(url: str, given: dict[str, Any], row: DeploymentType | None, as_json: bool) -> int:
    from draftproof.core.provenance import command_line
    from draftproof.measure.probe.client import Client
    from draftproof.measure.probe.report import Report
    from draftproof.measure.probe.run import run_probe
    from draftproof.measure.probe.secret import key_from_environment

    variable = given["api_key_env"]
    key = key_from_environment(variable, os.environ) if variable is not None else None
    subject = _subject(url, given, row, key_sent=key is not None)
    assert subject.endpoint is not None
    if key is not None and not subject.endpoint.is_encrypted and not subject.endpoint.is_local:
        output.note("the key will go over the network unencrypted: the address begins with http://")
    plan = _plan(given, subject)
    estimate = _confirm(plan, subject, given)
    client = Client(
        endpoint=subject.endpoint,
        key=key,
        limits=_limits(given["timeout"]),
        budget=given["budget"],
    )
    line = output.ProgressLine()
    try:
        result = run_probe(client, plan, line.show)
    finally:
        line.clear()
    report = Report(
        subject=subject,
        argv=command_line(),
        result=result,
        ran_accepted=plan.accepted,
        ran_observed=plan.observed,
        spent=client.spent,
        estimate=estimate,
    )
    status = _show(report, given["out"], as_json)
    return output.INTERRUPTED if result.interrupted else status


def _limits(request_s: float) -> Limits:
    from draftproof.measure.probe.client import Limits

    usual = Limits()
    return Limits(
        request_s=request_s,
        silence_s=min(usual.silence_s, request_s),
        connect_s=min(usual.connect_s, request_s),
    )


def _plan(given: dict[str, Any], subject: Subject) -> ProbePlan:
    from draftproof.measure.probe.run import PARTS, ProbePlan

    parts = given["parts"] or PARTS
    if set(parts) == {"documented"}:
        raise DraftproofError(
            "DP001",
            "--part",
            "documented alone, without --offline",
            "--offline, or another part",
            "The documented part needs no endpoint: add --offline.",
        )
    observed = "observed" in parts
    provider = subject.row.provider if subject.row else None
    return ProbePlan(
        model=given["model"],
        accepted="accepted" in parts,
        observed=observed,
        prompts=_prompts(given["num_prompts"]) if observed else (),
        max_tokens=given["max_tokens"],
        server_pages=observed and subject.guessed is None,
        provider=provider,
    )


def _prompts(number: int) -> tuple[Prompt, ...]:
    from draftproof.measure.workloads import load

    return load("edit").prompts[:number]


def _confirm(plan: ProbePlan, subject: Subject, given: dict[str, Any]) -> Estimate:
    """Shows what it may cost and asks. Raises DP125 beyond the budget or where nobody can be asked."""
    from draftproof.measure.probe.cost import Price, estimate

    cost = estimate(plan.accepted, plan.prompts, plan.max_tokens)
    assert subject.endpoint is not None
    price = Price(prompt=given["price"][0], completion=given["price"][1]) if given["price"] else None
    shown = f"{cost}{_money(cost, price)}"
    output.note(f"{subject.endpoint.chat_url}")
    output.note(f"{shown}; rejected predicted tokens are billed by some providers")
    budget = given["budget"]
    if budget is not None and cost.tokens > budget:
        raise DraftproofError(
            "DP125",
            "--budget",
            f"{cost.tokens:,} tokens: {shown}",
            f"at most {budget:,} tokens",
            "Ask for less with --prompts, --max-tokens or --part, or raise --budget. Nothing was sent.",
        )
    if given["yes"]:
        return cost
    if not (output.is_terminal("stdin") and output.is_terminal("stderr")):
        raise DraftproofError(
            "DP125",
            "--yes",
            f"nobody to ask, and {shown}",
            "--yes, which agrees to the estimate",
            "Look at the estimate and give --yes, with --budget to be sure. Nothing was sent.",
        )
    if not click.confirm("Send these requests?", err=True):
        raise DraftproofError(
            "DP125",
            "the estimate",
            "not confirmed",
            "yes",
            "Ask for less with --prompts, --max-tokens or --part. Nothing was sent.",
        )
    return cost


def _money(cost: Estimate, price: Price | None) -> str:
    return "" if price is None else f", {cost.price(price):.4f} at your price"


def _show(report: Report, directory: Path | None, as_json: bool) -> int:
    from draftproof.measure.pages import html, markdown

    blocks = report.blocks()
    if directory is not None:
        import json

        document = {"schema_version": output.SCHEMA_VERSION, **report.as_dict()}
        directory.mkdir(parents=True, exist_ok=True)
        texts = {
            "probe.json": json.dumps(document, indent=1, allow_nan=False) + "\n",
            "probe.md": markdown(blocks),
            "probe.html": html(blocks),
        }
        for name, text in texts.items():
            write_whole(directory / name, text)
            output.note(f"wrote {directory / name}")
    if as_json:
        output.print_json(report.as_dict())
    elif directory is None:
        click.echo(markdown(blocks), nl=False)
    return output.DONE
