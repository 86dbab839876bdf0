"""Draftproof runs speculative decoding, proves that it changed nothing, and says whether it pays.

Importing the package imports neither torch nor transformers; most names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from draftproof.core.errors import DraftproofError
from draftproof.core.version import __version__

if TYPE_CHECKING:
    from draftproof.core.intent import parse_intent
    from draftproof.core.params import SamplingParams
    from draftproof.engine.config import EngineConfig
    from draftproof.engine.engine import Engine
    from draftproof.engine.request import Request, RequestOutput


__all__ = [
    "DraftproofError",
    "Engine",
    "EngineConfig",
    "Request",
    "RequestOutput",
    "SamplingParams",
    "__version__",
    "parse_intent",
]

_LAZY = {
    "Engine": "draftproof.engine.engine",
    "EngineConfig": "draftproof.engine.config",
    "Request": "draftproof.engine.request",
    "RequestOutput": "draftproof.engine.request",
    "SamplingParams": "draftproof.core.params",
    "parse_intent": "draftproof.core.intent",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'draftproof' has no attribute {name!r}")
