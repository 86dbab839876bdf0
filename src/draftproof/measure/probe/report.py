"""The result of a probe as one document and as one page: documented, accepted, observed, each by itself.

Called by the command. Adds no conclusions beyond `statements`. Neither the key nor any text of an answer is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from draftproof import __version__
from draftproof.configs.providers import NOT_DOCUMENTED, TOPICS, DeploymentType, Known, Provider
from draftproof.measure.pages import Block, Heading, Items, Paragraph, Table
from draftproof.measure.probe.client import Spent
from draftproof.measure.probe.cost import Estimate
from draftproof.measure.probe.endpoint import Endpoint
from draftproof.measure.probe.latency import PairedTimes
from draftproof.measure.probe.parameters import Acceptance
from draftproof.measure.probe.run import Observations, ProbeResult
from draftproof.measure.probe.signals import Signal
from draftproof.measure.probe.statements import acceptance_note, gone_statement, not_seen, observed_statements


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was probed: `row` is the deployment type that its user named, `guessed` the provider of its host,
    `siblings` the deployment types of that provider. `endpoint` None: nothing was asked, only the table read."""

    endpoint: Endpoint | None
    model: str | None
    row: DeploymentType | None
    guessed: Provider | None
    siblings: tuple[DeploymentType, ...]
    key_sent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`result` None: the documented part alone."""

    subject: Subject
    argv: Sequence[str]
    result: ProbeResult | None = None
    ran_accepted: bool = False
    ran_observed: bool = False
    spent: Spent | None = None
    estimate: Estimate | None = None
    made: datetime = field(default_factory=lambda: datetime.now(UTC))

    def as_dict(self) -> dict[str, object]:
        result = self.result
        return {
            "provenance": {
                "time": self.made.isoformat(timespec="seconds"),
                "draftproof": __version__,
                "argv": list(self.argv),
            },
            "endpoint": _endpoint_dict(self.subject, result),
            "documented": _documented_dict(self.subject),
            "accepted": _accepted_dict(result) if result and self.ran_accepted else None,
            "observed": _observed_dict(result.observations) if result and self.ran_observed else None,
            "spent": asdict(self.spent) if self.spent else None,
            "estimate": [asdict(part) for part in self.estimate.parts] if self.estimate else None,
            "interrupted": result.interrupted if result else False,
            "gone_from": result.gone_from if result else None,
        }

    def blocks(self) -> list[Block]:
        """The page that can be forwarded."""
        host = self.subject.endpoint.host if self.subject.endpoint else "no endpoint asked"
        blocks: list[Block] = [Heading(1, f"Speculation: what is documented, accepted and seen at {host}")]
        blocks += [Table(("", ""), tuple(self._facts()))]
        if self.result is not None and self.result.interrupted:
            blocks.append(Paragraph("The probe was interrupted: what follows is what there was by then."))
        if self.result is not None and self.result.gone_from is not None:
            blocks.append(Paragraph(gone_statement(self.result.gone_from)))
        blocks += _documented_blocks(self.subject)
        if self.result is not None and self.ran_accepted:
            blocks += _accepted_blocks(self.result)
        if self.result is not None and self.ran_observed:
            blocks += _observed_blocks(self.result.observations)
        return blocks

    def _facts(self) -> list[tuple[str, str]]:
        subject = self.subject
        rows = [("date", f"{self.made:%Y-%m-%d %H:%M} UTC"), ("program", f"draftproof {__version__}")]
        if subject.endpoint is not None:
            plain = "" if subject.endpoint.is_encrypted or subject.endpoint.is_local else " (not encrypted)"
            rows.append(("endpoint", subject.endpoint.origin + subject.endpoint.chat_path + plain))
        rows.append(("model", (self.result.model if self.result else subject.model) or "not named"))
        rows.append(("deployment type", subject.row.title if subject.row else "not named"))
        if self.spent is not None:
            rows.append(("spent", spent_line(self.spent)))
        return rows


def spent_line(spent: Spent) -> str:
    uncounted = f", {spent.uncounted} answers came without a count" if spent.uncounted else ""
    return (
        f"{spent.requests} requests ({spent.retries} of them repeated), {spent.prompt_tokens:,} prompt and "
        f"{spent.completion_tokens:,} completion tokens, {spent.rejected_prediction_tokens:,} of these rejected "
        f"predicted ones, by the endpoint's own counts{uncounted}"
    )


def _endpoint_dict(subject: Subject, result: ProbeResult | None) -> dict[str, object] | None:
    if subject.endpoint is None:
        return None
    return {
        "host": subject.endpoint.host,
        "address": subject.endpoint.chat_url,
        "encrypted": subject.endpoint.is_encrypted,
        "key_sent": subject.key_sent,
        "model": result.model if result else subject.model,
        "guessed_provider": subject.guessed.name if subject.guessed else None,
    }


def _documented_dict(subject: Subject) -> dict[str, object]:
    row = subject.row
    if row is None:
        return {"deployment": None, "possible": [f"{row.provider}/{row.type}" for row in subject.siblings]}
    facts = [
        {
            "topic": fact.topic,
            "says": fact.says,
            "names": list(fact.names),
            "models": list(fact.models),
            "holds": row.holds(fact, subject.model).value,
            "source": asdict(fact.source),
        }
        for fact in row.facts
    ]
    return {
        "provider": row.provider,
        "deployment": row.type,
        "model": subject.model,
        "prediction": row.prediction_for(subject.model).value,
        "facts": facts,
        "not_documented": [topic for topic in TOPICS if not row.about(topic)],
    }


def _accepted_dict(result: ProbeResult) -> dict[str, object]:
    return {
        "note": acceptance_note(result.acceptances),
        "form": {"max_tokens_name": result.form.max_tokens_name, "refused": list(result.form.refused)},
        "parameters": [
            {
                "name": acceptance.parameter.label,
                "group": acceptance.parameter.group,
                "accepted": acceptance.accepted,
                "visible_in_answer": acceptance.visible,
                "failure": _failure(acceptance),
            }
            for acceptance in result.acceptances
        ],
    }


def _failure(acceptance: Acceptance) -> dict[str, object] | None:
    failure = acceptance.failure
    return {"kind": failure.kind.value, "status": failure.status, "text": failure.text} if failure else None


def _observed_dict(seen: Observations) -> dict[str, object]:
    return {
        "statements": observed_statements(seen),
        "not_seen": not_seen(seen),
        "not_measured": list(seen.not_measured),
        "signals": [asdict(signal) for signal in seen.signals],
        "server": [asdict(page) for page in seen.pages],
        "metrics": seen.metrics,
        "metrics_grown": seen.metrics_grown,
        "streams": [run.as_dict() for run in [*seen.plain, *seen.runs]],
        "pairs": [_pair_dict(pair) for pair in seen.pairs],
    }


def _pair_dict(pair: PairedTimes) -> dict[str, object]:
    estimate = asdict(pair.estimate) if pair.estimate else None
    return {"slow": pair.slow, "fast": pair.fast, "same_text": pair.same_text, "estimate": estimate}


def _documented_blocks(subject: Subject) -> list[Block]:
    blocks: list[Block] = [Heading(2, "Documented")]
    row = subject.row
    if row is None:
        blocks.append(Paragraph(_unnamed(subject)))
        return blocks
    blocks.append(
        Paragraph(
            f"What pages and packages say of {row.title}. It holds for this deployment type alone. "
            f"prediction: {row.prediction_for(subject.model)}."
        )
    )
    rows = []
    for topic, title in TOPICS.items():
        for fact in row.about(topic):
            holds = row.holds(fact, subject.model)
            which = "" if holds is Known.DOCUMENTED else f" ({holds}: {', '.join(fact.models)})"
            source = fact.source
            rows.append((title, fact.says + which, f"{source.name}, read {source.read}"))
        if not row.about(topic):
            rows.append((title, NOT_DOCUMENTED, ""))
    blocks.append(Table(("about", "what is said", "source"), tuple(rows)))
    return blocks


def _unnamed(subject: Subject) -> str:
    if subject.siblings:
        types = ", ".join(f"--provider {row.provider} --deployment {row.type}" for row in subject.siblings)
        return (
            f"The host is one of {subject.siblings[0].provider}'s; which deployment type answers there cannot be "
            f"seen from outside, and nothing carries over from one to another. Name it for this part: {types}."
        )
    return (
        "No deployment type was named, and the host is none that the table knows. Name one for this part: "
        "--provider and --deployment."
    )


def _accepted_blocks(result: ProbeResult) -> list[Block]:
    blocks: list[Block] = [
        Heading(2, "Accepted"),
        Paragraph(
            "One small request for each parameter. Accepted means that the answer was no error. It does not mean "
            "that the parameter had an effect."
        ),
    ]
    note = acceptance_note(result.acceptances)
    if note:
        blocks.append(Paragraph(note))
    for refused in result.form.refused:
        blocks.append(Paragraph(f"Refused before the plain request found its form: {refused}"))
    rows = []
    for acceptance in result.acceptances:
        seen = {True: "yes", False: "no", None: ""}[acceptance.visible]
        verdict = "accepted" if acceptance.accepted else str(acceptance.failure)
        rows.append((acceptance.parameter.label, verdict, seen))
    blocks.append(Table(("parameter", "answer", "visible in the answer"), tuple(rows)))
    return blocks


def _observed_blocks(seen: Observations) -> list[Block]:
    blocks: list[Block] = [Heading(2, "Observed")]
    statements = observed_statements(seen)
    if statements:
        blocks.append(Items(tuple(statements)))
    if seen.signals:
        rows = tuple((signal.place, signal.name, _value(signal)) for signal in seen.signals)
        blocks += [Heading(3, "Fields of answers"), Table(("where", "name", "value seen"), rows)]
    if seen.pages or seen.metrics is not None:
        blocks += _server_blocks(seen)
    blocks += [Heading(3, "Not seen"), Paragraph("Looked for in vain; that is no proof of absence.")]
    missing = not_seen(seen)
    blocks.append(
        Items(tuple(missing)) if missing else Paragraph("Nothing: all that was looked for was there.")
    )
    if seen.not_measured:
        blocks += [Heading(3, "Not measured"), Items(tuple(seen.not_measured))]
    if seen.plain or seen.runs:
        blocks += _stream_blocks(seen)
    return blocks


def _server_blocks(seen: Observations) -> list[Block]:
    rows = [
        (f"GET {page.path}", "status", page.why_not or str(page.status))
        for page in seen.pages
        if not page.signals
    ]
    rows += [
        (f"GET {page.path}", signal.name, _value(signal)) for page in seen.pages for signal in page.signals
    ]
    rows += [("metrics", name, f"{value:g}") for name, value in (seen.metrics or {}).items()]
    rows += [("metrics, grown by", name, f"{value:g}") for name, value in (seen.metrics_grown or {}).items()]
    return [Heading(3, "The server's own pages"), Table(("where", "name", "value seen"), tuple(rows))]


def _stream_blocks(seen: Observations) -> list[Block]:
    columns = (
        "prompt",
        "arm",
        "first text, s",
        "whole answer, s",
        "events",
        "tokens",
        "accepted",
        "rejected",
        "failure",
    )
    rows = []
    for run in [*seen.plain, *seen.runs]:
        record: Mapping[str, object] = run.as_dict()
        names = (
            "num_events",
            "num_tokens",
            "accepted_prediction_tokens",
            "rejected_prediction_tokens",
            "failure",
        )
        rest = tuple("" if record[name] is None else str(record[name]) for name in names)
        first = "" if run.first_s is None else f"{run.first_s:.3f}"
        rows.append((run.prompt, run.arm, first, f"{run.total_s:.3f}", *rest))
    return [Heading(3, "Streams"), Table(columns, tuple(rows))]


def _value(signal: Signal) -> str:
    value = signal.value
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "null" if value is None else str(value)
