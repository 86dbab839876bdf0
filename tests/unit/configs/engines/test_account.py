"""The account: a deployment taken apart and put together, one note per setting."""

from __future__ import annotations

import pytest

from draftproof.configs.engines.account import Account, build, said, shown
from draftproof.configs.engines.base import Default, NoteKind
from draftproof.configs.speculation import BatchRange, Deployment, LookUp, ModelRef, Speculation, Tree

FULL = Deployment(
    engine="sglang",
    version="0.5.23",
    target=ModelRef(name="t", revision="main"),
    dtype="bfloat16",
    prefix_caching=False,
    speculation=Speculation(
        method="eagle3",
        drafter=ModelRef(name="d", quantization="fp8"),
        tree=Tree(depth=3, branching=2, num_nodes=5),
        lookup=LookUp(max_ngram=4),
        schedule=(BatchRange(low=1, high=8, depth=3), BatchRange(low=9, high=None, depth=0)),
        extras={"sglang.token-map": "m.pt"},
    ),
    extras={"sglang.env": {"A": "1"}},
    rest=("--host", "0.0.0.0"),
)


def test_apart_and_together() -> None:
    assert build("sglang", said(FULL), "0.5.23") == FULL
    empty = Deployment(engine="sglang")
    assert said(empty) == {"speculation.method": "none"}
    assert build("sglang", said(empty)) == empty
    assert said(FULL)["speculation.extras.sglang.token-map"] == "m.pt"
    assert said(FULL)["target"] == "t"


def test_every_said_setting_gets_one_note() -> None:
    account = Account(FULL, "Some engine")
    account.kept("target", "--model t")
    account.converted("speculation.schedule", "…", "other bounds")
    with pytest.raises(AssertionError):
        account.kept("target", "again")
    notes = account.finish()
    assert [note.setting for note in notes].count("target") == 1
    assert {note.setting for note in notes} == set(said(FULL))
    by_name = {note.setting: note for note in notes}
    assert by_name["dtype"].kind is NoteKind.DROPPED
    assert "Some engine" in by_name["dtype"].reason
    assert "sglang" in by_name["speculation.extras.sglang.token-map"].reason
    assert by_name["speculation.schedule"].before == "1–8: 3, 9–…: 0"


def test_defaults_of_the_source_are_offered_and_noted_where_written() -> None:
    depth = "speculation.depth"
    implied = Default(setting=depth, value=3, reason="3 steps")
    account = Account(
        Deployment(engine="sglang"),
        "Some engine",
        [implied, Default(setting="max_num_seqs", value=48, reason="every algorithm but UNO")],
    )
    assert account.value(depth) == 3
    assert not account.is_said(depth)
    assert account.value("max_num_seqs") is None
    account.kept(depth, "max_draft_len: 3")
    notes = {note.setting: note for note in account.finish()}
    assert set(notes) == {depth, "speculation.method"}
    assert notes[depth].kind is NoteKind.CONVERTED
    assert "not said, and sglang takes 3" in notes[depth].reason


def test_a_cascade_is_shown_by_what_its_parts_say() -> None:
    assert shown((Speculation(method="ngram", depth=3),)) == '[{"method": "ngram", "depth": 3}]'
