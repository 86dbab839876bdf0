"""Which request parameters an endpoint takes: one small request for each.

Called by the run. "Accepted" means that the answer was no error. It does not mean that the parameter had an effect:
a made-up name is sent as well, and where that is taken too, acceptance says nothing at all. For some parameters an
effect would be visible in the answer; whether it was is kept beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.measure.probe.answer import Answer, Failure, dicts
from draftproof.measure.probe.client import Client

Visible = Callable[[Answer], bool]

PREDICTED = "one two three four five six seven eight"
MADE_UP = "draftproof_made_up_parameter"

_SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {}},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """`body` is merged into the small request; `label` tells variants apart; `visible` says whether an answer shows
    that it was used, None where no answer could."""

    label: str
    body: Mapping[str, Any]
    visible: Visible | None = None
    group: str = "sampling and output"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """`failure` None: taken without an error. `visible` None: an answer does not show it."""

    parameter: Parameter
    failure: Failure | None
    visible: bool | None

    @property
    def accepted(self) -> bool:
        return self.failure is None


def _choice_has(name: str) -> Visible:
    return lambda answer: any(choice.get(name) for choice in dicts((answer.body or {}).get("choices")))


def _usage_has(name: str) -> Visible:
    def visible(answer: Answer) -> bool:
        details = (answer.usage or {}).get("completion_tokens_details")
        return isinstance(details, Mapping) and bool(details.get(name))

    return visible


def _body_has(name: str) -> Visible:
    return lambda answer: any(payload.get(name) for payload in answer.payloads)


def _two_choices(answer: Answer) -> bool:
    return len(dicts((answer.body or {}).get("choices"))) == 2


_SPECULATION = "speculation"

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(label=MADE_UP, body={MADE_UP: 1}, group="control"),
    Parameter(
        label="prediction, text",
        body={"prediction": {"type": "content", "content": PREDICTED}},
        visible=_usage_has("accepted_prediction_tokens"),
        group=_SPECULATION,
    ),
    Parameter(
        label="prediction, text parts",
        body={"prediction": {"type": "content", "content": [{"type": "text", "text": PREDICTED}]}},
        visible=_usage_has("accepted_prediction_tokens"),
        group=_SPECULATION,
    ),
    Parameter(label="prediction, bare text", body={"prediction": PREDICTED}, group=_SPECULATION),
    Parameter(label="speculation, text", body={"speculation": PREDICTED}, group=_SPECULATION),
    Parameter(
        label="rewrite_speculation",
        body={"rewrite_speculation": True, "prediction": {"type": "content", "content": PREDICTED}},
        group=_SPECULATION,
    ),
    Parameter(
        label="perf_metrics_in_response",
        body={"perf_metrics_in_response": True},
        visible=_body_has("perf_metrics"),
        group=_SPECULATION,
    ),
    Parameter(
        label="return_spec_tokens_details",
        body={"return_spec_tokens_details": True},
        visible=_body_has("sglext"),
        group=_SPECULATION,
    ),
    Parameter(label="logprobs", body={"logprobs": True}, visible=_choice_has("logprobs")),
    Parameter(
        label="top_logprobs", body={"logprobs": True, "top_logprobs": 2}, visible=_choice_has("logprobs")
    ),
    Parameter(label="min_p", body={"min_p": 0.1, "temperature": 1.0}),
    Parameter(label="top_k", body={"top_k": 20, "temperature": 1.0}),
    Parameter(label="logit_bias", body={"logit_bias": {"100": 1}}),
    Parameter(label="seed", body={"seed": 7, "temperature": 1.0}),
    Parameter(label="presence_penalty", body={"presence_penalty": 0.5}),
    Parameter(label="frequency_penalty", body={"frequency_penalty": 0.5}),
    Parameter(label="repetition_penalty", body={"repetition_penalty": 1.1}),
    Parameter(label="n = 2", body={"n": 2, "temperature": 1.0}, visible=_two_choices),
    Parameter(label="stop", body={"stop": ["five"]}),
    Parameter(label="response_format json_object", body={"response_format": {"type": "json_object"}}),
    Parameter(
        label="response_format json_schema",
        body={
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "count", "strict": True, "schema": _SCHEMA},
            }
        },
    ),
    Parameter(label="tools", body={"tools": [_TOOL]}),
    Parameter(label="max_completion_tokens", body={"max_completion_tokens": 8}),
)

PROMPT = "Count from one to eight in words, as JSON if you were asked for JSON."


def try_parameter(
    client: Client, small: Mapping[str, Any], parameter: Parameter
) -> tuple[Acceptance, Answer]:
    """One request. Where max_completion_tokens is tried, it takes the place of max_tokens."""
    body = {**small, **parameter.body}
    if "max_completion_tokens" in parameter.body:
        body.pop("max_tokens", None)
    answer = client.chat(body)
    visible = None
    if parameter.visible is not None and answer.failure is None:
        visible = parameter.visible(answer)
    return Acceptance(parameter, answer.failure, visible), answer
