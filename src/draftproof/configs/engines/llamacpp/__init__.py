"""llama.cpp: `llama-server` command lines, as of build 11434.

Loaded by `configs.registry`. `words` and `arguments` are data, `reading` parses, `writing` renders.
"""

from __future__ import annotations

from draftproof.configs.engines.base import Default, Dialect, Parsed, Reader, Rendered, check_version
from draftproof.configs.engines.llamacpp import reading, words
from draftproof.configs.engines.llamacpp.writing import Writer
from draftproof.configs.speculation import Deployment, Value

_TYPES = {method: kind for kind, method in words.DRAFT_TYPES.items()} | {"ngram": words.PLAIN_NGRAM}


class LlamaCppDialect:
    engine = "llamacpp"
    title = "llama.cpp"
    read_version = words.READ_VERSION

    def parse(self, text: str, version: str | None = None, read: Reader | None = None) -> Parsed:
        """A command line of `llama-server`, its flags alone, or a JSON list of arguments."""
        check_version(self, _number(version), words.KNOWN_VERSIONS)
        return reading.parse(text, version)

    def render(self, deployment: Deployment, version: str | None = None) -> Rendered:
        check_version(self, _number(version), words.KNOWN_VERSIONS)
        return Writer(deployment, self).rendered()

    def defaults(self, deployment: Deployment, version: str | None = None) -> tuple[Default, ...]:
        check_version(self, _number(version), words.KNOWN_VERSIONS)
        speculation = deployment.speculation
        kind = _TYPES.get(speculation.method)
        own = speculation.extras.get("llamacpp.type")
        if speculation.method == "ngram" and own in words.NGRAM_TYPES:
            kind = str(own)
        around = Default(setting="prefix_caching", value=True, reason="--cache-prompt", source=words.SOURCE)
        if kind is None:
            return (around,)
        found: dict[str, Value] = dict(words.DEFAULTS[kind])
        if "lookup.max_ngram" in found:
            lookup = speculation.lookup
            said = lookup.max_ngram if lookup is not None else None
            found["lookup.min_ngram"] = said if said is not None else found["lookup.max_ngram"]
        drawn = kind in words.DRAFT_TYPES and speculation.draft_sampling == "probabilistic"
        found["verification"] = "standard" if drawn else "exact_match"
        found["adaptive"] = False
        drafting = (
            Default(setting=f"speculation.{path}", value=value, reason=kind, source=words.SOURCE)
            for path, value in found.items()
        )
        return (around, *drafting)


def _number(version: str | None) -> str | None:
    """Builds are also written b11434."""
    return version.removeprefix("b") if version is not None else None


dialect: Dialect = LlamaCppDialect()
