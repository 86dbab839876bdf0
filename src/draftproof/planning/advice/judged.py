"""Completes a step: the engine's own words for it, what the rule base says of it, and the commands to go on with.

Called by `advising`. Renders through the engine's dialect and judges through the rules; adds no opinion of its own.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from draftproof.configs.engines.base import NoteKind
from draftproof.configs.registry import DIALECTS, dialect
from draftproof.configs.rules.case import Case, Traffic
from draftproof.configs.rules.judging import Judgement, judge
from draftproof.configs.rules.registry import rules_of
from draftproof.configs.speculation import Deployment, ModelRef, Speculation
from draftproof.core.finding import Finding, Severity
from draftproof.planning.advice.ask import REQUIREMENTS, Ask
from draftproof.planning.advice.step import Claim, Command, Standing, Step

_ON_REQUEST = ("REQUEST", "COMBO")
"""Families of rules about features that are used together with speculation."""

_PARALLEL: dict[str, tuple[str, bool]] = {"pard": ("draft_model", True), "p_eagle": ("eagle3", True)}
"""Neutral method → how vLLM's object says it."""


def complete(ask: Ask, step: Step) -> Step:
    """`step` with findings, commands, and the standing that follows from both."""
    if step.speculation is None or step.standing is Standing.RULED_OUT:
        return step
    if ask.engine not in DIALECTS:
        unknown = Claim(f"No way of writing configurations of {ask.engine} is known to this version.")
        return replace(step, against=(*step.against, unknown))
    deployment = describe(ask, step.speculation)
    rendered = dialect(ask.engine).render(deployment, ask.version)
    impossible = [
        Claim(f"{ask.engine} cannot: {note.reason}", note.source)
        for note in rendered.notes
        if note.kind is NoteKind.IMPOSSIBLE
    ]
    if impossible:
        return replace(step, standing=Standing.RULED_OUT, against=(*impossible, *step.against))
    judgement = _judge(ask, deployment)
    errors = [finding for finding in judgement.findings if finding.severity is Severity.ERROR]
    warnings = [finding for finding in judgement.findings if finding.severity is Severity.WARNING]
    needed = [finding for finding in warnings if _is_about_what_is_needed(finding)]
    against = [_told(finding) for finding in (*errors, *needed)]
    worth_knowing = [
        finding
        for finding in judgement.findings
        if finding.severity is Severity.INFO and _is_about_what_is_needed(finding)
    ]
    others = [finding for finding in warnings if finding not in needed]
    risks = [_told(finding) for finding in (*others, *worth_knowing)]
    standing = step.standing.at_most(Standing.POSSIBLE) if needed else step.standing
    others_run_it = ask.role == "app" and ask.engine != "draftproof"
    whose = f"ask whoever runs {ask.engine} for this" if others_run_it else f"for {ask.engine}"
    file = " --prediction-file FILE" if step.speculation.method == "predicted" else ""
    commands = (
        *(Command(f"{part.name} ({whose})", part.text.rstrip("\n") + file) for part in rendered.artifacts),
        *_to_go_on(ask, step.speculation),
    )
    return replace(
        step,
        standing=Standing.RULED_OUT if errors else standing,
        against=(*against, *step.against),
        risks=(*risks, *step.risks),
        findings=judgement.findings,
        unjudged=_unjudged(judgement),
        commands=() if errors else commands,
    )


def describe(ask: Ask, speculation: Speculation) -> Deployment:
    """What would be deployed, with the settings that required features need."""
    settings = dict(
        setting for name in ask.requirements if (setting := REQUIREMENTS[name].setting) is not None
    )
    return Deployment(
        engine=ask.engine,
        version=ask.version,
        target=ModelRef(name=ask.reference),
        speculation=speculation,
        max_model_len=ask.context,
        max_num_seqs=ask.concurrency,
        lora=True if settings.get("lora") else None,
        pipeline_parallel=settings.get("pipeline_parallel"),
        prefix_caching=True if settings.get("prefix_caching") else None,
    )


def _judge(ask: Ask, deployment: Deployment) -> Judgement:
    absent = {} if ask.unread is None else {"target": ask.unread}
    drafter = deployment.speculation.drafter
    if drafter is not None:
        absent["drafter"] = f"{drafter.name} was not read"
    case = Case(
        deployment=deployment,
        target_view=ask.view,
        traffic=None if ask.parameters is None else _traffic(ask, ask.parameters),
        absent=absent,
    )
    return judge(case, rules_of())


def _traffic(ask: Ask, parameters: Mapping[str, int]) -> Traffic:
    num_requests = 0 if ask.workload is None else ask.workload.num_requests
    return Traffic(num_requests=num_requests, parameters=parameters)


def _told(finding: Finding) -> Claim:
    why = " (a feature that you need)" if _is_about_what_is_needed(finding) else ""
    return Claim(f"{finding.code}{why}: {finding.detail} {finding.remedy}", finding.source)


def _is_about_what_is_needed(finding: Finding) -> bool:
    return finding.code.partition("-")[0] in _ON_REQUEST


def _unjudged(judgement: Judgement) -> tuple[str, ...]:
    """Reasons with the rules that they stop."""
    by_reason: dict[str, list[str]] = {}
    for entry in judgement.not_checked:
        by_reason.setdefault(entry.reason, []).append(entry.code)
    return tuple(
        f"{len(codes)} rule{'s' * (len(codes) > 1)} ({', '.join(codes)}): {reason}"
        for reason, codes in by_reason.items()
    )


def _to_go_on(ask: Ask, speculation: Speculation) -> Iterator[Command]:
    target, config = shlex.quote(ask.reference), f"--speculative-config {shlex.quote(as_config(speculation))}"
    engine = ask.engine if ask.version is None else f"{ask.engine}=={ask.version}"
    draft = f" --draft {shlex.quote(speculation.drafter.name)}" if speculation.drafter else ""
    yield Command(
        "check the pair and the configuration", f"draftproof check {target}{draft} {config} --engine {engine}"
    )
    if ask.memory is not None and speculation.drafter is None:
        sizes = f" --memory {ask.memory}"
        sizes += f" --context {ask.context}" if ask.context else ""
        sizes += f" --concurrency {ask.concurrency}" if ask.concurrency else ""
        yield Command("plan its memory", f"draftproof plan {target} {config} --engine {engine}{sizes}")
    workload = f" --workload {shlex.quote(ask.workload.name)}" if ask.workload else ""
    yield Command(
        "measure whether it pays, and that it changes nothing",
        f"draftproof prove {target} --engine {ask.engine} {config}{workload}",
    )
    if ask.engine == "draftproof":
        how = "--prediction-file FILE" if speculation.method == "predicted" else config
        yield Command("see it draft", f"draftproof generate {target} {how} --show-drafts --prompt TEXT")


def as_config(speculation: Speculation) -> str:
    """The object that `--speculative-config` takes."""
    method, is_parallel = _PARALLEL.get(speculation.method, (speculation.method, None))
    document: dict[str, object] = {"method": method, "parallel_drafting": is_parallel}
    if speculation.drafter is not None:
        document["model"] = speculation.drafter.name
    if speculation.depth is not None:
        document["num_speculative_tokens"] = speculation.depth
    if speculation.lookup is not None:
        document["prompt_lookup_min"] = speculation.lookup.min_ngram
        document["prompt_lookup_max"] = speculation.lookup.max_ngram
    if speculation.draft_weights is not None:
        document["draft_weights"] = speculation.draft_weights
    return json.dumps({key: value for key, value in document.items() if value is not None})
