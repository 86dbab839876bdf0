"""Rotary rules of config.json and of GGUF metadata. Called by the parsers of this package; computes nothing.

Rules that change their frequencies with the length of a text (`dynamic`, `longrope`) would leave keys in the cache
that were rotated by other frequencies than the queries that meet them; Transformers' own text then depends on how
it was cut into passes. Here frequencies are fixed when a model is loaded, by the longest text that it shall serve:
`dynamic` acts beyond `max_position_embeddings` only, which is never served; `longrope` has its short factors and the
context before its extension, or, where a longer text is asked for, its long ones and the whole context.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from draftproof.models.base import FrequencyDivisors, LinearScaling, Llama3Scaling, RopeConfig, YarnScaling
from draftproof.models.config.fields import Fields

_KINDS = "default, linear, dynamic, llama3, yarn or longrope"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of texts, in tokens: the longest that the model knows (`context`), and that which the caller wants, if any."""

    context: int
    wanted: int | None = None

    def is_long(self, original: int) -> bool:
        """Whether frequencies for texts beyond `original` tokens are to be used."""
        return self.wanted is not None and self.wanted > original


def rope_from_hf(
    rule: Mapping[str, Any], head_dim: int, lengths: Lengths, place: str
) -> tuple[RopeConfig, int]:
    """The rule and the context that it is served with.

    rule     the rotary object with what Transformers takes from beside it: rope_theta, partial_rotary_factor,
             original_max_position_embeddings
    """
    fields, context = Fields(rule, place), lengths.context
    share = fields.number("partial_rotary_factor", default=1.0)
    rotary_dim = int(head_dim * share)
    if share > 1 or rotary_dim % 2 or not rotary_dim:
        raise fields.fault("partial_rotary_factor", share, f"an even part of {head_dim} elements")
    plain = RopeConfig(fields.number("rope_theta"), rotary_dim=None if rotary_dim == head_dim else rotary_dim)
    kind = rule.get("rope_type", rule.get("type", "default"))
    if kind in ("default", "dynamic"):
        if kind == "dynamic":
            fields.number("factor")
        return plain, context
    if kind == "linear":
        return replace(plain, scaling=LinearScaling(fields.number("factor"))), context
    original = fields.count("original_max_position_embeddings", default=context)
    if kind == "llama3":
        return replace(plain, scaling=_llama3(fields, original)), context
    if kind == "yarn" and not fields.has("short_factor"):
        return _yarn(plain, fields, original, context), context
    if kind in ("longrope", "su", "yarn"):  # what early Phi-3 files call su or yarn became LongRoPE
        is_long = lengths.is_long(original)
        divisors = fields.numbers("long_factor" if is_long else "short_factor", rotary_dim // 2)
        stretch = fields.number("factor", default=context / original)
        usual = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 and original > 1 else 1.0
        rope = replace(
            plain,
            scaling=FrequencyDivisors(divisors),
            attention_factor=fields.number("attention_factor", default=usual),
        )
        return rope, context if is_long else min(context, original)
    raise fields.fault("rope_type", kind, _KINDS)


def _llama3(fields: Fields, original: int) -> Llama3Scaling:
    scaling = Llama3Scaling(
        factor=fields.number("factor"),
        low_freq_factor=fields.number("low_freq_factor"),
        high_freq_factor=fields.number("high_freq_factor"),
        original_context=original,
    )
    if scaling.low_freq_factor >= scaling.high_freq_factor:
        raise fields.fault("low_freq_factor", scaling.low_freq_factor, "less than high_freq_factor")
    return scaling


def _yarn(plain: RopeConfig, fields: Fields, original: int, context: int) -> RopeConfig:
    factor = fields.number("factor", default=context / original)
    usual = _magnitude(factor)
    if fields.raw("mscale") and fields.raw("mscale_all_dim"):  # 0 stands for "not used", here and below
        usual = _magnitude(factor, fields.number("mscale")) / _magnitude(
            factor, fields.number("mscale_all_dim")
        )
    scaling = YarnScaling(
        factor,
        original,
        beta_fast=fields.number("beta_fast", default=32.0) if fields.raw("beta_fast") != 0 else 32.0,
        beta_slow=fields.number("beta_slow", default=1.0) if fields.raw("beta_slow") != 0 else 1.0,
        truncate=fields.flag("truncate", default=True),
    )
    _check_yarn(plain, scaling, fields)
    return replace(plain, scaling=scaling, attention_factor=fields.number("attention_factor", default=usual))


def _check_yarn(plain: RopeConfig, scaling: YarnScaling, fields: Fields) -> None:
    if plain.theta <= 1:
        raise fields.fault("rope_theta", plain.theta, "more than 1")
    if scaling.beta_fast < scaling.beta_slow:
        raise fields.fault("beta_fast", scaling.beta_fast, f"at least beta_slow, {scaling.beta_slow}")


def _magnitude(factor: float, weight: float = 1.0) -> float:
    """YaRN's factor for cosines and sines (Peng et al., equation 22)."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def rope_from_gguf(
    fields: Fields, head_dim: int, context: int, divisors: tuple[float, ...] | None
) -> RopeConfig:
    """The rule of a GGUF file.

    divisors  values of `rope_freqs.weight` or, of a file with LongRoPE, `rope_factors_short.weight`
    """
    rotary_dim = fields.count("rope.dimension_count", default=head_dim)
    if rotary_dim > head_dim or rotary_dim % 2:
        raise fields.fault("rope.dimension_count", rotary_dim, f"an even number up to {head_dim}")
    plain = RopeConfig(
        fields.number("rope.freq_base", default=10000.0),
        rotary_dim=None if rotary_dim == head_dim else rotary_dim,
        attention_factor=fields.number("rope.scaling.attn_factor", default=1.0),
    )
    factor = fields.number("rope.scaling.factor", default=fields.number("rope.scale_linear", default=1.0))
    original = fields.count("rope.scaling.original_context_length", default=context)
    kind = fields.raw("rope.scaling.type")
    if divisors is not None:
        if kind not in (None, "none", "longrope") or len(divisors) != rotary_dim // 2:
            raise fields.fault(
                "rope.scaling.type", f"{kind} and {len(divisors)} divisors", f"{rotary_dim // 2}"
            )
        if not all(0 < value < math.inf for value in divisors):
            raise fields.fault("rope_freqs.weight", "values that are not above 0", "numbers above 0")
        return replace(plain, scaling=FrequencyDivisors(divisors))
    if kind == "none" or (kind in (None, "linear") and factor == 1):
        return plain
    if kind in (None, "linear"):
        return replace(plain, scaling=LinearScaling(factor))
    if kind != "yarn":
        raise fields.fault("rope.scaling.type", kind, "none, linear, yarn or longrope with its factors")
    if fields.number("rope.scaling.yarn_ext_factor", default=1.0) != 1.0:
        raise fields.fault("rope.scaling.yarn_ext_factor", fields.raw("rope.scaling.yarn_ext_factor"), "1.0")
    usual = _magnitude(factor)
    if fields.raw("rope.scaling.yarn_log_multiplier"):
        usual /= _magnitude(factor, fields.number("rope.scaling.yarn_log_multiplier"))
    usual = fields.number("rope.scaling.yarn_attn_factor", default=usual)
    scaling = YarnScaling(
        factor,
        original,
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", default=32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", default=1.0),
    )
    _check_yarn(plain, scaling, fields)
    return replace(plain, scaling=scaling, attention_factor=plain.attention_factor * usual)
