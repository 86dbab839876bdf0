"""How other engines, and later versions of this one, spell what a speculation object may hold. Data only.

`intent.py` looks a key or method up here after it did not find it among its own, so that the error can say
what the name means and what to write today. It does not translate a config of another engine.
Read from vLLM 0.33.0, SGLang 0.5.23, TensorRT-LLM of mid-2026, llama.cpp b11434, Transformers 5.24 and the
pages of hosted services, November 2026. Names are kept as `normal` makes them.
"""

from __future__ import annotations

from typing import NamedTuple


class Spelling(NamedTuple):
    """Where a name is or was used, and what to write here."""

    engine: str
    today: str


def normal(name: str) -> str:
    """The form in which names are kept here: lower case, underscores, no leading dashes."""
    return name.lower().replace("-", "_").lstrip("_").removeprefix("speculative_config.")


_DEPTH = "num_speculative_tokens"
_PLUS_ONE = "num_speculative_tokens, one less: the other engine counts the root row too"
_NO_TREE = "nothing: look-up methods draft one chain, its depth is num_speculative_tokens"
_OFF_BY_LOAD = "nothing: leave it out, a batch size cut-off is not a key here"
_LOSSY = "nothing: rules that accept what the target would not have produced are not offered"

FOREIGN_KEYS: dict[str, Spelling] = {
    "speculative_model": Spelling("vLLM (removed)", "method draft_model with model"),
    "spec_model": Spelling("vLLM", "model"),
    "quantization": Spelling("vLLM", "draft_weights"),
    "use_heterogeneous_vocab": Spelling(
        "vLLM", "nothing: different vocabularies are mapped by themselves, and the overlap is shown"
    ),
    "spec_method": Spelling("vLLM", "method"),
    "spec_tokens": Spelling("vLLM", _DEPTH),
    "speculative_max_model_len": Spelling(
        "vLLM (removed)", "nothing: look-up methods have no context of their own"
    ),
    "ngram_prompt_lookup_max": Spelling("vLLM (removed)", "prompt_lookup_max"),
    "ngram_prompt_lookup_min": Spelling("vLLM (removed)", "prompt_lookup_min"),
    "disable_by_batch_size": Spelling("vLLM (removed)", _OFF_BY_LOAD),
    "speculative_disable_by_batch_size": Spelling("vLLM (removed)", _OFF_BY_LOAD),
    "num_speculative_tokens_per_batch_size": Spelling("vLLM", _OFF_BY_LOAD),
    "speculative_token_tree": Spelling("vLLM (removed)", _NO_TREE),
    "spec_decoding_acceptance_method": Spelling("vLLM (removed)", "verification"),
    "acceptance_method": Spelling("vLLM (removed)", "verification"),
    "typical_acceptance_sampler_posterior_threshold": Spelling("vLLM (removed)", _LOSSY),
    "typical_acceptance_sampler_posterior_alpha": Spelling("vLLM (removed)", _LOSSY),
    "posterior_threshold": Spelling("vLLM (removed)", _LOSSY),
    "posterior_alpha": Spelling("vLLM (removed)", _LOSSY),
    "synthetic_acceptance_rates": Spelling("vLLM", _LOSSY),
    "synthetic_acceptance_length": Spelling("vLLM", _LOSSY),
    "fly_window_size": Spelling("vLLM", _LOSSY),
    "fly_entropy_threshold": Spelling("vLLM", _LOSSY),
    "fly_entropy_top_k": Spelling("vLLM", _LOSSY),
    "speculative_algorithm": Spelling("SGLang", "method"),
    "speculative_num_steps": Spelling("SGLang", _DEPTH),
    "speculative_num_draft_tokens": Spelling("SGLang", _PLUS_ONE),
    "speculative_eagle_topk": Spelling("SGLang", _NO_TREE),
    "speculative_accept_threshold_single": Spelling("SGLang", _LOSSY),
    "speculative_accept_threshold_acc": Spelling("SGLang", _LOSSY),
    "speculative_use_rejection_sampling": Spelling("SGLang", '"verification": "rejection"'),
    "speculative_use_block_verification": Spelling("SGLang", '"verification": "block"'),
    "speculative_adaptive": Spelling("SGLang", "adaptive"),
    "speculative_ngram_min_match_window_size": Spelling("SGLang (removed)", "prompt_lookup_min"),
    "speculative_ngram_max_match_window_size": Spelling("SGLang (removed)", "prompt_lookup_max"),
    "speculative_ngram_max_trie_depth": Spelling(
        "SGLang", "method suffix with suffix_decoding_max_tree_depth"
    ),
    "speculative_ngram_capacity": Spelling(
        "SGLang", "method suffix with suffix_decoding_max_cached_requests"
    ),
    "speculative_ngram_max_bfs_breadth": Spelling("SGLang", _NO_TREE),
    "speculative_ngram_min_bfs_breadth": Spelling("SGLang", _NO_TREE),
    "speculative_draft_model_path": Spelling("SGLang", "model"),
    "decoding_type": Spelling("TensorRT-LLM", "method"),
    "speculative_model_dir": Spelling("TensorRT-LLM", "model"),
    "max_draft_len": Spelling("TensorRT-LLM", _DEPTH),
    "max_total_draft_tokens": Spelling("TensorRT-LLM", _NO_TREE),
    "num_nextn_predict_layers": Spelling("TensorRT-LLM (deprecated)", _DEPTH),
    "max_concurrency": Spelling("TensorRT-LLM", _OFF_BY_LOAD),
    "draft_len_schedule": Spelling("TensorRT-LLM", _OFF_BY_LOAD),
    "is_keep_all": Spelling("TensorRT-LLM", "nothing: every n-gram of the request is kept"),
    "is_use_oldest": Spelling("TensorRT-LLM", "nothing: the most recent match is taken"),
    "is_public_pool": Spelling("TensorRT-LLM", "method suffix: its pool is kept apart by scope"),
    "enable_global_pool": Spelling("TensorRT-LLM", "method suffix with suffix_decoding_max_cached_requests"),
    "global_pool_size": Spelling("TensorRT-LLM", "suffix_decoding_max_cached_requests"),
    "use_relaxed_acceptance_for_thinking": Spelling("TensorRT-LLM", _LOSSY),
    "spec_draft_model": Spelling("llama.cpp", "model"),
    "spec_type": Spelling("llama.cpp", "method"),
    "draft": Spelling("llama.cpp (removed)", _DEPTH),
    "draft_max": Spelling("llama.cpp (removed)", _DEPTH),
    "draft_n": Spelling("llama.cpp (removed)", _DEPTH),
    "draft_min": Spelling("llama.cpp (removed)", "nothing: short drafts are used as they are"),
    "draft_p_min": Spelling("llama.cpp", "suffix_decoding_min_token_prob"),
    "spec_draft_n_max": Spelling("llama.cpp", _DEPTH),
    "spec_draft_n_min": Spelling("llama.cpp", "nothing: short drafts are used as they are"),
    "spec_draft_p_min": Spelling("llama.cpp", "suffix_decoding_min_token_prob"),
    "spec_ngram_size_n": Spelling("llama.cpp (removed)", "prompt_lookup_min and prompt_lookup_max"),
    "spec_ngram_size_m": Spelling("llama.cpp (removed)", _DEPTH),
    "spec_ngram_min_hits": Spelling("llama.cpp (removed)", "nothing: one earlier occurrence is enough"),
    "spec_ngram_simple_size_n": Spelling("llama.cpp", "prompt_lookup_min and prompt_lookup_max"),
    "spec_ngram_simple_size_m": Spelling("llama.cpp", _DEPTH),
    "spec_ngram_simple_min_hits": Spelling("llama.cpp", "nothing: one earlier occurrence is enough"),
    "assistant_model": Spelling("Transformers", "model"),
    "prompt_lookup_num_tokens": Spelling("Transformers", _DEPTH),
    "max_matching_ngram_size": Spelling("Transformers, TensorRT-LLM", "prompt_lookup_max"),
    "num_assistant_tokens": Spelling("Transformers, OpenVINO", _DEPTH),
    "num_assistant_tokens_schedule": Spelling("Transformers", "adaptive"),
    "max_ngram_size": Spelling("OpenVINO", "prompt_lookup_max"),
    "prompt_lookup": Spelling("OpenVINO", '"method": "ngram"'),
    "draftmodel": Spelling("Fireworks", "model"),
    "drafttokencount": Spelling("Fireworks", _DEPTH),
    "ngramspeculationlength": Spelling("Fireworks", "method ngram with prompt_lookup_max"),
    "speculativetokencount": Spelling("Vertex AI", _DEPTH),
    "ngramsize": Spelling("Vertex AI", "prompt_lookup_max"),
    "prediction": Spelling(
        "OpenAI", "method predicted; the expected text goes beside the prompt, not in here"
    ),
}

FOREIGN_METHODS: dict[str, Spelling] = {
    "[ngram]": Spelling("vLLM (removed)", "ngram"),
    "ngram_gpu": Spelling("vLLM", "ngram"),
    "prompt_lookup": Spelling("Transformers, OpenVINO", "ngram"),
    "prompt_lookup_decoding": Spelling("Transformers", "ngram"),
    "ngram_simple": Spelling("llama.cpp", "ngram"),
    "ngram_map_k": Spelling("llama.cpp", "ngram"),
    "ngram_map_k4v": Spelling("llama.cpp", "suffix"),
    "ngram_mod": Spelling("llama.cpp", "suffix"),
    "ngram_cache": Spelling("llama.cpp", "suffix"),
    "sa": Spelling("TensorRT-LLM", "suffix"),
    "suffix_decoding": Spelling("Arctic Inference", "suffix"),
    "predicted_outputs": Spelling("OpenAI", "predicted"),
    "prediction": Spelling("OpenAI", "predicted"),
    "standalone": Spelling("SGLang", "draft_model"),
    "draft_target": Spelling("TensorRT-LLM", "draft_model"),
    "drafttarget": Spelling("TensorRT-LLM", "draft_model"),
    "draft_simple": Spelling("llama.cpp", "draft_model"),
    "assisted": Spelling("Transformers", "draft_model"),
}

MODEL_METHODS: dict[str, str] = {
    "eagle": "an EAGLE head",
    "eagle3": "an EAGLE-3 head",
    "mtp": "the checkpoint's multi-token prediction head",
    "medusa": "Medusa heads",
    "mlp_speculator": "an MLP speculator",
    "dflash": "a DFlash drafter",
    "dspark": "a DSpark drafter",
    "pard": "a parallel draft model",
    "p_eagle": "a parallel EAGLE head",
    "peagle": "a parallel EAGLE head",
    "lookahead": "lookahead decoding",
    "custom_class": "a class of the user's own",
    "extract_hidden_states": "no speculation at all, but dumping hidden states",
    "nextn": "SGLang's name for the multi-token prediction head",
    "frozen_kv_mtp": "SGLang's name for a multi-token prediction head",
    "uno": "an SGLang method",
    "user_provided": "a class of the user's own",
    "draft_eagle3": "llama.cpp's name for an EAGLE-3 head",
    "draft_mtp": "llama.cpp's name for the multi-token prediction head",
    "draft_dflash": "llama.cpp's name for a DFlash drafter",
    "draft_dspark": "llama.cpp's name for a DSpark drafter",
}
"""Methods that need weights or code which this version does not load."""

MODEL_KEYS = frozenset(
    [
        "revision",
        "code_revision",
        "draft_load_config",
        "draft_tensor_parallel_size",
        "tensor_parallel_size",
        "max_model_len",
        "enforce_eager",
        "attention_backend",
        "moe_backend",
        "kv_cache_dtype",
        "parallel_drafting",
        "use_local_argmax_reduction",
        "enable_adaptive_verification",
        "disable_padded_drafter_batch",
        "disable_eagle_block_drop",
        "disable_lookahead_block_hashes",
        "draft_lm_head_quantization",
        "index_share_for_mtp_iteration",
        "dspark_draft_topk",
        "xpress_topc",
        "draft_block_size",
        "speculative_draft_tensor_parallel_size",
        "speculative_draft_model_revision",
        "speculative_token_map",
    ]
)
"""Keys of other engines for drafters with weights of their own that mean nothing here."""


def model_method(name: str) -> str | None:
    """What a method of later versions or other engines is, or None. vLLM's 27 `*_mtp` names are all `mtp`."""
    plain = normal(name)
    if plain.endswith("_mtp") and plain not in MODEL_METHODS:
        return f"vLLM's former name of mtp, {MODEL_METHODS['mtp']}"
    return MODEL_METHODS.get(plain)
