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
        self._window: list[int] = []
        self._num_known = 0  # characters of decode(window) that are in `text`
        self._boundary = 0  # tokens of the window behind which a whole character ended last
        self._num_searched = 0  # characters of `text` that had been there before the last token
        self._num_taken = 0
        self._closed = False

    def push(self, token_id: int) -> None:
        """Adds one token; `text` gets the characters that are certain now."""
        assert not self._closed
        self._window.append(token_id)
        decoded = self._decode(self._window)
        num_certain = max(len(decoded.rstrip(REPLACEMENT)), len(decoded) - _UNCERTAIN)
        self._extend(decoded, num_certain)
        if num_certain == len(decoded) > 0:
            self._shrink_window()

    def close(self) -> None:
        """No token follows: what is still unfinished becomes text as it is."""
        if not self._closed:
            decoded = self._decode(self._window) if self._window else ""
            self._extend(decoded, len(decoded))
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
        end = len(self.text) if self._closed else len(self.text) - self._num_held_back()
        delta = self.text[self._num_taken : end]
        self._num_taken = max(self._num_taken, end)
        return delta

    def _extend(self, decoded: str, num_certain: int) -> None:
        self._num_searched = len(self.text)
        if num_certain > self._num_known:
            self.text += decoded[self._num_known : num_certain]
            self._num_known = num_certain

    def _shrink_window(self) -> None:
        """At the end of a whole character: drops tokens before the previous such place, if there are many."""
        if len(self._window) > _WINDOW_TOKENS:
            kept = self._window[self._boundary :]
            num_known = len(self._decode(kept))
            if num_known:  # special tokens alone are no context
                self._window, self._num_known = kept, num_known
        self._boundary = len(self._window)

    def _num_held_back(self) -> int:
        """Length of the longest end of `text` with which a stop string begins."""
        longest = 0
        for stop in self._stop:
            for length in range(min(len(stop) - 1, len(self.text)), longest, -1):
                if self.text.endswith(stop[:length]):
                    longest = length
                    break
        return longest
