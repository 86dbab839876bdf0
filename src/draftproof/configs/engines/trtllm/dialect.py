"""The dialect of TensorRT-LLM: versions, and the way into parsing and rendering."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.configs.engines.account import differing_defaults, unknown_defaults
from draftproof.configs.engines.base import Default, Parsed, Reader, Rendered, check_version
from draftproof.configs.engines.trtllm import defaults as acting
from draftproof.configs.engines.trtllm import keys
from draftproof.configs.engines.trtllm import parse as parsing
from draftproof.configs.engines.trtllm import render as rendering
from draftproof.configs.speculation import Deployment


@dataclass(frozen=True, slots=True)
class TensorRTLLM:
    engine: str = "trtllm"
    title: str = "TensorRT-LLM"
    read_version: str = keys.VERSION

    def parse(self, text: str, version: str | None = None, read: Reader | None = None) -> Parsed:
        check_version(self, version, keys.KNOWN_VERSIONS)
        return parsing.parse(text, version, read)

    def render(self, deployment: Deployment, version: str | None = None) -> Rendered:
        check_version(self, version, keys.KNOWN_VERSIONS)
        implied = (*differing_defaults(deployment, self), *unknown_defaults(deployment, self))
        return rendering.render(deployment, implied)

    def defaults(self, deployment: Deployment, version: str | None = None) -> tuple[Default, ...]:
        check_version(self, version, keys.KNOWN_VERSIONS)
        return acting.defaults(deployment)


dialect = TensorRTLLM()
