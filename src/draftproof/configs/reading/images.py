"""Names of images → engine and version. Data and one function; called by `started` and by the dialects."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = {
    "vllm-openai": "vllm", "vllm-openai-cpu": "vllm", "vllm-openai-rocm": "vllm", "vllm-openai-xpu": "vllm",
    "vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm", "llama.cpp": "llamacpp",
    "draftproof": "draftproof",
}  # fmt: skip
"""Last part of an image's name → engine."""
_OWN_TAGS = ("vllm",)
"""Images of others, whose tags are not the engine's versions: rocm/vllm, nvcr.io/nvidia/vllm."""
_VERSION = re.compile(r"(?:^|[-_])(?:v?(\d+(?:\.\d+)+(?:\.?(?:rc|post|a|b|dev)\d+)*)|b(\d{4,}))(?![\d.])")


@dataclass(frozen=True, slots=True)
class Image:
    """`name` as it is written; `engine` and `version` None where the name does not tell them."""

    name: str
    engine: str | None
    version: str | None


def read_image(name: str) -> Image:
    """REGISTRY/PATH/NAME:TAG@DIGEST."""
    path, colon, tag = name.partition("@")[0].rpartition(":")
    if not colon or "/" in tag:
        path, tag = name.partition("@")[0], ""
    *parents, last = path.split("/")
    if last == "release" and parents[-1:] == ["tensorrt-llm"]:
        last = "tensorrt-llm"
    engine = _NAMES.get(last)
    found = _VERSION.search(tag) if engine is not None and last not in _OWN_TAGS else None
    return Image(name, engine, (found[1] or found[2]) if found else None)
