"""What can be had where a provider runs the model: only what it documents for the deployment type in question.

Called by `advising` for the role "hosted". Reads the providers table; nothing carries over between deployment types.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from draftproof.configs.providers.model import NOT_DOCUMENTED, DeploymentType, Fact, Known
from draftproof.configs.providers.table import deployment_types, providers
from draftproof.planning.advice.ask import Ask
from draftproof.planning.advice.lookups import COPIES
from draftproof.planning.advice.step import Claim, Command, Standing, Step

_ENGINES = ("vllm", "sglang", "trtllm", "llamacpp", "transformers", "draftproof")
"""Rows of the table that are engines, which nobody hosts by that name."""


def provider_names() -> tuple[str, ...]:
    return tuple(provider.name for provider in providers() if provider.name not in _ENGINES)


def propose_hosted(ask: Ask) -> Iterator[Step]:
    """For one provider a step per deployment type and means; without one, those that document this model by name."""
    if ask.engine in provider_names():
        for row in deployment_types(ask.engine):
            yield from _at(row, ask)
        return
    for name in provider_names():
        for row in deployment_types(name):
            if (
                row.prediction is not None
                and row.prediction_for(ask.reference) is Known.DOCUMENTED
                and row.prediction.models
            ):
                yield _prediction(row, ask)


def _at(row: DeploymentType, ask: Ask) -> Iterator[Step]:
    yield _prediction(row, ask)
    speculation = [*row.about("speculation"), *row.about("switch")]
    known = [fact for fact in speculation if row.holds(fact, ask.reference) is not Known.OTHER_MODELS]
    if known:
        yield Step(
            kind="provider",
            title=f"{row.title}: speculation on the provider's side",
            standing=Standing.POSSIBLE,
            evidence=tuple(map(_said, known)),
            against=(Claim("What it gives on your requests was not measured."), *_limits(row)),
            commands=_probe(row, ask),
        )
    else:
        yield Step(
            kind="provider",
            title=f"{row.title}: speculation on the provider's side",
            standing=Standing.RULED_OUT,
            against=(Claim(f"{NOT_DOCUMENTED.capitalize()}: there is nothing to set."), *_limits(row)),
        )


def _prediction(row: DeploymentType, ask: Ask) -> Step:
    rule, known = row.prediction, row.prediction_for(ask.reference)
    title = f"{row.title}: predicted outputs"
    if rule is None or known in (Known.OTHER_MODELS, Known.NOT_DOCUMENTED):
        told = NOT_DOCUMENTED if rule is None else f"documented for other models ({', '.join(rule.models)})"
        source = None if rule is None else rule.source
        return Step(
            kind="prediction", title=title, standing=Standing.RULED_OUT, against=(Claim(f"{told}.", source),)
        )
    against, standing = [], Standing.POSSIBLE
    excluded = _excluded(rule.not_with, ask)
    if excluded:
        standing = Standing.RULED_OUT
        against.append(Claim(f"It excludes what you need: {', '.join(excluded)}.", rule.source))
    if known is Known.UNKNOWN_MODEL:
        against.append(
            Claim(f"Documented for {', '.join(rule.models)}; whether your deployment is one is not known.")
        )
    workload = ask.workload
    copied = workload.predicted or workload.copied if workload else None
    evidence = [
        Claim(f"`prediction` is documented{'' if not rule.models else ' for this model'}.", rule.source)
    ]
    if copied is None or not copied.num_requests:
        against.append(Claim("How much of your answers could be predicted was not measured (--workload)."))
    else:
        evidence.append(
            Claim(
                f"Measured: {copied.copied_share:.0%} of the pieces of {copied.num_replayed} answers could be copied."
            )
        )
        if copied.copied_share >= COPIES and standing is Standing.POSSIBLE and known is Known.DOCUMENTED:
            standing = Standing.TRY
    risks = [Claim(note, rule.source) for note in rule.notes]
    if rule.rejected_tokens == "billed":
        risks.insert(
            0, Claim("Tokens of the prediction that do not appear in the answer are billed.", rule.source)
        )
    return Step(
        kind="prediction",
        title=title,
        standing=standing,
        evidence=tuple(evidence),
        against=tuple(against),
        risks=tuple(risks),
        commands=_probe(row, ask),
    )


def _excluded(not_with: tuple[str, ...], ask: Ask) -> list[str]:
    """Parameters that a rule excludes ("tools", "n > 1") and that are required or used."""
    asked = ask.parameters or {}
    names = {entry.split()[0]: entry for entry in not_with}
    return [entry for name, entry in names.items() if name in asked]


def _said(fact: Fact) -> Claim:
    models = f" (named: {', '.join(fact.models)})" if fact.models else ""
    return Claim(f"{fact.says}{models}", fact.source)


def _limits(row: DeploymentType) -> Iterator[Claim]:
    for fact in row.about("restrictions"):
        yield _said(fact)


def _probe(row: DeploymentType, ask: Ask) -> tuple[Command, ...]:
    command = f"draftproof probe URL --provider {row.provider} --deployment {row.type}"
    if row.provider != "azure-openai":  # which calls a deployment by a name of its own
        command += f" --model {quote(ask.reference)}"
    return (Command("see what your endpoint accepts and shows", command),)
