"""A position in the header of a GGUF file: numbers, strings and arrays, every one bounded and within the file.

Called by `gguf`, which knows what a header is made of. Long arrays (a vocabulary, its merges) can be left as they are
stored: where they end is checked, what is in them costs nothing until it is asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from draftproof.checkpoints.files import broken
from draftproof.core.errors import DraftproofError

MAX_ARRAY_ELEMENTS = 1 << 22
"""Over all arrays of a file; a vocabulary with its merges has fewer than a million."""
MAX_STRING_BYTES = 1 << 24
MAX_ELEMENT_BYTES = 1 << 16
"""Of a string in an array: a token, a merge; the longest published ones have hundreds."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
LENGTH = struct.Struct("<Q")
"""Of a string, before it."""
_LAYOUTS = {code: struct.Struct("<" + code) for code in _SCALARS.values()}


class Cursor:
    """A position in a file of `size` bytes, of which `data` are the first; every read is checked against the end.

    `more` gives what follows the bytes at hand, whose number it is told. Arrays of more than `longest_read` elements
    become `StoredArray`.
    """

    def __init__(
        self,
        path: Path | str,
        data: bytes,
        size: int,
        longest_read: int = MAX_ARRAY_ELEMENTS,
        more: Callable[[int], bytes] = lambda num_at_hand: b"",
    ) -> None:
        self.path = path
        self.data = data
        self.size = size
        self.longest_read = longest_read
        self.position = 0
        self.num_elements_left = MAX_ARRAY_ELEMENTS
        self._more = more

    def reach(self, end: int) -> bytes:
        """The bytes at hand, `end` of them or more. Raises DP402 where the file has fewer."""
        if end > self.size:
            raise broken(self.path, f"{self.size} bytes", f"at least {end} bytes")
        while end > len(self.data):
            self.data += self._more(len(self.data))
        return self.data

    def take(self, num_bytes: int) -> bytes:
        data = self.reach(self.position + num_bytes)
        self.position += num_bytes
        return data[self.position - num_bytes : self.position]

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        start = self.position
        data = self.reach(start + layout.size)
        self.position += layout.size
        return layout.unpack_from(data, start)

    def scalar(self, code: str) -> Any:
        return self.numbers(_LAYOUTS[code])[0]

    def count(self, code: str, limit: int, what: str) -> int:
        number: int = self.scalar(code)
        if number > limit:
            raise broken(self.path, f"{number} {what}", f"at most {limit}")
        return number

    def string(self, limit: int) -> str:
        (num_bytes,) = self.numbers(LENGTH)
        if num_bytes > limit or num_bytes > self.size - self.position:
            raise self._too_long(num_bytes, limit)
        return self.text([self.take(num_bytes)])[0]

    def text(self, strings: list[bytes]) -> list[str]:
        """Raises DP402 for bytes that are not UTF-8."""
        try:
            texts = b"\n".join(strings).decode().split("\n")  # at once: there are 150,000 and more
            return texts if len(texts) == len(strings) else [string.decode() for string in strings]
        except UnicodeDecodeError as error:
            raise broken(self.path, f"a string that is not UTF-8 ({error})", "UTF-8 strings") from error

    def strings(self, num: int, limit: int) -> list[str]:
        ends = self.ends_of_strings(num, limit)
        return self.text([self.data[start + LENGTH.size : end] for start, end in pairwise(ends)])

    def ends_of_strings(self, num: int, limit: int) -> list[int]:
        """Where the first of `num` strings starts, and where each ends. Their text is not looked at."""
        read_length, before, ends, end = LENGTH.unpack_from, LENGTH.size, [self.position], self.position
        while len(ends) <= num:
            data = self.reach(end + before)
            with suppress(struct.error):  # the next length is not at hand
                for _ in range(num + 1 - len(ends)):
                    (num_bytes,) = read_length(data, end)
                    if num_bytes > limit:
                        raise self._too_long(num_bytes, limit)
                    end += before + num_bytes
                    ends.append(end)
        self.reach(end)
        self.position = end
        return ends

    def _too_long(self, num_bytes: int, limit: int) -> DraftproofError:
        expected = f"strings within the file, of at most {limit} bytes here"
        return broken(self.path, f"a string of {num_bytes} bytes", expected)

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
