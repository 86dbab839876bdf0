"""Reads `table.toml` and checks every key of it.

Called through `draftproof.configs.providers`. A table that breaks its schema is a fault of this program, not of its
user: `ValueError` with the place.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, get_args

from draftproof.configs.providers.model import (
    Auth,
    DeploymentType,
    Fact,
    PredictionRule,
    PredictionShape,
    Provider,
    RejectedTokens,
    Topic,
)
from draftproof.core.errors import DraftproofError
from draftproof.core.finding import Source


def providers() -> tuple[Provider, ...]:
    return _table()[0]


def deployment_types(provider: str | None = None) -> tuple[DeploymentType, ...]:
    """All rows, or those of one provider. Raises DP120 for a provider that the table does not have."""
    if provider is not None and provider not in {known.name for known in providers()}:
        raise DraftproofError(
            "DP120",
            "--provider",
            provider,
            "one of " + ", ".join(known.name for known in providers()),
            "Name one of them, or leave it out: only what is documented needs it.",
        )
    return tuple(row for row in _table()[1] if provider in (None, row.provider))


def deployment_type(provider: str, type_: str) -> DeploymentType:
    """One row. Raises DP120 for a provider or a deployment type that the table does not have."""
    rows = deployment_types(provider)
    for row in rows:
        if row.type == type_:
            return row
    raise DraftproofError(
        "DP120",
        "--deployment",
        type_,
        "one of " + ", ".join(row.type for row in rows),
        f"Name one of the deployment types of {provider}; nothing carries over from one to another.",
    )


def provider_of_host(host: str) -> Provider | None:
    """The provider at whose documented addresses `host` is."""
    return next((provider for provider in providers() if provider.answers_at(host.lower())), None)


@cache
def _table() -> tuple[tuple[Provider, ...], tuple[DeploymentType, ...]]:
    text = files("draftproof.configs.providers").joinpath("table.toml").read_text(encoding="utf-8")
    return parse_table(tomllib.loads(text))


def parse_table(document: Mapping[str, Any]) -> tuple[tuple[Provider, ...], tuple[DeploymentType, ...]]:
    """The rows of a document of the table's shape. Raises ValueError with the place of the first mistake."""
    _check_keys(document, {"sources", "providers", "deployments"}, "the table")
    sources = {name: _source(name, row) for name, row in document["sources"].items()}
    known = tuple(_provider(name, row) for name, row in document["providers"].items())
    rows = tuple(_deployment(row, sources) for row in document["deployments"])
    places = [(row.provider, row.type) for row in rows]
    if repeated := {place for place in places if places.count(place) > 1}:
        raise ValueError(f"rows that repeat: {sorted(repeated)}")
    if strange := {row.provider for row in rows} ^ {provider.name for provider in known}:
        raise ValueError(f"providers without a row, or rows without a provider: {sorted(strange)}")
    return known, rows


def _source(name: str, row: Mapping[str, Any]) -> Source:
    where = f"sources.{name}"
    _check_keys(row, {"name", "read", "url"}, where)
    read = _text(row, "read", where)
    if not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])(-\d\d)?", read):
        raise ValueError(f"{where}.read is no date: {read}")
    url = row.get("url")
    if url is not None and not str(url).startswith("https://"):
        raise ValueError(f"{where}.url is no address: {url}")
    return Source(name=_text(row, "name", where), read=read, url=url)


def _provider(name: str, row: Mapping[str, Any]) -> Provider:
    where = f"providers.{name}"
    _check_keys(row, {"name", "hosts"}, where)
    return Provider(name=name, title=_text(row, "name", where), hosts=_texts(row, "hosts", where))


def _deployment(row: Mapping[str, Any], sources: Mapping[str, Source]) -> DeploymentType:
    where = f"{row.get('provider')}/{row.get('type')}"
    allowed = {
        "provider",
        "type",
        "title",
        "auth",
        "path",
        "api_version",
        "own_model_names",
        "facts",
        "prediction",
    }
    _check_keys(row, allowed, where)
    facts = [_fact(fact, sources, f"{where} fact {at}") for at, fact in enumerate(row.get("facts", ()))]
    prediction = row.get("prediction")
    path = row.get("path")
    if path is not None and not path.startswith("/"):
        raise ValueError(f"{where}.path is no path: {path}")
    return DeploymentType(
        provider=_text(row, "provider", where),
        type=_text(row, "type", where),
        title=_text(row, "title", where),
        auth=_one_of(_text(row, "auth", where), get_args(Auth), where),
        facts=tuple(facts),
        prediction=None if prediction is None else _prediction(prediction, sources, f"{where}.prediction"),
        path=path,
        api_version=row.get("api_version"),
        own_model_names=row.get("own_model_names", False) is True,
    )


def _fact(row: Mapping[str, Any], sources: Mapping[str, Source], where: str) -> Fact:
    _check_keys(row, {"topic", "says", "source", "names", "models"}, where)
    return Fact(
        topic=_one_of(_text(row, "topic", where), get_args(Topic), where),
        says=_text(row, "says", where),
        source=_named_source(row, sources, where),
        names=_texts(row, "names", where),
        models=_texts(row, "models", where),
    )


def _prediction(row: Mapping[str, Any], sources: Mapping[str, Source], where: str) -> PredictionRule:
    allowed = {
        "models",
        "shapes",
        "not_with",
        "rejected_tokens",
        "max_length",
        "any_position",
        "notes",
        "source",
    }
    _check_keys(row, allowed, where)
    rejected = row.get("rejected_tokens")
    shapes: tuple[PredictionShape, ...] = tuple(
        _one_of(shape, get_args(PredictionShape), where) for shape in _texts(row, "shapes", where)
    )
    return PredictionRule(
        source=_named_source(row, sources, where),
        models=_texts(row, "models", where),
        shapes=shapes or ("text",),
        not_with=_texts(row, "not_with", where),
        rejected_tokens=None if rejected is None else _one_of(rejected, get_args(RejectedTokens), where),
        max_length=row.get("max_length"),
        any_position=row.get("any_position"),
        notes=_texts(row, "notes", where),
    )


def _named_source(row: Mapping[str, Any], sources: Mapping[str, Source], where: str) -> Source:
    name = _text(row, "source", where)
    if name not in sources:
        raise ValueError(f"{where} names a source that is not listed: {name}")
    return sources[name]


def _check_keys(row: Mapping[str, Any], allowed: set[str], where: str) -> None:
    if not isinstance(row, Mapping):
        raise ValueError(f"{where} is no table")
    if unknown := set(row) - allowed:
        raise ValueError(f"{where} has unknown keys: {sorted(unknown)}")


def _text(row: Mapping[str, Any], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}.{key} is no text: {value!r}")
    return value


def _texts(row: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = row.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError(f"{where}.{key} is no list of texts: {value!r}")
    return tuple(value)


def _one_of(value: str, choices: tuple[Any, ...], where: str) -> Any:
    if value not in choices:
        raise ValueError(f"{where}: {value!r} is none of {', '.join(choices)}")
    return value
