"""Streams the same edits without a prediction, with a matching and with a misleading one, and times them in pairs.

Called by the run. The matching prediction of a prompt is what the endpoint itself answered to it just before, the
misleading one its answer to another prompt: every text serves once as each, so both arms carry the same texts. The
three arms of a prompt follow one another, in an order that turns from prompt to prompt. Prompts are the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from draftproof.core.stats import RatioEstimate, paired_ratio
from draftproof.measure.probe.answer import Answer, Failure, count
from draftproof.measure.probe.client import Client
from draftproof.measure.workloads import Prompt

Arm = Literal["none", "matching", "misleading"]
ARMS: tuple[Arm, ...] = ("none", "matching", "misleading")
Step = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """One streamed answer. Times in seconds from the request; `num_tokens` of the answer's text by the server's own
    count, rejected predicted tokens taken off, None where it gave none. No text is kept beyond its use."""

    prompt: str
    arm: Arm
    first_s: float | None
    total_s: float
    num_events: int
    num_chars: int
    num_tokens: int | None
    accepted: int | None
    rejected: int | None
    retries: int
    failure: Failure | None
    text: str

    @property
    def tokens_per_event(self) -> float | None:
        if self.failure is not None or self.num_tokens is None or self.num_events == 0:
            return None
        return self.num_tokens / self.num_events

    @property
    def s_per_char(self) -> float | None:
        """The answer's time per character: comparable between answers whose texts differ a little."""
        return self.total_s / self.num_chars if self.failure is None and self.num_chars else None

    def as_dict(self) -> dict[str, object]:
        """The raw record, without the text."""
        return {
            "prompt": self.prompt,
            "arm": self.arm,
            "first_s": self.first_s,
            "total_s": self.total_s,
            "num_events": self.num_events,
            "num_chars": self.num_chars,
            "num_tokens": self.num_tokens,
            "accepted_prediction_tokens": self.accepted,
            "rejected_prediction_tokens": self.rejected,
            "retries": self.retries,
            "failure": str(self.failure) if self.failure else None,
        }


@dataclass(frozen=True, slots=True)
class PairedTimes:
    """`estimate` is the time of `slow` ÷ the time of `fast`, over the prompts that have both; None for none.
    `same_text` of these pairs had the same text in both arms."""

    slow: Arm
    fast: Arm
    estimate: RatioEstimate | None
    same_text: int


def stream_once(client: Client, body: Mapping[str, Any], prompt: Prompt, arm: Arm) -> tuple[Streamed, Answer]:
    """One streamed request."""
    answer = client.chat({**body, "stream": True})
    events = answer.text_events
    accepted, rejected = (
        count(answer.usage, "completion_tokens_details", f"{what}_prediction_tokens")
        for what in ("accepted", "rejected")
    )
    text = answer.content
    return (
        Streamed(
            prompt=prompt.name,
            arm=arm,
            first_s=events[0].at_s if events else None,
            total_s=events[-1].at_s if events else answer.elapsed_s,
            num_events=len(events),
            num_chars=len(text),
            num_tokens=_streamed_tokens(answer),
            accepted=accepted,
            rejected=rejected,
            retries=answer.retries,
            failure=answer.failure,
            text=text,
        ),
        answer,
    )


def _streamed_tokens(answer: Answer) -> int | None:
    """Tokens of the text that was streamed: rejected predicted ones, and reasoning that was kept back, taken off."""
    completion = count(answer.usage, "completion_tokens")
    if completion is None:
        return None
    rejected = count(answer.usage, "completion_tokens_details", "rejected_prediction_tokens") or 0
    hidden = count(answer.usage, "completion_tokens_details", "reasoning_tokens") or 0
    if any(event.has_reasoning for event in answer.events):
        hidden = 0
    return max(0, completion - rejected - hidden) or None


def edit_body(
    form: Mapping[str, Any], prompt: Prompt, max_tokens_name: str, max_tokens: int
) -> dict[str, Any]:
    """The request of an edit in the form that the endpoint takes."""
    body = {**form, "messages": [{"role": "user", "content": prompt.text}]}
    body[max_tokens_name] = max_tokens
    return body


def run_arms(
    client: Client,
    bodies: Sequence[tuple[Prompt, Mapping[str, Any]]],
    answers: Mapping[str, str],
    step: Step,
) -> list[Streamed]:
    """The three arms of each prompt in turning order. `answers` are the endpoint's own texts by prompt."""
    names = [prompt.name for prompt, _ in bodies]
    runs = []
    for at, (prompt, body) in enumerate(bodies):
        other = answers[names[(at + 1) % len(names)]]
        predictions: dict[Arm, str | None] = {
            "none": None,
            "matching": answers[prompt.name],
            "misleading": other,
        }
        for arm in ARMS[at % 3 :] + ARMS[: at % 3]:
            step(f"{prompt.name}, {arm}")
            text = predictions[arm]
            extra = {} if text is None else {"prediction": {"type": "content", "content": text}}
            runs.append(stream_once(client, {**body, **extra}, prompt, arm)[0])
    return runs


def paired_times(runs: Sequence[Streamed], slow: Arm, fast: Arm) -> PairedTimes:
    """Pairs of one prompt's two arms; prompts with a failure or an empty answer in either are left out."""
    by_prompt: dict[str, dict[Arm, Streamed]] = {}
    for run in runs:
        if run.s_per_char is not None and run.s_per_char > 0:
            by_prompt.setdefault(run.prompt, {})[run.arm] = run
    pairs = [(arms[slow], arms[fast]) for arms in by_prompt.values() if slow in arms and fast in arms]
    if not pairs:
        return PairedTimes(slow, fast, None, 0)
    estimate = paired_ratio([a.s_per_char or 0.0 for a, _ in pairs], [b.s_per_char or 0.0 for _, b in pairs])
    return PairedTimes(slow, fast, estimate, sum(a.text == b.text for a, b in pairs))
