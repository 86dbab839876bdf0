"""The three arms under a virtual clock: planted times come back as ratios, in turning order, paired by prompt."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from draftproof.measure.probe.client import Client, Limits
from draftproof.measure.probe.endpoint import parse_endpoint
from draftproof.measure.probe.latency import paired_times, run_arms, stream_once
from draftproof.measure.probe.statements import event_statement, pair_statement
from draftproof.measure.workloads import Prompt

PROMPTS = [Prompt(f"p{at}", "en", f"edit {at}", None) for at in range(6)]
TEXTS = {prompt.name: f"answer {prompt.name} " * (5 + at) for at, prompt in enumerate(PROMPTS)}


class Virtual:
    """Answers each prompt with its text; a token takes as long as `seconds` says for what was predicted."""

    def __init__(self, seconds: dict[str, float], tokens_per_event: int = 1, rejected: int = 0) -> None:
        self.now = 0.0
        self.seconds, self.step, self.rejected = seconds, tokens_per_event, rejected
        self.order: list[tuple[str, str]] = []

    def client(self) -> Client:
        endpoint = parse_endpoint("http://fake", None, None, None)
        transport = httpx.MockTransport(self.respond)
        limits = Limits(request_s=1e9)
        return Client(endpoint=endpoint, transport=transport, clock=lambda: self.now, limits=limits)

    def respond(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        name = PROMPTS[int(body["messages"][0]["content"].split()[1])].name
        predicted = body.get("prediction", {}).get("content")
        arm = "none" if predicted is None else "matching" if predicted == TEXTS[name] else "misleading"
        self.order.append((name, arm))
        return httpx.Response(
            200, headers={"content-type": "text/event-stream"}, content=self.events(name, arm)
        )

    def events(self, name: str, arm: str) -> Iterator[bytes]:
        words = TEXTS[name].split(" ")[:-1]
        rejected = self.rejected if arm == "misleading" else 0
        scatter = 1 + 0.02 * int(name[1:])
        for at in range(0, len(words), self.step):
            piece = words[at : at + self.step]
            self.now += self.seconds[arm] * len(piece) * scatter
            text = "".join(word + " " for word in piece)
            yield self.event({"choices": [{"delta": {"content": text}}]})
        details = {"rejected_prediction_tokens": rejected, "accepted_prediction_tokens": 0}
        usage = {
            "prompt_tokens": 9,
            "completion_tokens": len(words) + rejected,
            "completion_tokens_details": details,
        }
        yield self.event({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage})

    @staticmethod
    def event(payload: dict[str, Any]) -> bytes:
        return b"data: " + json.dumps(payload).encode() + b"\n\n"


def bodies() -> list[tuple[Prompt, dict[str, Any]]]:
    return [(prompt, {"messages": [{"role": "user", "content": prompt.text}]}) for prompt in PROMPTS]


def test_planted_times_come_back_as_ratios() -> None:
    virtual = Virtual({"none": 0.02, "matching": 0.01, "misleading": 0.03}, rejected=11)
    runs = run_arms(virtual.client(), bodies(), TEXTS, lambda what: None)
    assert len(runs) == 18
    expected = {("none", "matching"): 2.0, ("misleading", "none"): 1.5, ("misleading", "matching"): 3.0}
    for (slow, fast), ratio in expected.items():
        pair = paired_times(runs, slow, fast)  # type: ignore[arg-type]
        assert pair.estimate is not None
        assert pair.estimate.ratio == pytest.approx(ratio)
        assert (pair.estimate.num_pairs, pair.same_text) == (6, 6)
        assert "beyond what prompts of this kind scatter" in pair_statement(pair)
    misleading = [run for run in runs if run.arm == "misleading"]
    assert {run.rejected for run in misleading} == {11}
    assert all(
        run.num_tokens == run.num_events for run in runs
    )  # rejected tokens are no tokens of the answer


def test_no_difference_is_not_made_one() -> None:
    virtual = Virtual({"none": 0.02, "matching": 0.02, "misleading": 0.02})
    runs = run_arms(virtual.client(), bodies(), TEXTS, lambda what: None)
    pair = paired_times(runs, "none", "matching")
    assert pair.estimate is not None
    assert pair.estimate.ratio == pytest.approx(1.0)
    said = pair_statement(pair)
    assert "no difference was seen, none is ruled out" in said
    assert "speculat" not in said


def test_arms_follow_one_another_in_turning_order_and_every_text_serves_as_both() -> None:
    virtual = Virtual(dict.fromkeys(("none", "matching", "misleading"), 0.01))
    run_arms(virtual.client(), bodies(), TEXTS, lambda what: None)
    by_prompt = [virtual.order[at : at + 3] for at in range(0, 18, 3)]
    assert all(len({name for name, _ in three}) == 1 for three in by_prompt)
    firsts = [three[0][1] for three in by_prompt]
    assert sorted(firsts) == sorted(["none", "matching", "misleading"] * 2)
    assert sum(arm == "misleading" for _, arm in virtual.order) == 6


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_tokens_per_event_by_the_endpoints_own_count(tokens: int) -> None:
    virtual = Virtual({"none": 0.01}, tokens_per_event=tokens)
    client = virtual.client()
    runs = [stream_once(client, body, prompt, "none")[0] for prompt, body in bodies()]
    said = event_statement(runs)
    if tokens == 1:
        assert "1.00 tokens per event" in said
        assert "does not rule speculation out" in said
    else:
        ratio = float(said.split("emitted ")[1].split()[0])
        assert tokens * 0.85 < ratio <= tokens
        assert "it does not show which" in said


def test_without_usage_nothing_is_said_of_tokens() -> None:
    events = [Virtual.event({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]})]
    transport = httpx.MockTransport(
        lambda request: httpx.Response(
            200, headers={"content-type": "text/event-stream"}, content=iter(events)
        )
    )
    client = Client(endpoint=parse_endpoint("http://fake", None, None, None), transport=transport)
    run, _ = stream_once(client, {"messages": []}, PROMPTS[0], "none")
    assert run.num_tokens is None
    assert "events are not tokens" in event_statement([run])


def test_failed_answers_are_left_out_of_pairs() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(400, content=iter([b"{}"])))
    client = Client(endpoint=parse_endpoint("http://fake", None, None, None), transport=transport)
    runs = run_arms(client, bodies()[:2], TEXTS | {"p0": "a", "p1": "b"}, lambda what: None)
    pair = paired_times(runs, "none", "matching")
    assert pair.estimate is None
    assert "no prompt has both" in pair_statement(pair)
    assert "nothing is known" in event_statement(runs)
