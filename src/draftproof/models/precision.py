"""In which form each weight is computed with: as its file holds it, expanded to floats, or quantised while loading.

Called by `loading`. A drafter's form never touches exactness; a target's decides its own numbers and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, get_args

from torch import Tensor

from draftproof.core.errors import DraftproofError
from draftproof.models.blocks import KERNEL_TYPES, BlockTensor, bits_per_weight, block_size, quantize
from draftproof.models.weights import Weights, finite

Form = Literal["native", "int8", "int4", "float"]
"""
native  quantised tensors as they are, others in the storage type that `dtype` names
float   everything in the storage type, quantised tensors expanded
int8    matrices of more bits rounded to Q8_0, others as they are
int4    matrices of more bits rounded to Q4_0, embedding and head to Q8_0 (a drafter's to Q4_0, too); those of about
        four bits as they are
Routers of experts, which are small and decide much, are never rounded.
"""

_LOOKUPS = ("model.embed_tokens.weight", "lm_head.weight")
_MOST_BITS = {"native": 32.0, "int8": 8.5, "int4": 5.0}


def check_form(weights: str) -> Form:
    """The form of that name. Raises DP001."""
    if weights not in get_args(Form):
        names = ", ".join(get_args(Form))
        raise DraftproofError("DP001", "weights", weights, f"one of {names}", "Name one of these.")
    return weights  # type: ignore[return-value]


class FormedWeights(Mapping[str, Tensor | BlockTensor]):
    """A checkpoint's tensors in one form, each made when asked for.

    types             counts the matrices given out
    num_block_bytes   of those that are quantised
    num_floats        elements of those that are not
    quantize          rounds; whoever has a faster way to the same bits may set it
    """

    quantize: Callable[[Tensor, str], BlockTensor]

    def __init__(self, weights: Weights, form: Form, rounds_lookups: bool = False) -> None:
        """`rounds_lookups`: int4 rounds embedding and head like other matrices, for a drafter."""
        self.quantize = quantize
        self._weights = weights
        self._form = form
        self._eight_bits = () if rounds_lookups else _LOOKUPS
        self.types: Counter[str] = Counter()
        self.num_block_bytes = 0
        self.num_floats = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def __getitem__(self, name: str) -> Tensor | BlockTensor:
        if len(self._weights.shape(name)) != 2:
            return self._weights[name]
        tensor = self._kept(name) or self._rounded(name)
        if isinstance(tensor, BlockTensor):
            self.types[tensor.type_name] += 1
            self.num_block_bytes += tensor.data.nbytes
        else:
            self.types["float"] += 1
            self.num_floats += tensor.numel()
        return tensor

    def _kept(self, name: str) -> BlockTensor | None:
        """The tensor as the file holds it, where it is quantised and that form serves."""
        if self._form == "float":
            return None
        stored = self._weights.stored(name)
        if not isinstance(stored, BlockTensor) or stored.type_name not in KERNEL_TYPES:
            return None
        most_bits = _MOST_BITS["int8" if name in self._eight_bits and self._form == "int4" else self._form]
        return stored if bits_per_weight(stored.type_name) <= most_bits else None

    def _rounded(self, name: str) -> Tensor | BlockTensor:
        values = self._weights[name]
        type_name = "Q4_0" if self._form == "int4" and name not in self._eight_bits else "Q8_0"
        is_router = name.endswith(".mlp.gate.weight")
        if self._form in ("native", "float") or is_router or values.shape[1] % block_size(type_name):
            return values
        return self.quantize(values, type_name)


class ExpandedWeights(Mapping[str, Tensor]):
    """The values of formed weights as floats, for a decoder that computes with nothing else."""

    def __init__(self, weights: FormedWeights) -> None:
        self._weights = weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._weights[name]
        return finite(name, tensor.dequantize()) if isinstance(tensor, BlockTensor) else tensor
