"""The families that can be loaded, a row each: what their configuration files mean and leave out.

Read by the parsers of this package and by `weights`. Decoders never see a family, only what follows from its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from draftproof.checkpoints.states import keeps_state
from draftproof.core.errors import DraftproofError
from draftproof.models.config.fields import Fields

WindowRule = Callable[[Fields, int], list[bool]]
"""From config.json and the number of layers: which layers see a window only, where `layer_types` is left out."""


def no_windows(config: Fields, num_layers: int) -> list[bool]:
    return [False] * num_layers


def all_windowed(config: Fields, num_layers: int) -> list[bool]:
    return [config.has("sliding_window")] * num_layers


def all_if_switched_on(config: Fields, num_layers: int) -> list[bool]:
    return [config.flag("use_sliding_window")] * num_layers


def last_if_switched_on(config: Fields, num_layers: int) -> list[bool]:
    is_on, first = config.flag("use_sliding_window"), config.raw("max_window_layers")
    if type(first) is not int:
        raise config.fault("max_window_layers", first, "a number of layers")
    return [is_on and layer >= first for layer in range(num_layers)]


def without_rotary_if_switched_on(config: Fields, num_layers: int) -> list[bool]:
    is_on = config.flag("use_sliding_window") and config.has("sliding_window")
    return [is_on and not has_rope for has_rope in rotary_layers(config, num_layers)]


def all_but_every_nth(config: Fields, num_layers: int) -> list[bool]:
    period = config.count("sliding_window_pattern")
    return [(layer + 1) % period != 0 for layer in range(num_layers)]


def rotary_layers(config: Fields, num_layers: int) -> list[bool]:
    """Which layers rotate queries and keys. `no_rope_layers` means the opposite of its name: 1 where they do."""
    given = config.raw("no_rope_layers")
    if given is not None:
        if not isinstance(given, list) or len(given) < num_layers or any(v not in (0, 1) for v in given):
            raise config.fault("no_rope_layers", f"{str(given)[:60]}", f"{num_layers} values of 0 or 1")
        return [bool(value) for value in given[:num_layers]]
    if not config.has("no_rope_layer_interval"):
        return [True] * num_layers
    interval = config.count("no_rope_layer_interval")
    return [(layer + 1) % interval != 0 for layer in range(num_layers)]


@dataclass(frozen=True, slots=True)
class ExpertKeys:
    """Where config.json says how many experts there are and how wide; `is_normalised`: always, or a key."""

    num_experts: str
    intermediate_size: str
    is_normalised: bool | str


@dataclass(frozen=True, slots=True)
class Family:
    """How one family's checkpoints are to be read.

    name, hf_name, gguf_name  of `ModelConfig.architecture`, in config.json, in a GGUF file
    defaults                  of config.json's keys, as Transformers takes them
    qkv_bias, o_bias, mlp_bias  whether there is one: always, never, or where this key of config.json says so
    reads_layer_types         whether `layer_types` decides which layers have a window
    norm_offset               what config.json's norm weights lack of the factors that they stand for
    has_scaled_embedding      embeddings times sqrt(hidden_size), scores by `query_pre_attn_scalar`
    has_two_ropes             windowed layers have a rotary embedding of their own
    rotates_partly            a part of each head may be rotated alone
    gguf_pairs                GGUF files keep rows of queries and keys as pairs (2j, 2j + 1)
    gguf_fused_up             GGUF files keep the gate in the upper half of `ffn_up`
    gguf_window_period        every so many layers one sees everything; 1: none does; None: no window is known
    wrapper_name              in config.json, of models that read images too: their text part is one of this family
    gguf_no_rope_period       every so many layers one does not rotate; 0: all do
    """

    name: str
    hf_name: str
    gguf_name: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    qkv_bias: bool | str = False
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: bool = False
    post_norms: bool = False
    windows: WindowRule = no_windows
    reads_layer_types: bool = False
    experts: ExpertKeys | None = None
    norm_offset: float = 0.0
    has_scaled_embedding: bool = False
    has_two_ropes: bool = False
    rotates_partly: bool = False
    gguf_pairs: bool = False
    gguf_fused_up: bool = False
    gguf_window_period: int | None = None
    gguf_no_rope_period: int = 0
    wrapper_name: str | None = None


_QWEN_DEFAULTS = {"max_window_layers": 28, "sliding_window": 4096, "num_key_value_heads": 32}
_BIAS = "attention_bias"

FAMILIES = (
    Family(
        "llama", "LlamaForCausalLM", "llama",
        mlp_bias="mlp_bias", gguf_pairs=True, gguf_window_period=1, qkv_bias=_BIAS, o_bias=_BIAS,
    ),
    Family(
        "mistral", "MistralForCausalLM", "llama",
        defaults={"sliding_window": 4096, "num_key_value_heads": 8}, windows=all_windowed, gguf_pairs=True,
    ),
    Family(
        "mixtral", "MixtralForCausalLM", "llama",
        defaults={
            "rope_theta": 1e6, "rms_norm_eps": 1e-5, "num_local_experts": 8, "num_experts_per_tok": 2,
            "num_key_value_heads": 8,
        },
        windows=all_windowed,
        experts=ExpertKeys("num_local_experts", "intermediate_size", True), gguf_pairs=True,
    ),
    Family(
        "qwen2", "Qwen2ForCausalLM", "qwen2",
        defaults=_QWEN_DEFAULTS, qkv_bias=True, windows=last_if_switched_on, reads_layer_types=True,
    ),
    Family(
        "qwen3", "Qwen3ForCausalLM", "qwen3",
        defaults=_QWEN_DEFAULTS | {"head_dim": 128}, qk_norm=True, windows=last_if_switched_on,
        reads_layer_types=True, qkv_bias=_BIAS, o_bias=_BIAS,
    ),
    Family(
        "qwen3moe", "Qwen3MoeForCausalLM", "qwen3moe",
        defaults={
            "sliding_window": 4096, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
            "decoder_sparse_step": 1, "num_key_value_heads": 4,
        },
        qk_norm=True, windows=all_if_switched_on,
        experts=ExpertKeys("num_experts", "moe_intermediate_size", "norm_topk_prob"), qkv_bias=_BIAS, o_bias=_BIAS,
    ),
    Family(
        "smollm3", "SmolLM3ForCausalLM", "smollm3",
        defaults={
            "rope_theta": 2e6, "no_rope_layer_interval": 4, "tie_word_embeddings": True, "num_key_value_heads": 4,
        },
        mlp_bias="mlp_bias", windows=without_rotary_if_switched_on, reads_layer_types=True, gguf_pairs=True,
        gguf_no_rope_period=4, qkv_bias=_BIAS, o_bias=_BIAS,
    ),
    Family(
        "gemma3", "Gemma3ForCausalLM", "gemma3",
        defaults={
            "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072, "sliding_window": 4096,
            "sliding_window_pattern": 6, "query_pre_attn_scalar": 256, "tie_word_embeddings": True,
            "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        },
        qk_norm=True, post_norms=True, windows=all_but_every_nth, reads_layer_types=True, norm_offset=1.0,
        has_scaled_embedding=True, has_two_ropes=True, gguf_window_period=6,
        wrapper_name="Gemma3ForConditionalGeneration", qkv_bias=_BIAS, o_bias=_BIAS,
    ),
    Family(
        "phi3", "Phi3ForCausalLM", "phi3",
        defaults={"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096}, windows=all_windowed,
        rotates_partly=True, gguf_fused_up=True, gguf_window_period=1,
    ),
)  # fmt: skip


def family_of(key: str, names: object, found: object) -> Family:
    """The row whose `key` ("hf_name" or "gguf_name") is `names`. Raises DP403 naming `found` if there is none."""
    for family in FAMILIES:
        is_wrapped = key == "hf_name" and family.wrapper_name is not None and names == family.wrapper_name
        if names == getattr(family, key) or is_wrapped:
            return family
    field_name = "config.json: architectures" if key == "hf_name" else "general.architecture"
    if keeps_state(str(names)):
        raise DraftproofError(
            "DP403",
            field_name,
            f"{found}, a model with a running state",
            "attention over cached keys and values: a state cannot be taken back when drafts are rejected",
            "Use a transformer without recurrent or linear-attention layers.",
        )
    known = ", ".join(f"{family.hf_name} (GGUF: {family.gguf_name})" for family in FAMILIES)
    raise DraftproofError(
        "DP403", field_name, found, f"one of {known}", "Use a checkpoint of one of these architectures."
    )
