"""What acts in TensorRT-LLM although the file does not say it. Called by the dialect."""

from __future__ import annotations

from typing import Any

from draftproof.configs.engines.trtllm import keys
from draftproof.configs.speculation import Deployment


def defaults(deployment: Deployment) -> list[tuple[str, Any, str]]:
    """What TensorRT-LLM takes for what is unsaid."""
    speculation = deployment.speculation
    found: list[tuple[str, Any, str]] = [
        ("prefix_caching", True, "kv_cache_config.enable_block_reuse"),
        ("enforce_eager", False, "graphs are captured unless cuda_graph_config is null"),
        ("lora", False, "enable_lora"),
        ("speculation.adaptive", False, "the length is fixed, or follows draft_len_schedule"),
    ]
    method = speculation.method
    if method in keys.REJECTION:
        found.append(("speculation.verification", "exact_match", "use_rejection_sampling is off"))
        found.append(("speculation.draft_sampling", "greedy", "drafts are the drafter's best tokens"))
    if method == "mtp" and speculation.levels is None:
        found.append(("speculation.depth", None, "takes the number of layers that the checkpoint has"))
    if method == "ngram" and (speculation.lookup is None or speculation.lookup.max_ngram is None):
        found.append(("speculation.lookup.max_ngram", 2, "max_matching_ngram_size"))
    tree = speculation.tree
    if tree is not None and tree.num_nodes is None and tree.depth is not None and tree.branching is not None:
        found.append(("speculation.tree.num_nodes", tree.depth * tree.branching, "top-k times the depth"))
    return found
