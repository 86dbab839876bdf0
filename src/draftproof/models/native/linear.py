"""One packed weight matrix behind the interface of `models.linear`; the contract suite runs on it."""

from __future__ import annotations

import ctypes
import weakref

import torch
from torch import Tensor

from draftproof.models.blocks import BlockTensor
from draftproof.models.native.library import address, check, library, source_of


class NativeLinear:
    """y = x Wᵀ + b with the bits that the kernels promise, for any number of rows or threads.

    weight [num_outputs, num_inputs] floats, packed as `dtype` (float32 or bfloat16), or blocks of one of
    `KERNEL_TYPES`, kept as they are; bias [num_outputs] or None.
    """

    def __init__(
        self,
        weight: Tensor | BlockTensor,
        bias: Tensor | None = None,
        dtype: torch.dtype = torch.bfloat16,
        num_threads: int = 1,
    ) -> None:
        assert len(weight.shape) == 2
        assert 0 not in weight.shape
        assert dtype in (torch.float32, torch.bfloat16)
        assert num_threads >= 1
        self.num_outputs, self.num_inputs = weight.shape
        self.dtype = dtype
        source, source_type = source_of(weight)
        bias32 = None if bias is None else bias.float().contiguous()
        assert bias32 is None or bias32.shape == (self.num_outputs,)
        handle = ctypes.c_void_p()
        check(
            library().dp_linear_new(
                self.num_inputs,
                self.num_outputs,
                address(source),
                source_type,
                dtype == torch.bfloat16,
                None if bias32 is None else address(bias32),
                num_threads,
                ctypes.byref(handle),
            )
        )
        self._handle = handle
        weakref.finalize(self, library().dp_linear_free, handle)

    def __call__(self, x: Tensor) -> Tensor:
        """x float32 [num_rows, num_inputs] → float32 [num_rows, num_outputs]."""
        return self._apply(x, reference=False)

    def reference(self, x: Tensor) -> Tensor:
        """The same product by the slow scalar code that defines its bits; for tests."""
        return self._apply(x, reference=True)

    def weights_of(self, output: int) -> Tensor:
        """One row of the weight, [num_inputs] float32, as an embedding reads it."""
        row = torch.empty(self.num_inputs, dtype=torch.float32)
        library().dp_linear_read_channel(self._handle, output, address(row))
        return row

    def _apply(self, x: Tensor, reference: bool) -> Tensor:
        assert x.dtype == torch.float32
        assert x.shape == (x.shape[0], self.num_inputs)
        x = x.contiguous()
        out = torch.empty((x.shape[0], self.num_outputs), dtype=torch.float32)
        check(library().dp_linear_apply(self._handle, address(x), x.shape[0], address(out), reference))
        return out
