"""OpenVINO GenAI: the pipeline's constructor with its generation config, as Python text or a JSON object.

Loaded by `configs.registry`. From openvino-genai 2026.4.
"""

from __future__ import annotations

from draftproof.configs.engines.account import differing_defaults, unknown_defaults
from draftproof.configs.engines.base import Default, Dialect, Parsed, Reader, Rendered, check_version
from draftproof.configs.engines.openvino import reading, words, writing
from draftproof.configs.speculation import Deployment


class OpenVinoDialect:
    engine = "openvino"
    title = "OpenVINO GenAI"
    read_version = words.VERSION

    def parse(self, text: str, version: str | None = None, read: Reader | None = None) -> Parsed:
        check_version(self, version, words.KNOWN_VERSIONS)
        return reading.parse(text, version)

    def render(self, deployment: Deployment, version: str | None = None) -> Rendered:
        check_version(self, version, words.KNOWN_VERSIONS)
        implied = (*differing_defaults(deployment, self), *unknown_defaults(deployment, self))
        return writing.render(deployment, implied)

    def defaults(self, deployment: Deployment, version: str | None = None) -> tuple[Default, ...]:
        check_version(self, version, words.KNOWN_VERSIONS)
        speculation = deployment.speculation
        if speculation.method != "draft_model" or speculation.min_confidence is not None:
            return ()
        if speculation.depth is not None:
            return ()
        reason = "num_assistant_tokens where neither it nor a confidence threshold is given"
        return (Default(setting="speculation.depth", value=5, reason=reason, source=words.SOURCE),)


dialect: Dialect = OpenVinoDialect()
