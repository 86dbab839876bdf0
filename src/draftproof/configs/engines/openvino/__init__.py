"""OpenVINO GenAI: the pipeline's constructor with its generation config, as Python text or a JSON object.

Loaded by `configs.registry`. From openvino-genai 2026.4.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.engines.base import Reader
from draftproof.configs.engines.dialect import Dialect
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.openvino import reading, words, writing
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import Deployment, Value


class OpenVinoDialect(Dialect):
    engine, title = "openvino", "OpenVINO GenAI"
    read_version, known_versions, source = words.VERSION, words.KNOWN_VERSIONS, words.SOURCE
    writer = writing.OpenVinoWriter

    def gather(self, place: Place, found: Gathering, read: Reader | None) -> None:
        reading.gather(place, found)

    def acting(self, deployment: Deployment) -> Iterator[tuple[str, Value, str]]:
        speculation = deployment.speculation
        counted = speculation.depth is not None or speculation.min_confidence is not None
        if speculation.method in ("draft_model", "eagle3") and not counted:
            reason = "num_assistant_tokens where neither it nor a confidence threshold is given"
            yield "speculation.depth", 5, reason


dialect = OpenVinoDialect()
