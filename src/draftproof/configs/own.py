"""Keys of an engine's own in a deployment: wherever the dialect put them, however dashes are written.

Called by the rules' case and by planning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from draftproof.configs.speculation import Deployment, Value


@dataclass(frozen=True, slots=True)
class Own:
    """What is said for a key. `written`: name and value as they stand among arguments that the dialect only carries
    along; None for what the dialect read. A flag without a value is True."""

    value: Value
    written: tuple[str, str] | None = None


def normal(key: str, engine: str) -> str:
    """Spelling without dashes in front, the engine's name and the word speculative: as keys are compared."""
    plain = key.lstrip("-").replace("-", "_").lower().removeprefix(f"{engine}.")
    return plain.removeprefix("speculative_")


def own_key(deployment: Deployment, key: str) -> Own | None:
    """None where nothing is said."""
    engine = deployment.engine
    wanted = normal(key, engine)
    for extras in (deployment.speculation.extras, deployment.extras):
        for name, value in extras.items():
            if normal(name, engine) == wanted:
                return Own(value)
    rest = deployment.rest
    for index, word in enumerate(rest):
        name, equals, said = word.partition("=")
        if not name.startswith("-") or normal(name, engine) != wanted:
            continue
        if equals:
            return Own(said, (name, said))
        following = rest[index + 1] if index + 1 < len(rest) else "-"
        return Own(True if following.startswith("-") else following, (name, following))
    return None


def variable(deployment: Deployment, name: str) -> str | None:
    """What a variable that stands before the command says."""
    found = own_key(deployment, "env")
    value = found.value.get(name) if found is not None and isinstance(found.value, Mapping) else None
    return value if isinstance(value, str) else None
