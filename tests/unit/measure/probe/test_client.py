"""The client against every misbehaviour: a failure of its kind, within the limits; no exception and no key."""

import json
import socket
from typing import Any

import httpx
import pytest

from draftproof.measure.probe.answer import Answer, FailureKind
from draftproof.measure.probe.client import Client, Limits
from draftproof.measure.probe.endpoint import parse_endpoint
from draftproof.measure.probe.secret import ApiKey
from support.fake_endpoint import MISBEHAVIOURS, Planted, serving

KEY = "sk-PLANTED-0123456789abcdef"
SMALL = Limits(wait_s=5, body_bytes=1 << 20, event_chars=1 << 16)
SHORT = {
    "drip": Limits(request_s=0.4),
    "drip of headers": Limits(request_s=0.1),
    "silence": Limits(silence_s=0.3),
}
BODY: dict[str, Any] = {"model": "fake", "messages": [], "max_tokens": 4}


def client_of(url: str, **parts: Any) -> Client:
    waited: list[float] = []
    endpoint = parse_endpoint(url, None, None, None)
    return Client(endpoint=endpoint, key=ApiKey(KEY), limits=SMALL, sleep=waited.append, **parts)


KINDS = {
    "status 400": FailureKind.REFUSED,
    "status 401": FailureKind.REFUSED,
    "status 404": FailureKind.REFUSED,
    "status 500": FailureKind.SERVER_ERROR,
    "status 503": FailureKind.SERVER_ERROR,
    "rate limited, soon": FailureKind.RATE_LIMITED,
    "rate limited, for long": FailureKind.RATE_LIMITED,
    "redirect elsewhere": FailureKind.REDIRECT,
    "not JSON": FailureKind.NOT_JSON,
    "not an answer": FailureKind.NOT_AN_ANSWER,
    "deep JSON": FailureKind.NOT_JSON,
    "infinite number": FailureKind.NOT_JSON,
    "huge": FailureKind.TOO_LARGE,
    "endless event": FailureKind.TOO_LARGE,
    "cut short": FailureKind.BROKEN_STREAM,
    "stream without an end": FailureKind.BROKEN_STREAM,
    "error in the stream": FailureKind.ERROR_IN_STREAM,
    "rubbish in the stream": FailureKind.NOT_JSON,
    "drip": FailureKind.TOO_SLOW,
    "drip of headers": FailureKind.TOO_SLOW,
    "silence": FailureKind.TIMEOUT,
    "hang up": FailureKind.UNREACHABLE,
    "compressed": FailureKind.ENCODED,
}


def test_every_misbehaviour_has_its_kind() -> None:
    assert set(KINDS) == set(MISBEHAVIOURS)


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_misbehaviour_is_a_failure_of_its_kind_without_the_key(name: str) -> None:
    with serving(Planted(misbehave=MISBEHAVIOURS[name])) as server:
        client = client_of(server.url)
        client.limits = SHORT.get(name, SMALL)
        answer = client.chat({**BODY, "stream": "stream" in name or "event" in name or name == "cut short"})
    assert answer.failure is not None
    assert answer.failure.kind is KINDS[name]
    assert "PLANTED" not in str(answer.failure) + repr(client)
    assert len(str(answer.failure)) < 1000


def test_a_rate_limit_is_waited_for_as_long_as_it_asks() -> None:
    waited: list[float] = []
    with serving(Planted(misbehave=MISBEHAVIOURS["rate limited, soon"])) as server:
        client = client_of(server.url)
        client.sleep = waited.append
        answer = client.chat(BODY)
    assert waited == [1.0, 1.0]
    assert answer.retries == 2
    assert (client.spent.requests, client.spent.retries) == (3, 2)


def test_a_rate_limit_that_asks_too_long_is_not_waited_for() -> None:
    waited: list[float] = []
    with serving(Planted(misbehave=MISBEHAVIOURS["rate limited, for long"])) as server:
        client = client_of(server.url)
        client.sleep = waited.append
        client.chat(BODY)
    assert waited == []
    assert client.spent.requests == 1


def test_a_redirect_is_not_followed_and_its_query_not_kept() -> None:
    with serving(Planted(misbehave=MISBEHAVIOURS["redirect elsewhere"])) as server:
        answer = client_of(server.url).chat(BODY)
        assert len(server.requests) == 1
    assert answer.failure is not None
    assert answer.failure.text == "to http://elsewhere.invalid"


def test_a_closed_port_and_a_name_that_is_none() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", "http://nowhere.invalid"):
        answer = client_of(url).chat(BODY)
        assert answer.failure is not None
        assert answer.failure.kind is FailureKind.UNREACHABLE


def test_https_to_a_plain_server_is_a_tls_error() -> None:
    with serving(Planted()) as server:
        answer = client_of(server.url.replace("http:", "https:")).chat(BODY)
    assert answer.failure is not None
    assert answer.failure.kind is FailureKind.TLS


def test_a_good_answer_and_its_counts() -> None:
    with serving(Planted(key=KEY)) as server:
        client = client_of(server.url)
        plain, streamed = (
            client.chat(BODY),
            client.chat({**BODY, "stream": True, "stream_options": {"include_usage": True}}),
        )
    assert plain.failure is None
    assert streamed.failure is None
    assert plain.content == streamed.content == Planted().text
    assert plain.usage == streamed.usage == {"prompt_tokens": 20, "completion_tokens": 12}
    assert len(streamed.text_events) == 12
    assert (client.spent.prompt_tokens, client.spent.completion_tokens, client.spent.uncounted) == (40, 24, 0)


def test_a_server_that_ignores_stream_is_understood() -> None:
    with serving(Planted(streams=False)) as server:
        answer = client_of(server.url).chat({**BODY, "stream": True})
    assert answer.failure is None
    assert answer.content == Planted().text
    assert answer.events == ()


def test_nothing_is_sent_beyond_the_budget() -> None:
    with serving(Planted()) as server:
        client = client_of(server.url, budget=30)
        assert client.chat(BODY).failure is None
        failure = client.chat(BODY).failure
        assert len(server.requests) == 1
    assert failure is not None
    assert failure.kind is FailureKind.BUDGET


def test_times_are_of_the_clock_that_was_given() -> None:
    """Each event is stamped when it is read; a virtual clock makes that exact."""
    now = [0.0]

    def events() -> Any:
        for word in ("a", "b", "c"):
            now[0] += 0.5
            yield b"data: " + json.dumps({"choices": [{"delta": {"content": word}}]}).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"

    def respond(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=events())

    client = client_of("http://fake", transport=httpx.MockTransport(respond), clock=lambda: now[0])
    client.limits = Limits()
    answer = client.chat({**BODY, "stream": True})
    assert [event.at_s for event in answer.text_events] == [0.5, 1.0, 1.5]
    assert answer.elapsed_s == 1.5


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "m"}}, "m"),
        ({"error": "e"}, "e"),
        ({"detail": [{"loc": ["body", "n"], "msg": "bad"}]}, "bad"),
        ({"detail": "d"}, "d"),
        ({"message": "x"}, "x"),
        ({"error": {"code": 7}}, "7"),
        ({"other": "whole"}, "whole"),
    ],
)
def test_the_words_of_an_error_are_kept_in_every_shape(body: dict[str, Any], said: str) -> None:
    transport = httpx.MockTransport(
        lambda request: httpx.Response(400, content=iter([json.dumps(body).encode()]))
    )
    answer: Answer = client_of("http://fake", transport=transport).chat(BODY)
    assert answer.failure is not None
    assert said in answer.failure.text


def test_hostile_words_are_one_short_line() -> None:
    text = json.dumps({"error": {"message": "a\x1b[31m\n\n| b \u202e" + "x" * 5000}})
    transport = httpx.MockTransport(lambda request: httpx.Response(400, content=iter([text.encode()])))
    failure = client_of("http://fake", transport=transport).chat(BODY).failure
    assert failure is not None
    assert failure.text.isprintable()
    assert len(failure.text) < 700
