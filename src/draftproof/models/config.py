"""`ModelConfig` from config.json or from GGUF metadata, every number checked; and the tensors that follow from it.

Called by `loading`. Knows no files. What this version cannot compute exactly is refused by name: another
architecture (DP403), another rotary rule, sliding windows, quantised directories (DP406).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from draftproof.checkpoints.gguf import GgufTensor
from draftproof.core.errors import DraftproofError
from draftproof.models.base import ModelConfig, RopeConfig

HF_ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2"}
"""Name in config.json → name in GGUF files, which is also `ModelConfig.architecture`."""

_MAX_SIZE = 1 << 24
_MAX_NUMBER = 1e300
_MAX_LAYERS = 1 << 12


def config_from_hf(config: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelConfig:
    """From config.json and generation_config.json ({} if there is none), of Transformers 4 or 5.

    Raises DP403 for another architecture, DP406 for values that are missing, contradictory or not supported.
    """
    architecture = _hf_architecture(config)
    fields = _Fields(config, "config.json: ")
    if config.get("quantization_config") is not None:
        raise _unsupported("config.json: quantization_config", "quantised weights", "float weights")
    if config.get("hidden_act", "silu") != "silu":
        raise _unsupported("config.json: hidden_act", config["hidden_act"], "silu")
    num_layers = fields.count("num_hidden_layers", limit=_MAX_LAYERS)
    context_length = fields.count("max_position_embeddings")
    hidden_size = fields.count("hidden_size")
    num_heads = fields.count("num_attention_heads")
    if architecture == "qwen2":
        _refuse_sliding_window(config, num_layers, context_length)
    attention_bias = fields.flag("attention_bias") if architecture == "llama" else False
    vocab_size = fields.count("vocab_size")
    return _checked(
        ModelConfig(
            architecture=architecture,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=fields.count("intermediate_size"),
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=fields.count("num_key_value_heads", default=num_heads),
            head_dim=fields.count("head_dim", default=hidden_size // num_heads),
            rms_norm_eps=fields.number("rms_norm_eps", default=1e-6),
            rope=_hf_rope(config),
            context_length=context_length,
            tie_embeddings=fields.flag("tie_word_embeddings"),
            qkv_bias=attention_bias or architecture == "qwen2",
            o_bias=attention_bias,
            mlp_bias=fields.flag("mlp_bias") if architecture == "llama" else False,
            bos_token_id=next(iter(_token_ids(config.get("bos_token_id"), vocab_size, "bos_token_id")), None),
            eos_token_ids=tuple(
                dict.fromkeys(
                    _token_ids(generation.get("eos_token_id"), vocab_size, "eos_token_id")
                    + _token_ids(config.get("eos_token_id"), vocab_size, "eos_token_id")
                )
            ),
        )
    )


def config_from_gguf(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, GgufTensor],
    freq_factors: tuple[float, ...] | None = None,
) -> ModelConfig:
    """From a GGUF file's metadata and tensor table; `freq_factors` are the values of its `rope_freqs.weight`.

    Raises DP403, DP404 or DP406 as `config_from_hf` does.
    """
    architecture = str(metadata.get("general.architecture"))
    experts = metadata.get(f"{architecture}.expert_count", 0)
    if architecture not in HF_ARCHITECTURES.values() or experts:
        raise _other_architecture(
            "general.architecture", f"{architecture} with experts" if experts else architecture
        )
    own = {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()}
    fields = _Fields(own, f"GGUF: {architecture}.")
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
    head_dim = fields.count("attention.key_length", default=hidden_size // num_heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if fields.count(key, default=head_dim) != head_dim:
            raise fields.fault(key, own[key], f"{head_dim}, the length of a key")
    if own.get("attention.sliding_window"):
        window = fields.count("attention.sliding_window")
        if window < fields.count("context_length"):
            raise fields.fault("attention.sliding_window", window, "attention over the whole context")
    vocab_size = embedding.shape[0]
    end_keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    ends = [token for key in end_keys for token in _token_ids(metadata.get(key), vocab_size, key)]
    bos = _token_ids(metadata.get("tokenizer.ggml.bos_token_id"), vocab_size, "tokenizer.ggml.bos_token_id")
    return _checked(
        ModelConfig(
            architecture=architecture,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=fields.count("feed_forward_length"),
            num_layers=fields.count("block_count", limit=_MAX_LAYERS),
            num_heads=num_heads,
            num_kv_heads=fields.count("attention.head_count_kv", default=num_heads),
            head_dim=head_dim,
            rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
            rope=_gguf_rope(own, fields, freq_factors),
            context_length=fields.count("context_length"),
            tie_embeddings="output.weight" not in tensors,
            qkv_bias="blk.0.attn_q.bias" in tensors,
            o_bias="blk.0.attn_output.bias" in tensors,
            mlp_bias="blk.0.ffn_up.bias" in tensors,
            bos_token_id=next(iter(bos), None),
            eos_token_ids=tuple(dict.fromkeys(ends)),
        )
    )


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Names (Transformers') and shapes of all tensors that a checkpoint of this configuration has."""
    hidden, intermediate = config.hidden_size, config.intermediate_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    linears = [
        ("self_attn.q_proj", (q_size, hidden), config.qkv_bias),
        ("self_attn.k_proj", (kv_size, hidden), config.qkv_bias),
        ("self_attn.v_proj", (kv_size, hidden), config.qkv_bias),
        ("self_attn.o_proj", (hidden, q_size), config.o_bias),
        ("mlp.gate_proj", (intermediate, hidden), config.mlp_bias),
        ("mlp.up_proj", (intermediate, hidden), config.mlp_bias),
        ("mlp.down_proj", (hidden, intermediate), config.mlp_bias),
    ]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (hidden,)
        shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
        for name, shape, has_bias in linears:
            shapes[f"{prefix}{name}.weight"] = shape
            if has_bias:
                shapes[f"{prefix}{name}.bias"] = shape[:1]
    return shapes


class _Fields:
    """Typed access to a configuration; faults become DP406 with the key's full name."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self._values = values
        self._place = place

    def count(self, key: str, default: int | None = None, limit: int = _MAX_SIZE) -> int:
        value = self._get(key, default)
        if type(value) is not int or not 0 < value <= limit:
            raise self.fault(key, value, f"a whole number from 1 to {limit}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if type(value) not in (int, float) or not 0 < value < _MAX_NUMBER:
            raise self.fault(key, value, "a number above 0 that a float can hold")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._get(key, False)
        if type(value) is not bool:
            raise self.fault(key, value, "true or false")
        return value

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is None and default is None:
            raise self.fault(key, "nothing", "a value")
        return default if value is None else value

    def fault(self, key: str, found: object, expected: str) -> DraftproofError:
        return _unsupported(f"{self._place}{key}", found, expected)


def _unsupported(field: str, found: object, expected: str) -> DraftproofError:
    return DraftproofError(
        "DP406",
        field,
        found,
        expected,
        "Use another checkpoint of the model, or a version that supports this.",
    )


def _other_architecture(field: str, found: object) -> DraftproofError:
    known = ", ".join(f"{hf} (GGUF: {gguf})" for hf, gguf in HF_ARCHITECTURES.items())
    return DraftproofError(
        "DP403", field, found, f"one of {known}", "Use a checkpoint of one of these architectures."
    )


def _hf_architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    if (
        isinstance(names, list)
        and len(names) == 1
        and isinstance(names[0], str)
        and names[0] in HF_ARCHITECTURES
    ):
        return HF_ARCHITECTURES[names[0]]
    found = names if names else f"model_type {config.get('model_type')!r} alone"
    raise _other_architecture("config.json: architectures", found)


def _refuse_sliding_window(config: Mapping[str, Any], num_layers: int, context_length: int) -> None:
    """Qwen2 files name a window even where `use_sliding_window` is false; only one in use is refused."""
    layer_types = config.get("layer_types")
    has_windowed_layers = isinstance(layer_types, list) and "sliding_attention" in layer_types
    window, first_layer = config.get("sliding_window"), config.get("max_window_layers")
    reaches_layers = not isinstance(first_layer, int) or num_layers > first_layer
    is_shorter = not isinstance(window, int) or window < context_length
    is_used = bool(config.get("use_sliding_window")) and window is not None and reaches_layers and is_shorter
    if has_windowed_layers or is_used:
        raise _unsupported("config.json: sliding_window", window, "attention over the whole context")


def _hf_rope(config: Mapping[str, Any]) -> RopeConfig:
    """Transformers 5 keeps the rule and theta in rope_parameters, 4 the rule in rope_scaling beside rope_theta."""
    key = "rope_parameters" if config.get("rope_parameters") is not None else "rope_scaling"
    rule = config.get(key) or {}
    if not isinstance(rule, dict):
        raise _unsupported(f"config.json: {key}", rule, "an object")
    rule = dict(rule)
    for name in ("rope_theta", "partial_rotary_factor"):
        rule.setdefault(name, config.get(name))
    fields = _Fields(rule, f"config.json: {key}.")
    if fields.number("partial_rotary_factor", default=1.0) != 1.0:
        raise fields.fault("partial_rotary_factor", rule["partial_rotary_factor"], "1.0")
    theta = fields.number("rope_theta", default=10000.0)
    kind = rule.get("rope_type", rule.get("type", "default"))
    if kind == "default":
        return RopeConfig(theta)
    if kind != "llama3":
        raise fields.fault("rope_type", kind, "default or llama3")
    rule.setdefault("original_max_position_embeddings", config.get("original_max_position_embeddings"))
    scaled = RopeConfig(
        theta,
        scaling="llama3",
        factor=fields.number("factor"),
        low_freq_factor=fields.number("low_freq_factor"),
        high_freq_factor=fields.number("high_freq_factor"),
        original_context=fields.count("original_max_position_embeddings"),
    )
    if scaled.low_freq_factor >= scaled.high_freq_factor:
        raise fields.fault("low_freq_factor", scaled.low_freq_factor, "less than high_freq_factor")
    return scaled


def _gguf_rope(own: Mapping[str, Any], fields: _Fields, freq_factors: tuple[float, ...] | None) -> RopeConfig:
    kind = own.get("rope.scaling.type", "none")
    if kind != "none" or own.get("rope.scale_linear", 1.0) != 1.0:
        raise fields.fault("rope.scaling.type", kind, "none, or Llama 3's rule as rope_freqs.weight")
    return RopeConfig(fields.number("rope.freq_base", default=10000.0), freq_factors=freq_factors)


def _token_ids(value: Any, vocab_size: int, field: str) -> list[int]:
    token_ids = value if isinstance(value, list) else [] if value is None else [value]
    for token_id in token_ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise _unsupported(field, value, f"token ids below {vocab_size}")
    return token_ids


def _checked(config: ModelConfig) -> ModelConfig:
    """Relations between the numbers that the decoders rely on."""
    if config.num_heads % config.num_kv_heads:
        raise _unsupported(
            "number of key/value heads", config.num_kv_heads, f"a divisor of {config.num_heads} heads"
        )
    if config.head_dim % 2:
        raise _unsupported("head_dim", config.head_dim, "an even number")
    factors = config.rope.freq_factors
    if factors is not None and (
        len(factors) != config.head_dim // 2 or not all(0 < f < math.inf for f in factors)
    ):
        raise _unsupported(
            "rope_freqs.weight", f"{len(factors)} values", f"{config.head_dim // 2} values above 0"
        )
    return config
