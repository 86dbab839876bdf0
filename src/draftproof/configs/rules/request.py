"""REQUEST: parameters that the user's requests carry, and what becomes of them under speculation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from draftproof.configs.rules.case import Case, Traffic
from draftproof.configs.rules.facts.parameters import (
    PARAMETERS,
    READ_ENGINES,
    Effect,
    ParameterFact,
    of_parameter,
)
from draftproof.configs.rules.rule import Hit, MissingError, Rule, on_command
from draftproof.core.finding import Evidence, Severity, Source

_SOURCE = Source(name="sources and issues of the engines, per parameter", read="2026-11")
_NO_TRAFFIC = "request parameters: name them with --require, or give requests with --traffic"


def _traffic(case: Case) -> Traffic:
    if case.method == "none":
        return Traffic()
    if case.traffic is None:
        raise MissingError(_NO_TRAFFIC)
    return case.traffic


def _by_effect(effect: Effect) -> Callable[[Case], Iterator[Hit]]:
    def judge(case: Case) -> Iterator[Hit]:
        traffic = _traffic(case)
        used: dict[ParameterFact, list[str]] = {}
        for parameter in traffic.parameters:
            for fact in of_parameter(case.engine, parameter, case.method):
                if fact.effect == effect and not (fact.unless is not None and case.is_on(fact.unless)):
                    used.setdefault(fact, []).append(parameter)
        for fact, names in used.items():
            yield Hit(
                detail=f"{', '.join(f'{name} ({traffic.uses(name)})' for name in names)}: {fact.words}.",
                evidence=tuple(
                    Evidence(where="requests", key=name, found=traffic.uses(name)) for name in names
                ),
                remedy=fact.remedy,
                reading=fact.reading,
            )

    return judge


def _unread(case: Case) -> Iterator[Hit]:
    traffic = _traffic(case)
    unknown = [
        name for name in traffic.parameters if name not in PARAMETERS or case.engine not in READ_ENGINES
    ]
    if unknown and case.method != "none":
        yield Hit(
            detail=f"Not known for {case.title} under speculation: {', '.join(unknown)}.",
            evidence=tuple(
                Evidence(where="requests", key=name, found=traffic.uses(name)) for name in unknown
            ),
        )


def _lookup_of_two(case: Case) -> Iterator[Hit]:
    lookup = case.speculation.lookup
    if (
        lookup is None
        or lookup.min_ngram is None
        or lookup.min_ngram > 2
        or "tools" not in _traffic(case).parameters
    ):
        return
    yield on_command(
        f"prompt_lookup_min is {lookup.min_ngram}, and requests call tools: corrupted calls were reported.",
        "prompt_lookup_min",
        lookup.min_ngram,
        "8",
    )


RULES = (
    Rule(
        code="REQUEST-01",
        title="Requests use a parameter that is refused",
        severity=Severity.ERROR,
        about=(
            "Some parameters are answered with an error as soon as speculation is on. Which ones depends on the "
            "version."
        ),
        remedy="Leave the parameter out, or serve these requests without speculation.",
        source=_SOURCE,
        judge=_by_effect("refused"),
    ),
    Rule(
        code="REQUEST-02",
        title="Requests use a parameter that is ignored",
        severity=Severity.ERROR,
        about="The request succeeds and the text is another one than was asked for. Nothing in the answer says so.",
        remedy="Leave the parameter out, or serve these requests without speculation.",
        source=_SOURCE,
        judge=_by_effect("ignored"),
    ),
    Rule(
        code="REQUEST-03",
        title="Faults were reported with a parameter that requests use",
        severity=Severity.INFO,
        about=(
            "Reports that were closed or are old may not concern your version, and nothing here can see that. They "
            "tell what to test."
        ),
        remedy="Run the same requests with and without speculation on your version.",
        source=_SOURCE,
        judge=_by_effect("reported"),
    ),
    Rule(
        code="REQUEST-04",
        title="A parameter that was not read for this engine",
        severity=Severity.INFO,
        about="Silence about a parameter is no promise that it acts under speculation.",
        remedy="Send two requests that differ in this parameter alone, and compare with plain decoding.",
        source=_SOURCE,
        judge=_unread,
    ),
    Rule(
        code="REQUEST-05",
        title="Short look-ups with tool calls",
        severity=Severity.WARNING,
        about="Look-ups of two tokens match inside of JSON at the wrong place; corrupted tool calls were reported.",
        remedy="Set prompt_lookup_min to 8, the value that the reporter found to be safe.",
        source=Source(name="vLLM issue 40875", read="2026-11"),
        judge=_lookup_of_two,
        methods=frozenset({"ngram"}),
    ),
)
