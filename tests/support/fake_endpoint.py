"""A server of chat completions on this machine that plays a provider's shape, with planted truths or misbehaviour.

`Planted` says what it knows and how it answers; `FakeEndpoint` serves it. What came in is kept in `requests`, so that
a test can look at what was sent, and where to.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Misbehaviour = Callable[["Handler", dict[str, Any]], None]
"""Writes a response of its own instead of an answer."""


@dataclass(kw_only=True)
class Planted:
    """`known` parameters beyond the usual ones; others are refused, or with `takes_anything` ignored. `usage` of
    `prediction`: (accepted, rejected) for a matching and a misleading one. `metrics`: texts of the page, one per
    reading, the last one again and again. `misbehave` from the request after `misbehave_after` on."""

    models: tuple[str, ...] = ("fake",)
    path: str = "/v1/chat/completions"
    key: str | None = None
    auth_header: str = "Authorization"
    api_version: str | None = None
    refused: tuple[str, ...] = ()
    takes_anything: bool = False
    known: tuple[str, ...] = ("prediction", "logprobs", "top_logprobs", "n", "tools", "response_format")
    matching_usage: tuple[int, int] = (7, 1)
    misleading_usage: tuple[int, int] = (0, 9)
    tokens_per_event: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    gives_usage: bool = True
    streams: bool = True
    pages: dict[str, Any] = field(default_factory=dict)
    metrics: list[str] = field(default_factory=list)
    misbehave: Misbehaviour | None = None
    misbehave_after: int = 0
    text: str = "one two three four five six seven eight nine ten eleven twelve"


USUAL = {
    "model",
    "messages",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stream_options",
    "stop",
}
USUAL |= {"seed", "presence_penalty", "frequency_penalty"}


class FakeEndpoint(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, planted: Planted) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.planted = planted
        self.requests: list[tuple[str, str, dict[str, str], dict[str, Any] | None]] = []
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, _, body in self.requests if body is not None]


@contextmanager
def serving(planted: Planted) -> Iterator[FakeEndpoint]:
    server = FakeEndpoint(planted)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    server: FakeEndpoint
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        planted = self.server.planted
        self.server.requests.append(("GET", self.path, dict(self.headers), None))
        if self.path == planted.path.partition("/chat/completions")[0] + "/models":
            self.send_object({"data": [{"id": name} for name in planted.models]})
        elif self.path == "/metrics" and planted.metrics:
            text = planted.metrics.pop(0) if len(planted.metrics) > 1 else planted.metrics[0]
            self.send_bytes(200, text.encode(), "text/plain")
        elif self.path in planted.pages:
            self.send_object(planted.pages[self.path])
        else:
            self.send_object({"error": {"message": "no such page"}}, 404)

    def do_POST(self) -> None:
        planted = self.server.planted
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(("POST", self.path, dict(self.headers), body))
        expected = planted.path + (f"?api-version={planted.api_version}" if planted.api_version else "")
        if self.path != expected:
            return self.refuse(404, "no such page")
        shown = self.headers.get(planted.auth_header, "").removeprefix("Bearer ")
        if planted.key is not None and shown != planted.key:
            return self.refuse(401, f"Incorrect API key provided: {shown}")
        if planted.misbehave is not None and len(self.server.bodies) > planted.misbehave_after:
            return planted.misbehave(self, body)
        for name in body:
            if name in planted.refused or not (planted.takes_anything or name in USUAL | {*planted.known}):
                return self.refuse(400, f"Unrecognized request argument supplied: {name}")
        if body.get("stream") and planted.streams:
            return self.stream(body)
        return self.answer(body)

    def refuse(self, status: int, message: str) -> None:
        self.send_object({"error": {"message": message, "type": "invalid_request_error"}}, status)

    def usage(self, body: dict[str, Any], num_tokens: int) -> dict[str, Any]:
        planted = self.server.planted
        usage: dict[str, Any] = {"prompt_tokens": 20, "completion_tokens": num_tokens}
        if "prediction" in body and "prediction" in planted.known:
            content = body["prediction"]
            content = content["content"] if isinstance(content, dict) else content
            matching = content == planted.text or isinstance(content, list)
            accepted, rejected = planted.matching_usage if matching else planted.misleading_usage
            usage["completion_tokens"] += rejected
            usage["completion_tokens_details"] = {
                "accepted_prediction_tokens": accepted,
                "rejected_prediction_tokens": rejected,
            }
        return usage

    def answer(self, body: dict[str, Any]) -> None:
        planted = self.server.planted
        words = planted.text.split()
        choice: dict[str, Any] = {
            "message": {"role": "assistant", "content": planted.text},
            "finish_reason": "stop",
        }
        if body.get("logprobs") and "logprobs" in planted.known:
            choice["logprobs"] = {"content": [{"token": "one", "logprob": -0.1}]}
        document = {"choices": [choice] * (body.get("n") or 1), **planted.extra}
        if planted.gives_usage:
            document["usage"] = self.usage(body, len(words))
        self.send_object(document)

    def stream(self, body: dict[str, Any]) -> None:
        planted = self.server.planted
        words = planted.text.split(" ")
        step = planted.tokens_per_event
        events: list[dict[str, Any]] = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
        for at in range(0, len(words), step):
            piece = " ".join(words[at : at + step]) + (" " if at + step < len(words) else "")
            events.append({"choices": [{"delta": {"content": piece}}]})
        events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        if planted.gives_usage and body.get("stream_options", {}).get("include_usage"):
            events.append({"choices": [], "usage": self.usage(body, len(words)), **planted.extra})
        self.send_events([*map(json.dumps, events), "[DONE]"])

    def send_events(self, events: list[str]) -> None:
        data = "".join(f"data: {event}\n\n" for event in events).encode()
        self.send_bytes(200, data, "text/event-stream")

    def send_object(self, document: Any, status: int = 200) -> None:
        self.send_bytes(status, json.dumps(document).encode(), "application/json")

    def send_bytes(
        self, status: int, data: bytes, kind: str, length: int | None = None, **headers: str
    ) -> None:
        self.send_response(status)
        for name, value in {**self.server.planted.headers, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)


def leaked(handler: Handler) -> str:
    """The key as it came in: misbehaving servers echo it."""
    return handler.headers.get("Authorization", "") + handler.headers.get("api-key", "")


def _status(status: int, **headers: str) -> Misbehaviour:
    def misbehave(handler: Handler, body: dict[str, Any]) -> None:
        data = json.dumps({"error": {"message": f"status {status}, your key was {leaked(handler)}"}}).encode()
        handler.send_bytes(status, data, "application/json", **headers)

    return misbehave


def _not_json(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_bytes(200, f"<html>{leaked(handler)}</html>".encode(), "text/html")


def _not_an_answer(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_object({"hello": leaked(handler)})


def _deep_json(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_bytes(200, b"[" * 100_000, "application/json")


def _infinite_number(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_bytes(200, b'{"choices": [], "usage": {"completion_tokens": 1e999}}', "application/json")


def _huge(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_bytes(200, b"", "application/json", length=1 << 40)
    try:
        for _ in range(4096):
            handler.wfile.write(b" " * 65536)
    except OSError:
        pass
    handler.close_connection = True


def _endless_event(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_bytes(200, b"data: ", "text/event-stream", length=1 << 40)
    try:
        for _ in range(4096):
            handler.wfile.write(b"x" * 65536)
    except OSError:
        pass
    handler.close_connection = True


def _cut_short(handler: Handler, body: dict[str, Any]) -> None:
    kind = "text/event-stream" if body.get("stream") else "application/json"
    handler.send_bytes(200, b'data: {"choices": [{"delta": {"content": "o', kind, length=1000)
    handler.close_connection = True


def _no_end(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_bytes(200, b'data: {"choices": [{"delta": {"content": "one"}}]}\n\n', "text/event-stream")


def _error_in_stream(handler: Handler, body: dict[str, Any]) -> None:
    first = {"choices": [{"delta": {"content": "one"}}]}
    handler.send_events([json.dumps(first), json.dumps({"error": {"message": f"broke: {leaked(handler)}"}})])


def _stream_of_rubbish(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_events([f"no json {leaked(handler)}"])


def _drip(handler: Handler, body: dict[str, Any]) -> None:
    """A byte at a time, each in time, the whole never."""
    handler.send_bytes(200, b"{", "application/json", length=1 << 20)
    try:
        while not handler.server.released.wait(0.02):
            handler.wfile.write(b" ")
            handler.wfile.flush()
    except OSError:
        pass
    handler.close_connection = True


def _drip_of_headers(handler: Handler, body: dict[str, Any]) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    try:
        while not handler.server.released.wait(0.02):
            handler.wfile.write(b"X: y\r\n")
    except OSError:
        pass
    handler.close_connection = True


def _silence(handler: Handler, body: dict[str, Any]) -> None:
    handler.server.released.wait()
    handler.close_connection = True


def _hang_up(handler: Handler, body: dict[str, Any]) -> None:
    handler.close_connection = True


def _compressed(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_bytes(200, b"\x1f\x8b", "application/json", Content_Encoding="gzip")


MISBEHAVIOURS: dict[str, Misbehaviour] = {
    "status 400": _status(400),
    "status 401": _status(401),
    "status 404": _status(404),
    "status 500": _status(500),
    "status 503": _status(503),
    "rate limited, soon": _status(429, Retry_After="1"),
    "rate limited, for long": _status(429, Retry_After="86400"),
    "redirect elsewhere": _status(307, Location="http://elsewhere.invalid/v1?token=abc"),
    "not JSON": _not_json,
    "not an answer": _not_an_answer,
    "deep JSON": _deep_json,
    "infinite number": _infinite_number,
    "huge": _huge,
    "endless event": _endless_event,
    "cut short": _cut_short,
    "stream without an end": _no_end,
    "error in the stream": _error_in_stream,
    "rubbish in the stream": _stream_of_rubbish,
    "drip": _drip,
    "drip of headers": _drip_of_headers,
    "silence": _silence,
    "hang up": _hang_up,
    "compressed": _compressed,
}

__all__ = ["MISBEHAVIOURS", "FakeEndpoint", "Planted", "serving"]
