"""TensorRT-LLM's keys as data: which decoding types there are, which keys each takes, which are gone.

From `llm_args.py` of its main branch of mid-2026, on the way to 1.3, and the documentation of 1.2.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.configs.reading.options import Option
from draftproof.core.finding import Source

VERSION = "1.3.0"
KNOWN_VERSIONS = ">=1.3.0rc1,<1.4"
SOURCE = Source(
    name="TensorRT-LLM llm_args.py, main branch of mid-2026",
    read="2026-11",
    url="https://github.com/NVIDIA/TensorRT-LLM/blob/main/tensorrt_llm/llmapi/llm_args.py",
)
MAX_BATCH = 2048
"""max_batch_size where nobody says it."""

METHODS: Mapping[str, str] = {
    "Eagle3": "eagle3", "MTP": "mtp", "Draft_Target": "draft_model", "NGram": "ngram", "SA": "suffix", "PARD": "pard",
    "DFlash": "dflash", "DSpark": "dspark", "AUTO": "auto", "User_Provided": "custom", "SaveState": "custom",
    "Medusa": "medusa", "Lookahead": "lookahead",
}  # fmt: skip
WRITTEN: Mapping[str, str] = {
    method: name for name, method in METHODS.items() if method not in ("custom", "medusa", "lookahead")
}
ALIASES: Mapping[str, str] = {"Eagle": "Eagle3", "DraftTarget": "Draft_Target"}
GONE_TYPES = frozenset(["Medusa", "Lookahead"])
"""They were for the TensorRT backend, up to 1.2."""

_COMMON = (
    "decoding_type max_draft_len max_total_draft_tokens speculative_model speculative_model_dir max_concurrency "
    "draft_len_schedule load_format acceptance_rate_window_size acceptance_rate_threshold use_rejection_sampling "
    "allow_advanced_sampling advanced_sampling_mode enable_penalty acceptance_window acceptance_length_threshold"
)
_TREE = "use_dynamic_tree dynamic_tree_max_topK"
_OF_TYPE: Mapping[str, str] = {
    "Eagle3": f"{_TREE} eagle_choices greedy_sampling posterior_threshold num_eagle_layers max_non_leaves_per_layer "
    "eagle3_one_model eagle3_layers_to_capture eagle3_model_arch sa_config use_sa_spec sa_spec_threshold",
    "MTP": f"{_TREE} use_relaxed_acceptance_for_thinking relaxed_topk relaxed_delta use_mtp_vanilla "
    "mtp_eagle_one_model num_nextn_predict_layers begin_thinking_phase_token end_thinking_phase_token sa_config "
    "use_sa_spec sa_spec_threshold",
    "NGram": "max_matching_ngram_size is_keep_all is_use_oldest is_public_pool",
    "SA": "max_matching_ngram_size enable_global_pool global_pool_size",
    "PARD": "mask_token_id sa_config use_sa_spec sa_spec_threshold",
    "DFlash": "mask_token_id target_layer_ids attention_backend",
    "DSpark": "mask_token_id target_layer_ids attention_backend block_size markov_rank markov_head_type",
    "SaveState": "output_directory write_interval file_prefix eagle3_layers_to_capture eagle_choices",
    "User_Provided": "drafter resource_manager",
    "Medusa": "medusa_choices num_medusa_heads",
    "Lookahead": "max_window_size max_ngram_size max_verification_set_size",
}


def keys_of(decoding_type: str) -> tuple[str, ...]:
    """What the class takes; it refuses everything else."""
    return tuple(f"{_COMMON} {_OF_TYPE.get(decoding_type, '')}".split())


NEEDS_DEPTH = frozenset(["eagle3", "draft_model", "ngram", "suffix", "pard", "dflash"])
NEEDS_DRAFTER = frozenset(["eagle3", "draft_model", "pard", "dflash"])
TREES = frozenset(["eagle3", "mtp"])
SCHEDULED = frozenset(["eagle3", "mtp", "pard", "dflash", "draft_model", "suffix", "ngram"])
REJECTION = frozenset(["eagle3", "mtp", "pard", "dflash", "dspark", "draft_model"])

TOP: Mapping[str, tuple[str, str]] = {
    "revision": ("target.revision", "str"),
    "dtype": ("dtype", "str"),
    "max_seq_len": ("max_model_len", "int"),
    "max_batch_size": ("max_num_seqs", "int"),
    "max_num_tokens": ("max_num_batched_tokens", "int"),
    "tensor_parallel_size": ("tensor_parallel", "int"),
    "pipeline_parallel_size": ("pipeline_parallel", "int"),
    "enable_lora": ("lora", "bool"),
}
"""Key at the top of the file → neutral setting and kind."""
_ALL = """
_mpi_session allreduce_strategy attention_dp_config attn_backend backend batch_wait_max_tokens_ratio
batch_wait_timeout_iters batch_wait_timeout_ms batched_logits_processor cache_transceiver_config
checkpoint_format checkpoint_io_policy checkpoint_loader context_parallel_size cp_config cuda_graph_config
custom_tokenizer decoding_config disable_mm_encoder disable_overlap_scheduler dtype dwdp_config
enable_attention_dp enable_autotuner enable_chunked_prefill enable_early_first_token_response
enable_encoder_decoder_mixed_cuda_graph enable_energy_metrics enable_in_graph_sampling enable_iter_perf_stats
enable_iter_req_stats enable_layerwise_nvtx_marker enable_lm_head_tp_in_adp enable_lora
enable_low_latency_host_dispatch enable_min_latency enable_mla_skip_correction enable_resource_governor
enable_speculative_beam_history_d2h encode_only encoder_cuda_graph_config encoder_max_batch_size
encoder_max_num_tokens env_overrides force_dynamic_quantization garbage_collection_gen0_threshold
gather_generation_logits generation_config gms_config gpus_per_node guided_decoding_backend
iter_stats_max_iterations kv_cache_compression_config kv_cache_config kv_connector_config
layer_wise_benchmarks_config load_format lora_config max_batch_size max_beam_width max_input_len max_num_tokens
max_seq_len max_stats_len mla_skip_correction_threshold mm_encoder_only model model_kwargs
moe_cluster_parallel_size moe_config moe_expert_parallel_size moe_tensor_parallel_size mpi_session
multimodal_config mx_config num_postprocess_workers num_serve_frontends nvfp4_gemm_config orchestrator_type
otlp_traces_endpoint peft_cache_config perf_metrics_max_requests perf_metrics_output_dir pipeline_parallel_size
post_processor_hook postprocess_tokenizer_dir pp_partition prefill_capture_num_tokens prefill_cuda_graph_backend
print_iter_log prometheus_metrics_config quant_config ray_placement_config ray_worker_extension_cls
ray_worker_nsight_options reasoning_parser reorder_policy_config request_stats_max_iterations
return_perf_metrics revision sampler_force_async_worker sampler_type scheduler_config skip_tokenizer_init
sleep_config sparse_attention_config speculative_config stream_interval telemetry_config tensor_parallel_size
tokenizer tokenizer_mode tokenizer_revision torch_compile_config trust_remote_code use_cute_dsl_bf16_bmm
use_cute_dsl_bf16_gemm use_cute_dsl_blockscaling_bmm use_cute_dsl_blockscaling_mm use_fine_grained_sync
"""
"""Keys at the top of the file, from `llm_args.py` of a main branch of 2026; it refuses others (extra="forbid")."""
_OLDER = """
batching_type build_config enable_mixed_sampler enable_trtllm_sampler kv_cache_dtype normalize_log_probs
"""
"""Keys of 1.0 to 1.2 that are gone there."""
KNOWN = frozenset(f"{_ALL} {_OLDER}".split())
CACHE: Mapping[str, tuple[str, str]] = {
    "dtype": ("kv_dtype", "str"),
    "free_gpu_memory_fraction": ("memory_fraction", "float"),
    "enable_block_reuse": ("prefix_caching", "bool"),
    "tokens_per_block": ("block_size", "int"),
}
"""Key of kv_cache_config → neutral setting and kind."""
DTYPES = ("auto", "float16", "bfloat16", "float32")
KV_DTYPES = ("auto", "fp8", "nvfp4")

CONFIG = Option("--config", aliases=("--extra_llm_api_options",))
FLAGS: Mapping[str, Option] = {
    "max_batch_size": Option("--max_batch_size", "int"),
    "max_num_tokens": Option("--max_num_tokens", "int"),
    "max_seq_len": Option("--max_seq_len", "int"),
    "tensor_parallel_size": Option("--tp_size", "int", ("--tensor_parallel_size",)),
    "pipeline_parallel_size": Option("--pp_size", "int", ("--pipeline_parallel_size",)),
    "revision": Option("--revision"),
    "free_gpu_memory_fraction": Option(
        "--kv_cache_free_gpu_memory_fraction", "float", ("--free_gpu_memory_fraction",)
    ),
}
"""Flags of the command that say what a key of the file says. The file counts where both do."""
TABLE: Mapping[str, Option] = {
    spelling: option for option in (CONFIG, *FLAGS.values()) for spelling in (option.name, *option.aliases)
}
