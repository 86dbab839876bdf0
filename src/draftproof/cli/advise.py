"""`draftproof advise`: what to try first, why, what it costs, why not the rest, and the next command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from draftproof.cli import output
from draftproof.cli.options import json_option, parse_bytes
from draftproof.cli.targets import Target, open_local
from draftproof.core.errors import DraftproofError

if TYPE_CHECKING:
    from draftproof.planning.advice.ask import Ask, Workload
    from draftproof.planning.advice.step import Advice, Claim, Step

ANY_PROVIDER = "any"
"""In place of an engine where a provider serves and none was named."""


@click.command(
    name="advise",
    short_help="What kind of speculation to try first, and why.",
    epilog=output.examples(
        "draftproof advise Qwen/Qwen3-8B --engine vllm --require json_schema,min_p",
        "draftproof advise gpt-4.1 --role hosted --engine openai --workload edit",
    ),
)
@click.argument("target")
@click.option(
    "--engine",
    metavar="ENGINE[==VERSION]",
    help="An engine, or a provider with --role hosted. Default: draftproof for files of this machine, else vllm.",
)
@click.option("--memory", type=parse_bytes, metavar="BYTES", help="Of one device, such as 24GiB.")
@click.option(
    "--context", type=click.IntRange(1, 1 << 24), metavar="N", help="Tokens of the longest request."
)
@click.option(
    "--concurrency", type=click.IntRange(1, 1 << 16), metavar="N", help="Requests at once, at the peak."
)
@click.option(
    "--workload",
    metavar="NAME|FILE",
    help="edit, chat, passage, or a JSONL file of requests; answers in it show how much is copied.",
)
@click.option(
    "--require", metavar="NAMES", help="Features that must keep working, such as json_schema,lora,min_p."
)
@click.option(
    "--role",
    type=click.Choice(["app", "operator", "hosted"]),
    default="operator",
    show_default=True,
    help="app: you call an endpoint; operator: you run the engine; hosted: a provider runs it.",
)
@json_option
def command(
    target: str,
    engine: str | None,
    memory: int | None,
    context: int | None,
    concurrency: int | None,
    workload: str | None,
    require: str | None,
    role: str,
    as_json: bool,
) -> int:
    """Say what kind of speculation to try first for TARGET, and what stands against the others.

    TARGET is a directory, a GGUF file, a hub id, or with --role hosted a provider's name of a model. Reads
    configurations and headers, no weights, and asks no network. Nothing it says is a promise: what was not measured
    comes as a threshold.
    """
    from draftproof.planning.advice.advising import advise
    from draftproof.planning.advice.ask import Ask, parse_requirements

    requirements = parse_requirements(require)
    opened = Target(target, None) if role == "hosted" else open_local(target)
    name, version = _engine(engine, opened, role)
    ask = Ask(
        reference=target,
        view=opened.view,
        unread=opened.unread,
        engine=name,
        version=version,
        engine_assumed=engine is None,
        role=role,  # type: ignore[arg-type]  # click.Choice lets nothing else through
        memory=memory,
        context=context,
        concurrency=concurrency,
        requirements=requirements,
        workload=None if workload is None else _workload(workload, name),
    )
    advice = advise(ask)
    if as_json:
        output.print_json(_document(ask, advice))
        return output.DONE
    for line in _lines(ask, advice):
        click.echo(line)
    return output.DONE


def _engine(text: str | None, opened: Target, role: str) -> tuple[str, str | None]:
    """Raises DP110 for an engine or provider that is not known."""
    if text is None:
        return (ANY_PROVIDER if role == "hosted" else "vllm" if opened.view is None else "draftproof"), None
    name, _, version = text.partition("==")
    if role == "hosted":
        from draftproof.planning.advice.hosted import provider_names

        known = provider_names()
    else:
        from draftproof.configs.registry import DIALECTS

        known = tuple(DIALECTS)
    if name not in known:
        raise DraftproofError(
            "DP110", "--engine", name[:40], ", ".join(known), "Name one of these as written here."
        )
    return name, version or None


def _workload(text: str, engine: str) -> Workload:
    """Raises DP002 and DP003 as `read_traffic`."""
    from draftproof.configs.traffic import read_traffic
    from draftproof.measure.workloads import NAMES, load
    from draftproof.planning.advice.ask import Workload
    from draftproof.planning.advice.copying import Recorded, replay
    from draftproof.planning.advice.lookups import settings_of

    settings = settings_of(engine)

    if text in NAMES and not os.path.exists(text):
        prompts = load(text).prompts
        expected = [Recorded(prompt.text, prompt.prediction) for prompt in prompts if prompt.prediction]
        return Workload(
            name=text,
            num_requests=len(prompts),
            num_answers=0,
            num_predictions=len(expected),
            parameters={},
            copied=replay(expected, settings) if expected else None,
            predicted=None,
            stand_in="no answers are built in: the files as they were before the edit stand in, an upper bound",
        )
    traffic = read_traffic(Path(text))
    if traffic.unread is not None:
        output.note(traffic.unread)
    answered = [request for request in traffic.requests if request.answer]
    predicted = [
        Recorded(request.prediction, request.answer or "") for request in answered if request.prediction
    ]
    return Workload(
        name=text,
        num_requests=len(traffic.requests),
        num_answers=len(answered),
        num_predictions=sum(request.prediction is not None for request in traffic.requests),
        parameters=traffic.parameters,
        copied=replay(
            (Recorded(request.prompt or "", request.answer or "") for request in answered), settings
        ),
        predicted=replay(predicted) if predicted else None,
    )


def _document(ask: Ask, advice: Advice) -> dict[str, object]:
    workload = ask.workload
    return {
        "target": ask.reference,
        "unread": ask.unread,
        "engine": {"name": ask.engine, "version": ask.version, "assumed": ask.engine_assumed},
        "role": ask.role,
        "asked": {
            "memory_bytes": ask.memory,
            "context": ask.context,
            "concurrency": ask.concurrency,
            "require": list(ask.requirements),
        },
        "workload": None
        if workload is None
        else {
            "name": workload.name,
            "num_requests": workload.num_requests,
            "num_answers": workload.num_answers,
            "num_predictions": workload.num_predictions,
            "parameters": dict(workload.parameters),
            "stand_in": workload.stand_in,
            "copied_from_prompts": workload.copied.as_dict() if workload.copied else None,
            "copied_from_predictions": workload.predicted.as_dict() if workload.predicted else None,
        },
        "fix_first": [claim.as_dict() for claim in advice.fix_first],
        "notes": [claim.as_dict() for claim in advice.notes],
        "steps": [_with_known_commands(step).as_dict() for step in advice.steps],
    }


def _with_known_commands(step: Step) -> Step:
    """Without the commands of ours that this version does not have yet."""
    from dataclasses import replace

    from draftproof.cli.main import COMMANDS

    def is_known(text: str) -> bool:
        words = text.split()
        return words[:1] != ["draftproof"] or words[1] in COMMANDS

    return replace(step, commands=tuple(command for command in step.commands if is_known(command.text)))


def _lines(ask: Ask, advice: Advice) -> Iterator[str]:
    from draftproof.planning.advice.ask import ROLES
    from draftproof.planning.advice.step import Standing

    version = f" {ask.version}" if ask.version else ""
    where = "no provider named" if ask.engine == ANY_PROVIDER else f"{ask.engine}{version}"
    yield f"{ask.reference}, {where}; {ROLES[ask.role]}."
    for claim in advice.notes:
        yield f"  {_cited(claim)}"
    if advice.fix_first:
        yield "\nFix first"
        for claim in advice.fix_first:
            yield f"  ! {_cited(claim)}"
    number = 0
    ruled_out = [step for step in advice.steps if step.standing is Standing.RULED_OUT]
    for step in advice.steps:
        if step.standing is Standing.RULED_OUT:
            continue
        number += 1
        yield ""
        yield from _step_lines(number, _with_known_commands(step))
    if ruled_out:
        yield "\nNot here"
        for step in ruled_out:
            yield f"  {step.title}"
            for claim in step.against:
                yield f"    because {_cited(claim)}"


def _step_lines(number: int, step: Step) -> Iterator[str]:
    from draftproof.planning.advice.step import Standing

    mark = "" if step.standing is Standing.TRY else "  (possible, unproven)"
    yield f"{number}. {step.title}{mark}"
    for claim in step.evidence:
        yield f"   for      {_cited(claim)}"
    for claim in step.against:
        yield f"   against  {_cited(claim)}"
    for size in step.sizes:
        yield f"   bytes    {size.num_bytes / 2**30:.2f} GiB: {size.name} ({size.how})"
    if step.capacity:
        fits = f"{step.capacity.with_step} in place of {step.capacity.plain}"
        if step.capacity.not_counted:
            fits = f"at most {fits}; {step.capacity.not_counted}"
        yield f"   price    requests of {step.capacity.context} tokens at the same time: {fits}"
    if step.pays_if:
        yield f"   pays if  {step.pays_if}"
    for claim in step.risks:
        yield f"   risk     {_cited(claim)}"
    for reason in step.unjudged:
        yield f"   unjudged {reason}"
    for command in step.commands:
        yield f"   next     {command.what}:"
        yield from (f"              {line}" for line in command.text.splitlines())


def _cited(claim: Claim) -> str:
    return (
        claim.text
        if claim.source is None
        else f"{claim.text} [{claim.source.name}, read {claim.source.read}]"
    )
