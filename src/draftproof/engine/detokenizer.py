"""Token ids to text, one token after the other, for streaming and for stop strings.

Owned by `Sequence`, which pushes every emitted token. Knows no tokenizer: only `decode`, a function from
token ids to text without special tokens. Tokens may split characters, and what looks like a broken
character may be an unfinished one, so only text that later tokens cannot change counts as known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"

_WINDOW_TOKENS = 12
"""Tokens decoded again with each new one: decoders drop spaces at the start, so left context is needed."""

_UNCERTAIN = 32
"""Replacements at the end that may still become characters. One unfinished character is at most three bytes, but
decoders with one token per byte show all of a window's neighbouring bytes as replacements until they fit."""

_LONGEST_WINDOW = 128
"""Tokens above which a window is cut also where no character ends, for a text of broken bytes has no such place."""


class Detokenizer:
    """The text of one output. `text` only grows, until `match_stop` cuts it.

    Feeding token by token is all there is: however tokens arrive in runs, the text is the same. It is the
    decoded whole, but for broken bytes beside byte tokens under decoders that then give up their neighbours too:
    what was streamed stays.
    """

    def __init__(self, decode: Callable[[list[int]], str], stop: Sequence[str] = ()) -> None:
        self.text = ""
        self._decode = decode
        self._stop = tuple(stop)
        self._beginnings = [_Beginning(each) for each in stop]
        self._window: list[int] = []
        self._decoded = ""  # what the window says
        self._num_known = 0  # characters of decode(window) that are in `text`
        self._boundary = 0  # tokens of the window behind which a whole character ended last
        self._num_searched = 0  # characters of `text` that had been there before the last token
        self._num_taken = 0
        self._closed = False

    def push(self, token_id: int) -> None:
        """Adds one token; `text` gets the characters that are certain now."""
        assert not self._closed
        self._window.append(token_id)
        before, self._decoded = self._decoded, self._decode(self._window)
        if self._decoded == before and not self._decode([token_id, token_id]):
            self._window.pop()  # a special token, of which there may be thousands
        num_certain = max(len(self._decoded.rstrip(REPLACEMENT)), len(self._decoded) - _UNCERTAIN)
        self._extend(num_certain)
        if num_certain == len(self._decoded) > 0:
            self._shrink_window()
        elif len(self._window) > _LONGEST_WINDOW:
            self._cut_window()

    def close(self) -> None:
        """No token follows: what is still unfinished becomes text as it is."""
        if not self._closed:
            self._extend(len(self._decoded))
            self._closed = True

    def abandon(self) -> None:
        """No token follows, and what is unfinished is left out: the decoder is not asked again."""
        self._closed = True

    def match_stop(self) -> str | None:
        """The stop string that the last `push` or `close` completed, or None. A match cuts `text` before it.

        Of several, the one that starts first counts; of those that start together, the one named first.
        """
        matches = []
        for order, stop in enumerate(self._stop):
            # Only what ends in new text; what ended earlier was found then, or came before min_tokens.
            start = self.text.find(stop, max(0, self._num_searched - len(stop) + 1))
            if start >= 0:
                matches.append((start, order))
        if not matches:
            return None
        start, order = min(matches)
        assert self._num_taken <= start, "part of a stop string was streamed"
        self.text = self.text[:start]
        self._closed = True
        return self._stop[order]

    def take_delta(self) -> str:
        """Text not taken before. Before the end, what may be the beginning of a stop string is held back."""
        num_held_back = max((each.length for each in self._beginnings), default=0)
        end = len(self.text) if self._closed else len(self.text) - num_held_back
        delta = self.text[self._num_taken : end]
        self._num_taken = max(self._num_taken, end)
        return delta

    def _extend(self, num_certain: int) -> None:
        self._num_searched = len(self.text)
        if num_certain > self._num_known:
            news = self._decoded[self._num_known : num_certain]
            self.text += news
            self._num_known = num_certain
            for beginning in self._beginnings:
                beginning.follow(news)

    def _shrink_window(self) -> None:
        """At the end of a whole character: drops tokens before the previous such place, if there are many."""
        if len(self._window) > _WINDOW_TOKENS:
            kept = self._window[self._boundary :]
            decoded = self._decode(kept)
            if decoded:  # special tokens alone are no context
                self._window, self._decoded, self._num_known = kept, decoded, len(decoded)
        self._boundary = len(self._window)

    def _cut_window(self) -> None:
        """Where no character ends: keeps half of the tokens, if what they say does not depend on the others."""
        kept = self._window[-_LONGEST_WINDOW // 2 :]
        decoded = self._decode(kept)
        num_dropped = len(self._decoded) - len(decoded)
        if self._decoded.endswith(decoded) and num_dropped <= self._num_known:
            self._window, self._decoded, self._boundary = kept, decoded, 0
            self._num_known -= num_dropped


class _Beginning:
    """How much of a stop string the end of a growing text begins with, less than all of it (Knuth, Morris and Pratt
    1977). It takes a step per character of the text, however long the stop string is."""

    __slots__ = ("_shorter", "_stop", "length")

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self._shorter = [0]
        """By length - 1 of a beginning: the next shorter one that it ends with."""
        self.length = 0
        for char in stop[1:]:
            self._take(char)
            self._shorter.append(self.length)
        self.length = 0

    def follow(self, text: str) -> None:
        for char in text:
            self._take(char)
            if self.length == len(self._stop):
                self.length = self._shorter[-1]

    def _take(self, char: str) -> None:
        while self.length and self._stop[self.length] != char:
            self.length = self._shorter[self.length - 1]
        self.length += self._stop[self.length] == char
