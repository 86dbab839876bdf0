"""Where the tensors of `tensors.py` lie in a checkpoint that names, fuses or orders them otherwise.

Called by `weights`. Knows names, shapes and rows; reads nothing. A fused tensor is taken apart by rows: every part
is a run of rows, so it can be read, or kept quantised, by itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from draftproof.core.errors import DraftproofError
from draftproof.models.base import ModelConfig
from draftproof.models.config.families import FAMILIES, Family
from draftproof.models.config.gguf import ROPE_FREQS, ROPE_LONG, ROPE_SHORT

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor as rows [first_row, …) of a stored one, seen as [num_stored_rows, length of its last dimension].

    paired_heads  None, or the number of heads whose rotary rows are stored as pairs (2j, 2j + 1)
    """

    stored: str
    shape: Shape
    first_row: int = 0
    num_stored_rows: int = 1
    paired_heads: int | None = None

    def byte_range(self, offset: int, num_bytes: int) -> tuple[int, int]:
        """Offset and number of bytes of this tensor, given those of the stored one."""
        row_bytes = num_bytes // max(1, self.num_stored_rows)
        return offset + self.first_row * row_bytes, _num_rows(self.shape) * row_bytes


def _num_rows(shape: Shape) -> int:
    return math.prod(shape[:-1])


_TEXT_PREFIXES = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}
"""Of the text part of a model that reads images too."""
_IMAGE_PREFIXES = tuple(
    f"{base}{part}." for base in ("", "model.") for part in ("vision_tower", "multi_modal_projector")
)


def sources_of_hf(shapes: Mapping[str, Shape], config: ModelConfig) -> dict[str, Source]:
    """Of a safetensors directory, by name."""
    sources: dict[str, Source] = {}
    can_wrap = _family(config).wrapper_name is not None
    for stored, shape in shapes.items():
        if can_wrap and stored.startswith(_IMAGE_PREFIXES):
            continue
        prefix = next((p for p in _TEXT_PREFIXES if can_wrap and stored.startswith(p)), "")
        name = _TEXT_PREFIXES.get(prefix, "") + stored.removeprefix(prefix)
        name = name.replace(".block_sparse_moe.", ".mlp.")  # Mixtral's own names
        for old, new in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
            name = re.sub(rf"(\.mlp\.experts\.\d+)\.{old}\.", rf"\1.{new}.", name)
        _take(sources, name, stored, shape, config)
    return sources


_GGUF_STEMS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_GGUF_NORMS = {"ffn_norm": "post_attention_layernorm"}
_GGUF_POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def sources_of_gguf(shapes: Mapping[str, Shape], config: ModelConfig) -> dict[str, Source]:
    """Of a GGUF file, by name; a tensor of an unknown name is listed as such."""
    family = _family(config)
    stems = _GGUF_STEMS | (_GGUF_POST_NORMS if config.post_norms else _GGUF_NORMS)
    if family.gguf_fused_up:
        stems = stems | {"ffn_up": "mlp.gate_up_proj"}
    heads = {"self_attn.q_proj": config.num_heads, "self_attn.k_proj": config.num_kv_heads}
    sources: dict[str, Source] = {}
    for stored, shape in shapes.items():
        if stored in (ROPE_FREQS, ROPE_LONG, ROPE_SHORT):
            continue
        match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", stored)
        if match is None or match[2] not in stems:
            sources[f"GGUF tensor {stored}"] = Source(stored, shape, num_stored_rows=_num_rows(shape))
            continue
        layer = "" if match[1] is None else f"model.layers.{match[1]}."
        stem = stems[match[2]]
        paired = heads.get(stem) if family.gguf_pairs else None
        _take(sources, f"{layer}{stem}.{match[3]}", stored, shape, config, paired)
    return sources


def norm_offset_of(config: ModelConfig) -> float:
    """What norm weights of a safetensors directory lack of the factors that they stand for."""
    return _family(config).norm_offset


def _family(config: ModelConfig) -> Family:
    return next(family for family in FAMILIES if family.name == config.architecture)


def _take(
    sources: dict[str, Source],
    name: str,
    stored: str,
    shape: Shape,
    config: ModelConfig,
    paired_heads: int | None = None,
) -> None:
    """Enters a stored tensor under its name, or its parts under theirs if it is a fused one."""
    whole = Source(stored, shape, num_stored_rows=_num_rows(shape), paired_heads=paired_heads)
    parts = _parts(name, shape, config)
    if parts is None:
        parts = [(name, shape)]
    expected = sum(_num_rows(part_shape) for _, part_shape in parts)
    if _num_rows(shape) != expected:
        raise _fault(stored, f"shape {list(shape)}", f"{expected} rows")
    first_row = 0
    for part_name, part_shape in parts:
        if part_name in sources:
            raise _fault(stored, f"{part_name} a second time", f"it in {sources[part_name].stored} alone")
        sources[part_name] = replace(whole, shape=part_shape, first_row=first_row)
        first_row += _num_rows(part_shape)


def _parts(name: str, shape: Shape, config: ModelConfig) -> list[tuple[str, Shape]] | None:
    """Names and shapes of what a fused tensor holds, in order; None for any other tensor."""
    match = re.fullmatch(
        r"(model\.layers\.(\d{1,5})\.)(self_attn|mlp)\.(experts\.)?(\w+)_proj(?:\.weight)?", name
    )
    if match is None or len(shape) < 2 or int(match[2]) >= config.num_layers:
        return None
    kv_size, experts = config.num_kv_heads * config.head_dim, config.layers[int(match[2])].experts
    inner = config.intermediate_size if experts is None else experts.intermediate_size
    num_rows = {"q": config.num_heads * config.head_dim, "k": kv_size, "v": kv_size}
    num_rows |= {"gate": inner, "up": inner, "down": config.hidden_size}
    in_order = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}.get(match[5], (match[5],))
    prefixes = [f"{match[1]}{match[3]}."]
    if match[4] is not None:
        count = 0 if experts is None else experts.num_experts
        prefixes = [f"{prefixes[0]}experts.{expert}." for expert in range(count)]
    elif len(in_order) == 1:
        return None
    if any(part not in num_rows for part in in_order):
        return None
    return [
        (f"{prefix}{part}_proj.weight", (num_rows[part], shape[-1]))
        for prefix in prefixes
        for part in in_order
    ]


def _fault(stored: str, found: str, expected: str) -> DraftproofError:
    remedy = "Weights and configuration do not belong together: get both from the same source."
    return DraftproofError("DP404", stored, found, expected, remedy)
