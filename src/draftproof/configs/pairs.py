"""The catalogue of pairs that somebody documents or serves: which drafter for which target, said by whom, and when.

Read by `draftproof pairs`, by advice, and by the rule that calls a pair unproven. The data are `data/pairs.toml`;
nothing here was measured by us. A pair is known under the names of its repositories and under no others: that a
checkpoint belongs to the same family, or has the same shape, is never taken for it.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from typing import Any, cast

from draftproof.configs.speculation import Method
from draftproof.core.finding import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedAcceptance:
    """Acceptance length (emitted tokens per verify round, correction or bonus included) as `by` reported it.

    `depth` is K, None where the source does not say it."""

    length: float
    depth: int | None
    by: str
    condition: str
    source: Source


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that went wrong with this pair, or a bound that its users met. `refused_by`: engines that do not start
    the pair because of it."""

    text: str
    source: Source
    refused_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """What is public of one repository: its other names, and the shape that config.json states.

    `billions` are parameters in 10⁹, `active_billions` those that one token uses (None: all of them)."""

    name: str
    aliases: tuple[str, ...] = ()
    architecture: str | None = None
    hidden_size: int | None = None
    num_layers: int | None = None
    vocab_size: int | None = None
    billions: float | None = None
    active_billions: float | None = None

    @property
    def shape(self) -> Shape | None:
        """None unless all its sizes are known."""
        if self.hidden_size and self.num_layers and self.vocab_size:
            return Shape(self.architecture, self.hidden_size, self.num_layers, self.vocab_size)
        return None

    @property
    def used_billions(self) -> float | None:
        """Parameters that one token uses."""
        return self.billions if self.active_billions is None else self.active_billions


@dataclass(frozen=True, slots=True)
class Shape:
    """Architecture by config.json's name (None: GGUF has another) and three sizes.

    Equal for all models that were tuned from one another."""

    architecture: str | None
    hidden_size: int
    num_layers: int
    vocab_size: int

    def __str__(self) -> str:
        sizes = f"{self.num_layers} layers of {self.hidden_size}, vocabulary of {self.vocab_size}"
        return f"{self.architecture}, {sizes}" if self.architecture else sizes

    def fits(self, other: Shape) -> bool:
        """Equal in all that both state."""
        named = self.architecture is not None and other.architecture is not None
        if named and self.architecture != other.architecture:
            return False
        return (self.hidden_size, self.num_layers, self.vocab_size) == (
            other.hidden_size,
            other.num_layers,
            other.vocab_size,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One target with one drafter; `drafter` None: the heads are in the target's own checkpoint.

    `engines`: those that the sources name, empty where they name none. `depth`: the K that the sources use."""

    target: str
    method: Method
    drafter: str | None
    engines: tuple[str, ...]
    sources: tuple[Source, ...]
    depth: int | None = None
    acceptance: tuple[ReportedAcceptance, ...] = ()
    trouble: tuple[Trouble, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """`date` is when the sources were last read, ISO 8601; `names` has every name in small letters."""

    date: str
    pairs: tuple[Pair, ...]
    models: Mapping[str, KnownModel]
    names: Mapping[str, str]

    def canonical(self, name: str) -> str | None:
        """The catalogue's name for a repository, letter case aside; None for one that it does not know."""
        return self.names.get(name.casefold())

    def of_target(self, name: str) -> tuple[Pair, ...]:
        """Pairs whose target is this repository or an alias of it."""
        known = self.canonical(name)
        return tuple(pair for pair in self.pairs if pair.target == known)

    def of_drafter(self, name: str) -> tuple[Pair, ...]:
        """Pairs whose drafter is this repository: the targets that it is known to serve."""
        known = self.canonical(name)
        return tuple(pair for pair in self.pairs if pair.drafter is not None and pair.drafter == known)

    def find(self, target: str, drafter: str | None) -> tuple[Pair, ...]:
        """The pair by both names; several where one drafter serves by several methods."""
        known = None if drafter is None else self.canonical(drafter)
        if drafter is not None and known is None:
            return ()
        return tuple(pair for pair in self.of_target(target) if pair.drafter == known)

    def of_shape(self, shape: Shape) -> tuple[str, ...]:
        """Targets whose shape fits. Whether a checkpoint is one of them, its shape cannot tell."""
        known = ((name, self.models[name].shape) for name in {pair.target for pair in self.pairs})
        return tuple(sorted(name for name, other in known if other is not None and other.fits(shape)))

    def similar(self, name: str) -> tuple[str, ...]:
        """Targets whose names look like this one: for a misspelt name, never as a match."""
        targets = {pair.target.casefold(): pair.target for pair in self.pairs}
        return tuple(targets[found] for found in get_close_matches(name.casefold(), targets, 3, 0.8))


@functools.cache
def load_catalogue() -> Catalogue:
    """The catalogue that is shipped with this version."""
    text = resources.files("draftproof.configs").joinpath("data", "pairs.toml").read_text(encoding="utf-8")
    return parse_catalogue(tomllib.loads(text))


def parse_catalogue(document: Mapping[str, Any]) -> Catalogue:
    """Raises KeyError or TypeError for data that does not have the fields above: they are ours, not a user's."""
    sources = {key: Source(**entry) for key, entry in document["sources"].items()}
    models = {
        name: KnownModel(name=name, **{**entry, "aliases": tuple(entry.get("aliases", ()))})
        for name, entry in document["models"].items()
    }
    pairs = tuple(_pair(entry, sources) for entry in document["pairs"])
    names = {name.casefold(): name for pair in pairs for name in (pair.target, pair.drafter) if name}
    for model in models.values():
        names |= {name.casefold(): model.name for name in (model.name, *model.aliases)}
    return Catalogue(document["date"], pairs, models, names)


def _pair(entry: Mapping[str, Any], sources: Mapping[str, Source]) -> Pair:
    known = {"target", "method", "drafter", "engines", "sources", "depth", "acceptance", "trouble"}
    if unknown := set(entry) - known:
        raise KeyError(f"unknown fields of a pair: {sorted(unknown)}")
    return Pair(
        target=entry["target"],
        method=cast(Method, entry["method"]),
        drafter=entry.get("drafter"),
        engines=tuple(entry["engines"]),
        sources=tuple(sources[key] for key in entry["sources"]),
        depth=entry.get("depth"),
        acceptance=tuple(
            ReportedAcceptance(**{"depth": None, **item, "source": sources[item["source"]]})
            for item in entry.get("acceptance", ())
        ),
        trouble=tuple(
            Trouble(item["text"], sources[item["source"]], tuple(item.get("refused_by", ())))
            for item in entry.get("trouble", ())
        ),
    )
