"""The arguments of OpenVINO GenAI that mean something to speculation. Data."""

from __future__ import annotations

import re
from collections.abc import Mapping

from draftproof.core.finding import Source

VERSION = "2026.4.1"
KNOWN_VERSIONS = ">=2026.3,<2026.5"
SOURCE = Source(
    name="openvino-genai 2026.4.1 and its documentation",
    read="2026-11",
    url="https://github.com/openvinotoolkit/openvino.genai",
)
SCHEDULER: Mapping[str, tuple[str, str]] = {
    "max_num_batched_tokens": ("max_num_batched_tokens", "int"),
    "max_num_seqs": ("max_num_seqs", "int"),
    "enable_prefix_caching": ("prefix_caching", "bool"),
}
"""Key of SchedulerConfig → neutral setting and kind."""
COUNT, CONFIDENCE = "num_assistant_tokens", "assistant_confidence_threshold"
GENERATION = (
    COUNT,
    CONFIDENCE,
    "max_ngram_size",
    "branching_factor",
    "tree_depth",
)
PIPELINE = ("models_path", "device", "draft_model", "draft_device", "prompt_lookup", "scheduler_config")
"""What JSON says of the constructor, beside the generation config's own keys."""


def is_eagle(drafter: str) -> bool:
    """Whether a drafter's name says that it is an EAGLE-3 head. GenAI itself reads it in the converted model."""
    return re.search(r"eagle[-_]?3", drafter, re.IGNORECASE) is not None


def most_nodes(branching: int, depth: int) -> int:
    """Candidates that a tree has at most, the root not counted: b at first, b times b on each further level."""
    return branching * branching * (depth - 1) + branching
