"""HTTP to a hub: whole small files and ranges of large ones, every answer bounded in bytes and in time.

Called by `hub`. Knows what hubs answer and what that means for the user; nothing of checkpoints. Why not the
huggingface_hub library: docs/adr/0020.
"""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from draftproof.checkpoints.hub_settings import HubSettings, without_credentials
from draftproof.core.deadline import within
from draftproof.core.errors import DraftproofError
from draftproof.core.version import __version__

if TYPE_CHECKING:
    import httpx

Result = TypeVar("Result")

MAX_SKIPPED_BYTES = 1 << 25
"""What is read and thrown away where a server ignores ranges; beyond it, it is told."""
_MAX_REDIRECTS = 5
_NUM_ATTEMPTS = 2
_RETRY_AFTER_S = 0.5
_PASSING = frozenset((500, 502, 503, 504))
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file, and its whole size where the server told it."""

    content: bytes
    size: int | None


class HubClient:
    """Requests to one hub. Connections open at the first one and close when nothing refers to this any more."""

    def __init__(self, settings: HubSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()

    @property
    def shown_endpoint(self) -> str:
        return _shown(self.settings.endpoint)

    def url(self, *parts: str) -> str:
        return "/".join((self.settings.endpoint, *(quote(part, safe="") for part in parts)))

    def read(self, url: str, max_bytes: int) -> bytes:
        """The whole answer. Raises DP413 for a longer one, and what `read_range` raises."""
        return self._attempt(url, {}, lambda response, stop: _read_whole(response, url, max_bytes, stop))

    def read_range(self, url: str, start: int, num_bytes: int) -> Piece:
        """Bytes `start` to `start + num_bytes`, fewer only where the file ends before.

        Raises DP401 where there is no such file, DP411 where the hub cannot be reached in time, DP412 where it
        refuses, DP413 where its answer is not what was asked for.
        """
        headers = {"Range": f"bytes={start}-{start + num_bytes - 1}"}
        return self._attempt(
            url, headers, lambda response, stop: _read_piece(response, url, start, num_bytes, stop)
        )

    def head(self, url: str) -> Mapping[str, str]:
        """Headers of the hub's own answer: redirects to where large files lie are not followed."""
        return self._attempt(url, {}, lambda response, stop: response.headers, method="HEAD")

    @cached_property
    def _client(self) -> httpx.Client:
        import httpx

        headers = {"User-Agent": f"draftproof/{__version__}", "Accept-Encoding": "identity"}
        if self.settings.token is not None:
            headers["Authorization"] = f"Bearer {self.settings.token}"
        try:
            client = httpx.Client(
                headers=headers, timeout=self.settings.timeout_s, max_redirects=_MAX_REDIRECTS
            )
        except (ValueError, TypeError, OSError, ImportError, httpx.InvalidURL) as error:
            raise self._unreachable(
                self.settings.endpoint, f"{type(error).__name__} in a proxy or TLS setting"
            ) from error
        weakref.finalize(self, client.close)
        return client

    def _attempt(
        self,
        url: str,
        headers: Mapping[str, str],
        read: Callable[[httpx.Response, float], Result],
        method: str = "GET",
    ) -> Result:
        """Once more where the fault may pass."""
        with self._lock:
            assert self._client is not None  # imported and set up here, in the caller's thread
        stop = time.monotonic() + self.settings.deadline_s

        def work() -> Result:
            return self._request(method, url, headers, lambda response: read(response, stop))

        for attempt in range(1, _NUM_ATTEMPTS + 1):
            try:
                return within(stop, work, "hub request")
            except TimeoutError as error:
                raise self._unreachable(url, f"no whole answer in {self.settings.deadline_s:g} s") from error
            except _PassingError as fault:
                if attempt == _NUM_ATTEMPTS:
                    raise self._unreachable(url, str(fault)) from fault
                time.sleep(_RETRY_AFTER_S)
        raise AssertionError("the last attempt returns or raises")

    def _request(
        self, method: str, url: str, headers: Mapping[str, str], read: Callable[[httpx.Response], Result]
    ) -> Result:
        import httpx

        try:
            with self._client.stream(
                method, url, headers=headers, follow_redirects=method == "GET"
            ) as response:
                self._judge(response, url)
                return read(response)
        except httpx.TooManyRedirects as error:
            raise self._unreachable(url, f"more than {_MAX_REDIRECTS} redirects") from error
        except httpx.DecodingError as error:
            raise contradiction(url, "an answer that cannot be decoded", "the file as it is") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise _PassingError(f"{type(error).__name__}: {error}"[:200]) from error

    def _judge(self, response: httpx.Response, url: str) -> None:
        """Raises for every status that is not a success."""
        status, reason = response.status_code, response.headers.get("X-Error-Code", "")
        if response.is_success or (response.is_redirect and response.request.method == "HEAD"):
            return
        found = f"HTTP {status} {reason}".strip()[:200]
        if status in _PASSING:
            raise _PassingError(found)
        if reason == "GatedRepo" or status == 403:
            remedy = (
                "Accept the model's conditions on its page, then set HF_TOKEN to a token that may read it."
                if self.settings.token is None
                else "Accept the model's conditions on its page, and check that your token may read it."
            )
            raise DraftproofError("DP412", _shown(url), found, "access to the model", remedy)
        if status == 401:
            raise DraftproofError(
                "DP412" if self.settings.token is not None else "DP401",
                _shown(url),
                found,
                "a public model, or a token that may read it",
                "Check the spelling of the name. For a private or gated model set HF_TOKEN; "
                "a token that is set must be valid.",
            )
        if status == 429:
            after = response.headers.get("Retry-After", "")
            wait = f"{after} seconds" if after.isdecimal() and len(after) < 7 else "a few minutes"
            remedy = f"Wait {wait}" + (
                "." if self.settings.token else "; with HF_TOKEN set the hub allows more requests."
            )
            raise DraftproofError("DP412", _shown(url), found, "an answer", remedy)
        if status in (404, 410):
            raise DraftproofError(
                "DP401",
                _shown(url),
                found,
                "a model of the hub, a revision of it and a file in it",
                "Check the spelling of the name and the revision; a local directory must exist.",
            )
        raise self._unreachable(url, found)

    def _unreachable(self, url: str, found: str) -> DraftproofError:
        remedy = (
            "Check the network, proxy settings and HF_ENDPOINT. With HF_HUB_OFFLINE=1 only the local cache is used; "
            "a directory can be named instead."
        )
        return DraftproofError("DP411", _shown(url), found, "an answer of the hub", remedy)


class _PassingError(Exception):
    """What may be different at the next attempt."""


def contradiction(url: str, found: str, expected: str) -> DraftproofError:
    """A hub's answer that is not what was asked for."""
    remedy = (
        "Check HF_ENDPOINT: a mirror or proxy may not pass on what it should. Or download the files first."
    )
    return DraftproofError("DP413", _shown(url), found, expected, remedy)


def _shown(url: str) -> str:
    return without_credentials(url)[:300]


def _read_whole(response: httpx.Response, url: str, max_bytes: int, stop: float) -> bytes:
    promised = _content_length(response)
    if promised is not None and promised > max_bytes:
        raise contradiction(url, f"{promised} bytes", f"at most {max_bytes}")
    content = _take(response, url, max_bytes + 1, stop)
    if len(content) > max_bytes:
        raise contradiction(url, f"more than {max_bytes} bytes", f"at most {max_bytes}")
    return content


def _read_piece(response: httpx.Response, url: str, start: int, num_bytes: int, stop: float) -> Piece:
    if response.status_code == 206:
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != start:
            found = response.headers.get("Content-Range", "no Content-Range")[:100]
            raise contradiction(url, found, f"the range from {start}")
        content = _take(response, url, num_bytes, stop)
        size = None if match[3] == "*" else int(match[3])
    else:
        if start + num_bytes > MAX_SKIPPED_BYTES:
            raise contradiction(url, "the whole file", f"bytes {start} to {start + num_bytes}: ranged reads")
        content = _take(response, url, start + num_bytes, stop)[start:]
        size = _content_length(response)
    if len(content) < num_bytes and (size is None or start + len(content) < min(size, start + num_bytes)):
        raise contradiction(url, f"{len(content)} bytes", f"{num_bytes} bytes")
    return Piece(content, size)


def _take(response: httpx.Response, url: str, num_bytes: int, stop: float) -> bytes:
    """The first `num_bytes`, or all where there are fewer. The rest is not fetched."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise contradiction(url, f"content encoded as {encoding[:50]}", "the file as it is")
    content = bytearray()
    for chunk in response.iter_raw():
        content += chunk[: num_bytes - len(content)]
        if len(content) == num_bytes:
            break
        if time.monotonic() > stop:
            raise TimeoutError
    return bytes(content)


def _content_length(response: httpx.Response) -> int | None:
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isdecimal() and len(text) < 19 else None
