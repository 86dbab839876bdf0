"""This product's own engine: the `--speculative-config` object, and `draftproof serve` and `generate` command lines.

Loaded by `configs.registry`. What the object may hold and what it defaults to is `core.intent`'s business: this package
turns it into the neutral description and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from draftproof.configs.engines.base import Reader
from draftproof.configs.engines.dialect import Dialect
from draftproof.configs.engines.draftproof import reading, words, writing
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import Deployment, Value
from draftproof.core import intent
from draftproof.core.version import __version__


class DraftproofDialect(Dialect):
    engine = title = "draftproof"
    read_version, known_versions, source = __version__, ">=0.1.dev0", words.SOURCE
    writer = writing.DraftproofWriter

    def gather(self, place: Place, found: Gathering, read: Reader | None) -> None:
        """A speculation object, or a command line of `draftproof serve` or `generate`."""
        found.settings |= reading.settings(place, read, found)

    def acting(self, deployment: Deployment) -> Iterator[tuple[str, Value, str]]:
        """What `core.intent` fills in."""
        yield "prefix_caching", True, "while memory allows"
        method = deployment.speculation.method
        kind = intent.METHODS.get(method)
        if kind is None or method == "none":
            return
        found: dict[str, Value] = {
            f"{words.PREFIX}{words.PATHS[item.name]}": item.default
            for item in fields(kind)
            if item.name in words.PATHS and isinstance(item.default, bool | int | float)
        }
        lookup = deployment.speculation.lookup
        if method == "ngram" and lookup is not None:
            if lookup.min_ngram is None and lookup.max_ngram is not None:
                found[f"{words.PREFIX}lookup.min_ngram"] = lookup.max_ngram
            if lookup.max_ngram is None and lookup.min_ngram is not None:
                found[f"{words.PREFIX}lookup.max_ngram"] = lookup.min_ngram
        yield from ((path, value, f"method {method}") for path, value in found.items())


dialect = DraftproofDialect()
