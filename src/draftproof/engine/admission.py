"""Whether a request can run on this engine, and with which method and rule. Called when a request is added."""

from __future__ import annotations

from draftproof.core.errors import DraftproofError
from draftproof.core.intent import NoSpeculation, Predicted, SpeculationIntent
from draftproof.engine.config import OnUnfit
from draftproof.engine.request import Request
from draftproof.models.base import ModelConfig
from draftproof.verify.types import Rule


def check_request(request: Request, config: ModelConfig, max_len: int) -> None:
    """Raises the DraftproofError of a request that can never run on this model.

    DP301: empty prompt. DP302: it leaves no room in `max_len` tokens. DP303: token ids outside the vocabulary.
    DP2xx: sampling parameters that do not fit the model.
    """
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
            "Shorten the prompt, or raise --max-model-len if the model allows more.",
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
    request.params.validate_for(config.vocab_size, max_len, frozenset(config.eos_token_ids))


def fit(request: Request, on_unfit: OnUnfit) -> tuple[SpeculationIntent, str | None]:
    """The method that will run, and in words why it is not the one asked for. Raises DP106 to refuse."""
    if isinstance(request.intent, Predicted) and not request.prediction:
        error = DraftproofError(
            "DP106",
            "speculation.method",
            "predicted, but the request has no prediction",
            "the text that you expect as the answer",
            "Give it (--prediction-file), or use method auto, which takes a prediction where there is one.",
        )
        if on_unfit == "refuse":
            raise error
        return NoSpeculation(), f"decodes plainly: {error}"
    return request.intent, None


def rule_for(intent: SpeculationIntent) -> Rule:
    """How drafts of `intent` are judged when the request is sampled.

    `auto` is coupled: every proposer of this version drafts point masses, for which it accepts as often.
    """
    verification = getattr(intent, "verification", "auto")
    return {"rejection": Rule.REJECTION, "block": Rule.BLOCK}.get(verification, Rule.MATCH)
