"""Rope settings of a configuration, wherever it keeps them. Called by rules and by our engine's loading.

Transformers 4 writes `rope_scaling`, Transformers 5 `rope_parameters`, flat or one object per kind of layer; of both,
Transformers (5.24.0) and with it the engines take `rope_scaling` unless it is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROPE_KEYS = ("rope_scaling", "rope_parameters")
_LAYER_KINDS = frozenset({"full_attention", "sliding_attention", "chunked_attention", "linear_attention"})
_TODAY = {"su": "longrope", "mrope": "default", "telechat3-yarn": "yarn"}
"""Names that were replaced; mrope says where positions come from, not how they are scaled."""


def rope_key(config: Mapping[str, Any]) -> str:
    """The key under which the settings count."""
    return "rope_scaling" if config.get("rope_scaling") else "rope_parameters"


def rope_rules(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The settings, one per kind of layer where they differ; none where there are none."""
    found = config.get(rope_key(config))
    if not isinstance(found, Mapping) or not found:
        return ()
    by_kind = tuple(
        found[kind] for kind in sorted(_LAYER_KINDS & set(found)) if isinstance(found[kind], Mapping)
    )
    return by_kind or (found,)


def rope_kind(rule: Mapping[str, Any]) -> str:
    """The kind of scaling by its name of today; "default" where none is named."""
    named = rule.get("rope_type", rule.get("type"))
    return _TODAY.get(named, named) if isinstance(named, str) else "default"
