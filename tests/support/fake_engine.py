"""An engine without a model: characters are tokens, answers are given, time is counted instead of measured.

For tests of commands and of measuring. It behaves as `draftproof.engine.engine.Engine` does at its edges,
with the real request and event types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from draftproof.core.cost import RoundCost, SpeculationStats
from draftproof.core.intent import NoSpeculation, SelfDraft, SpeculationIntent
from draftproof.core.params import SamplingParams
from draftproof.engine.request import Request, RequestOutput, RoundDraft, StreamEvent

DRAFTER = {"model": "fake", "weights": "int4", "weights_bytes": 3 << 20, "cache_bytes": 0}
"""What the engine has once a request has asked for it, as a real one."""


class CharacterTokenizer:
    """One token per character, its id the code point."""

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        return [ord(character) for character in ("^" if add_special else "") + text]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(token) for token in token_ids)


@dataclass(slots=True)
class Running:
    request: Request
    answer: list[int]
    emitted: list[int] = field(default_factory=list)
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    decode_s: float = 0.0


@dataclass(slots=True)
class FakeEngine:
    """`answer` maps a prompt's text and whether it is drafted for to the whole answer.

    A round costs `plain_round_s`, and `draft_s` more where anything is drafted; a drafted request gets
    `tokens_per_round` tokens of it, another one token. A prompt costs `prefill_s`. `now` is the fake clock.
    """

    answer: Callable[[str, bool], str] = lambda prompt, drafted: "an answer of some length, always the same"
    plain_round_s: float = 0.010
    draft_s: float = 0.002
    prefill_s: float = 0.100
    tokens_per_round: int = 4
    promise: bool = True
    error: dict[str, str] | None = None
    tokenizer: CharacterTokenizer = field(default_factory=CharacterTokenizer)
    now: float = 0.0
    ids: Iterator[int] = field(default_factory=count)
    requests: list[Request] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    costs: list[RoundCost] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        return {
            "model": "fake",
            "dtype": "float32",
            "weights": "native",
            "weight_types": {"float": 1},
            "kernels": "python",
            "kernels_reason": "there is no model",
            "context_length": 4096,
            "drafters": [DRAFTER for request in self.requests[:1] if isinstance(request.intent, SelfDraft)],
            "exactness": {"promise": self.promise, "reason": "as the test says"},
        }

    def render_chat(self, messages: Sequence[dict[str, Any]]) -> str:
        return "".join(f"<{message['role']}>{message['content']}\n" for message in messages) + "<assistant>"

    def make_request(
        self,
        prompt: str | list[int],
        params: SamplingParams,
        *,
        intent: SpeculationIntent | None = None,
        prediction: str = "",
        scope: str = "",
    ) -> Request:
        return Request(
            req_id=f"fake-{next(self.ids)}",
            prompt_token_ids=tuple(self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt),
            params=params,
            intent=intent or NoSpeculation(),
            prediction=tuple(self.tokenizer.encode(prediction)),
            scope=scope,
        )

    def add_request(self, request: Request) -> None:
        self.requests.append(request)
        drafted = not isinstance(request.intent, NoSpeculation)
        text = self.answer(self.tokenizer.decode(request.prompt_token_ids), drafted)
        self.running.append(Running(request, self.tokenizer.encode(text)[: request.params.max_tokens]))

    @property
    def has_work(self) -> bool:
        return bool(self.running)

    def take_round_costs(self) -> list[RoundCost]:
        costs, self.costs = self.costs, []
        return costs

    def step(self) -> list[StreamEvent]:
        decoding = [item for item in self.running if item.emitted]
        prefilling = [item for item in self.running if not item.emitted]
        drafts = any(not isinstance(item.request.intent, NoSpeculation) for item in decoding)
        draft_s = self.draft_s if drafts else 0.0
        verify_s = self.plain_round_s if decoding else 0.0
        prefill_s = self.prefill_s * len(prefilling)
        self.now += draft_s + verify_s + prefill_s
        events = [self._emit(item, draft_s + verify_s) for item in list(self.running)]
        emitted = sum(len(event.token_ids) for event in events)
        self.costs.append(
            RoundCost(
                draft_s=draft_s, verify_s=verify_s, prefill_s=prefill_s, emitted=emitted, batch=len(decoding)
            )
        )
        return events

    def _emit(self, item: Running, decode_s: float) -> StreamEvent:
        first = not item.emitted
        drafted = not first and not isinstance(item.request.intent, NoSpeculation)
        count = self.tokens_per_round if drafted else 1
        tokens = tuple(item.answer[len(item.emitted) : len(item.emitted) + count])
        item.emitted.extend(tokens)
        if not first:
            item.decode_s += decode_s
            accepted = len(tokens) - 1 if drafted else 0
            item.stats.add_round(self.tokens_per_round if drafted else 0, accepted, len(tokens))
        draft = (
            RoundDraft(accepted=tokens[:-1], correction=tokens[-1], rejected=(ord("X"),)) if drafted else None
        )
        finished = self._output(item) if len(item.emitted) >= len(item.answer) else None
        if finished is not None:
            self.running.remove(item)
        text = self.tokenizer.decode(tokens)
        return StreamEvent(
            req_id=item.request.req_id, text=text, token_ids=tokens, draft=draft, finished=finished
        )

    def _output(self, item: Running) -> RequestOutput:
        return RequestOutput(
            req_id=item.request.req_id,
            token_ids=tuple(item.emitted),
            text=self.tokenizer.decode(item.emitted),
            finish_reason="error" if self.error is not None else "length",
            prompt_tokens=len(item.request.prompt_token_ids),
            completion_tokens=len(item.emitted),
            prefill_s=self.prefill_s,
            decode_s=item.decode_s,
            stats=item.stats,
            seed=0,
            error=self.error,
        )
