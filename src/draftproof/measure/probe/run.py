"""One probe from beginning to end: which parts, in which order, and what is known when something fails on the way.

Called by the command, after its user agreed to the cost. Returns records; what they mean is said by `report`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from draftproof.core.errors import DraftproofError
from draftproof.measure.probe.answer import Answer, Failure, FailureKind, dicts
from draftproof.measure.probe.client import Client
from draftproof.measure.probe.cost import SMALL_TOKENS
from draftproof.measure.probe.latency import (
    Arm,
    PairedTimes,
    Streamed,
    edit_body,
    paired_times,
    run_arms,
    stream_once,
)
from draftproof.measure.probe.parameters import PARAMETERS, PROMPT, Acceptance, try_parameter
from draftproof.measure.probe.servers import ServerPage, differences, read_metrics, read_pages
from draftproof.measure.probe.signals import Signal, answer_signals
from draftproof.measure.workloads import Prompt

Part = Literal["documented", "accepted", "observed"]
PARTS: tuple[Part, ...] = ("documented", "accepted", "observed")

Progress = Callable[[int, int, str], None]
"""Called with requests done, requests in all, and what comes next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """`model` None: whatever the endpoint serves, if it is one. `provider` decides which pages of a server are left
    alone; `server_pages` whether they are read at all."""

    model: str | None
    accepted: bool
    observed: bool
    prompts: tuple[Prompt, ...]
    max_tokens: int
    server_pages: bool
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """The request that the endpoint takes: the name of the bound on tokens, and whether temperature 0 is taken."""

    base: Mapping[str, Any]
    max_tokens_name: str
    refused: tuple[str, ...]
    """What was tried before and refused, with the reason."""

    def small(self) -> dict[str, Any]:
        return {
            **self.base,
            "messages": [{"role": "user", "content": PROMPT}],
            self.max_tokens_name: SMALL_TOKENS,
        }


@dataclass(slots=True)
class Observations:
    """`runs` are streamed answers by arm, `plain` those before the arms; `not_measured` says why something was not."""

    signals: list[Signal] = field(default_factory=list)
    pages: tuple[ServerPage, ...] = ()
    metrics: dict[str, float] | None = None
    metrics_grown: dict[str, float] | None = None
    plain: list[Streamed] = field(default_factory=list)
    runs: list[Streamed] = field(default_factory=list)
    pairs: list[PairedTimes] = field(default_factory=list)
    not_measured: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ProbeResult:
    model: str
    form: Form
    acceptances: list[Acceptance] = field(default_factory=list)
    observations: Observations = field(default_factory=Observations)
    interrupted: bool = False
    gone_from: str | None = None
    """The parameter with whose request the endpoint ceased to be reachable."""


def run_probe(client: Client, plan: ProbePlan, progress: Progress) -> ProbeResult:
    """Raises DP122 if the endpoint cannot be reached or does not answer as chat completions do, DP123 if it refuses
    the plainest request, DP124 if it serves several models and none was named. After the first answer nothing
    raises: failures are kept where they happened, and Ctrl-C ends the run with what there is."""
    with client.connected():
        return _run(client, plan, progress)


def _run(client: Client, plan: ProbePlan, progress: Progress) -> ProbeResult:
    model = plan.model or _only_model(client)
    form, first = _find_form(client, model)
    result = ProbeResult(model, form)
    total = _num_requests(plan)
    done = client.spent.requests

    def step(what: str) -> None:
        progress(min(client.spent.requests - done, total), total, what)

    try:
        if plan.observed:
            _note(result.observations, first, client)
        if plan.accepted:
            _run_accepted(client, form, result, plan, step)
        if plan.observed and result.gone_from is None:
            _run_observed(client, form, result, plan, step)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def _num_requests(plan: ProbePlan) -> int:
    return (len(PARAMETERS) if plan.accepted else 0) + (4 * len(plan.prompts) if plan.observed else 0) or 1


def _only_model(client: Client) -> str:
    """The one model that the endpoint lists. Raises DP124 for none or several, DP122 if it cannot be asked."""
    if client.endpoint.model_in_path:
        return ""
    answer = client.get(client.endpoint.models_path)
    if answer.failure is not None:
        _raise_unusable(client, answer.failure, "asking for its models")
    listed = dicts((answer.body or {}).get("data"))
    names = sorted({str(row["id"]) for row in listed if isinstance(row.get("id"), str)})
    if len(names) == 1:
        return names[0]
    some = ", ".join(client.shown(name) for name in names[:10]) + (" …" if len(names) > 10 else "")
    raise DraftproofError(
        "DP124",
        "--model",
        f"{len(names)} models" + (f": {some}" if names else ""),
        "the name of one model",
        "Name the one to probe with --model; nothing that is seen carries over to another.",
    )


_BASES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"temperature": 0}, "max_tokens"),
    ({"temperature": 0}, "max_completion_tokens"),
    ({}, "max_completion_tokens"),
)


def _find_form(client: Client, model: str) -> tuple[Form, Answer]:
    """The first form of a plain request that is answered: newer models refuse max_tokens, or a temperature."""
    named = {} if client.endpoint.model_in_path and not model else {"model": model}
    refused: list[str] = []
    answer = Answer()
    for base, name in _BASES:
        form = Form({**named, **base}, name, tuple(refused))
        answer = client.chat(form.small())
        if answer.failure is None:
            return form, answer
        if answer.status not in (400, 422):
            break
        refused.append(f"{', '.join([*base, name])}: {answer.failure.text}")
    assert answer.failure is not None
    _raise_unusable(client, answer.failure, "a plain request")
    raise AssertionError("unreachable")


def _raise_unusable(client: Client, failure: Failure, doing: str) -> None:
    where = client.endpoint.origin
    if failure.kind in (FailureKind.REFUSED, FailureKind.RATE_LIMITED, FailureKind.ERROR_IN_STREAM):
        raise DraftproofError(
            "DP123",
            where,
            f"{doing}: {failure}",
            "an answer",
            "Check the key (--api-key-env), the model (--model) and the address; these are the endpoint's own words.",
        )
    raise DraftproofError(
        "DP122",
        where,
        f"{doing}: {failure}",
        "an OpenAI-compatible endpoint that answers",
        "Check that the address is right and the server is up; nothing was measured.",
    )


def _run_accepted(
    client: Client, form: Form, result: ProbeResult, plan: ProbePlan, step: Callable[[str], None]
) -> None:
    unreached: list[str] = []
    for parameter in PARAMETERS:
        step(f"parameters, {parameter.label}")
        acceptance, answer = try_parameter(client, form.small(), parameter)
        result.acceptances.append(acceptance)
        if plan.observed and answer.failure is None:
            _note(result.observations, answer, client)
        is_gone = answer.failure is not None and answer.failure.kind is FailureKind.UNREACHABLE
        unreached = [*unreached, parameter.label] if is_gone else []
        if len(unreached) == _GONE_AFTER:
            result.gone_from = unreached[0]
            return


_GONE_AFTER = 3
"""Requests in a row that do not reach the endpoint, after which it is not asked any more."""


def _run_observed(
    client: Client, form: Form, result: ProbeResult, plan: ProbePlan, step: Callable[[str], None]
) -> None:
    seen = result.observations
    if plan.server_pages:
        step("server, pages")
        seen.pages = read_pages(client)
        seen.metrics = read_metrics(client, plan.provider)
    if plan.prompts:
        _run_streams(client, form, result, plan, step)
    if seen.metrics is not None:
        after = read_metrics(client, plan.provider)
        seen.metrics_grown = differences(seen.metrics, after) if after is not None else None


def _run_streams(
    client: Client, form: Form, result: ProbeResult, plan: ProbePlan, step: Callable[[str], None]
) -> None:
    """The edits as they are, then in three arms. Whether streams can give their usage is asked once."""
    seen = result.observations
    usage = {"stream_options": {"include_usage": True}}
    refused = client.chat({**form.small(), "stream": True, **usage}).status in (400, 422)
    base = {**form.base, **({} if refused else usage)}
    answers: dict[str, str] = {}
    bodies = []
    for prompt in plan.prompts:
        step(f"streams, {prompt.name}")
        body = edit_body(base, prompt, form.max_tokens_name, plan.max_tokens)
        streamed, answer = stream_once(client, body, prompt, "none")
        seen.plain.append(streamed)
        _note(seen, answer, client)
        if streamed.failure is None and streamed.text:
            answers[prompt.name] = streamed.text
            bodies.append((prompt, body))
    _run_arms(client, result, bodies, answers, step)


def _run_arms(
    client: Client,
    result: ProbeResult,
    bodies: Sequence[tuple[Prompt, Mapping[str, Any]]],
    answers: Mapping[str, str],
    step: Callable[[str], None],
) -> None:
    """Only where a prediction is taken, and where there are two texts: one is to mislead."""
    seen = result.observations
    if len(bodies) < 2:
        seen.not_measured.append("times with a prediction: fewer than two edits were answered")
        return
    failure = _refused_prediction(client, result)
    if failure is not None:
        seen.not_measured.append(f"times with a prediction: it is not taken here ({failure})")
        return
    seen.runs.extend(run_arms(client, bodies, answers, lambda what: step(f"predictions, {what}")))
    for slow, fast in _COMPARED:
        seen.pairs.append(paired_times(seen.runs, slow, fast))


_COMPARED: tuple[tuple[Arm, Arm], ...] = (
    ("none", "matching"),
    ("misleading", "none"),
    ("misleading", "matching"),
)


def _refused_prediction(client: Client, result: ProbeResult) -> Failure | None:
    """Why a prediction is not taken; asked anew only where the parameters were not tried."""
    label = "prediction, text"
    for acceptance in result.acceptances:
        if acceptance.parameter.label == label:
            return acceptance.failure
    parameter = next(parameter for parameter in PARAMETERS if parameter.label == label)
    return try_parameter(client, result.form.small(), parameter)[0].failure


def _note(seen: Observations, answer: Answer, client: Client) -> None:
    """Keeps each field once, with the value that says most: a number above 0 rather than 0 or nothing."""
    for signal in answer_signals(answer, client):
        at = next(
            (
                at
                for at, old in enumerate(seen.signals)
                if (old.place, old.name) == (signal.place, signal.name)
            ),
            None,
        )
        if at is None:
            seen.signals.append(signal)
        elif not seen.signals[at].value and signal.value:
            seen.signals[at] = signal
