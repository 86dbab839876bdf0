"""SGLang's server flags: `sglang serve …`, `python -m sglang.launch_server …`, or the flags alone.

Loaded by `configs.registry`. `flags` is data, `parse` reads, `render` writes.
"""

from __future__ import annotations

from collections.abc import Iterable

from draftproof.configs.engines.base import Reader
from draftproof.configs.engines.dialect import Dialect
from draftproof.configs.engines.gathering import Gathering
from draftproof.configs.engines.sglang import flags, parse, render
from draftproof.configs.engines.sglang.defaults import defaults
from draftproof.configs.reading.refusal import Place
from draftproof.configs.speculation import Deployment, Value


class SGLangDialect(Dialect):
    engine, title = "sglang", "SGLang"
    read_version, known_versions, source = flags.VERSION, flags.KNOWN_VERSIONS, flags.SOURCE
    writer = render.SGLangWriter

    def gather(self, place: Place, found: Gathering, read: Reader | None) -> None:
        parse.gather(place, found, read)

    def acting(self, deployment: Deployment) -> Iterable[tuple[str, Value, str]]:
        return defaults(deployment)


dialect = SGLangDialect()
