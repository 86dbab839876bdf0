"""TensorRT-LLM's YAML configuration, or `trtllm-serve MODEL --config FILE` with the file beside it.

Loaded by `configs.registry`. `keys` is data, `parse` reads, `render` writes.
"""

from __future__ import annotations

from collections.abc import Iterable

from draftproof.configs.engines.base import Reader
from draftproof.configs.engines.dialect import Dialect
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.trtllm import keys, parse, render
from draftproof.configs.engines.trtllm.defaults import defaults
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import Deployment, Value


class TensorRTLLMDialect(Dialect):
    engine, title = "trtllm", "TensorRT-LLM"
    read_version, known_versions, source = keys.VERSION, keys.KNOWN_VERSIONS, keys.SOURCE
    writer = render.TensorRTLLMWriter

    def gather(self, place: Place, found: Gathering, read: Reader | None) -> None:
        parse.gather(place, found, read)

    def acting(self, deployment: Deployment) -> Iterable[tuple[str, Value, str]]:
        return defaults(deployment)


dialect = TensorRTLLMDialect()
