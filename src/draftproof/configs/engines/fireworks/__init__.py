"""Fireworks: the fields of a dedicated deployment as JSON, or `firectl deployment create MODEL …`.

Loaded by `configs.registry`. What is left out follows the base model: its default drafter acts, if it has one.
"""

from __future__ import annotations

from draftproof.configs.engines.account import differing_defaults, unknown_defaults
from draftproof.configs.engines.base import Default, Dialect, Parsed, Reader, Rendered, check_version
from draftproof.configs.engines.fireworks import reading, words, writing
from draftproof.configs.speculation import Deployment


class FireworksDialect:
    engine = "fireworks"
    title = "Fireworks"
    read_version = words.VERSION

    def parse(self, text: str, version: str | None = None, read: Reader | None = None) -> Parsed:
        check_version(self, version, words.KNOWN_VERSIONS)
        return reading.parse(text, version)

    def render(self, deployment: Deployment, version: str | None = None) -> Rendered:
        check_version(self, version, words.KNOWN_VERSIONS)
        implied = (*differing_defaults(deployment, self), *unknown_defaults(deployment, self))
        return writing.render(deployment, implied)

    def defaults(self, deployment: Deployment, version: str | None = None) -> tuple[Default, ...]:
        """Whether the deployment speculates at all is the base model's business where nobody says it."""
        check_version(self, version, words.KNOWN_VERSIONS)
        found = [Default(setting="lora", value=False, reason="enableAddons", source=words.SOURCE)]
        speculation = deployment.speculation
        if speculation.method in ("auto", "draft_model", "mtp") and speculation.depth is None:
            reason = "takes the count that goes with the base model"
            found.append(Default(setting="speculation.depth", value=None, reason=reason, source=words.SOURCE))
        return tuple(found)


dialect: Dialect = FireworksDialect()
