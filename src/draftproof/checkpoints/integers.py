"""Values of small integer tensors, without a tensor library. Called by the views for d2t and t2d."""

from __future__ import annotations

import array
import sys
from collections.abc import Callable

from draftproof.checkpoints.files import broken

_CODES = {
    "BOOL": "B",
    "U8": "B",
    "I8": "b",
    "I16": "h",
    "U16": "H",
    "I32": "i",
    "U32": "I",
    "I64": "q",
    "U64": "Q",
}


def unpack_integers(
    label: str, dtype: str, num_bytes: int, limit: int, read: Callable[[], bytes]
) -> list[int] | None:
    """The values of a tensor of `num_bytes` in order, booleans as 0 and 1; None for more than `limit` of them.

    Raises DP402 for a tensor that does not hold integers; `read` gets the tensor's bytes.
    """
    code = _CODES.get(dtype)
    if code is None:
        raise broken(label, f"values of type {dtype}", "whole numbers or booleans")
    values = array.array(code)
    if num_bytes > limit * values.itemsize:
        return None
    values.frombytes(read())
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
