"""The fast path: a decoder's whole forward pass in our own C++ kernels, without PyTorch's operators.

The C++ sources in `kernels/` travel with the package and are compiled on first use (`core/compilation.py`; how and why:
`docs/kernels.md`, `docs/adr/0003-native-kernels.md`). Used by `models.loading` and by the commands that report
which kernels run.
"""

from draftproof.models.native.library import Status, quantize, status
from draftproof.models.native.linear import NativeLinear
from draftproof.models.native.model import MAX_THREADS, NativeModel

__all__ = [
    "MAX_THREADS",
    "NativeLinear",
    "NativeModel",
    "Status",
    "quantize",
    "status",
]
