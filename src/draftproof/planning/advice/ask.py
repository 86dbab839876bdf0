"""What advice is asked for: a target, an engine, memory, a workload, required features, and who asks.

Made by `draftproof advise`; read by every part of advice. Knows no answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from draftproof.checkpoints.view import CheckpointView
from draftproof.core.errors import DraftproofError
from draftproof.planning.advice.copying import Copying

Role = Literal["app", "operator", "hosted"]

ROLES: Mapping[Role, str] = MappingProxyType(
    {
        "app": "you write the application and call an endpoint: what counts is the wait for one answer",
        "operator": "you run the engine: what counts is peak load, memory, and that nobody decodes slower",
        "hosted": "a provider runs the model: what counts is what it documents for your deployment type",
    }
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A feature that must keep working. `parameters` are request parameters that it needs; `setting` is a field of
    `Deployment` that it sets, with its value."""

    title: str
    parameters: tuple[str, ...] = ()
    setting: tuple[str, bool | int] | None = None


REQUIREMENTS: Mapping[str, Requirement] = MappingProxyType(
    {
        "json_schema": Requirement("structured output", ("response_format",)),
        "tools": Requirement("tool calls", ("tools",)),
        "lora": Requirement("LoRA adapters", setting=("lora", True)),
        "pipeline_parallel": Requirement("pipeline parallelism", setting=("pipeline_parallel", 2)),
        "prefix_caching": Requirement("prefix caching", setting=("prefix_caching", True)),
        "min_p": Requirement("min_p", ("min_p",)),
        "logit_bias": Requirement("logit_bias", ("logit_bias",)),
        "logprobs": Requirement("logprobs", ("logprobs",)),
        "presence_penalty": Requirement("presence penalty", ("presence_penalty",)),
        "frequency_penalty": Requirement("frequency penalty", ("frequency_penalty",)),
        "repetition_penalty": Requirement("repetition penalty", ("repetition_penalty",)),
        "seed": Requirement("seeded sampling", ("seed",)),
        "temperature": Requirement("sampling above temperature 0", ("temperature",)),
        "stop": Requirement("stop strings", ("stop",)),
        "n": Requirement("several answers per request", ("n",)),
        "beam_search": Requirement("beam search", ("use_beam_search",)),
    }
)


def parse_requirements(text: str | None) -> tuple[str, ...]:
    """Names separated by commas. Raises DP001 for one that is not known."""
    names = tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    for name in names:
        if name not in REQUIREMENTS:
            raise DraftproofError(
                "DP001",
                "--require",
                name[:40],
                f"features of: {', '.join(REQUIREMENTS)}",
                "Name one of these.",
            )
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is known of the requests. `copied` replays answers against prompts, `predicted` against predictions.

    `stand_in`: what was taken for answers where none are recorded, in words."""

    name: str
    num_requests: int
    num_answers: int
    num_predictions: int
    parameters: Mapping[str, int]
    copied: Copying | None
    predicted: Copying | None
    stand_in: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """`view` None: nothing could be read of the target, `unread` says why. `engine_assumed`: the user named none.
    `memory` in bytes; `context` in tokens."""

    reference: str
    view: CheckpointView | None
    unread: str | None
    engine: str
    version: str | None
    engine_assumed: bool
    role: Role
    memory: int | None = None
    context: int | None = None
    concurrency: int | None = None
    requirements: tuple[str, ...] = ()
    workload: Workload | None = None

    @property
    def parameters(self) -> Mapping[str, int] | None:
        """Request parameters that are required or used, with the number of requests (0: required); None: not known."""
        required = {name: 0 for key in self.requirements for name in REQUIREMENTS[key].parameters}
        used = {} if self.workload is None else dict(self.workload.parameters)
        return {**required, **used} if required or self.workload is not None else None
