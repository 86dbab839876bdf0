"""This product's own engine: the `--speculative-config` object, and `draftproof serve` and `generate` command lines.

Loaded by `configs.registry`. What the object may hold and what it defaults to is `core.intent`'s business: this package
turns it into the neutral description and back.
"""

from __future__ import annotations

from dataclasses import fields

from draftproof.configs.engines.account import build
from draftproof.configs.engines.base import Default, Dialect, Parsed, Reader, Rendered, check_version
from draftproof.configs.engines.draftproof import reading, words, writing
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import Deployment, Value
from draftproof.core import intent
from draftproof.core.version import __version__

_VERSIONS = ">=0.1.dev0"


class DraftproofDialect:
    engine = "draftproof"
    title = "draftproof"
    read_version = __version__

    def parse(self, text: str, version: str | None = None, read: Reader | None = None) -> Parsed:
        """A speculation object, or a command line of `draftproof serve` or `generate`."""
        check_version(self, version, _VERSIONS)
        found = reading.settings(Place(self.engine, text), read)
        return Parsed(deployment=build(self.engine, found, version))

    def render(self, deployment: Deployment, version: str | None = None) -> Rendered:
        check_version(self, version, _VERSIONS)
        return writing.Writer(deployment, self).rendered()

    def defaults(self, deployment: Deployment, version: str | None = None) -> tuple[Default, ...]:
        """What `core.intent` fills in."""
        check_version(self, version, _VERSIONS)
        method = deployment.speculation.method
        kind = intent.METHODS.get(method)
        around = Default(
            setting="prefix_caching", value=True, reason="while memory allows", source=words.SOURCE
        )
        if kind is None or method == "none":
            return (around,)
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
        drafting = (
            Default(setting=path, value=value, reason=f"method {method}", source=words.SOURCE)
            for path, value in found.items()
        )
        return (around, *drafting)


dialect: Dialect = DraftproofDialect()
