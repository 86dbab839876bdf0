"""The providers table as a page of Markdown: what `docs/providers.md` contains.

Called by the generator of the documentation. Adds nothing to the table.
"""

from __future__ import annotations

from draftproof.configs.providers.model import NOT_DOCUMENTED, TOPICS, DeploymentType, Fact, PredictionRule
from draftproof.configs.providers.table import deployment_types, providers
from draftproof.core.finding import Source

_INTRO = """\
# What providers and engines document

This page is generated from `draftproof/configs/providers/table.toml` by `python -m draftproof.cli.docs`; do not edit
it.
`draftproof probe --offline --provider P --deployment T` prints one row, and [probe](probe.md) sets it beside what an
endpoint accepts and shows.

How to read it:

- A row speaks of one deployment type. Nothing carries over to another type of the same provider, nor from one model to
  another.
- *Not documented* means that the pages that were read do not say it. It does not mean no.
- Each fact has its source, by number, with the month in which it was read. Pages change: go to the source before you
  rely on one.
- Predicted outputs (`prediction`) are a client's guess at the answer. Draft models, look-ups and heads are the
  server's. They are reported by different fields, which cannot be compared.
"""

_SHAPES = {
    "text": '`{"type": "content", "content": "…"}`',
    "parts": '`{"type": "content", "content": [{"type": "text", "text": "…"}]}`',
    "string": "the bare text",
}


def providers_page() -> str:
    parts = [_INTRO, _overview()]
    cite = _Sources()
    for provider in providers():
        parts.append(f"## {provider.title}\n")
        parts.extend(_row(row, cite) for row in deployment_types(provider.name))
    parts.append(cite.section())
    return "\n".join(parts)


def _overview() -> str:
    lines = ["## Overview\n"]
    lines.append(
        "| provider and deployment type | `prediction` | rejected tokens | server's own speculation | metrics |"
    )
    lines.append("|---|---|---|---|---|")
    for row in deployment_types():
        metrics = row.about("usage") or row.about("headers") or row.about("metrics")
        cells = [
            f"`{row.provider}` `{row.type}`",
            _prediction_cell(row.prediction),
            row.prediction.rejected_tokens or NOT_DOCUMENTED if row.prediction else "–",
            _yes(row.about("speculation") or row.about("switch")),
            _yes(metrics),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _prediction_cell(rule: PredictionRule | None) -> str:
    if rule is None:
        return NOT_DOCUMENTED
    return ", ".join(rule.models) if rule.models else "documented, no models named"


def _yes(facts: tuple[Fact, ...]) -> str:
    return "documented" if facts else NOT_DOCUMENTED


def _row(row: DeploymentType, cite: _Sources) -> str:
    lines = [f"### {row.title}\n", f"`--provider {row.provider} --deployment {row.type}`\n"]
    if row.path:
        version = f", `api-version={row.api_version}`" if row.api_version else ""
        lines.append(f"Chat completions at `{row.path}`{version}.\n")
    silent = [title for topic, title in TOPICS.items() if not row.about(topic)]
    for topic, title in TOPICS.items():
        lines.extend(
            f"- {title}: {_models(fact)}{fact.says} {cite(fact.source)}" for fact in row.about(topic)
        )
    if row.prediction is not None:
        lines.append(f"- to build a `prediction`: {_rule(row.prediction)} {cite(row.prediction.source)}")
    if silent:
        lines.append(f"- *{NOT_DOCUMENTED}*: {', '.join(silent)}")
    return "\n".join(lines) + "\n"


def _models(fact: Fact) -> str:
    return f"(for {', '.join(fact.models)}) " if fact.models else ""


def _rule(rule: PredictionRule) -> str:
    said = ["shape " + " or ".join(_SHAPES[shape] for shape in rule.shapes)]
    if rule.not_with:
        said.append("not with " + ", ".join(f"`{name}`" for name in rule.not_with))
    said.append(f"rejected tokens: {rule.rejected_tokens or NOT_DOCUMENTED}")
    if rule.max_length:
        said.append(f"its length is bounded by `{rule.max_length}`")
    return " ".join(["; ".join(said) + ".", *rule.notes])


class _Sources:
    """Numbers for sources, in the order in which they are cited."""

    def __init__(self) -> None:
        self._cited: list[Source] = []

    def __call__(self, source: Source) -> str:
        if source not in self._cited:
            self._cited.append(source)
        return f"[{self._cited.index(source) + 1}]"

    def section(self) -> str:
        lines = ["## Sources\n"]
        for number, source in enumerate(self._cited, start=1):
            name = f"[{source.name}]({source.url})" if source.url else source.name
            lines.append(f"{number}. {name}, read {source.read}")
        return "\n".join(lines) + "\n"
