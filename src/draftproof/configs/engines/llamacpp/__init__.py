"""llama.cpp: `llama-server` command lines, as of build 11434.

Loaded by `configs.registry`. `words` and `arguments` are data, `reading` parses, `writing` renders.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.configs.engines.base import Reader
from draftproof.configs.engines.dialect import Dialect
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.llamacpp import reading, words, writing
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import Deployment, Value

_TYPES = {method: kind for kind, method in words.DRAFT_TYPES.items()} | {"ngram": words.PLAIN_NGRAM}


class LlamaCppDialect(Dialect):
    engine, title = "llamacpp", "llama.cpp"
    read_version, known_versions, source = words.READ_VERSION, words.KNOWN_VERSIONS, words.SOURCE
    writer = writing.LlamaCppWriter

    def goes_by(self, version: str | None) -> str:
        """Builds are also written b11434."""
        return super().goes_by(version.removeprefix("b") if version is not None else None)

    def gather(self, place: Place, found: Gathering, read: Reader | None) -> None:
        """A command line of `llama-server`, its flags alone, or a JSON list of arguments."""
        reading.gather(place, found)

    def acting(self, deployment: Deployment) -> Iterator[tuple[str, Value, str]]:
        yield "prefix_caching", True, "--cache-prompt"
        speculation = deployment.speculation
        kind = _TYPES.get(speculation.method)
        own = speculation.extras.get("llamacpp.type")
        if speculation.method == "ngram" and own in words.NGRAM_TYPES:
            kind = str(own)
        if kind is None:
            return
        found: dict[str, Value] = dict(words.DEFAULTS[kind])
        if "lookup.max_ngram" in found:
            lookup = speculation.lookup
            said = lookup.max_ngram if lookup is not None else None
            found["lookup.min_ngram"] = said if said is not None else found["lookup.max_ngram"]
        drawn = kind in words.DRAFT_TYPES and speculation.draft_sampling == "probabilistic"
        found["verification"] = "standard" if drawn else "exact_match"
        found["adaptive"] = False
        yield from ((f"speculation.{path}", value, kind) for path, value in found.items())


dialect = LlamaCppDialect()
