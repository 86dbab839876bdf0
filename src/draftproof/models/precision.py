"""In which form each weight is computed with: as its file holds it, expanded to floats, or quantised while loading.

Called by `loading`. A drafter's form never touches exactness; a target's decides its own numbers and nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, get_args

from torch import Tensor

from draftproof.core import heap
from draftproof.core.errors import DraftproofError
from draftproof.models.blocks import (
    KERNEL_TYPES,
    BlockTensor,
    bits_per_weight,
    block_size,
    empty_blocks,
    quantize,
)
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

LOOKUPS = ("model.embed_tokens.weight", "lm_head.weight")
"""Embedding and head."""
_ROUNDED_ROWS = 4096
"""Rounded at a time, of a matrix that the file holds in more bits."""
_TRIM_AFTER = 1 << 24
"""Weights that were given out since memory was given back."""
_MOST_BITS = {"native": 32.0, "int8": 8.5, "int4": 5.0}


def check_form(weights: str) -> Form:
    """The form of that name. Raises DP001."""
    if weights not in get_args(Form):
        names = ", ".join(get_args(Form))
        raise DraftproofError("DP001", "weights", weights, f"one of {names}", "Name one of these.")
    return weights  # type: ignore[return-value]


class FormedWeights(Mapping[str, Tensor | BlockTensor]):
    """A checkpoint's tensors in one form, each made when asked for.

    types     counts the matrices given out
    quantize  rounds; whoever has a faster way to the same bits may set it
    """

    quantize: Callable[[Tensor, str], BlockTensor]

    def __init__(self, weights: Weights, form: Form, as_drafter: bool = False) -> None:
        """`as_drafter`: int4 rounds embedding and head like other matrices, and what reading leaves with the allocator
        is given back meanwhile, for an engine runs already and counts its memory."""
        self.quantize = quantize
        self._weights = weights
        self.form = form
        self._eight_bits = () if as_drafter else LOOKUPS
        self._trims = as_drafter
        self._num_untrimmed = 0
        self.types: Counter[str] = Counter()

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def __getitem__(self, name: str) -> Tensor | BlockTensor:
        if len(self._weights.shape(name)) != 2:
            return self._weights[name]
        type_name = self.type_of(name)
        self.types[type_name or "float"] += 1
        if self._trims:
            self._trim(math.prod(self._weights.shape(name)))
        if type_name is None:
            return self._weights[name]
        stored = self._weights.stored(name)
        if not isinstance(stored, BlockTensor):
            return self.quantize(finite(name, stored), type_name)
        return stored if stored.type_name == type_name else self._requantized(name, stored, type_name)

    def _requantized(self, name: str, stored: BlockTensor, type_name: str) -> BlockTensor:
        """A few rows at a time: an embedding as floats may take more than all of the model."""
        num_rows, num_columns = stored.shape
        result = empty_blocks(type_name, num_rows, num_columns)
        for first in range(0, num_rows, _ROUNDED_ROWS):
            data = stored.data[first : first + _ROUNDED_ROWS]
            rows = BlockTensor(stored.type_name, (len(data), num_columns), data).dequantize()
            result.data[first : first + len(data)] = self.quantize(finite(name, rows), type_name).data
        return result

    def _trim(self, num_values: int) -> None:
        self._num_untrimmed += num_values
        if self._num_untrimmed > _TRIM_AFTER:
            self._num_untrimmed = 0
            heap.trim()

    def type_of(self, name: str) -> str | None:
        """The quantised type in which a matrix is given out; None: floats. Reads no values."""
        stored = self._weights.stored_type(name)
        if self.form == "float":
            return None
        is_eight = self.form != "int4" or name in self._eight_bits
        most_bits = _MOST_BITS["int8" if is_eight and self.form == "int4" else self.form]
        if stored in KERNEL_TYPES and bits_per_weight(stored) <= most_bits:
            return stored
        rounded = "Q8_0" if is_eight else "Q4_0"
        is_router = name.endswith(".mlp.gate.weight")
        if self.form == "native" or is_router or self._weights.shape(name)[1] % block_size(rounded):
            return None
        return rounded

    def num_bytes(self, names: Iterable[str], float_bytes: int, keeps_blocks: bool) -> int:
        """What these tensors take with whoever computes with them, before anything is read.

        float_bytes   of an element of what is not quantised
        keeps_blocks  whether quantised matrices stay so, as with the native kernels
        """
        total = 0
        for name in names:
            shape = self._weights.shape(name)
            type_name = self.type_of(name) if keeps_blocks and len(shape) == 2 else None
            num_values = math.prod(shape)
            total += (
                num_values * float_bytes
                if type_name is None
                else round(num_values * bits_per_weight(type_name) / 8)
            )
        return total


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
