"""What may be said of what was seen, and no more: the sentences of the page.

Called by the report. Each sentence names what it rests on; where two causes would look alike, it says so. That an
endpoint speculates is never concluded from times or from events.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from draftproof.core.stats import RatioEstimate, geometric_mean
from draftproof.measure.probe.latency import PairedTimes, Streamed
from draftproof.measure.probe.parameters import MADE_UP, Acceptance
from draftproof.measure.probe.run import Observations

SEVERAL_PER_EVENT = 1.05
"""Tokens per event above which events are said to carry several; below it is rounding of ends and roles."""

_ARMS = {
    "none": "no prediction",
    "matching": "a matching prediction",
    "misleading": "a misleading prediction",
}


def acceptance_note(acceptances: Sequence[Acceptance]) -> str | None:
    """What the made-up parameter tells about all others."""
    control = next((a for a in acceptances if a.parameter.label == MADE_UP), None)
    if control is None:
        return None
    if control.accepted:
        return (
            "A made-up parameter was taken without an error too. So names that this endpoint does not know pass in "
            "silence, and that a parameter was accepted does not show that it is known here."
        )
    return (
        "A made-up parameter was answered with an error, so names that are accepted are known here; that does not "
        "show that they have an effect."
    )


def gone_statement(label: str) -> str:
    """What is known when an endpoint was there, and then was not."""
    return (
        f"From the request with {label} on the endpoint could not be reached any more, so nothing after it was asked. "
        f"It may have ended for that request or for another reason: look into its log."
    )


def event_statement(runs: Sequence[Streamed]) -> str:
    """Tokens per event of the plain streams."""
    answered = [run for run in runs if run.failure is None]
    counted = [run for run in answered if run.tokens_per_event is not None]
    if not answered:
        return "No stream was answered, so nothing is known of events."
    if not counted:
        if not any(run.num_chars for run in answered):
            return "The streams brought no text within the bound of tokens, so nothing is known of events."
        if all(run.num_events == 0 for run in answered):
            return "Streams were asked for and came as one answer, so nothing is known of events."
        return (
            "The streams gave no count of tokens, so tokens per event are not known; events are not tokens."
        )
    ratio = geometric_mean([run.tokens_per_event or 1.0 for run in counted])
    rest = f"over {len(counted)} streams, tokens by the endpoint's own count"
    if ratio > SEVERAL_PER_EVENT:
        return (
            f"This endpoint emitted {ratio:.2f} tokens per event ({rest}): consistent with speculation, and with a "
            f"server that gathers tokens into events; it does not show which. Whoever counts events as tokens is "
            f"wrong here by that factor."
        )
    return (
        f"This endpoint emitted {ratio:.2f} tokens per event ({rest}). A server may speculate and still send tokens "
        f"one by one, so this does not rule speculation out."
    )


def pair_statement(pair: PairedTimes) -> str:
    """One comparison of two arms."""
    slow, fast = _ARMS[pair.slow], _ARMS[pair.fast]
    if pair.estimate is None:
        return f"Times with {slow} against {fast}: no prompt has both."
    estimate = pair.estimate
    texts = f"{pair.same_text} of {estimate.num_pairs} pairs had the same text"
    said = f"Answers with {slow} took {_ratio(estimate)} times as long as those with {fast}; {texts}."
    verdict = {
        "pays": "The difference is beyond what prompts of this kind scatter.",
        "does_not_pay": "The difference is beyond what prompts of this kind scatter.",
        "within_noise": "That is within what prompts of this kind scatter: no difference was seen, none is ruled out.",
    }
    return f"{said} {verdict[estimate.verdict]}"


def _ratio(estimate: RatioEstimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.ratio:.2f} (one prompt, no interval)"
    return f"{estimate.ratio:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def signal_statements(seen: Observations) -> list[str]:
    """What answers said outright, by the names of their fields."""
    said = []
    counts = {signal.name: signal.value for signal in seen.signals if _is_count(signal.value)}
    used = [f"{name} = {value}" for name, value in counts.items() if "accepted_prediction_tokens" in name]
    if used:
        said.append(
            f"Usage counted predicted tokens that came true ({', '.join(used)}): the prediction was used."
        )
    drafted = [f"{name} = {value}" for name, value in counts.items() if _DRAFTED.search(name)]
    if drafted:
        said.append(
            f"An answer counted drafted tokens itself ({', '.join(drafted)}): the server drafted for it."
        )
    return said


_DRAFTED = re.compile(
    r"draft_n$|num_draft_tokens$|speculation-generated-tokens$|spec_verify_ct$|num_proposed_drafts$"
)


def _is_count(value: object) -> bool:
    """A number above 0, also as the text of a header."""
    if isinstance(value, str):
        return value.isdigit() and int(value) > 0
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def observed_statements(seen: Observations) -> list[str]:
    """All sentences of the observed part, in the order of the page."""
    statements = signal_statements(seen)
    statements += [event_statement(seen.plain)] if seen.plain else []
    statements += [pair_statement(pair) for pair in seen.pairs]
    if seen.pairs:
        statements.append(
            "The matching prediction was the endpoint's own answer from just before, so this is the most that a "
            "prediction can give; your edits will match less. All arms came after that first answer, so a cache of "
            "prompts helps them alike. Times are of an unknown load and of the network too."
        )
    if seen.metrics_grown:
        statements.append(
            "Counters of speculation on the server grew while the streams ran: something was drafted there meanwhile. "
            "They count all of its users."
        )
    elif seen.metrics:
        statements.append(
            "The server has metrics of speculation; none of its counters grew while the streams ran."
        )
    return statements


def not_seen(seen: Observations) -> list[str]:
    """What was looked for in vain. Absence is no proof."""
    places = {signal.place for signal in seen.signals}
    names = {signal.name for signal in seen.signals if signal.value not in (None, 0, (), False, "")}
    missing = []
    if not any("prediction_tokens" in name for name in names):
        missing.append("counts of accepted or rejected predicted tokens above 0 in usage")
    if not any("draft" in name or "spec" in name for name in names):
        missing.append("counts of drafted tokens in an answer")
    if "header" not in places:
        missing.append("response headers that speak of speculation")
    if seen.metrics is None:
        missing.append("a page of metrics")
    elif not seen.metrics:
        missing.append("metrics of speculation on the server's page")
    return missing
