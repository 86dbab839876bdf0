"""SGLang's flags as data: which there are, which neutral setting each is, which are gone. From its 0.5.23 source."""

from __future__ import annotations

from dataclasses import replace

from draftproof.configs.engines.sglang.arguments import OTHERS
from draftproof.configs.reading.options import Option
from draftproof.core.finding import Source

VERSION = "0.5.23"
KNOWN_VERSIONS = ">=0.5.23,<0.5.24"
SOURCE = Source(name=f"SGLang {VERSION} source", read="2026-11", url="https://github.com/sgl-project/sglang")

QUANTIZATIONS = (
    "awq fp8 mxfp8 gptq gptq_marlin awq_marlin bitsandbytes gguf modelopt modelopt_fp8 modelopt_fp4 nvfp4_online "
    "modelopt_mixed petit_nvfp4 w8a8_int8 w8a8_fp8 moe_wna16 w4afp8 mxfp4 auto-round auto-round-int8 "
    "compressed-tensors modelslim mxfp_w4a8 quark quark_int4fp8_moe quark_mxfp4 mlx_q4 mlx_q8 unquant humming"
)
KV_DTYPES = "auto fp8_e5m2 fp8_e4m3 mxfp8 bf16 bfloat16 nvfp4 fp4_mx_block16"
DRAFT_KV_DTYPES = "auto fp8_e5m2 fp8_e4m3 bf16 bfloat16"
DTYPES = "auto half float16 bfloat16 float float32"
GRAPH_BACKENDS = "full breakable disabled"
LOAD_FORMATS = (
    "auto pt safetensors instanttensor npcache dummy sharded_state presharded gguf expert_pack bitsandbytes mistral "
    "layered flash_rl remote remote_instance fastsafetensors private runai_streamer"
)
MOE_RUNNERS = (
    "auto deep_gemm triton triton_kernel flashinfer_trtllm experimental_sgl_trtllm flashinfer_trtllm_routed "
    "flashinfer_cutlass flashinfer_mxfp4 flashinfer_cutedsl flashinfer_megamoe cutlass aiter marlin humming "
    "experimental_sgl_marlin lora_cutedsl lora_triton lora_marlin hpc_ops megamoe intel_xpu"
)
MOE_EXCHANGES = "none deepep mooncake nixl mori ascend_fuseep flashinfer megamoe deepep_v2 pplx ascend_tp"
SAME_DTYPE = {"half": "float16", "float": "float32"}


def _choices(words: str) -> tuple[str, ...]:
    return tuple(words.split())


DIRECT: dict[str, Option] = {
    "target": Option("--model-path", aliases=("--model",)),
    "target.revision": Option("--revision"),
    "target.quantization": Option("--quantization", choices=_choices(QUANTIZATIONS)),
    "dtype": Option("--dtype", choices=_choices(DTYPES)),
    "kv_dtype": Option("--kv-cache-dtype", choices=_choices(KV_DTYPES)),
    "max_model_len": Option("--context-length"),
    "max_num_seqs": Option("--max-running-requests", "int"),
    "memory_fraction": Option("--mem-fraction-static", "float"),
    "tensor_parallel": Option("--tp-size", "int", ("--tensor-parallel-size",)),
    "pipeline_parallel": Option("--pp-size", "int", ("--pipeline-parallel-size",)),
    "data_parallel": Option("--dp-size", "int", ("--data-parallel-size",)),
    "block_size": Option("--page-size", "int"),
    "graph_max_batch": Option("--cuda-graph-max-bs-decode", "int"),
    "lora": Option("--enable-lora", "flag"),
    "speculation.drafter": Option("--speculative-draft-model-path", aliases=("--speculative-draft-model",)),
    "speculation.drafter.revision": Option("--speculative-draft-model-revision"),
    "speculation.drafter.quantization": Option(
        "--speculative-draft-model-quantization", choices=_choices(QUANTIZATIONS)
    ),
    "speculation.draft_kv_dtype": Option(
        "--speculative-draft-kv-cache-dtype", choices=_choices(DRAFT_KV_DTYPES)
    ),
    "speculation.lookup.max_tree_depth": Option("--speculative-ngram-max-trie-depth", "int"),
}
"""Neutral setting → the flag that says the same."""

ALGORITHM = Option("--speculative-algorithm")
STEPS = Option("--speculative-num-steps", "int")
TOPK = Option("--speculative-eagle-topk", "int")
TOKENS = Option("--speculative-num-draft-tokens", "int")
DFLASH_BLOCK = Option("--speculative-dflash-block-size", "int")
DSPARK_BLOCK = Option("--speculative-dspark-block-size", "int")
BREADTH = Option("--speculative-ngram-max-bfs-breadth", "int")
ADAPTIVE = Option("--speculative-adaptive", "flag")
ADAPTIVE_CONFIG = Option("--speculative-adaptive-config")
REJECTION = Option("--speculative-use-rejection-sampling", "flag")
BLOCK = Option("--speculative-use-block-verification", "flag")
THRESHOLD_SINGLE = Option("--speculative-accept-threshold-single", "float")
THRESHOLD_ACC = Option("--speculative-accept-threshold-acc", "float")
DRAFT_WINDOW = Option("--speculative-draft-window-size", "int")
DRAFT_SINK = Option("--speculative-draft-sink-size", "int")
NO_RADIX_CACHE = Option("--disable-radix-cache", "flag")
NO_GRAPHS = Option("--disable-cuda-graph", "flag")
GRAPH_DECODE = Option("--cuda-graph-backend-decode", choices=_choices(GRAPH_BACKENDS))
GRAPH_PREFILL = Option("--cuda-graph-backend-prefill", choices=_choices(GRAPH_BACKENDS))
CONVERTED = (
    ALGORITHM, STEPS, TOPK, TOKENS, DFLASH_BLOCK, DSPARK_BLOCK, BREADTH, ADAPTIVE, ADAPTIVE_CONFIG, REJECTION, BLOCK,
    THRESHOLD_SINGLE, THRESHOLD_ACC, NO_RADIX_CACHE, NO_GRAPHS, GRAPH_DECODE, GRAPH_PREFILL,
)  # fmt: skip

OWN = (
    Option("--speculative-draft-load-format", choices=_choices(LOAD_FORMATS)),
    Option("--speculative-token-map"),
    Option("--speculative-attention-mode", choices=("prefill", "decode")),
    Option("--speculative-draft-attention-backend"),
    Option("--speculative-dsa-topk-backend", choices=("sgl-kernel", "torch", "flashinfer")),
    DRAFT_WINDOW,
    DRAFT_SINK,
    Option("--speculative-moe-runner-backend", choices=_choices(MOE_RUNNERS)),
    Option("--speculative-moe-a2a-backend", choices=_choices(MOE_EXCHANGES)),
    Option("--speculative-enable-w4a4-mxfp4-megamoe", "flag"),
    Option("--no-speculative-enable-w4a4-mxfp4-megamoe", "flag"),
    Option("--speculative-domino-candidate-pool-size", "int"),
    Option("--speculative-dspark-sps-table-path"),
    Option("--speculative-dspark-confidence-sts-path"),
    Option("--speculative-dspark-align-verify-tokens-to-graph-tier", "flag"),
    Option("--speculative-ngram-min-bfs-breadth", "int"),
    Option("--speculative-ngram-match-type", choices=("BFS", "PROB")),
    Option("--speculative-ngram-capacity", "int"),
    Option("--speculative-ngram-external-corpus-path"),
    Option("--speculative-ngram-external-sam-budget", "int"),
    Option("--speculative-ngram-external-corpus-max-tokens", "int"),
    Option("--enable-multi-layer-eagle", "flag"),
    Option("--uno-lora-path"),
    Option("--spec-trace-dir"),
    Option("--decoupled-spec-role", choices=("null", "verifier", "drafter")),
    Option("--decoupled-spec-rank", "int"),
    Option("--decoupled-spec-bind-endpoint"),
    Option("--decoupled-spec-connect-endpoints"),
)
"""Flags about speculation without a neutral counterpart: kept under their own names."""

TABLE: dict[str, Option] = {
    spelling: option
    for option in (*DIRECT.values(), *CONVERTED, *OWN)
    for spelling in (option.name, *option.aliases)
}
"""What is judged."""
ALL: dict[str, Option] = TABLE | {
    spelling: replace(option, carried=True)
    for option in OTHERS
    for spelling in (option.name, *option.aliases)
}
"""Every flag there is, so that an abbreviation can be told."""

RENAMED = {
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
    "--speculative-dflash-draft-window-size": "--speculative-draft-window-size",
}
"""Flags that are gone → what says the same today."""
GONE = {
    "--speculative-ngram-min-match-window-size": "its matches are bounded by --speculative-ngram-max-trie-depth alone",
    "--speculative-ngram-max-match-window-size": "its matches are bounded by --speculative-ngram-max-trie-depth alone",
    "--speculative-ngram-branch-length": "its drafts are bounded by --speculative-num-draft-tokens",
    "--speculative-dspark-confidence-threshold": "the confidence feeds the scheduler of ragged verification",
}
"""Flags that are gone and have no successor → why."""
METHODS = {
    "NGRAM": "ngram",
    "STANDALONE": "draft_model",
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "NEXTN": "mtp",
    "DFLASH": "dflash",
    "DSPARK": "dspark",
    "UNO": "custom",
    "FROZEN_KV_MTP": "mtp",
}
EAGLE_FAMILY = frozenset(["eagle", "eagle3", "mtp", "draft_model"])
"""Methods that take steps, top-k and draft tokens."""
SCHEDULED = frozenset(["eagle", "eagle3", "mtp"])
"""Methods for which adaptive steps, and with them a schedule by batch size, exist."""
DEFAULT_CANDIDATES = (0, 1, 3, 5, 7)
