"""Sampling parameters of one request; the names are those of the OpenAI API and of vLLM.

Made by the command line, the server (`SamplingParams.parse`) and users of the library; read by the engine and
by `ops.sampling`. Knows neither models nor tensors: what depends on a model is checked by `validate_for`.
"""

from __future__ import annotations

import difflib
import math
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Never

from draftproof.core.errors import DraftproofError

MAX_STOP_STRINGS = 16
MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the target's tokens are chosen and when a request ends. `temperature == 0` is greedy.

    Raises DraftproofError DP201 for a value out of range, DP202 for parameters that contradict each other.
    Lists and sets are accepted where tuples and frozensets are declared, and stored as those.
    """

    max_tokens: int | None = None
    """Most output tokens; None: as many as the context holds."""
    min_tokens: int = 0
    """EOS, stop tokens and stop strings end a request only by a token that comes after this many others."""
    temperature: float = 1.0
    top_k: int = 0
    """0: all tokens."""
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    allowed_token_ids: frozenset[int] | None = None
    bad_token_ids: frozenset[int] = frozenset()
    bad_token_sequences: tuple[tuple[int, ...], ...] = ()
    """Token sequences that never occur in the output; one that began in the prompt is not looked for."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    logprobs: int | None = None
    """None: none; n >= 0: the chosen token's and those of the n most likely alternatives."""
    logprobs_mode: Literal["raw", "processed"] = "raw"
    """raw: log softmax of the model's logits; processed: after all parameters, as sampled from."""

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_collections()
        self._check_contradictions()

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> SamplingParams:
        """From a JSON object: keys of `logit_bias` may be strings, `stop` one string, null means not given.

        Raises DraftproofError DP201 for an unknown key (naming the nearest) and as the constructor does.
        """
        known = [parameter.name for parameter in fields(cls)]
        for name in values:
            if name not in known:
                nearest = difflib.get_close_matches(str(name), known, n=1)
                remedy = f"Did you mean {nearest[0]!r}?" if nearest else "Remove this key."
                expected = f"one of {', '.join(known)}"
                raise DraftproofError("DP201", str(name), "an unknown key", expected, remedy)
        given = {name: value for name, value in values.items() if value is not None}
        if isinstance(given.get("stop"), str):
            given["stop"] = (given["stop"],)
        if isinstance(given.get("logit_bias"), Mapping):
            given["logit_bias"] = {_json_key(key): bias for key, bias in given["logit_bias"].items()}
        return cls(**given)

    def validate_for(
        self, vocab_size: int, context_length: int, eos_token_ids: frozenset[int] = frozenset()
    ) -> None:
        """Checks what depends on the model. `context_length` in tokens, prompt and output together.

        Raises DraftproofError DP303 for a token id outside the vocabulary, DP202 for what cannot be done.
        """
        ids_by_field: dict[str, Iterable[int]] = {
            "logit_bias": self.logit_bias,
            "allowed_token_ids": self.allowed_token_ids or (),
            "bad_token_ids": self.bad_token_ids,
            "bad_token_sequences": [token for sequence in self.bad_token_sequences for token in sequence],
            "stop_token_ids": self.stop_token_ids,
        }
        for name, ids in ids_by_field.items():
            for token in ids:
                if token >= vocab_size:
                    remedy = "Use ids of this model's tokenizer."
                    raise DraftproofError("DP303", name, token, f"token ids below {vocab_size}", remedy)
        if self.min_tokens >= context_length:
            expected = f"fewer than the context of {context_length} tokens"
            _contradiction("min_tokens", self.min_tokens, expected, "Lower min_tokens.")
        forbidden = self._always_bad
        if self.min_tokens > 0:
            forbidden = forbidden | self.stop_token_ids | (frozenset() if self.ignore_eos else eos_token_ids)
        choice = self.allowed_token_ids
        if len(forbidden) >= vocab_size or (choice is not None and choice <= forbidden):
            _contradiction(
                "allowed_token_ids" if choice is not None else "bad_token_ids",
                "no token that may come first",
                "at least one allowed token that is neither bad nor, before min_tokens, a stop token",
                "Allow more tokens, forbid fewer, or set min_tokens to 0.",
            )

    @property
    def _always_bad(self) -> frozenset[int]:
        return self.bad_token_ids | {ids[0] for ids in self.bad_token_sequences if len(ids) == 1}

    def _check_numbers(self) -> None:
        _check_int("max_tokens", self.max_tokens, 1, 2**31 - 1, optional=True)
        _check_int("min_tokens", self.min_tokens, 0, 2**31 - 1)
        _check_int("top_k", self.top_k, 0, 2**31 - 1, remedy="Use 0 for all tokens.")
        _check_int("seed", self.seed, -(2**63), 2**63 - 1, optional=True)
        _check_int("logprobs", self.logprobs, 0, MAX_LOGPROBS, optional=True)
        self._check_float("temperature", 0.0, 100.0, "Use 0 for greedy decoding.")
        self._check_float("top_p", 0.0, 1.0, "Use 1 for all tokens.", above_low=True)
        self._check_float("min_p", 0.0, 1.0, "Use 0 for all tokens.")
        # Bounded, so that no finite logit becomes infinite.
        self._check_float("repetition_penalty", 0.01, 100.0, "Use 1 for no penalty.")
        self._check_float("presence_penalty", -2.0, 2.0, "Use 0 for no penalty.")
        self._check_float("frequency_penalty", -2.0, 2.0, "Use 0 for no penalty.")
        if not isinstance(self.ignore_eos, bool):
            _out_of_range("ignore_eos", self.ignore_eos, "true or false")
        if self.logprobs_mode not in ("raw", "processed"):
            _out_of_range("logprobs_mode", self.logprobs_mode, "'raw' or 'processed'")

    def _check_collections(self) -> None:
        for name in ("bad_token_ids", "stop_token_ids", "allowed_token_ids"):
            if name != "allowed_token_ids" or self.allowed_token_ids is not None:
                self._store(name, frozenset(_token_ids(name, getattr(self, name))))
        name, expected = "bad_token_sequences", "a list of lists of at least one token id"
        given = _collection(name, self.bad_token_sequences, expected)
        sequences = tuple(_token_ids(name, ids) for ids in given)
        if () in sequences:
            _out_of_range(name, "an empty sequence", expected)
        self._store(name, sequences)
        if not isinstance(self.logit_bias, Mapping):
            _out_of_range("logit_bias", self.logit_bias, "an object from token id to bias")
        for token, bias in self.logit_bias.items():
            _token_ids("logit_bias", (token,))
            if not _is_number(bias) or not -100 <= bias <= 100:
                _out_of_range(f"logit_bias[{token}]", bias, "a number from -100 to 100")
        self._store("logit_bias", {token: float(bias) for token, bias in self.logit_bias.items()})
        stop = tuple(_collection("stop", self.stop, f"a list of at most {MAX_STOP_STRINGS} strings"))
        if len(stop) > MAX_STOP_STRINGS:
            _out_of_range("stop", f"{len(stop)} strings", f"at most {MAX_STOP_STRINGS} strings")
        for text in stop:
            if not isinstance(text, str) or not text:
                _out_of_range("stop", text, "strings that are not empty")
        self._store("stop", stop)

    def _check_contradictions(self) -> None:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            _contradiction(
                "min_tokens", self.min_tokens, f"at most max_tokens = {self.max_tokens}", "Lower min_tokens."
            )
        if self.allowed_token_ids is not None and self.allowed_token_ids <= self._always_bad:
            _contradiction(
                "allowed_token_ids",
                f"{len(self.allowed_token_ids)} tokens, all of them bad",
                "at least one allowed token that is not bad",
                "Allow another token, or leave allowed_token_ids out.",
            )

    def _check_float(self, name: str, low: float, high: float, remedy: str, above_low: bool = False) -> None:
        """A finite number in [low, high], or in (low, high] with `above_low`; stored as a float."""
        value = getattr(self, name)
        if not _is_number(value) or not low <= value <= high or (above_low and value == low):
            expected = f"a number {'above' if above_low else 'from'} {low:g} to {high:g}"
            _out_of_range(name, value, expected, remedy)
        self._store(name, float(value))

    def _store(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_int(
    name: str, value: int | None, low: int, high: int, optional: bool = False, remedy: str = ""
) -> None:
    if value is None and optional:
        return
    if not _is_int(value) or value is None or not low <= value <= high:
        _out_of_range(name, value, f"an integer from {low} to {high}", remedy)


def _collection(name: str, value: object, expected: str) -> Iterable[Any]:
    """A string is refused although it can be iterated: its characters are never what was meant."""
    if not isinstance(value, list | tuple | set | frozenset):
        _out_of_range(name, value, expected)
    return value


def _token_ids(name: str, value: object) -> tuple[int, ...]:
    ids = tuple(_collection(name, value, "a list of token ids"))
    for token in ids:
        if not _is_int(token) or token < 0:
            _out_of_range(name, token, "token ids: integers from 0")
    return ids


def _json_key(key: object) -> object:
    """JSON knows only strings as keys; what is no decimal number is left for the constructor to refuse."""
    return int(key) if isinstance(key, str) and key.isascii() and key.isdecimal() else key


def _out_of_range(name: str, value: object, expected: str, remedy: str = "") -> Never:
    # Python refuses to print integers of thousands of digits.
    found = "a huge integer" if isinstance(value, int) and value.bit_length() > 128 else reprlib.repr(value)
    raise DraftproofError("DP201", name, found, expected, remedy or f"Correct {name}.")


def _contradiction(name: str, found: object, expected: str, remedy: str) -> Never:
    raise DraftproofError("DP202", name, found, expected, remedy)
