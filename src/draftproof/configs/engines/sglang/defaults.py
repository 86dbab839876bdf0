"""What acts in SGLang although nobody said it.

Called by the dialect, so that a translation can say it to an engine with other defaults.
"""

from __future__ import annotations

from typing import Any

from draftproof.configs.engines.sglang import flags
from draftproof.configs.speculation import Deployment

ALGORITHMS = {
    "ngram": "NGRAM", "draft_model": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "NEXTN",
    "dflash": "DFLASH", "dspark": "DSPARK",
}  # fmt: skip

SPECULATIVE_REQUESTS = 48
"""Requests that run at once under every algorithm but UNO, where --max-running-requests is not given."""


def defaults(deployment: Deployment) -> list[tuple[str, Any, str]]:
    """What SGLang takes for what is unsaid."""
    speculation = deployment.speculation
    method = speculation.method
    found: list[tuple[str, Any, str]] = [
        ("prefix_caching", True, "on without --disable-radix-cache"),
        ("enforce_eager", False, "graphs are captured by default"),
        ("speculation.adaptive", False, "off without --speculative-adaptive"),
        ("lora", False, "off without --enable-lora or --lora-paths"),
    ]
    if method in ALGORITHMS:
        found.append(("max_num_seqs", SPECULATIVE_REQUESTS, "set for every algorithm but UNO"))
        found.append(("speculation.verification", "standard", "the rule of its sampler at thresholds of 1"))
        block = speculation.verification == "block"
        sampled = method in ("dflash", "dspark") or (block and method in flags.SCHEDULED)
        found.append(
            ("speculation.draft_sampling", "probabilistic" if sampled else "greedy", "its proposals")
        )
    if method in flags.EAGLE_FAMILY and not (speculation.adaptive or speculation.schedule):
        if speculation.levels is None:
            found.append(_unsaid_depth(method))
    elif method == "ngram":
        found += _ngram_defaults(deployment)
    elif method == "dflash" and speculation.depth is None:
        found.append(
            (
                "speculation.depth",
                None,
                "takes one less than the block of the drafter's configuration, else 15",
            )
        )
    elif method == "dspark" and speculation.depth is None:
        found.append(("speculation.depth", None, "takes the block of the drafter's configuration"))
    return found


def _unsaid_depth(method: str) -> tuple[str, Any, str]:
    if method == "draft_model":
        return ("speculation.depth", 3, "3 steps, top-k 1, 4 draft tokens for STANDALONE")
    return (
        "speculation.depth", None,
        "takes 5 steps, top-k 4, 8 draft tokens for LlamaForCausalLM and Grok, 3 steps in one chain for all others",
    )  # fmt: skip


def _ngram_defaults(deployment: Deployment) -> list[tuple[str, Any, str]]:
    found: list[tuple[str, Any, str]] = [("speculation.lookup.max_tree_depth", 18, "the trie's depth")]
    tree = deployment.speculation.tree
    if deployment.speculation.depth is None:
        if tree is None or tree.branching is None:
            found.append(("speculation.tree.branching", 10, "the trie's breadth"))
        if tree is None or tree.num_nodes is None:
            found.append(("speculation.tree.num_nodes", 11, "12 draft tokens, the root among them"))
    return found
