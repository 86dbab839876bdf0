"""Weight × rows, the one place where precision and kernels of a linear layer are decided.

Built by `decoder.py` (and, behind the same Protocol, by `native`). Knows no layers and no sequences.

PyTorch's own `F.linear` is not usable here: in float32 it picks another kernel, with other bits, for 2 or 3 rows
than for 4 and more. oneDNN's prepacked product gives a row the same bits from 2 rows on, and another one for a
single row (seen from K = 64 on); so a single row is never fed, and long passes are cut into tiles of a length
that was tested.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from draftproof.core.errors import DraftproofError

MIN_ROWS = 2
"""Below, oneDNN uses a matrix-vector kernel that sums in another order."""

MAX_ROWS = 256
"""Rows per call; the contract suite checks up to this number."""


class Linear(Protocol):
    """y = x · Wᵀ + b. The bits of a row of y depend on that row of x alone, however many rows there are."""

    num_inputs: int
    num_outputs: int

    def __call__(self, x: Tensor) -> Tensor:
        """x float32 [num_rows, num_inputs] → float32 [num_rows, num_outputs]; num_rows may be 0."""
        ...


class PackedLinear:
    """oneDNN's prepacked product. `dtype` says how weights and rows enter the product; sums are float32.

    float32:  as it is.
    bfloat16: rows are rounded to bfloat16 before and after. Where the processor multiplies bfloat16 in one order for
              any number of rows, weights are packed as such. Elsewhere the bfloat16 values are held in float32: the
              same products and roundings, twice the memory.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        """weight [num_outputs, num_inputs], bias [num_outputs] or None; both are copied."""
        assert weight.dim() == 2
        assert dtype in (torch.float32, torch.bfloat16)
        require_onednn()
        self.num_outputs, self.num_inputs = weight.shape
        self.dtype = dtype
        self._product_dtype = dtype
        if dtype == torch.bfloat16 and not has_steady_bfloat16():
            self._product_dtype = torch.float32
        self._bias = None if bias is None else bias.float()
        stored = weight.to(dtype).to(self._product_dtype).contiguous()
        # The number of rows that oneDNN shall expect; for 1 it would choose a layout made for vectors.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(stored, MIN_ROWS)

    def __call__(self, x: Tensor) -> Tensor:
        assert x.dim() == 2
        assert x.shape[1] == self.num_inputs
        assert x.dtype == torch.float32
        num_rows = x.shape[0]
        if num_rows == 0:
            return x.new_empty((0, self.num_outputs))
        if num_rows > MAX_ROWS:
            return torch.cat([self(tile) for tile in torch.split(x, MAX_ROWS)])
        rows = x.to(self.dtype).to(self._product_dtype)  # [num_rows, num_inputs]
        if num_rows < MIN_ROWS:
            rows = rows.expand(MIN_ROWS, -1)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows.contiguous(), self._packed, None, "none", [], ""
        )
        product = product[:num_rows].to(self.dtype).float()  # [num_rows, num_outputs]
        return product if self._bias is None else product + self._bias


def has_native_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 by itself (AVX-512 BF16, AMX or the like)."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_steady_bfloat16() -> bool:
    """Whether oneDNN's bfloat16 products sum a row in one order for any number of rows.

    With AVX-512 BF16 they do. With AMX the order depends on the number of rows where rows are long (seen on an Intel
    Xeon with PyTorch 2.13).
    """
    return has_native_bfloat16() and not torch.cpu._is_amx_tile_supported()


def require_onednn() -> None:
    """Raises DP703 where this build of PyTorch lacks the products that the promise of equal bits rests on."""
    if not torch._C._has_mkldnn:
        raise DraftproofError(
            "DP703",
            "device",
            "a PyTorch without oneDNN",
            "a build with oneDNN, as on the package index",
            "Install the official torch package.",
        )
