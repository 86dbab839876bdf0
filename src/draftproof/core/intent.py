"""What the user wants of speculation: a tagged union, parsed once at the edge, frozen and valid afterwards.

The command line and the server call `parse_intent` on what the user wrote; the registry of proposers and
everything that reports read the result. `to_json` is the inverse. This module knows which keys a method takes
and in what range, not whether a model or prompt suits it. For users: `docs/speculative-config.md`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_type_hints

from draftproof.core.errors import DraftproofError
from draftproof.core.spellings import FOREIGN_KEYS, FOREIGN_METHODS, MODEL_KEYS, model_method, normal

Verification = Literal["auto", "rejection", "block", "coupled"]
DraftWeights = Literal["auto", "native", "int8", "int4"]
"""Precision of a drafter's weights: it costs acceptance at most, never exactness. auto: whatever is fastest."""
DraftSampling = Literal["auto", "greedy", "probabilistic"]
"""Whether a drafter takes its best token or draws one. auto: as the request does."""

CHOICES: dict[str, tuple[str, ...]] = {
    "verification": get_args(Verification),
    "draft_weights": get_args(DraftWeights),
    "draft_sample_method": get_args(DraftSampling),
}
OWN_WEIGHTS = "self"
"""What `model` says in `auto` for the target's own weights."""
MAX_MODEL_CHARS = 4096

MAX_TEXT_CHARS = 65_536
MAX_CASCADE_PARTS = 8
INT_RANGES: dict[str, tuple[int, int]] = {
    "num_speculative_tokens": (1, 128),
    "prompt_lookup_min": (1, 32),
    "prompt_lookup_max": (1, 32),
    "suffix_decoding_max_tree_depth": (1, 128),
    "suffix_decoding_max_cached_requests": (0, 100_000),
}
FLOAT_RANGES: dict[str, tuple[float, float]] = {
    "suffix_decoding_max_spec_factor": (0.0, 128.0),
    "suffix_decoding_min_token_prob": (0.0, 1.0),
}


class _Checked:
    """Checks every field on construction, so an intent that exists is valid however it was made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            _check_value(item.name, getattr(self, item.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSpeculation:
    method: Literal["none"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class NGram(_Checked):
    """Prompt look-up (Saxena): what followed the longest n-gram in [min, max] that came before."""

    method: Literal["ngram"] = "ngram"
    num_speculative_tokens: int = 8
    prompt_lookup_min: int = 1
    prompt_lookup_max: int = 5
    verification: Verification = "auto"
    adaptive: bool = True

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise DraftproofError(
                "DP104",
                "prompt_lookup_min",
                f"{self.prompt_lookup_min} with prompt_lookup_max {self.prompt_lookup_max}",
                "prompt_lookup_min <= prompt_lookup_max",
                "Raise the maximum, lower the minimum, or give only one of them: the other then copies it.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suffix(_Checked):
    """Suffix decoding (Oliaro et al.): this request's own text and a bounded pool of earlier outputs."""

    method: Literal["suffix"] = "suffix"
    num_speculative_tokens: int = 16
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 1000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    verification: Verification = "auto"
    adaptive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted(_Checked):
    """Predicted outputs: the user's expected text, realigned after an edit."""

    method: Literal["predicted"] = "predicted"
    num_speculative_tokens: int = 16
    verification: Verification = "auto"
    adaptive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModel(_Checked):
    """A second, smaller model: a directory, a GGUF file or a name of the catalogue."""

    model: str
    method: Literal["draft_model"] = "draft_model"
    num_speculative_tokens: int = 4
    draft_weights: DraftWeights = "auto"
    draft_sample_method: DraftSampling = "auto"
    verification: Verification = "auto"
    adaptive: bool = True

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        _check_value("model", self.model or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfDraft(_Checked):
    """The target's own weights, quantised."""

    method: Literal["self"] = "self"
    num_speculative_tokens: int = 4
    draft_weights: DraftWeights = "auto"
    draft_sample_method: DraftSampling = "auto"
    verification: Verification = "auto"
    adaptive: bool = True


SinglePart = NGram | Suffix | Predicted | DraftModel | SelfDraft
"""What a cascade may consist of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade(_Checked):
    """The first proposer that has a draft. `verification` is named here, not in the parts."""

    proposers: tuple[SinglePart, ...]
    method: Literal["cascade"] = "cascade"
    verification: Verification = "auto"
    adaptive: bool = True

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if not 1 <= len(self.proposers) <= MAX_CASCADE_PARTS:
            raise _out_of_range(
                "proposers", f"{len(self.proposers)} parts", f"1 to {MAX_CASCADE_PARTS} parts"
            )
        for part_idx, part in enumerate(self.proposers):
            if part.verification != "auto":
                raise DraftproofError(
                    "DP104",
                    f"proposers[{part_idx}].verification",
                    _shown(part.verification),
                    "no verification rule in a part: one request is verified by one rule",
                    "Name `verification` once, beside `proposers`.",
                )
            if not part.adaptive:
                raise DraftproofError(
                    "DP104",
                    f"proposers[{part_idx}].adaptive",
                    _shown(part.adaptive),
                    "no `adaptive` in a part: the depth of a request is decided once",
                    "Name `adaptive` once, beside `proposers`.",
                )

    @property
    def num_speculative_tokens(self) -> int:
        return max(part.num_speculative_tokens for part in self.proposers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto(_Checked):
    """predicted if given, then suffix, then n-gram, then the drafter that `model` names, if it names one.

    `model` is a path or name as of `DraftModel`, or "self". `num_speculative_tokens` is an upper bound.
    """

    method: Literal["auto"] = "auto"
    num_speculative_tokens: int = 16
    model: str | None = None
    draft_weights: DraftWeights = "auto"
    verification: Verification = "auto"
    adaptive: bool = True

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if self.model is None and self.draft_weights != "auto":
            raise DraftproofError(
                "DP104",
                "draft_weights",
                f"{_shown(self.draft_weights)} without `model`",
                "a drafter whose weights they are",
                'Name one: "model": "self" or a path. Without one, leave draft_weights out: look-up has no weights.',
            )


SpeculationIntent = NoSpeculation | SinglePart | Cascade | Auto

METHODS: dict[str, type[SpeculationIntent]] = {
    "none": NoSpeculation,
    "ngram": NGram,
    "suffix": Suffix,
    "predicted": Predicted,
    "draft_model": DraftModel,
    "self": SelfDraft,
    "cascade": Cascade,
    "auto": Auto,
}
PART_METHODS = tuple(get_args(get_type_hints(kind)["method"])[0] for kind in get_args(SinglePart))
_ALL_KEYS = frozenset(item.name for kind in METHODS.values() for item in fields(kind)) | {
    "rejection_sample_method"
}
_NOT_IN_PARTS = ("verification", "adaptive")


def parse_intent(obj: str | Mapping[str, object]) -> SpeculationIntent:
    """Reads a speculation object: JSON text, or the mapping that such text stands for.

    Takes vLLM's `--speculative-config` for the methods built here plus our own keys; dashes in keys stand for
    underscores and null for "not given". Raises DraftproofError DP101 to DP106 for anything else.
    """
    return _parse_object(_read_json(obj) if isinstance(obj, str) else obj, "")


def as_dict(intent: SpeculationIntent) -> dict[str, Any]:
    """Every key of the intent with its value; `parse_intent(as_dict(intent)) == intent`."""
    found: dict[str, Any] = {"method": intent.method}
    found |= {item.name: getattr(intent, item.name) for item in fields(intent)}
    if isinstance(intent, Cascade):
        found["proposers"] = [_as_part(part) for part in intent.proposers]
    return found


def to_json(intent: SpeculationIntent) -> str:
    """`as_dict` as JSON text; the inverse of `parse_intent`."""
    return json.dumps(as_dict(intent))


def _as_part(part: SinglePart) -> dict[str, Any]:
    return {key: value for key, value in as_dict(part).items() if key not in _NOT_IN_PARTS}


def _parse_object(obj: object, path: str) -> SpeculationIntent:
    """One speculation object; `path` is "" at the top and "proposers[1]." inside a cascade."""
    given = _underscored(obj, path)
    method = _method(given.pop("method", None), path, PART_METHODS if path else tuple(METHODS))
    kind = METHODS[method]
    own_keys = {item.name for item in fields(kind)}
    for key in given:
        if not (key in own_keys or (key == "rejection_sample_method" and "verification" in own_keys)):
            raise _wrong_key(key, path, method, own_keys)
    _resolve_verification_alias(given, path)
    if kind is Cascade:
        given["proposers"] = _parse_parts(given.get("proposers"))
    if kind is DraftModel:
        given.setdefault("model", "")
    try:
        if kind is NGram:
            _copy_lone_bound(given)
        return kind(**given)  # type: ignore[arg-type]
    except DraftproofError as error:
        raise DraftproofError(
            error.code, path + error.field, error.found, error.expected, error.remedy
        ) from None


def _underscored(obj: object, path: str) -> dict[str, object]:
    """The object's keys with underscores, nulls left out; refuses non-objects and keys that meet."""
    if not isinstance(obj, Mapping):
        raise _out_of_range(path.rstrip(".") or "speculation", _shown(obj), "one JSON object")
    given: dict[str, object] = {}
    seen: set[str] = set()
    for key, value in obj.items():
        if not isinstance(key, str):
            raise _out_of_range(path + _shown(key), _shown(key), "keys that are text")
        name = key.replace("-", "_")
        if name in seen:
            raise _given_twice(path + _cut(name))
        seen.add(name)
        if value is not None:
            given[name] = value
    return given


def _method(value: object, path: str, allowed: Sequence[str]) -> str:
    expected = "one of " + ", ".join(allowed)
    field = f"{path}method"
    if not isinstance(value, str):
        found = "no method" if value is None else _shown(value)
        raise DraftproofError("DP101", field, found, expected, "Name the method.")
    if value in allowed:
        return value
    if value in METHODS:
        raise DraftproofError(
            "DP104", field, _shown(value), expected, "The parts of a cascade are single proposers."
        )
    later = model_method(value)
    if later is not None:
        raise DraftproofError(
            "DP106",
            field,
            f"{_shown(value)}, {later}",
            expected,
            "It is not in this version: use draft_model, or suffix or auto, which need no weights of their own.",
        )
    plain = normal(value)
    spelling = FOREIGN_METHODS.get(plain)
    if spelling is not None or plain in METHODS:
        engine, today = spelling or ("another engine", plain)
        raise DraftproofError(
            "DP105",
            field,
            f"{_shown(value)}, a spelling of {engine}",
            expected,
            f'Write "method": "{today}".',
        )
    raise DraftproofError("DP101", field, _shown(value), expected, _did_you_mean(plain, allowed))


def _wrong_key(key: str, path: str, method: str, own_keys: Iterable[str]) -> DraftproofError:
    """Why `key` cannot stand in an object of this method."""
    alias = {"rejection_sample_method"} if "verification" in own_keys else set()
    expected = f"for method {method} only " + ", ".join(sorted(alias.union(own_keys)))
    field = path + _cut(key)
    plain = normal(key)
    if key in _ALL_KEYS:
        remedy = "Leave it out, or choose the method that it belongs to."
        return DraftproofError("DP104", field, f"a key that method {method} does not have", expected, remedy)
    if plain in MODEL_KEYS:
        remedy = "Leave it out: this version has no use for it."
        return DraftproofError("DP106", field, "a key of other drafters with weights", expected, remedy)
    if plain in FOREIGN_KEYS:
        engine, today = FOREIGN_KEYS[plain]
        return DraftproofError("DP105", field, f"a spelling of {engine}", expected, f"Write today: {today}.")
    return DraftproofError("DP102", field, "an unknown key", expected, _did_you_mean(plain, own_keys))


def _resolve_verification_alias(given: dict[str, object], path: str) -> None:
    """vLLM's `rejection_sample_method` standard | block becomes our `verification`."""
    if "rejection_sample_method" not in given:
        return
    alias = given.pop("rejection_sample_method")
    field = f"{path}rejection_sample_method"
    if "verification" in given:
        raise DraftproofError(
            "DP104", field, "this key and `verification`", "one of the two", "Leave one of them out."
        )
    rules = {"standard": "rejection", "block": "block"}
    if isinstance(alias, str) and alias in ("strict", "probabilistic"):
        raise DraftproofError(
            "DP105", field, f"{_shown(alias)}, removed from vLLM", "standard or block", 'Write "standard".'
        )
    if not isinstance(alias, str) or alias not in rules:
        raise _out_of_range(
            field, _shown(alias), "standard or block (lossy and synthetic rules are not offered)"
        )
    given["verification"] = rules[alias]


def _copy_lone_bound(given: dict[str, object]) -> None:
    """vLLM's rule: of prompt_lookup_min and _max the one that is missing copies the other."""
    for here, missing in (
        ("prompt_lookup_min", "prompt_lookup_max"),
        ("prompt_lookup_max", "prompt_lookup_min"),
    ):
        if here in given and missing not in given:
            _check_value(here, given[here])
            given[missing] = given[here]


def _parse_parts(value: object) -> tuple[SpeculationIntent, ...]:
    if not isinstance(value, list | tuple) or len(value) > MAX_CASCADE_PARTS:
        found = "nothing" if value is None else _shown(value)
        raise _out_of_range("proposers", found, f"a list of 1 to {MAX_CASCADE_PARTS} speculation objects")
    return tuple(_parse_object(part, f"proposers[{part_idx}].") for part_idx, part in enumerate(value))


def _check_value(name: str, value: object) -> None:
    """DP103 unless `value` suits the field; booleans are not numbers."""
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if name in INT_RANGES:
        low, high = INT_RANGES[name]
        if not isinstance(value, int) or not is_int or not low <= value <= high:
            raise _out_of_range(name, _shown(value), f"a whole number from {low} to {high}")
    elif name in FLOAT_RANGES:
        least, most = FLOAT_RANGES[name]
        is_number = is_int or (isinstance(value, float) and math.isfinite(value))
        if not isinstance(value, int | float) or not is_number or not least <= value <= most:
            raise _out_of_range(name, _shown(value), f"a number from {least:g} to {most:g}")
    elif name == "adaptive" and not isinstance(value, bool):
        raise _out_of_range(name, _shown(value), "true or false")
    elif name in CHOICES and not (isinstance(value, str) and value in CHOICES[name]):
        raise _out_of_range(name, _shown(value), "one of " + ", ".join(CHOICES[name]))
    elif name == "model" and not _is_model(value):
        found = _shown(value) if value != "" else "nothing"
        raise _out_of_range(name, found, "a directory, a GGUF file or a name of `draftproof models list`")


def _is_model(value: object) -> bool:
    """None stands for "no model" where that is allowed: `_parse_object` never passes it on."""
    if not isinstance(value, str):
        return value is None
    return 0 < len(value) <= MAX_MODEL_CHARS and value.isprintable()


def _read_json(text: str) -> object:
    expected = "one JSON object"
    if len(text) > MAX_TEXT_CHARS:
        raise _out_of_range("speculation", f"{len(text)} characters", f"at most {MAX_TEXT_CHARS} characters")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError:
        raise _out_of_range("speculation", "JSON that is nested too deep", expected) from None
    except ValueError as error:
        remedy = """Quote keys and text with ", and in a shell the whole with ': '{"method": "auto"}'."""
        raise DraftproofError("DP103", "speculation", f"no JSON: {error}", expected, remedy) from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _given_twice(_cut(key))
        found[key] = value
    return found


def _refuse_constant(name: str) -> float:
    raise _out_of_range("speculation", name, "numbers that JSON has")


def _given_twice(field: str) -> DraftproofError:
    return DraftproofError("DP104", field, "the key twice", "each key once", "Leave one of them out.")


def _out_of_range(field: str, found: str, expected: str) -> DraftproofError:
    return DraftproofError(
        "DP103", field, found, expected, "docs/speculative-config.md lists keys and ranges."
    )


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name[:64], list(known), n=1)
    return f"Did you mean {near[0]}?" if near else "See docs/speculative-config.md."


def _shown(value: object) -> str:
    """A value for an error message, as JSON writes it: short whatever it is, and never an error of its own."""
    if isinstance(value, bool | float | type(None)):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 64 else f"a number of {value.bit_length()} bits"
    if isinstance(value, str):
        return _cut(repr(value[:80]))
    if isinstance(value, list | tuple | Mapping):
        return f"a {'list' if isinstance(value, list | tuple) else 'object'} of {len(value)}"
    return f"a value of type {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
