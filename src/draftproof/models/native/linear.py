"""One packed weight matrix behind the interface of `models.linear`; the contract suite runs on it."""

from __future__ import annotations

import ctypes
import weakref

import torch
from torch import Tensor

from draftproof.models.native.library import SOURCE_TYPES, address, check, library


class NativeLinear:
    """y = x Wᵀ + b with the bits that `kernels/matrix.h` promises, for any number of rows or threads.

    weight [num_outputs, num_inputs] float32, bfloat16 or float16, packed as `dtype` (float32 or bfloat16);
    bias [num_outputs] or None.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        dtype: torch.dtype = torch.bfloat16,
        num_threads: int = 1,
    ) -> None:
        assert weight.dim() == 2
        assert weight.numel() > 0
        assert dtype in (torch.float32, torch.bfloat16)
        assert num_threads >= 1
        self.num_outputs, self.num_inputs = weight.shape
        self.dtype = dtype
        source = weight.contiguous() if weight.dtype in SOURCE_TYPES else weight.float().contiguous()
        bias32 = None if bias is None else bias.float().contiguous()
        assert bias32 is None or bias32.shape == (self.num_outputs,)
        handle = ctypes.c_void_p()
        check(
            library().dp_linear_new(
                self.num_inputs,
                self.num_outputs,
                address(source),
                SOURCE_TYPES[source.dtype],
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

    def _apply(self, x: Tensor, reference: bool) -> Tensor:
        assert x.dtype == torch.float32
        assert x.shape == (x.shape[0], self.num_inputs)
        x = x.contiguous()
        out = torch.empty((x.shape[0], self.num_outputs), dtype=torch.float32)
        check(library().dp_linear_apply(self._handle, address(x), x.shape[0], address(out), reference))
        return out
