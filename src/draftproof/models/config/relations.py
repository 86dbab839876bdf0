"""Relations between a configuration's numbers that the decoders rely on. Called by the parsers of this package."""

from __future__ import annotations

from draftproof.models.base import ModelConfig
from draftproof.models.config.fields import unsupported

_MAX_EXPERTS = 1 << 17
"""Over all layers: keeps a hostile file from asking for a table that fills the memory."""


def checked(config: ModelConfig) -> ModelConfig:
    """The configuration itself. Raises DP406 where its numbers do not go together."""
    if config.num_heads % config.num_kv_heads:
        raise unsupported(
            "number of key/value heads", config.num_kv_heads, f"a divisor of {config.num_heads} heads"
        )
    if config.head_dim % 2:
        raise unsupported("head_dim", config.head_dim, "an even number")
    mixtures = [layer.experts for layer in config.layers if layer.experts is not None]
    for experts in mixtures:
        if experts.num_used > experts.num_experts:
            raise unsupported("experts per token", experts.num_used, f"at most {experts.num_experts} experts")
    num_experts = sum(experts.num_experts for experts in mixtures)
    if num_experts > _MAX_EXPERTS:
        raise unsupported("number of experts", num_experts, f"at most {_MAX_EXPERTS} over all layers")
    return config
