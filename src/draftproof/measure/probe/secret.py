"""The key of an endpoint: sent in one header, and nowhere else.

Called by the client. A key comes from an environment variable alone. It has no text form, is part of no error, and is
cut out of whatever a server sends back, should it echo it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus

from draftproof.configs.providers.model import Auth
from draftproof.core.errors import DraftproofError

HIDDEN = "[key]"

_MIN_PIECE = 8
"""Characters of a key that betray enough of it to be hidden; shorter pieces are ordinary words."""
_GRAM = 4
_STRIDE = _MIN_PIECE - _GRAM + 1
"""Whatever piece there is, one of its grams begins at a multiple of this: no other place has to be looked at."""


class ApiKey:
    """A key that cannot be printed. `None` in place of one: nothing is sent."""

    __slots__ = ("_forms", "_grams", "_pieces", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        basic = base64.b64encode(value.encode()).decode().rstrip("=")
        forms = {value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1], basic}
        self._forms = sorted(forms, key=len, reverse=True)
        self._pieces, self._grams = (
            {form[at : at + length] for form in forms for at in range(len(form) - length + 1)}
            for length in (_MIN_PIECE, _GRAM)
        )

    def __repr__(self) -> str:
        return "ApiKey()"

    def __reduce__(self) -> str:
        raise TypeError("a key is not stored")

    def header(self, auth: Auth) -> dict[str, str]:
        return {"api-key": self._value} if auth == "api-key" else {"Authorization": f"Bearer {self._value}"}

    def scrub(self, text: str) -> str:
        """`text` without the key, without its encoded forms, and without any piece of eight characters of it."""
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        kept, done = [], 0
        for start, end in self._places(text):
            kept += [text[done:start], HIDDEN]
            done = end
        return "".join([*kept, text[done:]])

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        """Where pieces stand, those that overlap taken together."""
        start = end = -1
        grams = self._grams
        for near in [at for at in range(0, len(text), _STRIDE) if text[at : at + _GRAM] in grams]:
            for at in range(max(near - _STRIDE + 1, start + 1, 0), near + 1):
                if text[at : at + _MIN_PIECE] not in self._pieces:
                    continue
                if at > end:
                    if end > 0:
                        yield start, end
                    start = at
                end = at + _MIN_PIECE
        if end > 0:
            yield start, end


def key_from_environment(variable: str, environment: Mapping[str, str]) -> ApiKey:
    """The key in `variable`. Raises DP126 if there is none, or one that no header can carry; never shows it."""
    value = environment.get(variable, "").strip()
    if not value:
        raise DraftproofError(
            "DP126",
            "--api-key-env",
            f"no key in the environment variable {variable}",
            "the name of a variable that holds the key",
            f"Set it for this command, for example: {variable}=… draftproof probe …",
        )
    if not value.isascii() or not value.isprintable() or " " in value:
        raise DraftproofError(
            "DP126",
            "--api-key-env",
            f"{variable} holds blanks or characters outside ASCII",
            "a key in one line of ASCII",
            "Check how the variable was set; a line end or quotes may be part of it.",
        )
    return ApiKey(value)
