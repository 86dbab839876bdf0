"""A hub on this machine: serves directories as repositories, well or with one fault that a test asks for."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE_BYTES = 1 << 10
"""Files beyond it are listed as large ones are: with size and sha256."""


@dataclass(slots=True)
class Seen:
    """One request: headers by lower-case name, and how much was sent of the body. Kept before anything is sent, so
    that whoever got an answer finds its request here."""

    method: str
    path: str
    headers: Mapping[str, str]
    num_bytes: int = 0


Fault = Callable[["Answer"], None]


@dataclass
class FakeHub:
    """`fault` answers instead of the hub for paths that `faulty` matches."""

    repositories: dict[str, Path]
    endpoint: str = ""
    faulty: str = "/resolve/"
    fault: Fault | None = None
    lists_blobs: bool = True
    seen: list[Seen] = field(default_factory=list)

    def paths(self) -> list[str]:
        return [f"{seen.method} {seen.path}" for seen in self.seen]

    def listing(self, name: str) -> dict[str, Any]:
        siblings: list[dict[str, Any]] = []
        root = self.repositories[name]
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            content = path.read_bytes()
            entry: dict[str, Any] = {"rfilename": path.relative_to(root).as_posix()}
            if self.lists_blobs:
                entry["size"] = len(content)
            if self.lists_blobs and len(content) > LARGE_BYTES:
                entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
            siblings.append(entry)
        return {"id": name, "sha": COMMIT, "siblings": siblings}


class Answer(BaseHTTPRequestHandler):
    """One request to the hub, and what can be answered."""

    protocol_version = "HTTP/1.1"
    hub: FakeHub
    seen: Seen

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.seen = Seen(self.command, unquote(self.path), headers)  # a connection serves several requests
        self.hub.seen.append(self.seen)
        try:
            if self.hub.fault is not None and re.search(self.hub.faulty, path):
                self.hub.fault(self)
            else:
                self.serve()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_HEAD = do_GET  # noqa: N815

    def serve(self) -> None:
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]
        if parts[:2] == ["api", "models"]:
            name, revision = "/".join(parts[2:4]), parts[5]
            if name not in self.hub.repositories:
                return self.refuse(401, "RepoNotFound")
            if revision not in ("main", COMMIT):
                return self.refuse(404, "RevisionNotFound")
            return self.send(200, json.dumps(self.hub.listing(name)).encode())
        content = self.content()
        if content is None:
            return self.refuse(404, "EntryNotFound")
        wanted = self.wanted()
        if wanted is None:
            return self.send(200, content, {"X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"'})
        start, end = wanted[0], min(wanted[1], len(content) - 1)
        if start > end:
            return self.refuse(416, "")
        self.send(206, content[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{len(content)}"})
        return None

    def content(self) -> bytes | None:
        """Of the file that is asked for."""
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]
        directory = self.hub.repositories.get("/".join(parts[:2]))
        path = directory.joinpath(*parts[4:]) if directory is not None and len(parts) > 4 else None
        return path.read_bytes() if path is not None and path.is_file() else None

    def wanted(self) -> tuple[int, int] | None:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        return None if match is None else (int(match[1]), int(match[2]))

    def refuse(self, status: int, code: str, headers: Mapping[str, str] | None = None) -> None:
        self.send(status, b"", {"X-Error-Code": code, **(headers or {})})

    def send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.start(status, {"Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.write(body)

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def write(self, body: bytes) -> None:
        self.seen.num_bytes += len(body)
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""


@contextmanager
def fake_hub(repositories: dict[str, Path]) -> Iterator[FakeHub]:
    hub = FakeHub(repositories)
    server = _Server(("127.0.0.1", 0), type("OneAnswer", (Answer,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def drip(answer: Answer) -> None:
    """Headers byte by byte, without end."""
    answer.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(1000):
        answer.wfile.write(b"a")
        answer.wfile.flush()
        time.sleep(0.02)
