"""Transformers: `generate` with an assistant, prompt look-up or built-in heads, as Python text or JSON arguments.

Loaded by `configs.registry`. From Transformers 5.24: an assistant's draft length, its schedule and its confidence
threshold are read from the *assistant's* generation config; as arguments of `generate` they are taken and do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.engines.base import Reader
from draftproof.configs.engines.dialect import Dialect
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.transformers import reading, words, writing
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import Deployment, Value


class TransformersDialect(Dialect):
    engine, title = "transformers", "Transformers"
    read_version, known_versions, source = words.VERSION, words.KNOWN_VERSIONS, words.SOURCE
    writer = writing.TransformersWriter

    def gather(self, place: Place, found: Gathering, read: Reader | None) -> None:
        """A few lines of Python around `generate`, its keyword arguments alone, or these as a JSON object."""
        reading.gather(place, found)

    def acting(self, deployment: Deployment) -> Iterator[tuple[str, Value, str]]:
        yield "speculation.adaptive", False, "a constant schedule"
        speculation = deployment.speculation
        if speculation.method in words.ASSISTED:
            yield "speculation.different_vocabulary", False, "one tokenizer for both"
            yield "speculation.min_confidence", 0.4, "assistant_confidence_threshold, adjusted as it runs"
            if speculation.depth is None:
                yield "speculation.depth", 20, "num_assistant_tokens"
        elif speculation.method == "ngram":
            yield "speculation.lookup.max_ngram", 2, "max_matching_ngram_size"
        elif speculation.method in ("mtp", "dflash"):
            yield "speculation.depth", None, "takes it from the checkpoint"
        if speculation.method in (*words.ASSISTED, "ngram", "mtp", "dflash"):
            yield "speculation.verification", "standard", "speculative sampling"


dialect = TransformersDialect()
