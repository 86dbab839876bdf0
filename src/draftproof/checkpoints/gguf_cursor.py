"""A position in the header of a GGUF file: numbers, strings and arrays, every one bounded and within the file.

Called by `gguf`, which knows what a header is made of. Long arrays (a vocabulary, its merges) can be left as they are
stored: where they end is checked, what is in them costs nothing until it is asked for.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from draftproof.checkpoints.files import broken

MAX_ARRAY_ELEMENTS = 1 << 22
"""Over all arrays of a file; a vocabulary with its merges has fewer than a million."""
MAX_STRING_BYTES = 1 << 24
MAX_ELEMENT_BYTES = 1 << 16
"""Of a string in an array: a token, a merge; the longest published ones have hundreds."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LAYOUTS = {code: struct.Struct("<" + code) for code in _SCALARS.values()}


class ShortError(Exception):
    """The header goes on behind the bytes at hand."""


class Cursor:
    """A position in a file of `size` bytes, of which `data` are the first; every read is checked against the end.

    Arrays of more than `longest_read` elements become `StoredArray`.
    """

    def __init__(
        self,
        path: Path | str,
        data: bytes,
        size: int,
        longest_read: int = MAX_ARRAY_ELEMENTS,
    ) -> None:
        self.path = path
        self.data = data
        self.size = size
        self.longest_read = longest_read
        self.position = 0
        self.num_elements_left = MAX_ARRAY_ELEMENTS

    def take(self, num_bytes: int) -> bytes:
        if num_bytes > len(self.data) - self.position:
            raise self.end(self.position + num_bytes)
        self.position += num_bytes
        return self.data[self.position - num_bytes : self.position]

    def end(self, wanted: int) -> Exception:
        """For a read up to `wanted` that goes beyond the data."""
        if wanted <= self.size:
            return ShortError()
        return broken(self.path, f"{self.size} bytes", f"at least {wanted} bytes")

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        start, end = self.position, self.position + layout.size
        if end > len(self.data):
            raise self.end(end)
        self.position = end
        return layout.unpack_from(self.data, start)

    def scalar(self, code: str) -> Any:
        return self.numbers(_LAYOUTS[code])[0]

    def count(self, code: str, limit: int, what: str) -> int:
        number: int = self.scalar(code)
        if number > limit:
            raise broken(self.path, f"{number} {what}", f"at most {limit}")
        return number

    def string(self, limit: int) -> str:
        return self.strings(1, limit)[0]

    def strings(self, length: int, limit: int) -> list[str]:
        ends = self.ends_of_strings(length, limit)
        try:
            return [self.data[start + 8 : end].decode() for start, end in pairwise(ends)]
        except UnicodeDecodeError as error:
            raise broken(self.path, f"a string that is not UTF-8 ({error})", "UTF-8 strings") from error

    def ends_of_strings(self, length: int, limit: int) -> list[int]:
        """Where the first of `length` strings starts, and where each ends. Their text is not looked at."""
        read_length = _LAYOUTS["Q"].unpack_from
        data, num_at_hand, end = self.data, len(self.data), self.position
        ends = [end]
        try:
            for _ in range(length):
                (num_bytes,) = read_length(data, end)
                end += 8 + num_bytes
                if num_bytes > limit or end > num_at_hand:
                    if num_bytes > limit or end > self.size:
                        raise broken(
                            self.path,
                            f"a string of {num_bytes} bytes",
                            f"strings within the file, of at most {limit} bytes here",
                        )
                    raise ShortError
                ends.append(end)
        except struct.error as error:
            raise self.end(end + 8) from error
        self.position = end
        return ends

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string(MAX_STRING_BYTES)
        if kind == _ARRAY:
            return self.array()
        if kind not in _SCALARS:
            raise broken(self.path, f"metadata type {kind}", "a type of the GGUF format")
        return self.scalar(_SCALARS[kind])

    def array(self) -> list[Any] | StoredArray:
        kind = self.scalar("I")
        length = self.count("Q", self.num_elements_left, "array elements")
        self.num_elements_left -= length
        if kind != _STRING and kind not in _SCALARS:
            raise broken(self.path, f"an array of type {kind}", "an array of numbers or strings")
        if length <= self.longest_read:
            return self.elements(kind, length)
        if kind != _STRING:
            stored = self.take(length * _LAYOUTS[_SCALARS[kind]].size)
            return StoredArray(self.path, kind, length, stored)
        ends = self.ends_of_strings(length, MAX_ELEMENT_BYTES)
        return StoredArray(self.path, kind, length, self.data[ends[0] : ends[-1]])

    def elements(self, kind: int, length: int) -> list[Any]:
        if kind == _STRING:
            return self.strings(length, MAX_ELEMENT_BYTES)
        layout = f"<{length}{_SCALARS[kind]}"
        return list(struct.unpack(layout, self.take(struct.calcsize(layout))))


@dataclass(frozen=True, slots=True)
class StoredArray:
    """A long array of the metadata, as the bytes that the file has for it."""

    path: Path | str = field(repr=False)
    kind: int
    length: int
    content: bytes = field(repr=False)

    def __len__(self) -> int:
        return self.length

    def elements(self) -> list[Any]:
        """Raises DP402 for strings that are not UTF-8."""
        return Cursor(self.path, self.content, len(self.content)).elements(self.kind, self.length)
