"""The words of this product's own configuration: keys of the object and flags, with their neutral settings. Data.

Called by this dialect's reading and writing.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.configs.reading.options import Option
from draftproof.core.finding import Source
from draftproof.core.version import __version__

SOURCE = Source(name=f"draftproof {__version__}", read="2026-11")
PREFIX = "speculation."
PATHS: Mapping[str, str] = {
    "method": "method",
    "num_speculative_tokens": "depth",
    "model": "drafter",
    "prompt_lookup_min": "lookup.min_ngram",
    "prompt_lookup_max": "lookup.max_ngram",
    "suffix_decoding_max_tree_depth": "lookup.max_tree_depth",
    "suffix_decoding_max_cached_requests": "lookup.max_cached_requests",
    "suffix_decoding_max_spec_factor": "lookup.max_spec_factor",
    "suffix_decoding_min_token_prob": "lookup.min_token_prob",
    "verification": "verification",
    "draft_sample_method": "draft_sampling",
    "draft_weights": "draft_weights",
    "adaptive": "adaptive",
}
"""Key of the object → neutral path. `auto` as a value is the same as leaving the key out."""
RULES = {"rejection": "standard", "block": "block", "coupled": "coupled"}
RULES_BACK = {neutral: own for own, neutral in RULES.items()}
FLAGS: Mapping[str, tuple[str, Option]] = {
    option.name: (path, option)
    for path, option in (
        ("dtype", Option("--dtype", choices=("auto", "float32", "bfloat16"))),
        ("max_num_seqs", Option("--max-num-seqs", "int")),
        ("max_model_len", Option("--max-model-len", "int")),
        ("memory_bytes", Option("--memory")),
    )
}
OTHERS = (
    *(Option(f"--{name}", carried=True) for name in (
        "prompt", "prompt-file", "prediction-file", "on-unfit", "max-tokens", "temperature", "top-p", "top-k", "min-p",
        "seed", "stop", "weights", "device", "threads", "kernels", "objective", "slo", "host", "port", "api-key-env",
        "engine",
    )),
    *(Option(f"--{name}", "flag") for name in ("raw", "show-drafts", "json", "dry-run")),
)  # fmt: skip
CONFIG = Option("--speculative-config")
TABLE = {
    spelling: option
    for option in (*(option for _, option in FLAGS.values()), *OTHERS, CONFIG)
    for spelling in (option.name, *option.aliases)
}
COMMANDS = ("serve", "generate")
COMMAND = "generate"
"""The command of this version that answers with a model; `serve` is read where a text has it."""
NOT_OF_GENERATE = frozenset(("max_num_seqs", "max_model_len"))
"""Neutral settings whose flags only `serve` has."""
UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
