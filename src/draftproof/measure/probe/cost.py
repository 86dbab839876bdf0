"""What a probe will cost at most, before anything is sent.

Called by the command, which shows it and asks. Counts of tokens are upper estimates, for the endpoint's tokenizer is
not known here; prices are the user's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.measure.probe.parameters import PARAMETERS, PREDICTED, PROMPT
from draftproof.measure.workloads import Prompt

BYTES_PER_TOKEN = 3
"""Of prose and code in today's vocabularies a token has about four bytes; three keep the estimate on the high side."""

SMALL_TOKENS = 16
"""Most tokens of the answer to a small request."""

_FORM_REQUESTS = 3
_TRIALS = 2
"""Whether a stream gives its usage, and whether a prediction is taken."""
_TEMPLATE_TOKENS = 40
"""What a chat template may add to a prompt."""


def estimated_tokens(text: str) -> int:
    """Tokens of `text` at most, by its bytes; a text without blanks in an unusual script may have more."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Per million tokens, in the user's currency."""

    prompt: float
    completion: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPart:
    """`rejected_tokens`: predicted tokens that do not come true and that some providers bill as completion."""

    what: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    rejected_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens + self.rejected_tokens


@dataclass(frozen=True, slots=True)
class Estimate:
    """At most this is sent and answered, if every answer is as long as it may be."""

    parts: tuple[CostPart, ...]

    @property
    def requests(self) -> int:
        return sum(part.requests for part in self.parts)

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)

    def price(self, price: Price) -> float:
        """In the currency of `price`, rejected tokens billed as completion."""
        prompt = sum(part.prompt_tokens for part in self.parts)
        completion = sum(part.completion_tokens + part.rejected_tokens for part in self.parts)
        return (prompt * price.prompt + completion * price.completion) / 1e6

    def __str__(self) -> str:
        prompt = sum(part.prompt_tokens for part in self.parts)
        completion = sum(part.completion_tokens for part in self.parts)
        rejected = sum(part.rejected_tokens for part in self.parts)
        return (
            f"at most {self.requests} requests, {prompt:,} prompt tokens, {completion:,} completion tokens, "
            f"{rejected:,} rejected predicted tokens"
        )


def estimate(accepted: bool, prompts: Sequence[Prompt], max_tokens: int) -> Estimate:
    """Of a run with these parts; `prompts` are those that are streamed, none if nothing is observed so. Requests that
    are repeated after a rate limit or a server's error come on top; they are answered with errors, not with tokens."""
    small = estimated_tokens(PROMPT) + _TEMPLATE_TOKENS
    forms = _FORM_REQUESTS + (_TRIALS if prompts else 0)
    parts = [
        CostPart(
            what="small requests to find the form of a request",
            requests=forms,
            prompt_tokens=forms * small,
            completion_tokens=forms * SMALL_TOKENS,
            rejected_tokens=estimated_tokens(PREDICTED),
        )
    ]
    if accepted:
        extra = sum(estimated_tokens(json.dumps(parameter.body)) for parameter in PARAMETERS)
        with_prediction = sum("prediction" in parameter.body for parameter in PARAMETERS)
        num_answers = sum(int(parameter.body.get("n", 1)) for parameter in PARAMETERS)
        parts.append(
            CostPart(
                what="one small request for each parameter",
                requests=len(PARAMETERS),
                prompt_tokens=len(PARAMETERS) * small + extra,
                completion_tokens=num_answers * SMALL_TOKENS,
                rejected_tokens=with_prediction * estimated_tokens(PREDICTED),
            )
        )
    if prompts:
        texts = sum(estimated_tokens(prompt.text) + _TEMPLATE_TOKENS for prompt in prompts)
        parts.append(
            CostPart(
                what="edits that are streamed as they are",
                requests=len(prompts),
                prompt_tokens=texts,
                completion_tokens=len(prompts) * max_tokens,
            )
        )
        parts.append(
            CostPart(
                what="the same edits in three arms, where a prediction is taken",
                requests=3 * len(prompts),
                prompt_tokens=3 * texts,
                completion_tokens=3 * len(prompts) * max_tokens,
                rejected_tokens=2 * len(prompts) * max_tokens,
            )
        )
    return Estimate(tuple(parts))
