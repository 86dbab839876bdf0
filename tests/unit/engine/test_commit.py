"""`Sequence.commit`: where an output ends, at every offset of an accepted run, alone and in combination."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Any

import pytest

from draftproof.core.errors import DraftproofError
from draftproof.core.params import SamplingParams
from draftproof.engine.request import Request, RequestOutput
from draftproof.engine.sequence import Sequence
from draftproof.ops.logprobs import TokenLogprobs

EOS = 0
STOP = 1
RUN = "abcdefgh"
OFFSETS = range(len(RUN))


def decode(ids: list[int]) -> str:
    """A token is a byte; 0 to 3 are special."""
    return bytes(token for token in ids if token > 3).decode("utf-8", "replace")


def sequence_of(prompt: Seq[int] = (9, 9), max_total: int = 100, **values: Any) -> Sequence:
    request = Request(req_id="r", prompt_token_ids=tuple(prompt), params=SamplingParams(**values))
    return Sequence(
        request, seed=7, depth=8, max_total=max_total, decode=decode, eos_token_ids=frozenset({EOS, 2})
    )


def commit(sequence: Sequence, run: Seq[int]) -> list[int]:
    logprobs = None
    if sequence.request.params.logprobs is not None:
        logprobs = [TokenLogprobs(token, -1.0, 1, ()) for token in run]
    return sequence.commit(run, len(run) - 1, logprobs)


def run_with(offset: int, token: int) -> list[int]:
    run = list(RUN.encode())
    run[offset] = token
    return run


def check_invariants(sequence: Sequence) -> RequestOutput:
    """What holds for every finished output."""
    output = sequence.output()
    assert output.completion_tokens == len(output.token_ids) == sequence.num_output
    assert tuple(sequence.token_ids) == sequence.request.prompt_token_ids + output.token_ids
    if output.logprobs is not None:
        assert [entry.token_id for entry in output.logprobs] == list(output.token_ids)
    assert output.prefill_s >= 0
    assert output.decode_s >= 0
    return output


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize(("token", "values"), [(EOS, {}), (2, {}), (STOP, {"stop_token_ids": [STOP]})])
def test_eos_or_a_stop_token_at_any_offset(offset: int, token: int, values: dict[str, Any]) -> None:
    sequence = sequence_of(logprobs=0, **values)
    run = run_with(offset, token)
    assert commit(sequence, run) == run[: offset + 1]
    output = check_invariants(sequence)
    assert (output.finish_reason, output.stop_reason) == ("stop", token)
    assert output.text == RUN[:offset]
    assert output.token_ids == tuple(run[: offset + 1])


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_stop_token_with_text_is_not_in_the_text(offset: int) -> None:
    sequence = sequence_of(stop_token_ids=[ord("Z")])
    assert len(commit(sequence, run_with(offset, ord("Z")))) == offset + 1
    assert check_invariants(sequence).text == RUN[:offset]


@pytest.mark.parametrize("offset", OFFSETS)
def test_ignored_eos_and_foreign_special_tokens_end_nothing(offset: int) -> None:
    sequence = sequence_of(ignore_eos=True)
    assert commit(sequence, run_with(offset, EOS)) == run_with(offset, EOS)
    assert sequence.finish_reason is None
    assert commit(sequence, run_with(offset, STOP)) == run_with(offset, STOP)
    assert sequence.finish_reason is None


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_stop_string_completed_at_any_offset(offset: int, length: int) -> None:
    """With `length` > `offset` + 1 it begins in the run before."""
    sequence = sequence_of(stop=["XYZ"[:length]], logprobs=0)
    before = b"zX" if length == 3 else b"zz"
    text = (before + RUN.encode()).decode()
    place = len(before) + offset + 1
    text = text[: place - length] + "XYZ"[:length] + text[place:]
    tokens = list(text.encode())
    if length > place:
        pytest.skip("does not fit")
    emitted = commit(sequence, tokens[:2]) + commit(sequence, tokens[2:])
    assert emitted == tokens[:place]
    output = check_invariants(sequence)
    assert (output.finish_reason, output.stop_reason) == ("stop", "XYZ"[:length])
    assert output.text == text[: place - length]


@pytest.mark.parametrize("max_tokens", range(1, len(RUN) + 1))
def test_max_tokens_at_any_offset(max_tokens: int) -> None:
    sequence = sequence_of(max_tokens=max_tokens, logprobs=0)
    assert commit(sequence, list(RUN.encode())) == list(RUN.encode())[:max_tokens]
    output = check_invariants(sequence)
    assert (output.finish_reason, output.stop_reason) == ("length", None)
    assert output.text == RUN[:max_tokens]


@pytest.mark.parametrize("room", range(1, len(RUN) + 1))
def test_the_context_ends_at_any_offset(room: int) -> None:
    sequence = sequence_of(max_total=2 + room, max_tokens=50)
    assert len(commit(sequence, list(RUN.encode()))) == room
    assert check_invariants(sequence).finish_reason == "length"


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("min_tokens", range(len(RUN) + 1))
@pytest.mark.parametrize("what", ["eos", "stop token", "stop string"])
def test_no_stop_before_min_tokens(offset: int, min_tokens: int, what: str) -> None:
    values: dict[str, Any] = {
        "eos": {},
        "stop token": {"stop_token_ids": [STOP]},
        "stop string": {"stop": [RUN[offset]]},
    }[what]
    run = {"eos": run_with(offset, EOS), "stop token": run_with(offset, STOP)}.get(what, list(RUN.encode()))
    sequence = sequence_of(min_tokens=min_tokens, max_tokens=len(RUN), logprobs=0, **values)
    stops = offset >= min_tokens  # the token at `offset` comes after `offset` others
    assert commit(sequence, run) == (run[: offset + 1] if stops else run)
    output = check_invariants(sequence)
    assert output.finish_reason == ("stop" if stops else "length")
    assert output.text == (RUN[:offset] if stops else decode(run))


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_stop_at_the_last_allowed_token_counts_as_stop(offset: int) -> None:
    for values, run in [
        ({}, run_with(offset, EOS)),
        ({"stop_token_ids": [STOP]}, run_with(offset, STOP)),
        ({"stop": [RUN[offset]]}, list(RUN.encode())),
    ]:
        sequence = sequence_of(max_tokens=offset + 1, **values)
        commit(sequence, run)
        assert check_invariants(sequence).finish_reason == "stop"


def test_a_stop_string_inside_one_token_cuts_the_text_within_the_token() -> None:
    request = Request(req_id="r", prompt_token_ids=(1,), params=SamplingParams(stop=("##",)))
    sequence = Sequence(
        request,
        seed=0,
        depth=4,
        max_total=50,
        decode=lambda ids: "".join(["one", " t##wo", " three"][token] for token in ids),
        eos_token_ids=frozenset(),
    )
    assert sequence.commit([0, 1, 2], 2) == [0, 1]
    assert check_invariants(sequence).text == "one t"


def test_a_stop_string_is_not_looked_for_in_the_prompt() -> None:
    sequence = sequence_of(prompt=list(b"ab"), stop=["bc", "ab"])
    assert commit(sequence, list(b"cab")) == list(b"cab")
    assert check_invariants(sequence).text == "c"


def test_a_stop_string_that_ends_in_a_broken_character_is_found_at_the_end() -> None:
    sequence = sequence_of(stop=["a\ufffd"], max_tokens=2)
    commit(sequence, [ord("a"), 0xC3])
    output = check_invariants(sequence)
    assert (output.text, output.finish_reason, output.stop_reason) == ("", "stop", "a\ufffd")


def test_an_unfinished_character_at_the_end_is_shown_as_broken() -> None:
    sequence = sequence_of(max_tokens=2)
    commit(sequence, [ord("a"), 0xC3, 0xA4])
    assert check_invariants(sequence).text == "a\ufffd"


@pytest.mark.parametrize("num_accepted", range(len(RUN)))
@pytest.mark.parametrize("offset", OFFSETS)
def test_counters_end_where_the_output_ends(num_accepted: int, offset: int) -> None:
    sequence = sequence_of()
    commit(sequence, [ord("x")])  # out of the prompt's pass, which is no round
    run = run_with(offset, EOS)[: num_accepted + 1]
    emitted = sequence.commit(run, num_proposed=8)
    assert len(emitted) == min(offset, num_accepted) + 1
    stats = sequence.stats
    assert (stats.rounds, stats.proposed, stats.emitted) == (1, 8, len(emitted))
    assert stats.accepted == min(num_accepted, len(emitted))
    assert stats.accepted_per_position == [1] * stats.accepted + [0] * (8 - stats.accepted)


def test_a_run_that_the_target_could_not_complete() -> None:
    sequence = sequence_of()
    commit(sequence, [ord("x")])
    assert sequence.commit(list(b"abc"), num_proposed=5, num_accepted=3) == list(b"abc")
    assert sequence.stats.accepted == 3
    sequence.fail(DraftproofError("DP501", "logits", "NaN", "numbers", "None."))
    output = check_invariants(sequence)
    assert (output.finish_reason, output.text) == ("error", "xabc")
    assert output.error is not None
    assert output.error["code"] == "DP501"


def test_abort_keeps_what_was_emitted_and_gives_out_what_was_held_back() -> None:
    sequence = sequence_of(stop=["end"])
    commit(sequence, list(b"the en"))
    assert sequence.take_text() == "the "
    sequence.abort()
    assert sequence.take_text() == "en"
    assert check_invariants(sequence).finish_reason == "abort"


def test_an_aborted_sequence_that_never_ran_has_an_output() -> None:
    sequence = sequence_of(logprobs=2)
    sequence.abort()
    output = check_invariants(sequence)
    assert (output.token_ids, output.text, output.logprobs, output.prefill_s) == ((), "", (), 0.0)


def test_penalties_and_min_tokens_follow_what_was_emitted_not_what_was_offered() -> None:
    sequence = sequence_of(max_tokens=3, frequency_penalty=1.0)
    commit(sequence, list(RUN.encode()))
    assert sequence.sampling.num_output == 3


def test_budgets_never_ask_for_drafts_that_could_not_be_emitted() -> None:
    sequence = sequence_of(max_tokens=10)
    assert sequence.max_total == 12
    assert sequence.draft_budget == 8
    commit(sequence, list(b"abc"))
    assert sequence.draft_budget == 6
    assert sequence.noise_key.position == 3
    commit(sequence, list(b"abcdef"))
    assert sequence.draft_budget == 0
    assert sequence.finish_reason is None


def test_proposers_see_one_growing_list() -> None:
    sequence = sequence_of()
    seen = sequence.token_ids
    commit(sequence, list(b"ab"))
    assert seen == [9, 9, *b"ab"]
    assert seen is sequence.token_ids
