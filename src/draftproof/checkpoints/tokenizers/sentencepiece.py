"""SentencePiece's tokenizer.model: the pieces of a ModelProto, read from the wire format.

Fields and types by sentencepiece's src/sentencepiece_model.proto at 03dad83 (read 2026-11): `pieces` is field 1 of the
model; of a piece, 1 is its text, 2 its score, 3 its type. The id is its place. Everything else is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.checkpoints.tokenizers.base import MAX_TOKENS, Base
from draftproof.checkpoints.vocabulary import bytes_of_token

_PIECES = 1
_TEXT, _TYPE = 1, 3
_NORMAL, _UNKNOWN, _CONTROL, _UNUSED = 1, 2, 3, 5
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_MAX_FIELDS = MAX_TOKENS + (1 << 10)
"""Of a model; it has a handful beside its pieces."""
_MAX_PIECE_FIELDS = 1 << 6


def looks_like_it(content: bytes) -> bool:
    """Whether the file begins with a piece, as all that SentencePiece writes do."""
    return content[:1] == b"\x0a"


def parse(content: bytes) -> Base:
    """Raises ValueError for anything that is no list of pieces."""
    tokens: dict[int, bytes] = {}
    special: set[int] = set()
    ids: dict[str, int] = {}
    token_id = 0
    for number, value in _fields(content, _MAX_FIELDS):
        if number != _PIECES or not isinstance(value, bytes):
            continue
        if token_id == MAX_TOKENS:
            raise ValueError(f"more than {MAX_TOKENS} pieces")
        text, kind = _piece(value)
        ids.setdefault(text, token_id)
        if kind in (_CONTROL, _UNKNOWN):
            special.add(token_id)
            tokens[token_id] = text.encode()
        elif kind != _UNUSED:
            tokens[token_id] = bytes_of_token(text, False)
        token_id += 1
    if not token_id:
        raise ValueError("no pieces")
    return Base(tokens, special, ids, is_byte_level=False)


def _piece(message: bytes) -> tuple[str, int]:
    text, kind = "", _NORMAL
    for number, value in _fields(message, _MAX_PIECE_FIELDS):
        if number == _TEXT and isinstance(value, bytes):
            text = value.decode()
        elif number == _TYPE and isinstance(value, int):
            kind = value
    return text, kind


def _fields(message: bytes, limit: int) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: an int, or the bytes of whatever has a length or a fixed width."""
    position, end, num_left = 0, len(message), limit
    while position < end:
        num_left -= 1
        if num_left < 0:
            raise ValueError(f"more than {limit} fields")
        key, position = _varint(message, position)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        if wire == _BYTES:
            length, position = _varint(message, position)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {position}")
        if length > end - position:
            raise ValueError(f"a field of {length} bytes, of which {end - position} are there")
        yield number, message[position : position + length]
        position += length


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """The number at `position` and the position behind it."""
    if position < len(message) and message[position] < 0x80:
        return message[position], position + 1
    value = shift = 0
    for byte in message[position : position + _MAX_VARINT_BYTES]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError(f"a number that does not end at byte {position}")
