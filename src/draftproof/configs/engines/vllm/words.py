"""Neutral methods in vLLM's words, and why some settings cannot be said. Data.

Called by this dialect's writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPEN_END = 4096
"""Written as the last batch size of a range without an end: above what vLLM schedules by default."""
METHODS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "ngram": ("ngram", {}),
    "suffix": ("suffix", {}),
    "draft_model": ("draft_model", {}),
    "eagle": ("eagle", {}),
    "eagle3": ("eagle3", {}),
    "mtp": ("mtp", {}),
    "medusa": ("medusa", {}),
    "mlp_speculator": ("mlp_speculator", {}),
    "dflash": ("dflash", {}),
    "dspark": ("dspark", {}),
    "pard": ("draft_model", {"parallel_drafting": True}),
    "p_eagle": ("eagle3", {"parallel_drafting": True}),
}
WHY_NOT: Mapping[str, str] = {
    "predicted": "vLLM has no predicted outputs; ngram and suffix draft from the request's own text",
    "self": "vLLM does not draft with the target's own weights at fewer bits: name a drafter",
    "lookahead": "vLLM has no lookahead decoding",
    "early_exit": "vLLM has no drafting by leaving the target early",
    "cascade": "vLLM takes one method: name the part that is to stay",
    "auto": "vLLM takes a named method: name one of ngram, suffix, draft_model",
    "custom": "a class of the user's own for another engine does not fit vLLM's interface",
}
NOTHING_DRAFTED = "nothing is drafted"
CHAINS_ONLY = "vLLM drafts chains only: tree drafting was removed by 0.24"
FOR_METHODS: Mapping[str, frozenset[str]] = {
    "lookup.min_ngram": frozenset(("ngram",)),
    "lookup.max_ngram": frozenset(("ngram",)),
    "lookup.max_tree_depth": frozenset(("suffix",)),
    "lookup.max_cached_requests": frozenset(("suffix",)),
    "lookup.max_spec_factor": frozenset(("suffix",)),
    "lookup.min_token_prob": frozenset(("suffix",)),
}
"""Neutral settings that mean something to some methods only; the object takes them with any, without effect."""
NEED_A_DRAFTER = frozenset(
    ("draft_model", "eagle", "eagle3", "medusa", "mlp_speculator", "dflash", "custom_class")
)
DRAWN = frozenset(("draft_model", "pard", "eagle", "eagle3", "p_eagle", "mtp", "medusa", "dflash", "dspark"))
"""Methods whose drafter has a distribution to draw from."""

OTHER_RULES = {
    "coupled": "vLLM verifies by rejection sampling: the same distribution, but one seed gives different text with "
    "and without speculation",
    "exact_match": "vLLM verifies by rejection sampling: the same distribution, accepting at least as often",
    "lossy": "the other engine's rule, which changes the text, is not one of vLLM's: verification is exact again",
}
KV_WORDS = frozenset(("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2"))
DTYPES = frozenset(("auto", "half", "float16", "bfloat16", "float", "float32"))
