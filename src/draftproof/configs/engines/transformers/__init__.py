"""Transformers: `generate` with an assistant, prompt look-up or built-in heads, as Python text or JSON arguments.

Loaded by `configs.registry`. From Transformers 5.24: an assistant's draft length, its schedule and its confidence
threshold are read from the *assistant's* generation config; as arguments of `generate` they are taken and do nothing.
"""

from __future__ import annotations

from draftproof.configs.engines.account import differing_defaults, unknown_defaults
from draftproof.configs.engines.base import Default, Dialect, Parsed, Reader, Rendered, check_version
from draftproof.configs.engines.transformers import reading, words, writing
from draftproof.configs.speculation import Deployment, Value


class TransformersDialect:
    engine = "transformers"
    title = "Transformers"
    read_version = words.VERSION

    def parse(self, text: str, version: str | None = None, read: Reader | None = None) -> Parsed:
        """A few lines of Python around `generate`, its keyword arguments alone, or these as a JSON object."""
        check_version(self, version, words.KNOWN_VERSIONS)
        return reading.parse(text, version)

    def render(self, deployment: Deployment, version: str | None = None) -> Rendered:
        check_version(self, version, words.KNOWN_VERSIONS)
        implied = (*differing_defaults(deployment, self), *unknown_defaults(deployment, self))
        return writing.render(deployment, implied)

    def defaults(self, deployment: Deployment, version: str | None = None) -> tuple[Default, ...]:
        check_version(self, version, words.KNOWN_VERSIONS)
        found: dict[str, tuple[Value, str]] = {"speculation.adaptive": (False, "a constant schedule")}
        speculation = deployment.speculation
        if speculation.method in words.ASSISTED:
            found["speculation.different_vocabulary"] = (False, "one tokenizer for both")
            found["speculation.min_confidence"] = (0.4, "assistant_confidence_threshold, adjusted as it runs")
            if speculation.depth is None:
                found["speculation.depth"] = (20, "num_assistant_tokens")
        elif speculation.method == "ngram":
            found["speculation.lookup.max_ngram"] = (2, "max_matching_ngram_size")
        elif speculation.method in ("mtp", "dflash"):
            found["speculation.depth"] = (None, "takes it from the checkpoint")
        if speculation.method in (*words.ASSISTED, "ngram", "mtp", "dflash"):
            found["speculation.verification"] = ("standard", "speculative sampling")
        return tuple(
            Default(setting=path, value=value, reason=reason, source=words.SOURCE)
            for path, (value, reason) in found.items()
        )


dialect: Dialect = TransformersDialect()
