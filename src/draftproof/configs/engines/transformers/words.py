"""The arguments of Transformers that mean something to speculation. Data."""

from __future__ import annotations

from draftproof.core.finding import Source

VERSION = "5.24.0"
KNOWN_VERSIONS = ">=5.24,<5.25"
SOURCE = Source(
    name="Transformers 5.24.0 source", read="2026-11", url="https://github.com/huggingface/transformers"
)
ASSISTED = ("draft_model", "early_exit")
"""Methods whose depth, schedule and confidence are those of a generation config."""
OF_ASSISTANT = ("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold")
SCHEDULES = ("constant", "heuristic", "heuristic_transient")
OWN = (
    "assistant_early_exit",
    "assistant_lookbehind",
    "target_lookbehind",
    "assistant_ensemble_weight",
    "num_assistant_tokens_schedule",
)
"""Arguments about speculation without a neutral counterpart."""
DTYPES = ("auto", "float16", "bfloat16", "float32")
LOADER = "from_pretrained"
