"""What kind of drafter a checkpoint is, by its architecture and by the shapes of its tensors.

Called by the rules about pairs and by our engine before it loads a drafter. Names and shapes can disagree: both are
told, and a rule judges. Knows no engine.

EAGLE-1 and -2 (Li et al. 2024) join the embedding and one feature of the target, so `fc` takes 2 × hidden and attention
takes hidden. EAGLE-3 (Li et al. 2025) joins several of the target's layers in `fc`, and its attention takes 2 × hidden.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from draftproof.checkpoints.view import CheckpointView, TensorInfo

Kind = Literal["model", "eagle", "eagle3", "mtp", "medusa", "mlp_speculator", "dflash", "dspark"]
"""model: it predicts tokens from tokens alone. eagle: EAGLE-1 or -2, which have the same shapes."""

KIND_NAMES: Mapping[Kind, str] = {
    "model": "a model of its own",
    "eagle": "an EAGLE-1/2 head",
    "eagle3": "an EAGLE-3 head",
    "mtp": "a multi-token prediction (MTP) head",
    "medusa": "Medusa heads",
    "mlp_speculator": "an MLP speculator",
    "dflash": "a DFlash drafter",
    "dspark": "a DSpark drafter",
}

_BY_NAME: tuple[tuple[str, Kind], ...] = (
    ("eagle3", "eagle3"), ("eagle-3", "eagle3"), ("peagle", "eagle3"), ("eagle", "eagle"), ("dflash", "dflash"),
    ("dspark", "dspark"), ("medusa", "medusa"),
    ("mlp_speculator", "mlp_speculator"), ("mlpspeculator", "mlp_speculator"),
)  # fmt: skip
"""Parts of architectures and model types, the most special first."""
_MTP_NAME = re.compile(r"mtp|nextn|assistantfor|gemma4_assistant", re.IGNORECASE)

_FC = re.compile(r"(?:^|\.)fc\.weight$")
_ATTENTION = re.compile(
    r"(?:^|\.)(?:midlayer|layers\.0)\.self_attn\."
    r"(?:q_proj|k_proj|v_proj|qkv_proj|q_a_proj|kv_a_proj_with_mqa|fused_qkv_a_proj_with_mqa)\.weight$"
)
_GGUF_ATTENTION = re.compile(r"^blk\.0\.attn_(?:q|k|v|qkv)\.weight$")
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|embeddings?)\.weight$|^token_embd\.weight$"
)
_MEDUSA = re.compile(r"(?:^|\.)(?:medusa_heads?\.\d|\d+\.0\.linear\.weight$|blocks\.0\.layers\.0\.linear)")


@dataclass(frozen=True, slots=True)
class NamedTensor:
    name: str
    info: TensorInfo


@dataclass(frozen=True, slots=True)
class Drafting:
    """named      the kind that architecture, model_type and their like say; None where they say nothing special
    named_by   the key and its value that said so
    shaped     the kind that the tensors' shapes say; None where shapes are not at hand or say nothing
    fc         the projection of the target's features
    attention  the first layer's projection that takes its input (query, key or value)
    has_shapes whether tensor shapes were at hand
    """

    named: Kind | None
    named_by: tuple[str, str] | None
    shaped: Kind | None
    fc: NamedTensor | None
    attention: NamedTensor | None
    has_shapes: bool

    @property
    def kind(self) -> Kind:
        """Shapes decide where names and shapes disagree: they are what is computed with."""
        return self.shaped or self.named or ("model" if self.fc is None else "eagle")

    @property
    def is_told(self) -> bool:
        """Whether anything tells the kind: without shapes, many heads are named like models."""
        return self.has_shapes or self.named is not None

    @property
    def words(self) -> str:
        """The kind, and what shows it."""
        shown = []
        if self.fc is not None:
            shown.append(f"{self.fc.name} {list(self.fc.info.shape)}")
        if self.attention is not None:
            shown.append(f"{self.attention.name} {list(self.attention.info.shape)}")
        if not shown and self.named_by is not None:
            shown.append(" ".join(self.named_by))
        return f"{KIND_NAMES[self.kind]} ({', '.join(shown)})" if shown else KIND_NAMES[self.kind]


def identify(view: CheckpointView) -> Drafting:
    """What the checkpoint is as a drafter."""
    named, named_by = _by_name(view)
    tensors = view.tensors or {}
    fc = _first(tensors, _FC)
    attention = _first(tensors, _ATTENTION) or _first(tensors, _GGUF_ATTENTION)
    return Drafting(
        named, named_by, _by_shape(tensors, fc, attention), fc, attention, view.tensors is not None
    )


def _by_name(view: CheckpointView) -> tuple[Kind | None, tuple[str, str] | None]:
    for key, value in _names(view.config):
        for part, kind in _BY_NAME:
            if part in value.lower():
                return kind, (key, value)
        if _MTP_NAME.search(value):
            return "mtp", (key, value)
    return None, None


def _names(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list) else ()
    found = [("architectures", name) for name in names if isinstance(name, str)]
    for key in ("speculators_model_type", "model_type", "general.architecture"):
        if isinstance(config.get(key), str):
            found.append((key, config[key]))
    return found


def _first(tensors: Mapping[str, TensorInfo], pattern: re.Pattern[str]) -> NamedTensor | None:
    for name in sorted(tensors):
        if pattern.search(name) and len(tensors[name].shape) == 2 and not name.startswith("mtp."):
            return NamedTensor(name, tensors[name])
    return None


def _by_shape(
    tensors: Mapping[str, TensorInfo], fc: NamedTensor | None, attention: NamedTensor | None
) -> Kind | None:
    if fc is not None and attention is not None:
        rows, columns = fc.info.shape
        takes = attention.info.shape[1]
        if takes == 2 * rows:
            return "eagle3"
        if takes == rows and columns == 2 * rows:
            return "eagle"
        return None
    if fc is None and any(_MEDUSA.search(name) for name in tensors):
        return "medusa"
    return None


def has_embedding(view: CheckpointView) -> bool | None:
    """Whether it looks tokens up itself; None where its tensors are not at hand."""
    if view.tensor_names is None:
        return None
    return any(_EMBEDDING.search(name) for name in view.tensor_names)


_MTP_DECLARED = (
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers", "mtp_num_layers",
    "n_predict",
)  # fmt: skip
"""Keys under which families write how many layers predict further tokens."""
_MTP_GROUPS = ("mtp_config",)
_MTP_TENSOR = re.compile(
    r"(?:^|\.)(?:mtp|mtp_layers|mtp_modules|mtp_block|mtp_emb_norm|mtp_hidden_norm|mtp_linear_proj|nextn)\."
)


@dataclass(frozen=True, slots=True)
class Mtp:
    """declared  (key path, number of layers) that the configuration promises; None where it names none
    tensors   names of the layers' tensors; None where tensor names are not at hand
    """

    declared: tuple[str, int] | None
    tensors: tuple[str, ...] | None


def find_mtp(view: CheckpointView) -> Mtp:
    """What a target's checkpoint says and holds of layers that predict further tokens."""
    return Mtp(_declared_mtp(view.language_config), _mtp_tensors(view))


def _declared_mtp(config: Mapping[str, Any]) -> tuple[str, int] | None:
    for group in ("", *_MTP_GROUPS):
        inner = config if not group else config.get(group)
        if not isinstance(inner, Mapping):
            continue
        for key in _MTP_DECLARED:
            value = inner.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return (f"{group}.{key}" if group else key), value
    return None


def _mtp_tensors(view: CheckpointView) -> tuple[str, ...] | None:
    names = view.tensor_names
    if names is None:
        return None
    layers = view.language_config.get("num_hidden_layers")
    found = {name for name in names if ("mtp" in name or "nextn" in name) and _MTP_TENSOR.search(name)}
    if isinstance(layers, int) and not isinstance(layers, bool):
        numbers = rf"layers\.({layers}|{layers + 1}|{layers + 2}|{layers + 3})\."
        # Names may be many, and a pattern that begins with plain text is found at once.
        likely, beyond = re.compile(numbers), re.compile(rf"(?:^|\.){numbers}")
        found |= {name for name in names if likely.search(name) and beyond.search(name)}
    return tuple(sorted(found))
