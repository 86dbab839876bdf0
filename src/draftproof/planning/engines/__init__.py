"""How each engine divides memory: one module per engine, loaded when asked for. A new engine is one module, one row."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from draftproof.core.errors import DraftproofError
from draftproof.planning.setup import EngineMemory

RULES: dict[str, str] = {
    "vllm": "draftproof.planning.engines.vllm",
    "sglang": "draftproof.planning.engines.sglang",
    "trtllm": "draftproof.planning.engines.trtllm",
    "llamacpp": "draftproof.planning.engines.llamacpp",
    "draftproof": "draftproof.planning.engines.draftproof",
}
"""Name → module that holds its rules as `rules`."""


def memory_rules(engine: str) -> EngineMemory:
    """The rules of `engine`. Raises DP110 for one whose memory is not known."""
    module = RULES.get(engine)
    if module is None:
        raise DraftproofError(
            "DP110",
            "engine",
            engine,
            f"an engine whose memory is known: {', '.join(RULES)}",
            "Name one of these; what another engine holds is not guessed.",
        )
    return cast(EngineMemory, import_module(module).rules)
