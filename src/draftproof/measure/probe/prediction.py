"""Builds `prediction` from the file that is being edited, and says when not to send it.

Called by `draftproof probe --prediction-file` and as a library. Reads the providers table; sends nothing. Tokens are
estimates, for the endpoint's tokenizer is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from draftproof.configs.providers import DeploymentType, Known, PredictionRule
from draftproof.configs.providers.model import PredictionShape
from draftproof.measure.probe.cost import estimated_tokens

LOW_SHARE = 0.5
"""Below this share of the prediction in the answer more tokens are rejected than accepted, and a request may be slower
than without a prediction (Azure OpenAI, Predicted outputs, page of 2025-04-14)."""

_MIN_TOKENS = 32
_MAX_COMPARED_LINES = 20_000
_MAX_COMPARED_WORDS = 4_000_000
"""Pairs of words that are compared for lines that changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionAdvice:
    """`prediction` is the value to send, `body` the user's request with it, None without a request. `against` are
    reasons not to send it, `notes` things to know; `blocked` means that it is documented not to work.
    `share_kept` is the part of the prediction that an answer is expected to contain, None where nothing was compared.
    """

    prediction: Mapping[str, Any] | str
    body: Mapping[str, Any] | None
    known: Known
    num_chars: int
    num_tokens: int
    share_kept: float | None
    rejected_tokens: int | None
    against: tuple[str, ...]
    notes: tuple[str, ...]
    blocked: bool

    def as_dict(self) -> dict[str, object]:
        return {
            "prediction": self.prediction,
            "request": self.body,
            "documented": self.known.value,
            "num_chars": self.num_chars,
            "estimated_tokens": self.num_tokens,
            "share_kept": self.share_kept,
            "estimated_rejected_tokens": self.rejected_tokens,
            "send": not self.against,
            "blocked": self.blocked,
            "against": list(self.against),
            "notes": list(self.notes),
        }


def advise_prediction(
    text: str,
    row: DeploymentType | None = None,
    model: str | None = None,
    request: Mapping[str, Any] | None = None,
    expected: str | None = None,
) -> PredictionAdvice:
    """`text` is the file as it is; `expected` an answer of the kind that is expected (the edited file of another
    time); `request` the body that it is to go with; `row` and `model` whom it is for."""
    rule = row.prediction if row is not None else None
    share = share_kept(text, expected) if expected is not None else None
    tokens = estimated_tokens(text)
    rejected = None if share is None else round(tokens * (1 - share))
    clashes = excluded_parameters(rule, request or {})
    against = [f"{clash} is in the request, and is documented to exclude prediction" for clash in clashes]
    against += _against(row, model, tokens, share)
    prediction = _shaped(text, rule)
    known = Known.NOT_DOCUMENTED if row is None else row.prediction_for(model)
    return PredictionAdvice(
        prediction=prediction,
        body=None if request is None else {**request, "prediction": prediction},
        known=known,
        num_chars=len(text),
        num_tokens=tokens,
        share_kept=share,
        rejected_tokens=rejected,
        against=tuple(against),
        notes=tuple(_notes(rule, tokens, rejected, request or {})),
        blocked=bool(clashes) or known is Known.OTHER_MODELS,
    )


def share_kept(prediction: str, answer: str) -> float:
    """The share of the prediction's characters that stand in the answer too, in order, compared by words within
    lines: 1 for an answer that contains all of it. Beyond 20,000 lines only the first are compared."""
    before = prediction.splitlines(keepends=True)[:_MAX_COMPARED_LINES]
    after = answer.splitlines(keepends=True)[:_MAX_COMPARED_LINES]
    total = sum(map(len, before))
    if total == 0:
        return 0.0
    kept = 0
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            kept += sum(map(len, before[a0:a1]))
        elif tag == "replace" and (a1 - a0) * (b1 - b0) <= 10_000:
            kept += _kept_words("".join(before[a0:a1]), "".join(after[b0:b1]))
    return kept / total


def excluded_parameters(rule: PredictionRule | None, request: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of `rule.not_with` that the request has: present and not null, or beyond the bound."""
    if rule is None:
        return ()
    return tuple(condition for condition in rule.not_with if _is_met(condition, request))


def _is_met(condition: str, request: Mapping[str, Any]) -> bool:
    name, _, bound = condition.partition(" > ")
    value = request.get(name)
    if name == "audio":
        return bool(value) or "audio" in (request.get("modalities") or ())
    if not bound:
        return value not in (None, False, [], ())
    return isinstance(value, int | float) and not isinstance(value, bool) and value > float(bound)


def _against(row: DeploymentType | None, model: str | None, tokens: int, share: float | None) -> list[str]:
    reasons = []
    if row is None:
        reasons.append("no deployment type was named, so nothing is known of prediction there")
    else:
        known = row.prediction_for(model)
        named = ", ".join(row.prediction.models) if row.prediction else ""
        if known is Known.NOT_DOCUMENTED:
            reasons.append(f"prediction is not documented for {row.title}")
        elif known is Known.OTHER_MODELS:
            reasons.append(f"prediction is documented for {named}, not for {model}")
        elif known is Known.UNKNOWN_MODEL:
            reasons.append(f"prediction is documented for {named}; whether that is served here is not known")
    if tokens < _MIN_TOKENS:
        reasons.append(f"the file has some {tokens} tokens: there is next to nothing to gain")
    if share is not None and share < LOW_SHARE:
        reasons.append(
            f"only {share:.0%} of it is expected in the answer: more tokens rejected than accepted, which may be "
            "slower than no prediction"
        )
    return reasons


def _notes(
    rule: PredictionRule | None, tokens: int, rejected: int | None, request: Mapping[str, Any]
) -> list[str]:
    notes = []
    if rule is not None and rule.rejected_tokens == "billed":
        how_many = "what the answer does not contain" if rejected is None else f"some {rejected} tokens"
        notes.append(f"rejected tokens are billed as completion tokens: {how_many}, up to {tokens} at worst")
    elif rule is not None and rule.rejected_tokens == "free":
        notes.append("rejected tokens are documented not to change the price")
    elif rule is not None:
        notes.append("what rejected tokens cost is not documented")
    if rule is not None and rule.max_length is not None:
        bound = request.get(rule.max_length)
        if not isinstance(bound, int) or bound < tokens:
            notes.append(f"its length is bounded by {rule.max_length}: set it to {tokens} or more")
    temperature = request.get("temperature")
    if temperature not in (0, 0.0):
        notes.append("fewer predicted tokens come true at a temperature above 0")
    notes += rule.notes if rule is not None else ()
    if rejected is None:
        notes.append("how much of the file the answer keeps is not known: compare one with --expected")
    return notes


def _shaped(text: str, rule: PredictionRule | None) -> Mapping[str, Any] | str:
    shape: PredictionShape = rule.shapes[0] if rule is not None else "text"
    if shape == "string":
        return text
    content: object = [{"type": "text", "text": text}] if shape == "parts" else text
    return {"type": "content", "content": content}


def _kept_words(before: str, after: str) -> int:
    old, new = _words(before), _words(after)
    if len(old) * len(new) > _MAX_COMPARED_WORDS:
        return 0
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return sum(len(word) for block in blocks for word in old[block.a : block.a + block.size])


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\s+|[^\w\s]", text)
