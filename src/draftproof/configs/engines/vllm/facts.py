"""What vLLM's speculative configuration may hold, and what it held in earlier versions. Data and small readers.

Called by this dialect's reading and writing. Read from the source of vLLM 0.33.0 and 0.32.0, its documentation and its
change history, November 2026. A name is looked up here, never invented: what is not here is refused or passed through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from draftproof.configs.engines.account import unchanged
from draftproof.configs.reading.node import Node
from draftproof.configs.speculation import MODELS, Method, Value
from draftproof.core.finding import Source

READ_VERSION = "0.33.0"
SOURCE = Source(name="vLLM 0.33.0 source, vllm/config/speculative.py", read="2026-11")
HISTORY = Source(name="vLLM releases 0.16 to 0.33", read="2026-11")

MAX_DEPTH = 128
"""What the sampler of model runner V1 takes at most; V2 has no such bound."""
ONLY_V1: frozenset[Method] = frozenset({"suffix", "custom", "pard", "p_eagle", "medusa", "mlp_speculator"})
"""Methods that model runner V2 does not have."""
OWN_RANKS: frozenset[Method] = MODELS | {"dspark"}
"""Methods whose drafter `draft_tensor_parallel_size` acts on; other heads are divided as the target is."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of `speculative_config`. `path` is the neutral setting below `speculation.`, None where there is none."""

    name: str
    path: str | None
    read: Callable[[Node, str], Value]


def _whole(low: int) -> Callable[[Node, str], Value]:
    def read(node: Node, name: str) -> Value:
        value = int(node.value) if isinstance(node.value, str) and node.value.isdecimal() else None
        number = node.integer(name) if value is None else value
        if number < low:
            raise node.refused(f"{name}: at least {low}", "vLLM refuses it: correct the value.")
        return number

    return read


def _real(low: float, high: float | None = None) -> Callable[[Node, str], Value]:
    def read(node: Node, name: str) -> Value:
        number = node.number(name)
        if number < low or (high is not None and number > high):
            limits = f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
            raise node.refused(f"{name}: {limits}", "vLLM refuses it: correct the value.")
        return number

    return read


def _choice(*words: str) -> Callable[[Node, str], Value]:
    def read(node: Node, name: str) -> Value:
        text = node.text(name)
        if text not in words:
            raise node.refused(f"{name}: one of {', '.join(words)}", "Write one of these.")
        return text

    return read


def _text(node: Node, name: str) -> Value:
    text = node.text(name)
    if not text:
        raise node.refused(f"{name}: a name", "Give the name, or leave the key out.")
    return text


def _flag(node: Node, name: str) -> Value:
    return node.boolean(name)


def _anything(node: Node, name: str) -> Value:
    return unchanged(node.plain())


def _rates(node: Node, name: str) -> Value:
    if not isinstance(node.value, tuple) or not node.value:
        raise node.refused(f"{name}: a list of numbers", "Give one rate per drafted position.")
    return tuple(_real(0.0, 1.0)(part, name) for part in node.value)


REJECTION_RULES = ("standard", "block", "fly", "synthetic")
LOSSY_RULES = ("fly", "synthetic")
FORMER_REJECTION_RULES = ("strict", "probabilistic")

_WHOLE, _POSITIVE = _whole(0), _whole(1)

KEYS: Mapping[str, Key] = {
    key.name: key
    for key in (
        Key("method", "method", _text),
        Key("model", "drafter", _text),
        Key("revision", "drafter.revision", _text),
        Key("quantization", "drafter.quantization", _text),
        Key("num_speculative_tokens", "depth", _POSITIVE),
        Key("prompt_lookup_min", "lookup.min_ngram", _POSITIVE),
        Key("prompt_lookup_max", "lookup.max_ngram", _POSITIVE),
        Key("suffix_decoding_max_tree_depth", "lookup.max_tree_depth", _POSITIVE),
        Key("suffix_decoding_max_cached_requests", "lookup.max_cached_requests", _WHOLE),
        Key("suffix_decoding_max_spec_factor", "lookup.max_spec_factor", _real(0.0)),
        Key("suffix_decoding_min_token_prob", "lookup.min_token_prob", _real(0.0, 1.0)),
        Key("draft_sample_method", "draft_sampling", _choice("greedy", "probabilistic")),
        Key(
            "rejection_sample_method",
            "verification",
            _choice(*REJECTION_RULES, *FORMER_REJECTION_RULES),
        ),
        Key("use_heterogeneous_vocab", "different_vocabulary", _flag),
        Key("draft_tensor_parallel_size", "draft_tensor_parallel", _POSITIVE),
        Key("max_model_len", "draft_max_model_len", _POSITIVE),
        Key("kv_cache_dtype", "draft_kv_dtype", _text),
        Key("num_speculative_tokens_per_batch_size", "schedule", _anything),
        Key("parallel_drafting", None, _flag),
        Key("code_revision", None, _text),
        Key("enforce_eager", None, _flag),
        Key("attention_backend", None, _text),
        Key("moe_backend", None, _text),
        Key("draft_load_config", None, _anything),
        Key("use_local_argmax_reduction", None, _flag),
        Key("enable_adaptive_verification", None, _flag),
        Key("disable_padded_drafter_batch", None, _flag),
        Key("disable_eagle_block_drop", None, _flag),
        Key("disable_lookahead_block_hashes", None, _flag),
        Key("draft_lm_head_quantization", None, _choice("fp8", "nvfp4")),
        Key("index_share_for_mtp_iteration", None, _flag),
        Key("dspark_draft_topk", None, _POSITIVE),
        Key("xpress_topc", None, _POSITIVE),
        Key("synthetic_acceptance_rates", None, _rates),
        Key("synthetic_acceptance_length", None, _real(1.0)),
        Key("fly_window_size", None, _POSITIVE),
        Key("fly_entropy_threshold", None, _real(0.0)),
        Key("fly_entropy_top_k", None, _POSITIVE),
    )
}

METHODS = (
    "ngram", "ngram_gpu", "draft_model", "suffix", "custom_class", "eagle", "eagle3", "mtp", "dflash", "dspark",
    "extract_hidden_states",
)  # fmt: skip
FORMER_METHODS = ("medusa", "mlp_speculator")
"""Removed in 0.33.0, present in 0.32.0."""
MTP_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "deepseek_mtp": ("deepseek_v3", "deepseek_v32", "glm_moe_dsa", "deepseek_v4"),
    "dots3_note_mtp": ("dots3_note",),
    "mimo_mtp": ("MiMoForCausalLM",),
    "mimo_v2_mtp": ("MiMoV2ForCausalLM", "MiMoV2OmniForCausalLM", "MiMoV2FlashForCausalLM"),
    "glm4_moe_mtp": ("Glm4MoeForCausalLM",),
    "glm4_moe_lite_mtp": ("Glm4MoeLiteForCausalLM",),
    "glm_ocr_mtp": ("GlmOcrForConditionalGeneration",),
    "ernie_mtp": ("ernie4_5_moe",),
    "nemotron_h_mtp": (
        "nemotron_h", "nemotron_h_puzzle", "NemotronH_Super_Omni_Reasoning_V3", "NemotronH_Omni_Reasoning_V3",
    ),
    "exaone_moe_mtp": ("exaone_moe",),
    "exaone4_5_mtp": ("exaone4_5",),
    "qwen3_next_mtp": ("qwen3_next",),
    "qwen4_exp_mtp": ("qwen4_exp", "qwen4_exp_text"),
    "qwen3_5_mtp": (
        "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text", "intern_s2_preview", "interns2_mobius",
    ),
    "longcat_flash_mtp": ("longcat_flash",),
    "bailing_hybrid_v3_mtp": ("BailingMoeV3ForCausalLM", "BailingMoeV3VLForConditionalGeneration"),
    "bailing_hybrid_mtp": ("bailing_hybrid", "BailingMoeV2_5ForCausalLM"),
    "minimax_m3_mtp": ("minimax_m3_vl", "MiniMaxM3SparseForConditionalGeneration", "MiniMaxM3MTP"),
    "kimi_k3_mtp": ("kimi_k3",),
    "pangu_ultra_moe_mtp": ("pangu_ultra_moe",),
    "step3p5_mtp": ("step3p5", "step3p7", "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"),
    "step5_mtp": ("step5", "step5_vl", "Step5ForCausalLM", "Step5ForConditionalGeneration"),
    "hy_v3_mtp": ("hy_v3",),
    "hy_v4_mtp": ("hy_v4",),
    "gemma4_mtp": ("gemma4_assistant", "gemma4_unified_assistant"),
    "inkling_mtp": ("inkling_mm_model", "inkling_model"),
    "glm5_next_mtp": ("glm5_next",),
    "mtp": ("RadioMBartPrefixForCausalLM",),
}  # fmt: skip
"""What vLLM 0.33.0 makes of a family's configuration to run its MTP layers: its name for them → the outer `model_type`
or first architecture by which it knows the family (`MTPModelTypes`, `hf_config_override`)."""
MTP_ALIASES = frozenset(MTP_FAMILIES) - {"mtp"}
"""As methods accepted with a warning and rewritten to mtp."""
WITHOUT_DRAFTER = frozenset(("ngram", "ngram_gpu", "suffix", "extract_hidden_states"))
"""Methods that take no checkpoint: `model` has no effect on them."""
KEEPS_ITS_NAME = frozenset(("eagle", "eagle3", "dflash", "dspark"))
"""Methods that the path of the drafter does not change when they are named."""
PATH_WORDS = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
"""In this order a part of the drafter's path, in lower case, decides the method."""
ARCHITECTURES: Mapping[str, str] = {
    "MuseGlimmerAssistantModel": "dflash", "Qwen3DSparkModel": "dspark", "Qwen3OmniDSparkModel": "dspark",
    "MuseSparkDSparkModel": "dspark", "Gemma4DSparkModel": "dspark",
}  # fmt: skip
"""Architectures of drafters that decide it where no such part does."""


@dataclass(frozen=True, slots=True)
class Presence:
    """What is known of when something was there: versions that were read, None where no version is known to lack it."""

    present_from: str | None = None
    absent_until: str | None = None
    present_until: str | None = None
    absent_from: str | None = None


KEY_HISTORY: Mapping[str, Presence] = {
    "num_speculative_tokens_per_batch_size": Presence("0.24", "0.20"),
    "draft_sample_method": Presence("0.24", "0.20"),
    "use_heterogeneous_vocab": Presence("0.28", "0.24"),
    "enable_adaptive_verification": Presence("0.28", "0.24"),
    "fly_window_size": Presence("0.33", "0.32"),
    "fly_entropy_threshold": Presence("0.33", "0.32"),
    "fly_entropy_top_k": Presence("0.33", "0.32"),
    "xpress_topc": Presence("0.33", "0.32"),
    "draft_lm_head_quantization": Presence("0.33", "0.32"),
    "disable_lookahead_block_hashes": Presence("0.33", "0.32"),
}
METHOD_HISTORY: Mapping[str, Presence] = {
    "medusa": Presence(present_until="0.32.0", absent_from="0.33.0"),
    "mlp_speculator": Presence(present_until="0.32.0", absent_from="0.33.0"),
    "custom_class": Presence("0.24", "0.20"),
    "dspark": Presence("0.28", "0.24"),
    "step5_mtp": Presence("0.33", "0.32"),
}
RULE_HISTORY: Mapping[str, Presence] = {
    "block": Presence("0.28", "0.24"),
    "fly": Presence("0.33", "0.32"),
    "standard": Presence("0.24", "0.20"),
}


_KEY_OF_V0 = Presence(present_until="0.7.3", absent_from="0.24")
_FLAG_OF_V0 = Presence(present_until="0.7.3", absent_from="0.32.0")
"""0.32.0 was seen to refuse the single flags; releases up to 0.7.3 were started with them in public reports."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A name that vLLM once took. `key`: the key that holds its value today, where the value means the same.

    `gone`: when it was there, and from which version on its absence was read. `idle`: what was there had no effect."""

    today: str
    reason: str
    key: str | None = None
    gone: Presence = _KEY_OF_V0
    idle: bool = False


FORMER_RULE = Removed("standard", "renamed", gone=Presence(present_until="0.20", absent_from="0.24"))
"""The words strict and probabilistic."""

REMOVED_KEYS: Mapping[str, Removed] = {
    "disable_by_batch_size": Removed(
        "num_speculative_tokens_per_batch_size",
        "without effect since engine V1, removed between 0.16 and 0.20; today a schedule by batch size does it",
        gone=Presence(present_until="0.16", absent_from="0.20"),
        idle=True,
    ),
    "speculative_disable_by_batch_size": Removed(
        "num_speculative_tokens_per_batch_size", "removed together with disable_by_batch_size"
    ),
    "speculative_token_tree": Removed(
        "", "tree drafting was removed by 0.24: vLLM drafts chains of num_speculative_tokens"
    ),
    "spec_decoding_acceptance_method": Removed("rejection_sample_method", "removed with engine V0"),
    "acceptance_method": Removed("rejection_sample_method", "removed with engine V0"),
    "posterior_threshold": Removed("", "typical acceptance was removed with engine V0"),
    "posterior_alpha": Removed("", "typical acceptance was removed with engine V0"),
    "disable_mqa_scorer": Removed("", "removed with engine V0"),
    "disable_logprobs": Removed("", "removed with engine V0"),
}

REMOVED_FLAGS: Mapping[str, Removed] = {
    "--speculative-model": Removed("--spec-model", "removed: argparse refuses it", "model", _FLAG_OF_V0),
    "--num-speculative-tokens": Removed(
        "--spec-tokens", "removed: argparse refuses it", "num_speculative_tokens", _FLAG_OF_V0
    ),
    "--speculative-model-quantization": Removed(
        "--speculative-config '{\"quantization\": …}'",
        "removed: argparse refuses it",
        "quantization",
        _FLAG_OF_V0,
    ),
    "--speculative-draft-tensor-parallel-size": Removed(
        "--speculative-config '{\"draft_tensor_parallel_size\": …}'",
        "removed: argparse refuses it",
        "draft_tensor_parallel_size",
        _FLAG_OF_V0,
    ),
    "--speculative-max-model-len": Removed(
        "--speculative-config '{\"max_model_len\": …}'",
        "removed: argparse refuses it",
        "max_model_len",
        _FLAG_OF_V0,
    ),
    "--ngram-prompt-lookup-max": Removed(
        "--speculative-config '{\"prompt_lookup_max\": …}'",
        "removed: argparse refuses it",
        "prompt_lookup_max",
        _FLAG_OF_V0,
    ),
    "--ngram-prompt-lookup-min": Removed(
        "--speculative-config '{\"prompt_lookup_min\": …}'",
        "removed: argparse refuses it",
        "prompt_lookup_min",
        _FLAG_OF_V0,
    ),
    "--speculative-disable-by-batch-size": Removed(
        "--speculative-config '{\"num_speculative_tokens_per_batch_size\": …}'",
        "removed: argparse refuses it, and it had no effect since engine V1",
        "disable_by_batch_size",
        _FLAG_OF_V0,
    ),
}
