"""The shape of a row of the providers table: a deployment type, its facts, and its rule of predicted outputs.

Called by the table's loader and by whatever reads the table. Silence is an answer of its own: a topic without a fact
is "not documented", and what is documented for one model or deployment type says nothing of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from draftproof.core.finding import Source

Topic = Literal["speculation", "switch", "request", "usage", "headers", "metrics", "restrictions", "billing"]

TOPICS: Mapping[Topic, str] = MappingProxyType(
    {
        "speculation": "speculation at the provider",
        "switch": "how it is switched on and off",
        "request": "request parameters",
        "usage": "counts in the answer",
        "headers": "response headers",
        "metrics": "metrics of the server",
        "restrictions": "restrictions",
        "billing": "billing",
    }
)
"""Topic → what it is about, in the order in which they are shown."""

NOT_DOCUMENTED = "not documented"

Auth = Literal["bearer", "api-key", "signed"]
"""Authorization: Bearer KEY; api-key: KEY; or a signature that this program does not make."""

PredictionShape = Literal["text", "parts", "string"]
"""{type: content, content: "…"}; {…, content: [{type: text, text: "…"}]}; or the bare string."""

RejectedTokens = Literal["billed", "free"]


class Known(StrEnum):
    """Whether a fact holds for the model that was asked about."""

    DOCUMENTED = "documented"
    OTHER_MODELS = "documented for other models"
    UNKNOWN_MODEL = "documented for named models; whether this is one of them is not known"
    NOT_DOCUMENTED = "not documented"


def known_for(models: tuple[str, ...], model: str | None, own_model_names: bool) -> Known:
    """Whether what is said of `models` (none named: of the deployment type as a whole) holds for `model`.

    Names are compared as they are: a dated or fine-tuned variant is another model. Where deployments have names of
    their users' choice, the name says nothing of the model behind it.
    """
    if not models:
        return Known.DOCUMENTED
    if own_model_names or model is None:
        return Known.UNKNOWN_MODEL
    return Known.DOCUMENTED if model in models else Known.OTHER_MODELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that a source says. `names` are the parameters, fields or headers it is about; `models` those that
    the source names, empty where it names none."""

    topic: Topic
    says: str
    source: Source
    names: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRule:
    """What is documented about a client's `prediction`. None: nothing is said about it.

    `not_with`: what excludes it, a parameter alone ("tools") or with a bound ("n > 1"). `max_length`: the parameter
    that bounds its length. `any_position`: whether a passage may appear at another place than predicted.
    """

    source: Source
    models: tuple[str, ...] = ()
    shapes: tuple[PredictionShape, ...] = ("text",)
    not_with: tuple[str, ...] = ()
    rejected_tokens: RejectedTokens | None = None
    max_length: str | None = None
    any_position: bool | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """`hosts` are endings of host names; a leading dot means any name below."""

    name: str
    title: str
    hosts: tuple[str, ...] = ()

    def answers_at(self, host: str) -> bool:
        return any(host.endswith(end) if end.startswith(".") else host == end for end in self.hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentType:
    """One way of being served by one provider. `path` is that of chat completions behind the host, with "{model}"
    where the name of the deployment stands; None where it is not documented."""

    provider: str
    type: str
    title: str
    auth: Auth
    facts: tuple[Fact, ...] = ()
    prediction: PredictionRule | None = None
    path: str | None = None
    api_version: str | None = None
    own_model_names: bool = False

    def about(self, topic: Topic) -> tuple[Fact, ...]:
        return tuple(fact for fact in self.facts if fact.topic == topic)

    def holds(self, fact: Fact, model: str | None) -> Known:
        return known_for(fact.models, model, self.own_model_names)

    def prediction_for(self, model: str | None) -> Known:
        """Whether `prediction` is documented for `model` on this deployment type."""
        if self.prediction is None:
            return Known.NOT_DOCUMENTED
        return known_for(self.prediction.models, model, self.own_model_names)
