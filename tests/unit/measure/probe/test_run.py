"""Whole probes of fake endpoints: planted truths come out, each in its part, and nothing else is concluded."""

import json
from typing import Any

import pytest

from draftproof.core.errors import DraftproofError
from draftproof.measure.probe.client import Client, Limits
from draftproof.measure.probe.endpoint import parse_endpoint
from draftproof.measure.probe.parameters import MADE_UP, PARAMETERS
from draftproof.measure.probe.run import ProbePlan, ProbeResult, run_probe
from draftproof.measure.probe.statements import acceptance_note, gone_statement, not_seen, observed_statements
from draftproof.measure.workloads import load
from support.fake_endpoint import MISBEHAVIOURS, FakeEndpoint, Planted, serving


def probe(server: FakeEndpoint, **parts: Any) -> ProbeResult:
    settings: dict[str, Any] = {
        "model": None, "accepted": True, "observed": True, "prompts": load("edit").prompts[:2], "max_tokens": 32,
        "server_pages": True,
    }  # fmt: skip
    client = Client(
        endpoint=parse_endpoint(server.url, None, None, None),
        limits=Limits(request_s=5, silence_s=5),
        sleep=lambda seconds: None,
    )
    return run_probe(client, ProbePlan(**settings | parts), lambda done, total, what: None)


def accepted(result: ProbeResult) -> dict[str, bool]:
    return {acceptance.parameter.label: acceptance.accepted for acceptance in result.acceptances}


def test_planted_predictions_come_out_in_their_parts() -> None:
    with serving(Planted(matching_usage=(7, 1), misleading_usage=(0, 9))) as server:
        result = probe(server)
    verdicts = accepted(result)
    assert verdicts["prediction, text"]
    assert not verdicts[MADE_UP]
    assert not verdicts["min_p"]
    visible = {a.parameter.label: a.visible for a in result.acceptances}
    assert visible["logprobs"] is True
    assert visible["n = 2"] is True
    assert visible["seed"] is None
    runs = {run.arm: run for run in result.observations.runs if run.prompt == "rename-method"}
    assert (runs["none"].accepted, runs["none"].rejected) == (None, None)
    assert (runs["matching"].accepted, runs["matching"].rejected) == (7, 1)
    assert runs["matching"].num_tokens == 12
    signals = {(signal.place, signal.name) for signal in result.observations.signals}
    assert ("usage", "completion_tokens_details.rejected_prediction_tokens") in signals
    note = acceptance_note(result.acceptances)
    assert note is not None
    assert "does not show that they have an effect" in note
    assert any("the prediction was used" in said for said in observed_statements(result.observations))


def test_where_anything_is_taken_acceptance_says_nothing() -> None:
    with serving(Planted(takes_anything=True, known=())) as server:
        result = probe(server)
    assert all(accepted(result).values())
    note = acceptance_note(result.acceptances)
    assert note is not None
    assert "does not show that it is known here" in note
    assert not any(
        "was used" in said or "drafted" in said for said in observed_statements(result.observations)
    )
    assert any("predicted tokens" in missing for missing in not_seen(result.observations))


def test_a_refused_prediction_is_not_timed_and_its_words_are_kept() -> None:
    with serving(Planted(known=())) as server:
        result = probe(server)
        sent = [body for body in server.bodies if "prediction" in body and body.get("stream")]
    assert result.observations.runs == []
    assert sent == []
    [why] = result.observations.not_measured
    assert "Unrecognized request argument supplied: prediction" in why


def test_without_the_accepted_part_one_request_tells_whether_a_prediction_is_taken() -> None:
    with serving(Planted(known=())) as server:
        result = probe(server, accepted=False)
    assert result.observations.runs == []
    assert "it is not taken here" in result.observations.not_measured[0]
    with serving(Planted()) as server:
        assert len(probe(server, accepted=False).observations.runs) == 6


@pytest.mark.parametrize(
    ("extra", "headers", "name"),
    [
        ({"timings": {"draft_n": 30, "draft_n_accepted": 12}}, {}, "timings.draft_n_accepted"),
        (
            {"metrics": {"speculative_decoding": {"num_draft_tokens": 30, "acceptance_histogram": [1, 2]}}},
            {},
            "metrics.speculative_decoding.acceptance_histogram",
        ),
        (
            {"sglext": {"spec_tokens_details": {"spec_verify_ct": 9}}},
            {},
            "sglext.spec_tokens_details.spec_verify_ct",
        ),
        ({}, {"fireworks-speculation-acceptance": "0.9,0.5"}, "fireworks-speculation-acceptance"),
        (
            {"perf_metrics": {"speculation-generated-tokens": "41"}},
            {},
            "perf_metrics.speculation-generated-tokens",
        ),
        ({"x_new": {"drafted_by_nobody": 3}}, {}, "x_new.drafted_by_nobody"),
    ],
)
def test_what_engines_say_of_a_request_is_kept(extra: dict, headers: dict, name: str) -> None:
    with serving(Planted(extra=extra, headers=headers)) as server:
        result = probe(server, accepted=False, prompts=())
    assert name in {signal.name for signal in result.observations.signals}


def test_counters_that_grew_meanwhile_are_told_with_their_owner() -> None:
    before = '# TYPE x counter\nvllm:spec_decode_num_drafts_total{engine="0"} 5\nvllm:spec_accept_gauge 1\nother 3\n'
    after = before.replace(" 5\n", " 25\n").replace("gauge 1", "gauge 2")
    pages = {"/version": {"version": "0.33.0"}, "/slots": [{"speculative": True}]}
    with serving(Planted(metrics=[before, after], pages=pages)) as server:
        result = probe(server)
    seen = result.observations
    assert seen.metrics_grown == {'vllm:spec_decode_num_drafts_total{engine="0"}': 20}
    assert any("They count all of its users" in said for said in observed_statements(seen))
    found = {(page.path, signal.name): signal.value for page in seen.pages for signal in page.signals}
    assert found[("/version", "version")] == "0.33.0"
    assert found[("/slots", "list[0].speculative")] is True


def test_metrics_that_forget_are_left_alone() -> None:
    with serving(Planted()) as server:
        probe(server, provider="trtllm", accepted=False, prompts=())
        asked = [path for method, path, _, _ in server.requests if method == "GET"]
    assert "/prometheus/metrics" in asked
    assert "/metrics" not in asked


def test_newer_forms_of_a_request_are_found() -> None:
    with serving(Planted(refused=("max_tokens", "temperature"))) as server:
        result = probe(server, prompts=())
        bodies = server.bodies
    assert result.form.max_tokens_name == "max_completion_tokens"
    assert len(result.form.refused) == 2
    assert "max_tokens" not in bodies[-1]


def test_where_streams_refuse_to_give_usage_they_come_without() -> None:
    with serving(Planted(refused=("stream_options",))) as server:
        seen = probe(server).observations
    assert all(run.failure is None and run.num_tokens is None for run in seen.plain)
    assert any("events are not tokens" in said for said in observed_statements(seen))


@pytest.mark.parametrize(("streamed", "tokens"), [(False, 12), (True, 17)])
def test_reasoning_that_is_kept_back_is_not_counted_as_streamed(streamed: bool, tokens: int) -> None:
    delta = {"content": "x", **({"reasoning_content": "hm"} if streamed else {})}
    details = {"reasoning_tokens": 5, "rejected_prediction_tokens": 3}
    usage = {"prompt_tokens": 1, "completion_tokens": 20, "completion_tokens_details": details}
    events = [json.dumps({"choices": [{"delta": delta, "finish_reason": "stop"}], "usage": usage})]
    planted = Planted(
        misbehave=lambda handler, body: handler.send_events([*events, "[DONE]"]), misbehave_after=1
    )
    with serving(planted) as server:
        seen = probe(server, accepted=False).observations
    assert {run.num_tokens for run in seen.plain} == {tokens}


def test_several_models_are_dp124_and_one_is_taken() -> None:
    with serving(Planted(models=("a", "b"))) as server, pytest.raises(DraftproofError) as caught:
        probe(server)
    assert (caught.value.code, "a, b" in caught.value.found) == ("DP124", True)
    with serving(Planted(models=("only",))) as server:
        assert probe(server, accepted=False, prompts=()).model == "only"


@pytest.mark.parametrize(
    ("name", "code"),
    [("status 401", "DP123"), ("status 500", "DP122"), ("not JSON", "DP122"), ("huge", "DP122")],
)
def test_an_endpoint_that_answers_nothing_is_one_error(name: str, code: str) -> None:
    with serving(Planted(misbehave=MISBEHAVIOURS[name])) as server, pytest.raises(DraftproofError) as caught:
        probe(server)
    assert caught.value.code == code


@pytest.mark.parametrize("after", [1, 3, len(PARAMETERS), len(PARAMETERS) + 2])
def test_an_endpoint_that_breaks_on_the_way_leaves_a_result(after: int) -> None:
    with serving(Planted(misbehave=MISBEHAVIOURS["status 503"], misbehave_after=after)) as server:
        result = probe(server)
    assert len(result.acceptances) == len(PARAMETERS)
    assert observed_statements(result.observations)


def test_an_endpoint_that_ends_is_not_asked_on_and_the_request_is_named() -> None:
    with serving(Planted(misbehave=MISBEHAVIOURS["hang up"], misbehave_after=9)) as server:
        result = probe(server)
        sent = len(server.bodies)
    assert result.gone_from == PARAMETERS[8].label
    assert len(result.acceptances) == 11
    assert sent == 12
    assert result.gone_from in gone_statement(result.gone_from)


def test_ctrl_c_keeps_what_there_is() -> None:
    def interrupt(done: int, total: int, what: str) -> None:
        if what.endswith("seed"):
            raise KeyboardInterrupt

    with serving(Planted()) as server:
        client = Client(endpoint=parse_endpoint(server.url, None, None, None))
        plan = ProbePlan(
            model="fake", accepted=True, observed=True, prompts=(), max_tokens=16, server_pages=False
        )
        result = run_probe(client, plan, interrupt)
    assert result.interrupted
    assert 0 < len(result.acceptances) < len(PARAMETERS)
