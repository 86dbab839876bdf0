"""Sends one request at a time and returns an answer or a failure; nothing a server does raises.

Called by the parts of the probe. Bounded in bytes, time and repetitions. Follows no redirect, so that a key goes to
the host that the user named and to no other. Time, waiting and transport are arguments, so that tests need neither a
clock nor a network.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from draftproof.core.deadline import within
from draftproof.measure.probe.answer import Answer, Failure, FailureKind, StreamEvent, count, dicts
from draftproof.measure.probe.endpoint import Endpoint
from draftproof.measure.probe.secret import ApiKey
from draftproof.measure.probe.sse import EventDecoder, EventTooLargeError

if TYPE_CHECKING:
    import ssl

    import httpx

_SHOWN_CHARS = 600
_RETRIED = frozenset({500, 502, 503, 504})
_READER_FIRST_S = 0.5
"""A body that is too slow is the reader's to tell: it knows what came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`request_s` bounds one attempt as a whole, `silence_s` the time without a byte. A server that asks to wait
    longer than `wait_s` is not waited for. `retries` are further attempts after a rate limit or a server's error."""

    connect_s: float = 10.0
    silence_s: float = 60.0
    request_s: float = 180.0
    wait_s: float = 30.0
    retries: int = 2
    body_bytes: int = 8 << 20
    event_chars: int = 1 << 20


@dataclass(slots=True)
class Spent:
    """What was used so far, by the server's own counts; `uncounted` answers came without."""

    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    rejected_prediction_tokens: int = 0
    uncounted: int = 0

    @property
    def tokens(self) -> int:
        """Rejected predicted tokens are part of the completion's where a provider bills them."""
        return self.prompt_tokens + self.completion_tokens

    def add(self, answer: Answer) -> None:
        prompt = count(answer.usage, "prompt_tokens")
        completion = count(answer.usage, "completion_tokens")
        rejected = count(answer.usage, "completion_tokens_details", "rejected_prediction_tokens")
        if answer.failure is None and (prompt is None or completion is None):
            self.uncounted += 1
        self.prompt_tokens += prompt or 0
        self.completion_tokens += completion or 0
        self.rejected_prediction_tokens += rejected or 0


@dataclass(slots=True, kw_only=True)
class Client:
    """`budget` bounds the tokens of all requests together; None: no bound."""

    endpoint: Endpoint
    key: ApiKey | None = None
    limits: Limits = field(default_factory=Limits)
    budget: int | None = None
    transport: httpx.BaseTransport | None = None
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    spent: Spent = field(default_factory=Spent)
    _http: httpx.Client | None = field(default=None, init=False, repr=False)

    def chat(self, body: Mapping[str, Any]) -> Answer:
        """One chat completion. With "stream": true in it the answer has events in place of a body."""
        if self.budget is not None and self.spent.tokens >= self.budget:
            return Answer(failure=Failure(FailureKind.BUDGET, None, ""))
        answer = self._with_retries(lambda: self._attempt("POST", self.endpoint.chat_path, dict(body)))
        if answer.failure is None and not any("choices" in payload for payload in answer.payloads):
            said = self.shown(json.dumps(answer.body) if answer.body is not None else "no event with choices")
            answer = replace(answer, failure=Failure(FailureKind.NOT_AN_ANSWER, answer.status, said))
        self.spent.add(answer)
        return answer

    def get(self, path: str, accept_text: bool = False) -> Answer:
        """One page of the same host: JSON, or with `accept_text` any text."""
        return self._attempt("GET", path, None, accept_text)

    def _with_retries(self, attempt: Callable[[], Answer]) -> Answer:
        waited = 0.0
        for number in range(self.limits.retries + 1):
            answer = attempt()
            self.spent.requests += 1
            pause = self._pause(answer, number)
            if pause is None or number == self.limits.retries or waited + pause > self.limits.wait_s:
                return replace(answer, retries=number)
            self.spent.retries += 1
            waited += pause
            self.sleep(pause)
        raise AssertionError("unreachable")

    def _pause(self, answer: Answer, number: int) -> float | None:
        """Seconds until another attempt, or None where there is nothing to repeat."""
        if answer.status == 429 or (answer.status in _RETRIED and answer.failure is not None):
            asked = _retry_after(answer.headers.get("retry-after"))
            return asked if asked is not None else float(2**number)
        return None

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Keeps one connection for all requests inside, so that none is timed with a handshake."""
        with self._open() as http:
            self._http = http
            try:
                yield
            finally:
                self._http = None

    def _open(self) -> httpx.Client:
        import httpx

        timeout = httpx.Timeout(self.limits.silence_s, connect=self.limits.connect_s)
        return httpx.Client(transport=self.transport, timeout=timeout, follow_redirects=False, verify=_tls())

    def _attempt(
        self, method: str, path: str, body: dict[str, Any] | None, accept_text: bool = False
    ) -> Answer:
        import httpx

        if self._http is None:
            with self.connected():
                return self._attempt(method, path, body, accept_text)
        http = self._http
        http.cookies.clear()
        started = self.clock()
        try:
            stop = time.monotonic() + self.limits.request_s + _READER_FIRST_S
            return within(
                stop, lambda: self._exchange(http, method, path, body, accept_text, started), "probe request"
            )
        except TimeoutError:
            return self._failed(FailureKind.TOO_SLOW, "no whole headers", started)
        except httpx.TimeoutException as error:
            return self._failed(FailureKind.TIMEOUT, type(error).__name__, started)
        except httpx.ConnectError as error:
            kind = FailureKind.TLS if _is_tls(error) else FailureKind.UNREACHABLE
            return self._failed(kind, str(error), started)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            return self._failed(FailureKind.UNREACHABLE, f"{type(error).__name__}: {error}", started)

    def _exchange(
        self,
        http: httpx.Client,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        accept_text: bool,
        started: float,
    ) -> Answer:
        url = self.endpoint.origin + path
        with http.stream(method, url, headers=self._headers(body), json=body) as response:
            return _Reader(self, response, started).read(_is_stream(body), accept_text)

    def _headers(self, body: dict[str, Any] | None) -> dict[str, str]:
        accept = "text/event-stream" if _is_stream(body) else "application/json, text/plain;q=0.5"
        headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": "draftproof-probe"}
        return headers | (self.key.header(self.endpoint.auth) if self.key is not None else {})

    def _failed(self, kind: FailureKind, text: str, started: float) -> Answer:
        return Answer(elapsed_s=self.clock() - started, failure=Failure(kind, None, self.shown(text)))

    def shown(self, text: str) -> str:
        """A server's words as they may be kept: without the key, on one line, cut."""
        clean = self.key.scrub(text) if self.key is not None else text
        clean = " ".join("".join(char if char.isprintable() else " " for char in clean).split())
        return clean if len(clean) <= _SHOWN_CHARS else clean[:_SHOWN_CHARS] + " …"


class _Reader:
    """Reads one response within the limits."""

    def __init__(self, client: Client, response: httpx.Response, started: float) -> None:
        self._client = client
        self._response = response
        self._started = started
        self._events: list[StreamEvent] = []
        self._late = False

    def read(self, is_stream: bool, accept_text: bool) -> Answer:
        response = self._response
        if 300 <= response.status_code < 400:
            return self._answer(failure=self._failure(FailureKind.REDIRECT, self._target()))
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            return self._answer(failure=self._failure(FailureKind.ENCODED, ""))
        try:
            if is_stream and response.status_code == 200 and self._is_event_stream():
                return self._read_events()
            return self._read_plain(accept_text)
        except EventTooLargeError:
            return self._answer(failure=self._failure(FailureKind.TOO_LARGE, "one event"))

    def _is_event_stream(self) -> bool:
        return "text/event-stream" in self._response.headers.get("content-type", "").lower()

    def _target(self) -> str:
        """Scheme and host of a redirect: a path or query may carry secrets."""
        parts = urlsplit(self._response.headers.get("location", ""))
        return f"to {parts.scheme}://{parts.hostname}" if parts.hostname else "to another path of this host"

    def _pieces(self) -> Iterator[bytes]:
        """The body in pieces, until the limit of bytes or of time: `_late` tells which."""
        num_bytes = 0
        for piece in self._response.iter_raw():
            num_bytes += len(piece)
            self._late = self._client.clock() - self._started > self._client.limits.request_s
            if self._late or num_bytes > self._client.limits.body_bytes:
                raise _LimitError
            yield piece

    def _read_plain(self, accept_text: bool) -> Answer:
        import httpx

        data = bytearray()
        try:
            for piece in self._pieces():
                data += piece
        except _LimitError:
            kind = FailureKind.TOO_SLOW if self._late else FailureKind.TOO_LARGE
            return self._answer(failure=self._failure(kind, f"{len(data)} bytes read"))
        except httpx.TimeoutException:
            return self._answer(failure=self._failure(FailureKind.TIMEOUT, f"{len(data)} bytes read"))
        except httpx.HTTPError as error:
            return self._answer(failure=self._failure(FailureKind.BROKEN_STREAM, str(error)))
        text = bytes(data).decode("utf-8", "replace")
        body = _object(text)
        failure = self._refusal(body, text)
        if failure is None and body is None and not accept_text:
            failure = self._failure(FailureKind.NOT_JSON, text)
        return self._answer(body=body, text=text if accept_text else "", failure=failure)

    def _read_events(self) -> Answer:
        import httpx

        decoder = EventDecoder(self._client.limits.event_chars)
        try:
            for piece in self._pieces():
                for data in decoder.feed(piece):
                    if data.strip() == "[DONE]":
                        return self._answer()
                    failure = self._take(data)
                    if failure is not None:
                        return self._answer(failure=failure)
        except _LimitError:
            kind = FailureKind.TOO_SLOW if self._late else FailureKind.TOO_LARGE
            return self._answer(failure=self._failure(kind, f"{len(self._events)} events read"))
        except httpx.TimeoutException:
            return self._answer(
                failure=self._failure(FailureKind.TIMEOUT, f"{len(self._events)} events read")
            )
        except httpx.HTTPError as error:
            return self._answer(failure=self._failure(FailureKind.BROKEN_STREAM, str(error)))
        if decoder.is_within_event or not self._is_finished():
            text = f"it ended after {len(self._events)} events, without an end"
            return self._answer(failure=self._failure(FailureKind.BROKEN_STREAM, text))
        return self._answer()

    def _take(self, data: str) -> Failure | None:
        payload = _object(data)
        if payload is None:
            return self._failure(FailureKind.NOT_JSON, data)
        if payload.get("error"):
            return self._failure(FailureKind.ERROR_IN_STREAM, _error_text(payload) or data)
        self._events.append(StreamEvent(self._client.clock() - self._started, payload))
        return None

    def _is_finished(self) -> bool:
        """A stream without [DONE] is whole if a choice said why it ended."""
        return any(
            choice.get("finish_reason")
            for event in self._events
            for choice in dicts(event.payload.get("choices"))
        )

    def _refusal(self, body: Mapping[str, Any] | None, text: str) -> Failure | None:
        status = self._response.status_code
        said = _error_text(body) if body is not None else None
        if status == 429:
            return self._failure(FailureKind.RATE_LIMITED, said or text)
        if status >= 500:
            return self._failure(FailureKind.SERVER_ERROR, said or text)
        if status >= 400:
            return self._failure(FailureKind.REFUSED, said or text)
        if body is not None and body.get("error"):
            return self._failure(FailureKind.REFUSED, said or text)
        return None

    def _failure(self, kind: FailureKind, text: str) -> Failure:
        return Failure(kind, self._response.status_code, self._client.shown(text))

    def _answer(self, **parts: Any) -> Answer:
        return Answer(
            status=self._response.status_code,
            headers={name.lower(): value for name, value in self._response.headers.items()},
            events=tuple(self._events),
            elapsed_s=self._client.clock() - self._started,
            **parts,
        )


class _LimitError(Exception):
    """A limit of bytes or time was reached."""


@cache
def _tls() -> ssl.SSLContext:
    """The usual trust, made once: reading the certificates takes longer than a request to this machine."""
    import httpx

    return httpx.create_ssl_context()


def _is_stream(body: Mapping[str, Any] | None) -> bool:
    return body is not None and body.get("stream") is True


def _object(text: str) -> dict[str, Any] | None:
    """A JSON object of finite numbers, a list as the one member of an object, or None."""
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        return {"list": value}
    return value if isinstance(value, dict) else None


def _no_number(name: str) -> float:
    raise ValueError(name)


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(text[:20])
    return value


def _error_text(body: Mapping[str, Any]) -> str | None:
    """The words of an error object, in the shapes of OpenAI, FastAPI and plain servers."""
    error = body.get("error", body.get("detail", body.get("message")))
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("detail") or json.dumps(error)
    if isinstance(error, list):
        error = json.dumps(error)
    return error if isinstance(error, str) and error.strip() else None


def _retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for: a number or an HTTP date (RFC 9110, section 10.2.3)."""
    if value is None:
        return None
    if value.strip().isascii() and value.strip().isdigit():
        return float(value) if len(value) < 10 else float("inf")
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _is_tls(error: BaseException) -> bool:
    """Whether a failure to connect goes back to TLS."""
    import ssl

    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    return isinstance(error, ssl.SSLError)
