"""Measuring from outside: which time belongs to which request, and where the first token goes."""

import pytest

from draftproof.core.intent import NGram, NoSpeculation, SpeculationIntent
from draftproof.core.params import SamplingParams
from draftproof.measure.compare import DecodeTotals, RequestRecord, run_block
from support.fake_engine import FakeEngine


def measure(
    engine: FakeEngine, answers: list[str], intent: SpeculationIntent
) -> tuple[DecodeTotals, list[RequestRecord]]:
    engine.answer = lambda prompt, drafted: prompt
    params = SamplingParams(temperature=0.0, max_tokens=100)
    requests = [engine.make_request(answer, params, intent=intent) for answer in answers]
    records = [RequestRecord(answer, "en", "plain", len(answers), 0) for answer in answers]
    return run_block(engine, requests, records, lambda: engine.now), records


def test_plain_decoding_costs_one_round_per_token_after_the_first() -> None:
    totals, [record] = measure(FakeEngine(), ["abcdefghijk"], NoSpeculation())
    assert record.num_decoded == 10
    assert record.decode_s == pytest.approx(10 * 0.010)
    assert totals.s_per_token == pytest.approx(0.010)
    assert "".join(map(chr, record.token_ids)) == "abcdefghijk"
    assert record.finish_reason == "length"
    assert (totals.rounds, totals.emitted) == (10, 10)
    assert totals.wall_s == pytest.approx(0.100)
    assert totals.coordination_s == pytest.approx(0.0, abs=1e-12)


def test_speculative_rounds_bring_several_tokens_and_cost_the_draft() -> None:
    totals, [record] = measure(FakeEngine(tokens_per_round=5), ["abcdefghijk"], NGram())
    assert (totals.rounds, totals.emitted) == (2, 10)
    assert totals.draft_s == pytest.approx(2 * 0.002)
    assert totals.verify_s == pytest.approx(2 * 0.010)
    assert totals.s_per_token == pytest.approx(2 * 0.012 / 10)
    assert (record.stats.proposed, record.stats.accepted) == (10, 8)


def test_prompts_are_not_decode_time_and_ended_requests_cost_nothing_more() -> None:
    totals, [short, long] = measure(FakeEngine(prefill_s=5.0), ["abc", "abcdefg"], NoSpeculation())
    assert short.decode_s == pytest.approx(2 * 0.010)
    assert long.decode_s == pytest.approx(6 * 0.010)
    assert (totals.rounds, totals.emitted) == (6, 8)
    assert totals.wall_s == pytest.approx(0.060)


def test_time_that_the_engine_does_not_account_for_counts_as_coordination() -> None:
    engine = FakeEngine()
    lost = iter(range(1000))
    engine.answer = lambda prompt, drafted: prompt
    request = engine.make_request("abcde", SamplingParams(max_tokens=50))
    record = RequestRecord("p", "en", "plain", 1, 0)
    totals = run_block(engine, [request], [record], lambda: engine.now + 0.001 * next(lost))
    assert totals.coordination_s == pytest.approx(4 * 0.001)


def test_an_answer_of_one_token_has_no_decode_speed() -> None:
    totals, _ = measure(FakeEngine(), ["a"], NoSpeculation())
    assert totals.s_per_token is None
    assert totals == DecodeTotals()
