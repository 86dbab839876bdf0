"""Which public model a checkpoint is, as far as its name and its own files say so.

Called by `pairs` and advice to look a target up in the catalogue. What files claim is kept apart from what the user
named, and a shape that fits is a hint and never an identity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftproof.checkpoints.hub_settings import cached_name, parse_hub_id
from draftproof.checkpoints.view import CheckpointView

if TYPE_CHECKING:
    from draftproof.configs.pairs import Catalogue, Pair, Shape

_HUB_URL = re.compile(r"https://huggingface\.co/([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)/?")
_NAMED, _CACHED = "as you named it", "by its place in the hub's cache"


@dataclass(frozen=True, slots=True)
class Claim:
    """A name and where it was read: the command line, or a key of a file."""

    name: str
    where: str

    @property
    def is_of_files(self) -> bool:
        """What the checkpoint's own files state: copies and fine-tuned models keep it."""
        return self.where not in (_NAMED, _CACHED)


@dataclass(frozen=True, slots=True)
class Identity:
    """`claims` in the order of trust: the name that the user gave, then what the checkpoint's files state."""

    claims: tuple[Claim, ...]
    shape: Shape | None


@dataclass(frozen=True, slots=True)
class Match:
    """What the catalogue has for one target. With `claim` None nothing is known under any of its names."""

    claim: Claim | None
    model: str | None
    pairs: tuple[Pair, ...]
    same_shape: tuple[str, ...]
    """Other targets of the catalogue with the checkpoint's shape; filled in only where no name is known."""


def is_hub_id(reference: str) -> bool:
    """Whether it is written like a model of a hub: a repository, perhaps with revision or quantisation."""
    found = parse_hub_id(reference)
    return found is not None and found.file is None


def is_hub_file(reference: str) -> bool:
    """Whether it is written like a GGUF file in a repository of a hub. Paths of this machine are written so, too."""
    found = parse_hub_id(reference)
    return found is not None and found.file is not None


def is_repository(reference: str) -> bool:
    """Whether it is written like a whole repository of a hub: owner/name."""
    found = parse_hub_id(reference)
    return found is not None and found.name == reference


def identify(reference: str, view: CheckpointView | None) -> Identity:
    """`view` None: nothing could be read, and the name is all there is."""
    named = parse_hub_id(reference)
    claims = [] if named is None else [Claim(named.name, _NAMED)]
    cached = cached_name(reference)
    if cached is not None:
        claims.append(Claim(cached, _CACHED))
    if view is None:
        return Identity(tuple(claims), None)
    claims += _claims_of_files(view.config)
    return Identity(tuple(claims), _shape(view))


def match(identity: Identity, catalogue: Catalogue) -> Match:
    """The first claim that the catalogue knows decides."""
    for claim in identity.claims:
        model = catalogue.canonical(claim.name)
        if model is not None:
            return Match(claim, model, catalogue.of_target(model), ())
    candidates = catalogue.of_shape(identity.shape) if identity.shape else ()
    return Match(None, None, (), candidates)


def _claims_of_files(config: Mapping[str, Any]) -> list[Claim]:
    """Names that config.json or GGUF metadata state: they survive copying, and fine-tuning too."""
    found = []
    name = config.get("_name_or_path")
    if isinstance(name, str) and is_repository(name):
        found.append(Claim(name, "config.json, _name_or_path"))
    for key in ("general.source.repo_url", "general.source.url", "general.repo_url", "general.url"):
        url = _HUB_URL.fullmatch(str(config.get(key, "")))
        if url is not None:
            found.append(Claim(url[1], f"GGUF, {key}"))
    return found


def _shape(view: CheckpointView) -> Shape | None:
    from draftproof.configs.pairs import Shape

    language = view.language_config
    sizes = [language.get(key) for key in ("hidden_size", "num_hidden_layers", "vocab_size")]
    names = view.config.get("architectures")
    architecture = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    hidden_size, num_layers, vocab_size = sizes
    if type(hidden_size) is int and type(num_layers) is int and type(vocab_size) is int:
        return Shape(architecture, hidden_size, num_layers, vocab_size)
    return None
