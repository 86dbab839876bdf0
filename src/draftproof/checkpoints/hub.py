"""A repository of a hub as a folder: listed once, small files whole, large ones by range, nothing written to disk.

Made by `opening`. What the local cache of the hub holds of the same commit is taken from there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from draftproof.checkpoints.files import CONFIG_MAX_BYTES, TOKENIZER_MAX_BYTES, broken, decode, parse_json
from draftproof.checkpoints.folder import COMMIT, MAX_FILES, SHA256, LocalFolder
from draftproof.checkpoints.hub_client import HubClient, contradiction
from draftproof.checkpoints.hub_settings import HubId
from draftproof.core.errors import DraftproofError

_UNUSABLE = re.compile(r"\\|\0|(^|/)(\.{0,2})(/|$)")
"""In a path: what leads elsewhere or names nothing."""
_LISTING_MAX_BYTES = 4 * CONFIG_MAX_BYTES


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """`size` in bytes and `sha256`, where the hub lists them: large files have both."""

    size: int | None
    sha256: str | None


Listing = tuple[str, dict[str, RemoteFile]]
"""Of a repository: its commit, and path → what is known of the file."""


class HubFolder:
    """`Folder` of one repository at one commit: of what lies at its top, or of one subfolder."""

    def __init__(
        self,
        client: HubClient,
        hub_id: HubId,
        cached: LocalFolder | None = None,
        listing: Listing | None = None,
        under: str = "",
    ) -> None:
        self._client = client
        self._id = hub_id
        self._cached = cached
        self._sizes: dict[str, int] = {}
        self._under = under
        if listing is not None:
            self._listing = listing

    def subfolder(self, under: str) -> HubFolder:
        """A folder of the repository, "" for its top; the listing is shared."""
        cached = None if self._cached is None else LocalFolder(self._cached.path / under, self._cached.place)
        return HubFolder(self._client, self._id, cached, self._listing, under)

    @property
    def paths(self) -> frozenset[str]:
        """Of all files of the repository, with their folders."""
        return frozenset(self._listing[1])

    @property
    def place(self) -> str:
        return f"hub {self._client.shown_endpoint}, {self._id.name} at {self.commit}"

    @property
    def commit(self) -> str:
        return self._listing[0]

    @cached_property
    def remote_files(self) -> Mapping[str, RemoteFile]:
        prefix = self._under + "/" if self._under else ""
        return {
            path.removeprefix(prefix): file
            for path, file in self._listing[1].items()
            if path.startswith(prefix) and "/" not in path.removeprefix(prefix)
        }

    def names(self) -> frozenset[str]:
        return frozenset(self.remote_files)

    def label(self, name: str) -> str:
        return "/".join(filter(None, (self._id.name, self._under, name)))

    def path_of(self, name: str) -> Path | None:
        self._require(name)
        if not self._is_cached(name):
            return None
        assert self._cached is not None
        return self._cached.path_of(name)

    def read(self, name: str, max_bytes: int) -> bytes | None:
        if name not in self.remote_files:
            return None
        if self._is_cached(name):
            assert self._cached is not None
            return self._cached.read(name, max_bytes)
        size = self.remote_files[name].size
        if size is not None and size > max_bytes:
            raise broken(self.label(name), f"{size} bytes", f"at most {max_bytes}")
        content = self._client.read(self._url(name), max_bytes)
        if size is not None and len(content) != size:
            raise contradiction(self._url(name), f"{len(content)} bytes", f"{size} bytes, as listed")
        return content

    def read_range(self, name: str, start: int, num_bytes: int) -> bytes:
        self._require(name)
        if self._is_cached(name):
            assert self._cached is not None
            return self._cached.read_range(name, start, num_bytes)
        piece = self._client.read_range(self._url(name), start, num_bytes)
        listed = self.remote_files[name].size
        if piece.size is not None:
            if listed not in (None, piece.size):
                raise contradiction(
                    self._url(name), f"a file of {piece.size} bytes", f"{listed} bytes, as listed"
                )
            self._sizes[name] = piece.size
        if len(piece.content) < num_bytes:
            raise broken(
                self.label(name), f"{start + len(piece.content)} bytes", f"at least {start + num_bytes}"
            )
        return piece.content

    def size(self, name: str) -> int:
        self._require(name)
        size = self.remote_files[name].size
        size = self._sizes.get(name) if size is None else size
        if size is None:
            size = self._client.read_range(self._url(name), 0, 8).size
            if size is None:
                raise contradiction(self._url(name), "no size of the file", "Content-Range or Content-Length")
            self._sizes[name] = size
        return size

    def sha256(self, name: str) -> str:
        """As the hub names it for large files; small ones are fetched and hashed."""
        self._require(name)
        listed = self.remote_files[name].sha256
        if listed is not None:
            return listed
        etag = self._client.head(self._url(name)).get("X-Linked-Etag", "").strip('"').removeprefix("sha256:")
        if SHA256.fullmatch(etag):
            return etag
        content = self.read(name, TOKENIZER_MAX_BYTES)
        assert content is not None
        return hashlib.sha256(content).hexdigest()

    def _is_cached(self, name: str) -> bool:
        return self._cached is not None and name in self._cached_names

    @cached_property
    def _cached_names(self) -> frozenset[str]:
        return (
            self._cached.names() if self._cached is not None and self._cached.path.is_dir() else frozenset()
        )

    def _require(self, name: str) -> None:
        if name not in self.remote_files:
            raise DraftproofError(
                "DP401", self._id.name, f"no file {name}", "a file of the repository", "Check the checkpoint."
            )

    def _url(self, name: str) -> str:
        folders = self._under.split("/") if self._under else ()
        return self._client.url(*self._id.name.split("/"), "resolve", self.commit, *folders, name)

    @cached_property
    def _listing(self) -> Listing:
        parts = ("api", "models", *self._id.name.split("/"))
        revision = self._id.revision or "main"
        url = self._client.url(*parts, "revision", revision) + "?blobs=true"
        document = parse_json(url, decode(url, self._client.read(url, _LISTING_MAX_BYTES)))
        commit, siblings = document.get("sha"), document.get("siblings")
        if not isinstance(commit, str) or not COMMIT.fullmatch(commit) or not isinstance(siblings, list):
            raise contradiction(url, "no commit or no list of files", "what the hub's models API says")
        if len(siblings) > MAX_FILES:
            raise contradiction(url, f"{len(siblings)} files", f"at most {MAX_FILES}")
        files = {}
        for sibling in siblings:
            name = sibling.get("rfilename") if isinstance(sibling, dict) else None
            if isinstance(name, str) and not _UNUSABLE.search(name):
                files[name] = _remote_file(sibling)
        return commit, files


def _remote_file(sibling: Mapping[str, Any]) -> RemoteFile:
    lfs = sibling.get("lfs")
    large = lfs if isinstance(lfs, dict) else {}
    size, sha256 = sibling.get("size", large.get("size")), large.get("sha256", large.get("oid"))
    return RemoteFile(
        size if type(size) is int and 0 <= size < 1 << 60 else None,
        sha256 if isinstance(sha256, str) and SHA256.fullmatch(sha256) else None,
    )
