"""`ModelConfig` from a GGUF file's metadata and tensor table. Called by `loading`; reads no tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.checkpoints.gguf import GgufTensor
from draftproof.core.errors import DraftproofError
from draftproof.models.base import ExpertConfig, LayerConfig, ModelConfig, RopeConfig
from draftproof.models.config.families import Family, family_of
from draftproof.models.config.fields import Fields, token_ids
from draftproof.models.config.huggingface import MAX_LAYERS
from draftproof.models.config.relations import checked
from draftproof.models.config.rope import Lengths, rope_from_gguf

ROPE_FREQS = "rope_freqs.weight"
ROPE_SHORT, ROPE_LONG = "rope_factors_short.weight", "rope_factors_long.weight"
"""Tensors that belong to the configuration, not to the weights."""

_GEMMA_27B_LAYERS = 62
"""The one size whose scores are scaled by another number than a head's length; the files do not say so."""


def config_from_gguf(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, GgufTensor],
    freq_factors: tuple[float, ...] | None = None,
    wanted_len: int | None = None,
) -> ModelConfig:
    """`freq_factors` are the values of the tensor that `rope_tensor` names, `wanted_len` as in `config_from_hf`.

    Raises DP403, DP404 or DP406 as `config_from_hf` does.
    """
    architecture = metadata.get("general.architecture")
    family = family_of("gguf_name", architecture, architecture)
    own = {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()}
    fields = Fields(own, f"GGUF: {architecture}.")
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise DraftproofError(
            "DP404",
            "token_embd.weight",
            "nothing",
            "an embedding matrix",
            "Check that the file is a whole model.",
        )
    hidden_size, num_heads = fields.count("embedding_length"), fields.count("attention.head_count")
    head_dim = fields.count("attention.key_length", default=max(1, hidden_size // num_heads))
    if fields.count("attention.value_length", default=head_dim) != head_dim:
        raise fields.fault("attention.value_length", own["attention.value_length"], f"{head_dim}")
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if own.get(key):
            raise fields.fault(key, own[key], "none")
    context = _context(fields, tensors, wanted_len)
    vocab_size = embedding.shape[0]
    num_layers = fields.count("block_count", limit=MAX_LAYERS)
    bos, ends = _special_tokens(metadata, vocab_size)
    rope = rope_from_gguf(fields, head_dim, context, freq_factors)
    if rope.rotary_dim is not None and not family.rotates_partly:
        raise fields.fault("rope.dimension_count", rope.rotary_dim, f"{head_dim}, the length of a key")
    scaled = family.has_scaled_embedding
    scalar = hidden_size // num_heads if num_layers == _GEMMA_27B_LAYERS else head_dim
    experts = _experts(fields)
    return checked(
        ModelConfig(
            architecture=family.name,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=fields.count(
                "feed_forward_length", default=experts.intermediate_size if experts else None
            ),
            layers=_layers(family, fields, tensors, num_layers, LayerConfig(rope, context, experts)),
            num_heads=num_heads,
            num_kv_heads=fields.count("attention.head_count_kv", default=num_heads),
            head_dim=head_dim,
            rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
            context_length=context,
            tie_embeddings="output.weight" not in tensors,
            qkv_bias="blk.0.attn_q.bias" in tensors,
            o_bias="blk.0.attn_output.bias" in tensors,
            mlp_bias="blk.0.ffn_up.bias" in tensors,
            qk_norm=family.qk_norm,
            post_norms=family.post_norms,
            activation="gelu_tanh" if scaled else "silu",
            embedding_scale=hidden_size**0.5 if scaled else 1.0,
            attention_scale=fields.number("attention.scale", default=scalar**-0.5) if scaled else None,
            bos_token_id=bos,
            eos_token_ids=ends,
        )
    )


def rope_tensor(
    metadata: Mapping[str, Any], tensors: Mapping[str, GgufTensor], wanted_len: int | None = None
) -> str | None:
    """The tensor of divisors of the rotary frequencies that is to be read, if any."""
    if ROPE_SHORT not in tensors or ROPE_LONG not in tensors:
        return ROPE_FREQS if ROPE_FREQS in tensors else None
    original = metadata.get(f"{metadata.get('general.architecture')}.rope.scaling.original_context_length")
    is_long = type(original) is int and Lengths(original, wanted_len).is_long(original)
    return ROPE_LONG if is_long else ROPE_SHORT


def _experts(fields: Fields) -> ExpertConfig | None:
    if not fields.raw("expert_count"):
        return None
    return ExpertConfig(
        num_experts=fields.count("expert_count"),
        num_used=fields.count("expert_used_count"),
        intermediate_size=fields.count(
            "expert_feed_forward_length"
            if fields.has("expert_feed_forward_length")
            else "feed_forward_length"
        ),
        is_normalised=True,
    )


def _context(fields: Fields, tensors: Mapping[str, GgufTensor], wanted_len: int | None) -> int:
    """The longest text that is served, in tokens; with LongRoPE not always the longest that the model knows."""
    context = fields.count("context_length")
    if (ROPE_SHORT in tensors) != (ROPE_LONG in tensors):
        both = f"{ROPE_SHORT} and {ROPE_LONG}"
        raise DraftproofError("DP404", both, "one of them", "both or none", "Convert the model again.")
    if ROPE_SHORT not in tensors:
        return context
    original = fields.count("rope.scaling.original_context_length", default=context)
    return context if Lengths(context, wanted_len).is_long(original) else min(context, original)


def _special_tokens(metadata: Mapping[str, Any], vocab_size: int) -> tuple[int | None, tuple[int, ...]]:
    """The token that texts begin with, if any, and those that end them."""
    bos, *end_keys = (f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "eot"))
    ends = [token for key in end_keys for token in token_ids(metadata.get(key), vocab_size, key)]
    return next(iter(token_ids(metadata.get(bos), vocab_size, bos)), None), tuple(dict.fromkeys(ends))


def _layers(
    family: Family,
    fields: Fields,
    tensors: Mapping[str, GgufTensor],
    num_layers: int,
    most: LayerConfig,
) -> tuple[LayerConfig, ...]:
    """`most`: the rotary embedding and the experts of layers that have them, and the context as the widest window."""
    rope, context = most.rope, most.window
    assert rope is not None
    assert context is not None
    windowed = _windowed(family, fields, num_layers)
    window = fields.count("attention.sliding_window") if any(windowed) else None
    if window is not None and window >= context:
        window = None
    if window is not None and family.gguf_window_period is None:
        raise fields.fault("attention.sliding_window", window, "attention over the whole context")
    local = rope
    if family.has_two_ropes:
        local = RopeConfig(fields.number("rope.freq_base_swa", default=1e4), rotary_dim=rope.rotary_dim)
    period = family.gguf_no_rope_period
    return tuple(
        LayerConfig(
            rope=None if period and (layer + 1) % period == 0 else local if has_window else rope,
            window=window if has_window else None,
            experts=most.experts if f"blk.{layer}.ffn_gate_inp.weight" in tensors else None,
        )
        for layer, has_window in enumerate(windowed)
    )


def _windowed(family: Family, fields: Fields, num_layers: int) -> list[bool]:
    if not fields.raw("attention.sliding_window"):  # 0 says that there is none
        return [False] * num_layers
    pattern = fields.raw("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        if len(pattern) != num_layers or any(type(value) is not bool for value in pattern):
            raise fields.fault(
                "attention.sliding_window_pattern", f"{str(pattern)[:60]}", f"{num_layers} flags"
            )
        return pattern
    period = family.gguf_window_period or 1
    if pattern is not None:
        period = fields.count("attention.sliding_window_pattern")
    return [period == 1 or (layer + 1) % period != 0 for layer in range(num_layers)]
