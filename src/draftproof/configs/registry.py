"""Engine name → dialect, loaded when asked for.

Called by the commands and by advice. A new engine is one module and one row here.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from draftproof.configs.engines.dialect import Dialect
from draftproof.core.errors import DraftproofError

DIALECTS: dict[str, str] = {
    "draftproof": "draftproof.configs.engines.draftproof",
    "vllm": "draftproof.configs.engines.vllm",
    "llamacpp": "draftproof.configs.engines.llamacpp",
    "sglang": "draftproof.configs.engines.sglang",
    "trtllm": "draftproof.configs.engines.trtllm",
    "transformers": "draftproof.configs.engines.transformers",
    "openvino": "draftproof.configs.engines.openvino",
    "fireworks": "draftproof.configs.engines.fireworks",
}
"""Name → module that holds it as `dialect`, in the order in which they are listed."""


def dialect(engine: str) -> Dialect:
    """The dialect of `engine`. Raises DP110 for a name that is not known."""
    module = DIALECTS.get(engine)
    if module is None:
        raise DraftproofError(
            "DP110", "engine", engine, ", ".join(DIALECTS), "Name one of these engines as written here."
        )
    return cast(Dialect, import_module(module).dialect)
