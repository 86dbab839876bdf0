"""However the same tokens fall into accepted runs, the output is the same, and it is what the definitions say."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.core.params import SamplingParams
from draftproof.engine.request import Request, RequestOutput
from draftproof.engine.sequence import Sequence
from draftproof.ops.logprobs import TokenLogprobs

EOS, STOP = 0, 1
SMILE = "🙂".encode()
PIECES = [
    *(b"", b""),  # special: EOS, and what may be a stop token
    *(b"a", b"b", b"ab", b"ba", b" ", b"\n\n", b"aXb"),
    *("ä".encode()[:1], "ä".encode()[1:], SMILE[:1], SMILE[1:2], SMILE[1:], SMILE),
    *(b"\xff", b"a\xe2", "\ufffd".encode()),
]
NUM_PROMPT = 3


def decode(ids: Seq[int]) -> str:
    return b"".join(PIECES[token] for token in ids).decode("utf-8", "replace")


@dataclass(frozen=True)
class Expected:
    num_emitted: int
    text: str
    finish_reason: str | None
    stop_reason: str | int | None


def first_match(text: str, stop: Seq[str], must_end_behind: int) -> tuple[int, str] | None:
    """Where the first stop string starts that ends behind a place in the text, and which it is."""
    for start in range(len(text)):
        for candidate in stop:
            if text.startswith(candidate, start) and start + len(candidate) > must_end_behind:
                return start, candidate
    return None


def certain(ids: Seq[int]) -> int:
    """Characters that no later byte can change: an unfinished one shows as a replacement."""
    return len(decode(ids).rstrip("\ufffd"))


def expected_end(tokens: Seq[int], params: SamplingParams, max_total: int) -> Expected:
    """The rule, read off whole decoded texts: no state, no windows, no runs."""
    end_ids = params.stop_token_ids | (frozenset() if params.ignore_eos else {EOS})
    limit = min(max_total - NUM_PROMPT, params.max_tokens or max_total)
    known = 0
    for num in range(1, len(tokens) + 1):
        may_stop = num > params.min_tokens
        by_token = may_stop and tokens[num - 1] in end_ids
        visible = tokens[: num - 1] if by_token else tokens[:num]
        text, before = decode(visible), known
        known = max(known, certain(visible))
        match = first_match(text[:known], params.stop, before) if may_stop else None
        ends = by_token or num >= limit
        if match is None and may_stop and ends:
            match = first_match(text, params.stop, known)
        if match is not None:
            return Expected(num, text[: match[0]], "stop", match[1])
        if by_token:
            return Expected(num, text, "stop", tokens[num - 1])
        if ends:
            return Expected(num, text, "length", None)
    return Expected(len(tokens), decode(tokens)[:known], None, None)


PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "min_tokens": st.integers(0, 8),
        "max_tokens": st.integers(8, 24),
        "ignore_eos": st.booleans(),
        "stop_token_ids": st.sampled_from([[STOP], [STOP, 4], [8]]),
        "stop": st.lists(st.text("abX ä🙂\n\ufffd", min_size=1, max_size=4), max_size=3),
        "logprobs": st.sampled_from([None, 0]),
    },
)
TOKENS = st.lists(
    st.integers(2, len(PIECES) - 1) | st.sampled_from([2, 3, 4]) | st.integers(0, len(PIECES) - 1),
    min_size=1,
    max_size=24,
)


def start(params: SamplingParams, max_total: int) -> Sequence:
    request = Request(req_id="r", prompt_token_ids=(2,) * NUM_PROMPT, params=params)
    return Sequence(
        request, seed=1, depth=24, max_total=max_total, decode=decode, eos_token_ids=frozenset({EOS})
    )


def feed(sequence: Sequence, runs: Seq[Seq[int]]) -> tuple[list[int], list[str]]:
    """Emitted tokens and streamed deltas of one sequence that gets `runs` until it ends."""
    emitted: list[int] = []
    deltas: list[str] = []
    for run in runs:
        logprobs = [TokenLogprobs(token, 0.0, 1, ()) for token in run]
        wanted = sequence.request.params.logprobs is not None
        emitted += sequence.commit(run, len(run) - 1, logprobs if wanted else None)
        deltas.append(sequence.take_text())
        if sequence.finish_reason is not None:
            break
    return emitted, deltas


def partition(data: st.DataObject, tokens: Seq[int]) -> list[Seq[int]]:
    inner = list(range(1, len(tokens)))
    cuts = sorted(data.draw(st.sets(st.sampled_from(inner)))) if inner else []
    return [tokens[first:last] for first, last in zip([0, *cuts], [*cuts, len(tokens)], strict=True)]


@settings(deadline=None, max_examples=600)
@given(st.data(), TOKENS, PARAMS, st.integers(4, 28))
def test_any_partition_ends_where_the_definition_says(
    data: st.DataObject, tokens: list[int], values: dict[str, Any], max_total: int
) -> None:
    params = SamplingParams(**values)
    expected = expected_end(tokens, params, max_total)
    outputs: list[RequestOutput] = []
    for runs in (partition(data, tokens), [[token] for token in tokens], [tokens]):
        sequence = start(params, max_total)
        emitted, deltas = feed(sequence, runs)
        assert emitted == tokens[: expected.num_emitted]
        assert sequence.finish_reason == expected.finish_reason
        assert sequence.stop_reason == expected.stop_reason
        assert sequence.text == expected.text
        assert sequence.text.startswith("".join(deltas))
        if expected.finish_reason is not None:
            assert "".join(deltas) == expected.text
            outputs.append(sequence.output())
            assert outputs[-1].completion_tokens == expected.num_emitted
            if params.logprobs is not None:
                assert outputs[-1].logprobs is not None
                assert [entry.token_id for entry in outputs[-1].logprobs] == emitted
    assert len({(output.token_ids, output.text, output.stop_reason) for output in outputs}) <= 1
