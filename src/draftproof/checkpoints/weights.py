"""Bytes of a checkpoint's weights: by its tensors where their headers are at hand, else by formula.

Called by `geometry`. Floats can be loaded in another type than the file has, packed and quantised tensors cannot; the
two are therefore counted apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from draftproof.checkpoints.parameters import Parameters
from draftproof.checkpoints.view import CheckpointView, Kind, TensorInfo
from draftproof.core.errors import DraftproofError

FLOAT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_DTYPES = {"float64": 8, "float32": 4, "float16": 2, "half": 2, "bfloat16": 2}
_LAYER = re.compile(r"(?:^|\.)(?:layers|blk)\.(\d{1,9})\.")
_MTP = re.compile(r"(?:^|\.)mtp(?:_|\.)")
_TABLES = ("d2t", "t2d", "g_idx")
"""Integers that map or sort, not parameters."""
_SCALE = re.compile(
    r"(scale|scales|scale_inv|scale_2|zeros|qzeros|zero_point|absmax|quant_map|quant_state[^.]*|weight_shape)$"
)


@dataclass(frozen=True, slots=True)
class Weights:
    """float_elements can be loaded in any float type; fixed_bytes stay as they are.

    stored_bytes   as the file has them (or would have them)
    by             tensors: the headers say so; formula: from counts, dtype and quantisation, in words in `basis`
    """

    float_elements: int
    fixed_bytes: int
    stored_bytes: int | None
    by: Literal["tensors", "formula"]
    basis: str

    def num_bytes(self, float_bytes: int | None = None) -> int:
        """With floats loaded at `float_bytes` per element; None: as stored.

        Raises DP406 where the stored type is not known.
        """
        if float_bytes is not None:
            return self.float_elements * float_bytes + self.fixed_bytes
        if self.stored_bytes is None:
            raise DraftproofError(
                "DP406", "dtype", "nothing", "the type of the weights", "Name it: --dtype bfloat16."
            )
        return self.stored_bytes

    def rounded(self, bits: float) -> Weights:
        """With floats at so many bits, which no loading changes any more."""
        size = self.fixed_bytes + math.ceil(self.float_elements * bits / 8)
        return replace(self, float_elements=0, fixed_bytes=size, stored_bytes=size)


def joined(parts: Sequence[Weights]) -> Weights:
    """Of at least one part."""
    stored = [part.stored_bytes for part in parts]
    by_headers = parts[0].by == "tensors"
    return replace(
        parts[0],
        basis=f"{parts[0].basis if by_headers else 'counts of each layer'}, of this stage's layers",
        float_elements=sum(part.float_elements for part in parts),
        fixed_bytes=sum(part.fixed_bytes for part in parts),
        stored_bytes=None if None in stored else sum(size for size in stored if size is not None),
    )


def is_of_mtp(name: str, num_layers: int) -> bool:
    """Whether a tensor belongs to built-in prediction layers: `mtp.…`, or a layer behind the last."""
    if "mtp" in name and _MTP.search(name):
        return True
    match = _LAYER.search(name)
    return (
        match is not None and int(match[1]) >= num_layers and not name.startswith(("visual", "vision", "v."))
    )


def num_mtp_layers(names: frozenset[str]) -> int:
    """Prediction layers among tensors named `mtp.…`; 0 without any."""
    own = [name for name in names if "mtp" in name and _MTP.search(name)]
    numbers = {match[1] for name in own if (match := _LAYER.search(name))}
    return len(numbers) or min(1, len(own))


def weights_from_tensors(tensors: Mapping[str, TensorInfo]) -> Weights:
    """Exact, by the headers of all files."""
    floats = [info for info in tensors.values() if info.dtype in FLOAT_BYTES]
    stored = sum(info.num_bytes for info in tensors.values())
    fixed = stored - sum(info.num_bytes for info in floats)
    return Weights(
        sum(math.prod(info.shape) for info in floats), fixed, stored, "tensors", "headers of all files"
    )


def count_from_tensors(kind: Kind, tensors: Mapping[str, TensorInfo]) -> int | None:
    """Parameters in the headers; None where values are packed so that shapes do not tell."""
    if kind != "gguf" and any(info.dtype in ("I32", "U8", "F4", "U32") for info in tensors.values()):
        return None
    return sum(
        math.prod(info.shape)
        for name, info in tensors.items()
        if name.endswith(".weight")  # most: no need to look further
        or not (name.endswith(_TABLES) or _SCALE.search(name, name.rfind(".") + 1))
    )


def weights_from_formula(view: CheckpointView, parameters: Parameters) -> Weights:
    """From counts, the configuration's dtype and quantisation. Raises DP406 for a quantisation that is not known."""
    config = view.language_config
    named = config.get("dtype", config.get("torch_dtype"))
    float_bytes = _DTYPES.get(named.removeprefix("torch.")) if isinstance(named, str) else None
    quantisation = view.quantization_config
    if not quantisation:
        stored = None if float_bytes is None else parameters.total * float_bytes
        said = named if float_bytes is not None else "a type that is not said"
        return Weights(parameters.total, 0, stored, "formula", f"{parameters.total} parameters in {said}")
    bits, taken, words = _quantised(view.reference, quantisation, parameters)
    fixed = math.ceil(taken * bits / 8)
    rest = parameters.total - taken
    stored = None if float_bytes is None else fixed + rest * float_bytes
    return Weights(
        rest, fixed, stored, "formula", f"{taken} parameters at {bits:.3g} bits ({words}), {rest} in {named}"
    )


def _quantised(reference: str, config: Mapping[str, Any], parameters: Parameters) -> tuple[float, int, str]:
    """Bits per quantised parameter with their scales, how many parameters are quantised, and the method in words."""
    method = str(config.get("quant_method", config.get("quant_algo", ""))).lower()
    everything = parameters.quantised
    if method in ("gptq", "awq"):
        bits, group = (
            _number(reference, config, "bits", "w_bit"),
            _number(reference, config, "group_size", "q_group_size", least=-1),
        )
        per_group = (16 + bits) / group if group > 0 else 0.0
        return bits + per_group, everything, f"{method}, {bits} bits, groups of {group}"
    if method in ("fp8", "fbgemm_fp8"):
        block = config.get("weight_block_size")
        scales = (
            32 / math.prod(block)
            if isinstance(block, list) and all(type(b) is int and b > 0 for b in block)
            else 0.0
        )
        return 8 + scales, everything, method
    if method == "mxfp4":
        return 4 + 8 / 32, parameters.experts, "mxfp4 in experts"
    if method in ("modelopt", "nvfp4", "fp8_pb_wo") or "nvfp4" in method:
        algorithm = str(config.get("quant_algo", method)).upper()
        if "NVFP4" in algorithm:
            return 4 + 8 / 16, everything, "nvfp4, groups of 16"
        if "FP8" in algorithm:
            return 8.0, everything, "fp8"
    if method == "compressed-tensors":
        return _compressed(reference, config, everything)
    if method == "bitsandbytes":
        if config.get("load_in_4bit") is True:
            doubled = config.get("bnb_4bit_use_double_quant") is True
            return 4 + (8 / 64 + 32 / (64 * 256) if doubled else 32 / 64), everything, "bitsandbytes 4 bits"
        if config.get("load_in_8bit") is True:
            return 8.0, everything, "bitsandbytes 8 bits"
    raise DraftproofError(
        "DP406",
        f"{reference}: quantization_config",
        method or "no method",
        "a quantisation whose size is known (gptq, awq, fp8, mxfp4, nvfp4, compressed-tensors, bitsandbytes)",
        "Give the planner the weight files themselves: their headers say how large they are.",
    )


def _compressed(reference: str, config: Mapping[str, Any], everything: int) -> tuple[float, int, str]:
    groups = config.get("config_groups")
    weights = [
        group.get("weights") for group in groups.values() if isinstance(group, dict)
    ] if isinstance(groups, dict) else []  # fmt: skip
    if len(weights) != 1 or not isinstance(weights[0], dict):
        raise DraftproofError(
            "DP406",
            f"{reference}: quantization_config.config_groups",
            f"{len(weights)} groups",
            "one group, whose weights say num_bits",
            "Give the planner the weight files themselves: their headers say how large they are.",
        )
    bits = _number(reference, weights[0], "num_bits")
    group = weights[0].get("group_size")
    scale_bits = 8 if bits == 4 and weights[0].get("type") == "float" else 16  # NVFP4 and MXFP4
    zero_bits = bits if weights[0].get("symmetric") is False else 0
    per_group = (scale_bits + zero_bits) / group if type(group) is int and group > 0 else 0.0
    return bits + per_group, everything, f"compressed-tensors, {bits} bits"


def _number(reference: str, config: Mapping[str, Any], *keys: str, least: int = 1) -> int:
    value = next((config[key] for key in keys if key in config), None)
    if type(value) is not int or not least <= value <= 1 << 16 or value == 0:
        raise DraftproofError(
            "DP406",
            f"{reference}: quantization_config.{keys[0]}",
            f"{value!r}"[:80],
            "a whole number",
            "Check the configuration.",
        )
    return value
