"""What the target's files and the catalogue say of it, as far as they could be read.

Called by `advising`; read by the modules that propose. Raises nothing for what is absent or not known: that is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.checkpoints.geometry import Geometry, geometry
from draftproof.checkpoints.view import CheckpointView
from draftproof.checkpoints.weights import Weights, is_of_mtp
from draftproof.configs.identity import Match, identify, match
from draftproof.configs.pairs import Catalogue, KnownModel, load_catalogue
from draftproof.core.errors import DraftproofError

_DECLARED = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers")


@dataclass(frozen=True, slots=True)
class MtpFacts:
    """declared   prediction layers by config.json, with the key; None: no key says so
    present    whether their tensors are in the files; None: names of tensors are not at hand
    example    one of their tensors
    """

    declared: tuple[str, int] | None
    present: bool | None
    example: str | None


@dataclass(frozen=True, slots=True)
class Facts:
    """`geometry` None: `unknown_shape` says why. `model`: what the catalogue knows of the target's public name."""

    geometry: Geometry | None
    unknown_shape: str | None
    mtp: MtpFacts | None
    match: Match
    catalogue: Catalogue
    remarks: tuple[str, ...]
    stated_architecture: str | None = None

    @property
    def model(self) -> KnownModel | None:
        return None if self.match.model is None else self.catalogue.models.get(self.match.model)

    @property
    def is_claimed_by_files(self) -> bool:
        """Known by what the checkpoint's own files state, which copies and fine-tuned models keep."""
        return self.match.claim is not None and self.match.claim.is_of_files

    @property
    def active_parameters(self) -> float | None:
        """That one token uses, by the files, else by the catalogue."""
        if self.geometry is not None:
            return float(self.geometry.parameters.active)
        billions = self.model.used_billions if self.model else None
        return None if billions is None else billions * 1e9

    @property
    def architecture(self) -> str | None:
        """By config.json's name, else by the catalogue; GGUF files state another kind of name, which is not used."""
        return self.stated_architecture or (self.model.architecture if self.model else None)

    @property
    def has_experts(self) -> bool:
        if self.geometry is not None:
            return self.geometry.experts is not None
        return self.model is not None and self.model.active_billions is not None


def read_facts(reference: str, view: CheckpointView | None) -> Facts:
    """Raises DP402 for files that are broken: there is no advice on those."""
    catalogue = load_catalogue()
    identity = identify(reference, view)
    found = match(identity, catalogue)
    if view is None:
        return Facts(None, "nothing could be read", None, found, catalogue, ())
    shape, unknown = _geometry(view)
    stated = identity.shape.architecture if identity.shape else None
    return Facts(shape, unknown, _mtp(view, shape), found, catalogue, view.remarks, stated)


def mtp_weights(facts: Facts) -> Weights | None:
    return facts.geometry.mtp_weights if facts.geometry else None


def _geometry(view: CheckpointView) -> tuple[Geometry | None, str | None]:
    try:
        return geometry(view), None
    except DraftproofError as error:
        if error.code not in ("DP403", "DP406"):
            raise
        return None, f"{error.field}: {error.found} ({error.code})"


def _mtp(view: CheckpointView, shape: Geometry | None) -> MtpFacts:
    declared = _declared(view.language_config)
    names = view.tensor_names
    if names is None:
        return MtpFacts(declared, None, None)
    num_layers = shape.num_layers if shape else _whole(view.language_config, "num_hidden_layers")
    if num_layers is None:
        return MtpFacts(declared, None, None)
    example = min((name for name in names if is_of_mtp(name, num_layers)), default=None)
    return MtpFacts(declared, example is not None, example)


def _declared(config: Mapping[str, Any]) -> tuple[str, int] | None:
    for key in _DECLARED:
        value = _whole(config, key)
        if value:
            return key, value
    return None


def _whole(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if type(value) is int else None
