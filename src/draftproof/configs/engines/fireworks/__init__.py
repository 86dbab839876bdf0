"""Fireworks: the fields of a dedicated deployment as JSON, or `firectl deployment create MODEL …`.

Loaded by `configs.registry`. What is left out follows the base model: its default drafter acts, if it has one.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.engines.base import Reader
from draftproof.configs.engines.dialect import Dialect
from draftproof.configs.engines.fireworks import reading, words, writing
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import Deployment, Value


class FireworksDialect(Dialect):
    engine, title = "fireworks", "Fireworks"
    read_version, known_versions, source = words.VERSION, words.KNOWN_VERSIONS, words.SOURCE
    writer = writing.FireworksWriter

    def gather(self, place: Place, found: Gathering, read: Reader | None) -> None:
        reading.gather(place, found, read)

    def acting(self, deployment: Deployment) -> Iterator[tuple[str, Value, str]]:
        """Whether the deployment speculates at all is the base model's business where nobody says it."""
        yield "lora", False, "enableAddons"
        speculation = deployment.speculation
        if speculation.method in ("auto", "draft_model", "mtp") and speculation.depth is None:
            yield "speculation.depth", None, "takes the count that goes with the base model"


dialect = FireworksDialect()
