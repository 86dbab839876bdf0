"""Whether a request can run on this engine, and with which method and rule. Called when a request is added."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from numbers import Integral
from typing import Any

from draftproof.core.errors import DraftproofError
from draftproof.core.intent import NoSpeculation, SpeculationIntent
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.request import Request
from draftproof.models.base import ModelConfig
from draftproof.proposers.registry import METHODS, draws
from draftproof.verify.types import Rule


def check_types(request: Request) -> None:
    """What a library's user may have mistaken: a field of another type, which would break the queue for everybody.

    Raises DP103 for an intent, DP201 for parameters, DP308 for another field.
    """
    if not (request.intent is None or isinstance(request.intent, SpeculationIntent)):
        raise DraftproofError(
            "DP103",
            "intent",
            f"a {type(request.intent).__name__}",
            'an intent, or what parse_intent takes, such as {"method": "auto"}',
            "Pass one of these, or None for what the engine was set up with.",
        )
    if not isinstance(request.params, SamplingParams):
        raise DraftproofError(
            "DP201",
            "params",
            f"a {type(request.params).__name__}",
            "SamplingParams",
            "Pass SamplingParams(temperature=…, …).",
        )
    for name, kind, expected in (
        ("req_id", str, "text"),
        ("scope", str, "text"),
        ("priority", int, "a whole number"),
    ):
        value = getattr(request, name)
        if not isinstance(value, kind) or isinstance(value, bool):
            found = f"{reprlib.repr(value)}, of type {type(value).__name__}"
            raise DraftproofError("DP308", name, found, expected, f"Pass {expected}, or leave it out.")


def read_token_ids(name: str, ids: object) -> tuple[int, ...]:
    """Token ids from any iterable of whole numbers (lists, NumPy arrays …). Raises DP303 for anything else."""
    items: list[Any] = [*ids] if isinstance(ids, Iterable) and not isinstance(ids, str | bytes) else [None]
    wrong = {
        type(item).__name__ for item in items if not isinstance(item, Integral) or isinstance(item, bool)
    }
    if wrong:
        found = f"a {type(ids).__name__}"
        if isinstance(ids, Iterable):
            found += " with " + ", ".join(sorted(wrong))
        raise DraftproofError(
            "DP303", name, found, "text, or token ids as whole numbers", "Pass text or a list of int."
        )
    return tuple(int(item) for item in items)


def check_request(request: Request, config: ModelConfig, max_len: int) -> None:
    """Raises the DraftproofError of a request that can never run on this model.

    DP301: empty prompt. DP302: it leaves no room in `max_len` tokens. DP303: token ids outside the vocabulary.
    DP2xx: sampling parameters that do not fit the model. And what `check_types` raises.
    """
    check_types(request)
    if not request.prompt_token_ids:
        raise DraftproofError(
            "DP301", "prompt", "no tokens", "at least one token", "Give the request a prompt."
        )
    if len(request.prompt_token_ids) >= max_len:
        raise DraftproofError(
            "DP302",
            "prompt",
            f"{len(request.prompt_token_ids)} tokens",
            f"fewer than the context length of {max_len} tokens",
            "Shorten the prompt, or raise --max-model-len."
            if max_len < config.context_length
            else "Shorten the prompt.",
        )
    for name, ids in (("prompt", request.prompt_token_ids), ("prediction", request.prediction)):
        if ids and not (min(ids) >= 0 and max(ids) < config.vocab_size):
            raise DraftproofError(
                "DP303",
                name,
                f"token ids from {min(ids)} to {max(ids)}",
                f"ids from 0 to {config.vocab_size - 1}",
                "Encode the text with this model's tokenizer.",
            )
    least = len(request.prompt_token_ids) + request.params.min_tokens
    if least > max_len:
        raise DraftproofError(
            "DP202",
            "min_tokens",
            f"{request.params.min_tokens} after a prompt of {len(request.prompt_token_ids)} tokens",
            f"at most {max_len} tokens together, the context length",
            "Lower min_tokens or shorten the prompt.",
        )
    request.params.validate_for(config.vocab_size, max_len, frozenset(config.eos_token_ids))


def fit(request: Request, config: EngineConfig) -> tuple[SpeculationIntent, str | None]:
    """The method that will run, and in words what the user should know of it. Raises DP106 to refuse."""
    intent = request.intent if request.intent is not None else config.speculation
    if isinstance(intent, NoSpeculation):
        return intent, "the prediction is not used: no method was asked for" if request.prediction else None
    # A cascade reads and needs what its parts do: one that has nothing to read is passed over.
    methods = [METHODS[part.method] for part in getattr(intent, "proposers", (intent,))]
    if request.prediction and not any(method.uses_prediction for method in methods):
        return intent, f"the prediction is not used: method {intent.method} does not read one"
    if request.prediction or not all(method.needs_prediction for method in methods):
        return intent, None
    error = DraftproofError(
        "DP106",
        "speculation.method",
        f"{intent.method}, but the request has no prediction",
        "the text that you expect as the answer",
        "Give it (--prediction-file), or use method auto, which takes a prediction where there is one.",
    )
    if config.on_unfit == "refuse":
        raise error
    return NoSpeculation(), f"decodes plainly: {error}"


def rule_for(intent: SpeculationIntent, params: SamplingParams) -> Rule:
    """How drafts of `intent` are judged.

    `auto` is coupled where drafts are point masses, for which it accepts as often as rejection, and wherever the
    client gives a seed, for then the text is that of the seed; rejection where drafts are drawn from q.
    """
    if params.is_greedy:
        return Rule.MATCH
    verification = getattr(intent, "verification", "auto")
    if verification == "auto" and params.seed is None and draws(intent):
        return Rule.REJECTION
    return {"rejection": Rule.REJECTION, "block": Rule.BLOCK}.get(verification, Rule.MATCH)
