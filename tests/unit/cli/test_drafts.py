"""Colours of --show-drafts, and characters that span several tokens."""

from collections.abc import Sequence

import pytest

from draftproof.cli.drafts import DraftPainter
from draftproof.core.cost import SpeculationStats
from draftproof.engine.request import RequestOutput, RoundDraft, StreamEvent


def decode_bytes(token_ids: Sequence[int]) -> str:
    """Every token is one byte, so a character can end in a later token."""
    return bytes(token_ids).decode(errors="replace")


def event(
    accepted: bytes = b"", correction: bytes = b"", rejected: bytes = b"", drafted: bool = True
) -> StreamEvent:
    draft = RoundDraft(
        accepted=tuple(accepted), correction=next(iter(correction), None), rejected=tuple(rejected)
    )
    return StreamEvent(
        req_id="r", text="", token_ids=(*accepted, *correction), draft=draft if drafted else None
    )


def painted(capsys: pytest.CaptureFixture[str], *events: StreamEvent) -> str:
    painter = DraftPainter(decode_bytes, to_stderr=False)
    for one in events:
        painter.paint(one)
    return capsys.readouterr().out


def test_marks_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = painted(
        capsys, event(correction=b"a", drafted=False), event(b"bc", b"d", b"xyz"), event(b"", b"e", b"q")
    )
    assert shown == "a{+bc+}[-xyz-]{~d~}[-q-]{~e~}"


def test_colours_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftproof.cli.output.is_terminal", lambda stream: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert painted(capsys, event(b"ok", b"d", b"no")) == (
        "\x1b[32mok\x1b[0m\x1b[31m\x1b[2m\x1b[9mno\x1b[0m\x1b[33md\x1b[0m"
    )
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted(capsys, event(b"ok", b"d", b"no")) == "{+ok+}[-no-]{~d~}"


def test_a_character_is_written_with_the_token_that_completes_it(capsys: pytest.CaptureFixture[str]) -> None:
    encoded = "ü".encode()
    shown = painted(capsys, event(b"a" + encoded[:1], encoded[1:]), event(b"b", b"c"))
    assert shown == "{~aü~}{+b+}{~c~}"


def test_the_end_token_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    finished = RequestOutput(
        req_id="r",
        token_ids=(97, 0),
        text="a",
        finish_reason="stop",
        stop_reason=0,
        prompt_tokens=1,
        completion_tokens=2,
        prefill_s=0.0,
        decode_s=0.0,
        stats=SpeculationStats(),
        seed=0,
    )
    draft = RoundDraft(accepted=(97,), correction=0, rejected=())
    painter = DraftPainter(decode_bytes, to_stderr=False)
    painter.paint(StreamEvent(req_id="r", text="a", token_ids=(97, 0), draft=draft, finished=finished))
    assert capsys.readouterr().out == "{+a+}"
