"""Which architecture keeps and weighs what: a row each, by `model_type` of config.json.

Read by `geometry`, `layers` and `parameters`. Rows are facts of the model code in Transformers 5.24 (and of the
checkpoints' own code where Transformers has none); each row's counts are compared with Transformers' own models in the
tests. A model type without a row is "not known", never taken for a relative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Rule = bool | str
"""Always, never, or where this key of the configuration says so."""

Windows = Literal["none", "all", "switched", "late", "alternate", "pattern"]
"""Which layers see a window where `layer_types` does not say. all: where sliding_window is set. switched: the same with
use_sliding_window. late: from max_window_layers on. alternate: even ones. pattern: all but every nth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureKeys:
    """Where the configuration says how many experts there are and how wide.

    num, used, size  keys; of `num` the first that is there counts
    shared_count     key of the number of shared experts, each as wide as a routed one
    shared_size      key of the width of one shared expert
    shared_gate      whether a weight of hidden size gates it
    correction       whether each layer has a bias per expert for choosing them
    router_bias, expert_bias   of the projections
    skips            which layers are dense: the first n (first_k_dense_replace), by steps, or all
                     outside a span (moe_layer_start_index to moe_layer_end_index)
    """

    num: tuple[str, ...] = ("num_experts", "num_local_experts", "n_routed_experts")
    used: str = "num_experts_per_tok"
    size: str = "moe_intermediate_size"
    shared_count: str | None = None
    shared_size: str | None = None
    shared_gate: bool = False
    correction: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    skips: Literal["none", "first", "steps", "span"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """How one model type is built.

    attention      grouped (keys and values per head), latent (one compressed vector per token)
    qkv_bias …     biases of the projections
    gated_mlp      gate, up and down; else up and down
    num_norms      norms of hidden size in a layer
    norm_weight, norm_bias   what a norm consists of
    qk_norm        head: a factor per element of a head; width: per element of all heads
    query_gate     queries come with a gate as wide
    sinks          one number per head
    head_bias      of the output matrix
    defaults       of configuration keys that published files leave out, as the model code takes them
    reads_layer_types   whether `layer_types` decides which layer is of which kind
    mtp_is_dense   prediction layers have no experts where the model's layers do
    linear_period  every so many layers one has attention and the others a running state
    """

    attention: Literal["grouped", "latent"] = "grouped"
    qkv_bias: Rule = False
    o_bias: Rule = False
    gated_mlp: bool = True
    mlp_bias: Rule = False
    num_norms: int = 2
    norm_weight: bool = True
    norm_bias: bool = False
    qk_norm: Literal["none", "head", "width"] = "none"
    qk_norm_if: str | None = None
    query_gate: bool = False
    sinks: bool = False
    head_bias: bool = False
    mixture: MixtureKeys | None = None
    windows: Windows = "none"
    reads_layer_types: bool = False
    linear_period: str | None = None
    mtp_is_dense: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


_BIAS: Rule = "attention_bias"
_HEAD_128 = {"head_dim": 128}
_QWEN_WINDOWS = {"max_window_layers": 28, "sliding_window": 4096}
_QWEN_EXPERTS = MixtureKeys(skips="steps")
_QWEN_SHARED = MixtureKeys(shared_size="shared_expert_intermediate_size", shared_gate=True, skips="steps")
_DEEPSEEK_EXPERTS = MixtureKeys(shared_count="n_shared_experts", correction=True, skips="first")
_STEPS = {"decoder_sparse_step": 1}
_DELTA_NET = {"full_attention_interval": 4, "linear_conv_kernel_dim": 4}
_QWEN2 = Architecture(qkv_bias=True, windows="late", reads_layer_types=True, defaults=_QWEN_WINDOWS)
_QWEN3 = Architecture(
    qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", windows="late", reads_layer_types=True,
    defaults=_QWEN_WINDOWS | _HEAD_128,
)  # fmt: skip
_LLAMA = Architecture(qkv_bias=_BIAS, o_bias=_BIAS, mlp_bias="mlp_bias")
_MISTRAL = Architecture(windows="all", defaults={"sliding_window": 4096})
_GLM4_MOE = Architecture(
    qkv_bias=_BIAS, qk_norm="head", qk_norm_if="use_qk_norm", mixture=_DEEPSEEK_EXPERTS,
    defaults={"attention_bias": False},
)  # fmt: skip
_DEEPSEEK = Architecture(attention="latent", mixture=_DEEPSEEK_EXPERTS, defaults={"attention_bias": False})
_QWEN35 = Architecture(
    qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", query_gate=True, reads_layer_types=True,
    linear_period="full_attention_interval", defaults=_DELTA_NET | {"head_dim": 256},
)  # fmt: skip
_QWEN35_MOE = Architecture(
    qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", query_gate=True, reads_layer_types=True,
    linear_period="full_attention_interval", mixture=_QWEN_SHARED, defaults=_DELTA_NET | _STEPS | {"head_dim": 256},
)  # fmt: skip

ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": _LLAMA,
    "arcee": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, gated_mlp=False, mlp_bias="mlp_bias"),
    "mistral": _MISTRAL,
    "ministral": Architecture(windows="all", reads_layer_types=True),
    "ministral3": Architecture(windows="all"),
    "mixtral": Architecture(
        windows="all", mixture=MixtureKeys(size="intermediate_size"),
        defaults={"num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "qwen2": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "mimo": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_vl_text": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", defaults=_HEAD_128),
    "qwen2_moe": Architecture(
        qkv_bias=True, windows="late", reads_layer_types=True, mixture=_QWEN_SHARED,
        defaults=_QWEN_WINDOWS | _STEPS,
    ),
    "qwen3_moe": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", windows="switched", mixture=_QWEN_EXPERTS,
        defaults={"sliding_window": 4096} | _STEPS,
    ),
    "qwen3_next": _QWEN35_MOE,
    "qwen3_5_text": _QWEN35,
    "qwen3_5_moe_text": _QWEN35_MOE,
    "smollm3": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, mlp_bias="mlp_bias", windows="none", reads_layer_types=True,
        defaults={"tie_word_embeddings": True},
    ),
    "phi": Architecture(
        qkv_bias=True, o_bias=True, gated_mlp=False, mlp_bias=True, num_norms=1, norm_bias=True, head_bias=True,
    ),
    "phi3": Architecture(windows="all"),
    "phimoe": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, norm_bias=True, windows="all", mixture=MixtureKeys(size="intermediate_size"),
    ),
    "gemma": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, defaults={"tie_word_embeddings": True, "head_dim": 256},
    ),
    "gemma2": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, num_norms=4, windows="alternate", reads_layer_types=True,
        defaults={"tie_word_embeddings": True, "head_dim": 256, "sliding_window": 4096},
    ),
    "gemma3_text": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, num_norms=4, qk_norm="head", windows="pattern", reads_layer_types=True,
        defaults={
            "tie_word_embeddings": True, "head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 6,
            "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "max_position_embeddings": 131072,
        },
    ),
    "olmo": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, norm_weight=False),
    "olmo2": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="width"),
    "olmo3": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="width", windows="pattern", reads_layer_types=True,
        defaults={"sliding_window_pattern": 4},
    ),
    "olmoe": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="width", mixture=MixtureKeys(size="intermediate_size"),
    ),
    "granite": _LLAMA,
    "granitemoe": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, mixture=MixtureKeys(size="intermediate_size")),
    "cohere": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, num_norms=1, qk_norm="width", qk_norm_if="use_qk_norm",
        defaults={"tie_word_embeddings": True},
    ),
    "cohere2": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, num_norms=1, windows="pattern", reads_layer_types=True,
        defaults={"tie_word_embeddings": True, "sliding_window_pattern": 4},
    ),
    "starcoder2": Architecture(
        qkv_bias="use_bias", o_bias="use_bias", gated_mlp=False, mlp_bias="use_bias", norm_bias=True, windows="all",
        defaults={"use_bias": True, "tie_word_embeddings": True},
    ),
    "glm": Architecture(qkv_bias=_BIAS, defaults=_HEAD_128),
    "glm4": Architecture(qkv_bias=_BIAS, num_norms=4, defaults=_HEAD_128),
    "glm4_moe": _GLM4_MOE,
    "glm4_moe_lite": _DEEPSEEK,
    "deepseek_v2": Architecture(
        attention="latent", mixture=MixtureKeys(shared_count="n_shared_experts", skips="first"),
    ),
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "minicpm3": Architecture(attention="latent"),
    "gpt_oss": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, sinks=True, windows="alternate", reads_layer_types=True,
        mixture=MixtureKeys(size="intermediate_size", router_bias=True, expert_bias=True),
        defaults={"attention_bias": True, "sliding_window": 128, "head_dim": 64},
    ),
    "exaone4": Architecture(qk_norm="head", windows="pattern", reads_layer_types=True),
    "stablelm": Architecture(qkv_bias="use_qkv_bias", norm_bias=True),
    "nemotron": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, gated_mlp=False, mlp_bias="mlp_bias", norm_bias=True,
    ),
    "seed_oss": Architecture(qkv_bias=_BIAS, o_bias="attention_out_bias", mlp_bias="mlp_bias"),
    "helium": Architecture(qkv_bias=_BIAS, mlp_bias="mlp_bias", defaults=_HEAD_128),
    "ernie4_5": Architecture(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", defaults=_HEAD_128),
    "ernie4_5_moe": Architecture(
        qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias",
        mixture=MixtureKeys(
            num=("moe_num_experts",), used="moe_k", shared_count="moe_num_shared_experts", correction=True,
            skips="span",
        ),
        mtp_is_dense=True,
    ),
    "hunyuan_v1_dense": Architecture(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head"),
    "dots1": Architecture(
        qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", reads_layer_types=True, mixture=_DEEPSEEK_EXPERTS,
    ),
    "minimax_m2": Architecture(
        qk_norm="width", mixture=MixtureKeys(size="intermediate_size", correction=True),
    ),
    "internlm3": Architecture(qkv_bias="qkv_bias", o_bias="bias", mlp_bias="bias"),
}  # fmt: skip

ALIASES: Mapping[str, str] = {
    "qwen2_vl_text": "qwen2_5_vl_text", "qwen2_vl": "qwen2_5_vl_text", "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text", "gemma3": "gemma3_text", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
}  # fmt: skip
"""Names under which the same language model appears, where a nested configuration does not carry its own."""
