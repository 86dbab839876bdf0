"""Flags of `vllm serve` that this product understands; all others are carried along as they are.

Called by this dialect's reading and writing of command lines.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.configs.reading.options import Option

HUMAN = frozenset(("max_model_len", "max_num_batched_tokens"))
"""Neutral fields whose value may be written 8k (8,000) or 8K (8,192)."""

FIELDS: Mapping[str, tuple[str, Option]] = {
    option.name: (path, option)
    for path, option in (
        ("target", Option("--model")),
        ("target.revision", Option("--revision")),
        ("target.quantization", Option("--quantization", aliases=("-q",))),
        ("dtype", Option("--dtype", choices=("auto", "half", "float16", "bfloat16", "float", "float32"))),
        ("kv_dtype", Option("--kv-cache-dtype")),
        ("max_model_len", Option("--max-model-len")),
        ("max_num_seqs", Option("--max-num-seqs", "int")),
        ("max_num_batched_tokens", Option("--max-num-batched-tokens")),
        ("memory_fraction", Option("--gpu-memory-utilization", "float", ("--device-memory-utilization",))),
        ("tensor_parallel", Option("--tensor-parallel-size", "int", ("-tp",))),
        ("pipeline_parallel", Option("--pipeline-parallel-size", "int", ("-pp",))),
        ("data_parallel", Option("--data-parallel-size", "int", ("-dp",))),
        ("block_size", Option("--block-size", "int")),
    )
}
SWITCHES: Mapping[str, str] = {
    "enforce_eager": "enforce-eager",
    "prefix_caching": "enable-prefix-caching",
    "lora": "enable-lora",
}
"""Neutral field → flag that has a `--no-` form."""

SPECULATIVE = (
    Option("--speculative-config", aliases=("-sc",)),
    Option("--spec-method"),
    Option("--spec-model"),
    Option("--spec-tokens"),
)
SHORTCUTS = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}
"""Flag → key of the speculation object; both at once is refused."""
