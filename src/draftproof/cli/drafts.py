"""`--show-drafts`: what became of every drafted token, in colours on a terminal and in marks elsewhere.

Called by `generate`. Knows events and a decoder; nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from draftproof.cli import output

if TYPE_CHECKING:
    from draftproof.engine.request import StreamEvent

_NUM_CONTEXT_TOKENS = 4
"""Tokens decoded before a piece, so that a decoder which treats the start of a text apart sees none."""

_MARKS = {"accepted": ("{+", "+}"), "corrected": ("{~", "~}"), "rejected": ("[-", "-]")}


class DraftPainter:
    """Writes the pieces of each round: accepted green, corrected yellow, rejected red and struck out.

    Tokens that no draft stood for are written as they are. A character that ends in a later token is written
    with that token.
    """

    def __init__(self, decode: Callable[[list[int]], str], to_stderr: bool) -> None:
        self._decode = decode
        self._to_stderr = to_stderr
        self._coloured = output.wants_colour("stderr" if to_stderr else "stdout")
        self._context: list[int] = []
        self._pending: list[int] = []

    @property
    def legend(self) -> str:
        return (
            "drafts: " + " ".join(self._styled(name, name) for name in _MARKS) + " (the rest was not drafted)"
        )

    def paint(self, event: StreamEvent) -> None:
        """Writes one round of the request: what held, what was struck out, what stands in its place."""
        if event.draft is None:
            self._write(None, self._advance(_visible(event, event.token_ids)))
            return
        self._write("accepted", self._advance(_visible(event, event.draft.accepted)))
        self._write("rejected", self._added([*self._context, *self._pending], event.draft.rejected))
        if event.draft.correction is not None:
            self._write("corrected", self._advance(_visible(event, (event.draft.correction,))))

    def _added(self, written: list[int], token_ids: Sequence[int]) -> str:
        """What `token_ids` add to the text of `written`."""
        return self._decode([*written, *token_ids])[len(self._decode(written)) :]

    def _advance(self, token_ids: Sequence[int]) -> str:
        """Takes emitted tokens into the text so far; "" while the last character is not complete."""
        self._pending.extend(token_ids)
        text = self._added(self._context, self._pending)
        if text.endswith("\ufffd"):
            return ""
        self._context = [*self._context, *self._pending][-_NUM_CONTEXT_TOKENS:]
        self._pending = []
        return text

    def _write(self, kind: str | None, text: str) -> None:
        if text:
            click.echo(self._styled(kind, text), nl=False, err=self._to_stderr, color=self._coloured)

    def _styled(self, kind: str | None, text: str) -> str:
        if kind is None:
            return text
        if not self._coloured:
            opening, closing = _MARKS[kind]
            return f"{opening}{text}{closing}"
        colour = {"accepted": "green", "corrected": "yellow", "rejected": "red"}[kind]
        struck = True if kind == "rejected" else None
        return click.style(text, fg=colour, strikethrough=struck, dim=struck)


def _visible(event: StreamEvent, token_ids: Sequence[int]) -> Sequence[int]:
    """`token_ids` without the end-of-sequence or stop token that finished the request."""
    ends_with = event.finished.stop_reason if event.finished is not None else None
    return (
        token_ids[:-1]
        if token_ids and isinstance(ends_with, int) and token_ids[-1] == ends_with
        else token_ids
    )
