"""`ModelConfig` from config.json as Transformers 4 and 5 write it. Called by `loading`; knows no files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from draftproof.checkpoints.rope import rope_key
from draftproof.models.base import ExpertConfig, LayerConfig, ModelConfig, RopeConfig
from draftproof.models.config.families import Family, family_of, rotary_layers
from draftproof.models.config.fields import Fields, token_ids, unsupported
from draftproof.models.config.relations import checked
from draftproof.models.config.rope import Lengths, rope_from_hf

MAX_LAYERS = 1 << 12
_ACTIVATIONS: dict[object, Literal["silu", "gelu_tanh"]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_NOT_COMPUTED = (
    "quantization_config", "attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention",
)  # fmt: skip
"""Keys whose rules no decoder here has; they must be left out, null or false."""
_LAYER_TYPES = {"full_attention": False, "sliding_attention": True}


def config_from_hf(
    config: Mapping[str, Any], generation: Mapping[str, Any], wanted_len: int | None = None
) -> ModelConfig:
    """From config.json and generation_config.json ({} if there is none), of Transformers 4 or 5.

    wanted_len  the longest text that shall be served, in tokens; LongRoPE alone asks for it

    Raises DP403 for another architecture, DP406 for values that are missing, contradictory or not supported.
    """
    family = _family(config)
    whole = config
    if family.wrapper_name in config["architectures"]:
        config = config.get("text_config", {})
        if not isinstance(config, dict):
            raise unsupported("config.json: text_config", f"{str(config)[:60]}", "an object")
    given = {key: value for key, value in config.items() if value is not None or key == "sliding_window"}
    values = {**family.defaults, **given}
    fields = Fields(values, "config.json: ")
    for key in _NOT_COMPUTED:
        if values.get(key) not in (None, False):
            raise fields.fault(key, f"{str(values[key])[:60]}", "none")
    activation_key = "hidden_activation" if fields.has("hidden_activation") else "hidden_act"
    activation = values.get(activation_key, "silu")
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise fields.fault(activation_key, activation, " or ".join(map(str, _ACTIVATIONS)))
    num_layers = fields.count("num_hidden_layers", limit=MAX_LAYERS)
    hidden_size, num_heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    head_dim = fields.count("head_dim", default=max(1, hidden_size // num_heads))
    vocab_size = fields.count("vocab_size")
    lengths = Lengths(fields.count("max_position_embeddings"), wanted_len)
    layers, context_length = _layers(family, fields, values, num_layers, head_dim, lengths)
    scaled = family.has_scaled_embedding
    return checked(
        ModelConfig(
            architecture=family.name,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=fields.count("intermediate_size"),
            layers=layers,
            num_heads=num_heads,
            num_kv_heads=fields.count("num_key_value_heads", default=num_heads),
            head_dim=head_dim,
            rms_norm_eps=fields.number("rms_norm_eps", default=1e-6),
            context_length=context_length,
            tie_embeddings=fields.flag("tie_word_embeddings"),
            qkv_bias=_applies(family.qkv_bias, fields),
            o_bias=_applies(family.o_bias, fields),
            mlp_bias=_applies(family.mlp_bias, fields),
            qk_norm=family.qk_norm,
            post_norms=family.post_norms,
            activation=_ACTIVATIONS[activation],
            embedding_scale=hidden_size**0.5 if scaled else 1.0,
            attention_scale=fields.number("query_pre_attn_scalar") ** -0.5 if scaled else None,
            bos_token_id=next(iter(token_ids(config.get("bos_token_id"), vocab_size, "bos_token_id")), None),
            eos_token_ids=_ends([generation, whole, config], vocab_size),
        )
    )


def _ends(documents: list[Mapping[str, Any]], vocab_size: int) -> tuple[int, ...]:
    """Tokens that end texts, by any of the documents."""
    ends = [token_ids(document.get("eos_token_id"), vocab_size, "eos_token_id") for document in documents]
    return tuple(dict.fromkeys(token for own in ends for token in own))


def _family(config: Mapping[str, Any]) -> Family:
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else None
    return family_of("hf_name", name, names if names else f"model_type {config.get('model_type')!r} alone")


def _applies(rule: bool | str, fields: Fields) -> bool:
    return fields.flag(rule) if isinstance(rule, str) else rule


def _layers(
    family: Family,
    fields: Fields,
    values: Mapping[str, Any],
    num_layers: int,
    head_dim: int,
    lengths: Lengths,
) -> tuple[tuple[LayerConfig, ...], int]:
    """Every layer, and the context that they are served with."""
    full, local, context = _ropes(family, values, head_dim, lengths)
    windowed = _windowed(family, fields, num_layers)
    window = fields.count("sliding_window") if any(windowed) else None
    if window is not None and window >= context:
        window = None  # every token that fits is in sight
    rotary, experts = rotary_layers(fields, num_layers), _experts(family, fields, values, num_layers)
    if not family.rotates_partly and (full.rotary_dim or local.rotary_dim):
        raise fields.fault("partial_rotary_factor", fields.raw("partial_rotary_factor"), "1.0")
    return tuple(
        LayerConfig(
            rope=(local if has_window else full) if rotary[layer] else None,
            window=window if has_window else None,
            experts=experts[layer],
        )
        for layer, has_window in enumerate(windowed)
    ), context


def _windowed(family: Family, fields: Fields, num_layers: int) -> list[bool]:
    """Which layers have a window: by `layer_types`, else by the family's rule."""
    kinds = fields.raw("layer_types")
    if kinds is None:
        return family.windows(fields, num_layers)
    is_list = isinstance(kinds, list) and len(kinds) == num_layers
    if not is_list or any(not isinstance(kind, str) or kind not in _LAYER_TYPES for kind in kinds):
        expected = f"{num_layers} of {' or '.join(_LAYER_TYPES)}"
        raise fields.fault("layer_types", f"{str(kinds)[:60]}", expected)
    windowed = [_LAYER_TYPES[kind] for kind in kinds]
    if not family.reads_layer_types and windowed != family.windows(fields, num_layers):
        raise fields.fault("layer_types", f"{str(kinds)[:60]}", "the same kind of attention in every layer")
    is_off = family.reads_layer_types and fields.raw("use_sliding_window") is False
    if any(windowed) and is_off:
        raise fields.fault(
            "layer_types", "sliding_attention", "full_attention, as use_sliding_window is false"
        )
    return windowed


def _ropes(
    family: Family, values: Mapping[str, Any], head_dim: int, lengths: Lengths
) -> tuple[RopeConfig, RopeConfig, int]:
    """The rotary embeddings of layers without and with a window, and the context that they are served with.

    Transformers 5 keeps the rule and theta in rope_parameters, 4 the rule in rope_scaling beside rope_theta.
    """
    key = rope_key(values)
    place = f"config.json: {key}."
    beside = {
        name: values[name]
        for name in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
        if values.get(name) is not None
    }
    beside.setdefault("rope_theta", 10000.0)

    def rope(rule: Any, theta: Any = None) -> tuple[RopeConfig, int]:
        if rule is not None and not isinstance(rule, dict):
            raise unsupported(f"config.json: {key}", rule, "an object")
        merged = {**beside, **{name: value for name, value in (rule or {}).items() if value is not None}}
        if "original_max_position_embeddings" in beside:  # Transformers too gives it the last word
            merged["original_max_position_embeddings"] = beside["original_max_position_embeddings"]
        if theta is not None and (rule is None or rule.get("rope_theta") is None):
            merged["rope_theta"] = theta
        return rope_from_hf(merged, head_dim, lengths, place)

    rules = values.get(key)
    if not family.has_two_ropes:
        full, context = rope(rules)
        return full, full, context
    by_kind = rules if isinstance(rules, dict) and any(kind in rules for kind in _LAYER_TYPES) else None
    full, full_context = rope(rules if by_kind is None else by_kind.get("full_attention"))
    local, local_context = rope(
        None if by_kind is None else by_kind.get("sliding_attention"), values.get("rope_local_base_freq")
    )
    return full, local, min(full_context, local_context)


def _experts(
    family: Family, fields: Fields, values: Mapping[str, Any], num_layers: int
) -> list[ExpertConfig | None]:
    if family.experts is None:
        return [None] * num_layers
    keys = family.experts
    experts = ExpertConfig(
        num_experts=fields.count(keys.num_experts),
        num_used=fields.count("num_experts_per_tok"),
        intermediate_size=fields.count(keys.intermediate_size),
        is_normalised=_applies(keys.is_normalised, fields),
    )
    dense, step = values.get("mlp_only_layers", []), fields.count("decoder_sparse_step", default=1)
    if not isinstance(dense, list):
        raise fields.fault("mlp_only_layers", dense, "a list of layers")
    return [None if layer in dense or (layer + 1) % step else experts for layer in range(num_layers)]
