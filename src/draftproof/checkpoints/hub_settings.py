"""Where checkpoints by hub id come from: endpoint, token, local cache, offline. The environment's own variables.

Read by `hub`. The variables and the cache's layout are those of the huggingface_hub library (2.4), so that whoever
set them up for an engine needs nothing else here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from draftproof.checkpoints.folder import COMMIT
from draftproof.core.errors import DraftproofError
from draftproof.core.files import open_regular

DEFAULT_ENDPOINT = "https://huggingface.co"
_MAX_TOKEN_BYTES = 4096
_TRUE = frozenset(("1", "ON", "YES", "TRUE"))
_PART = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}"
_HUB_ID = re.compile(
    r"(?:(?:hf|huggingface)\.co/)?"
    rf"(?P<id>{_PART}/{_PART})(?P<file>(?:/[A-Za-z0-9_][A-Za-z0-9_.+=-]{{0,199}}){{1,8}}(?<=\.gguf))?"
    r"(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9_./-]{0,199}))?(?::(?P<tag>[A-Za-z0-9][A-Za-z0-9_.-]{0,199}))?"
)
_SNAPSHOT = re.compile(
    rf"(?:^|[\\/])models--(?P<owner>{_PART}?)--(?P<name>{_PART})[\\/]snapshots[\\/][^\\/]+[\\/]*$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """`timeout_s` is for one step of a connection, `deadline_s` for one whole request.

    The token is never shown: not in messages, not by `repr`.
    """

    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)
    cache: Path | None = None
    is_offline: bool = False
    timeout_s: float = 10.0
    deadline_s: float = 120.0


@dataclass(frozen=True, slots=True)
class HubId:
    """`name` is org/name; `revision` a branch, a tag or a commit.

    Of the repository's GGUF models, `file` names one by its path in it, `quantisation` by a word in its name.
    """

    name: str
    revision: str | None
    file: str | None = None
    quantisation: str | None = None


def parse_hub_id(reference: str, revision: str | None = None) -> HubId | None:
    """What `org/name[@revision]` names; None for text that cannot be a hub id. Raises DP401.

    GGUF models are named as llama.cpp and Ollama do it (`org/name:Q4_K_M`, with or without `hf.co/` in front), or by
    file (`org/name/folder/file.gguf`). A `revision` given apart must not contradict the one in the text.
    """
    match = _HUB_ID.fullmatch(reference)
    if match is None or ".." in reference or "--" in match["id"] or (match["file"] and match["tag"]):
        return None
    if match["id"].endswith(".gguf"):
        return None  # a file of this machine that is not there
    if revision is not None and match["revision"] not in (None, revision):
        raise DraftproofError(
            "DP401", "revision", f"{match['revision']} and {revision}", "one revision", "Name it once."
        )
    if revision is not None and parse_hub_id(f"a/b@{revision}") is None:
        raise DraftproofError(
            "DP401", "revision", revision[:200], "a branch, a tag or a commit", "Name it as the hub does."
        )
    file = match["file"] and match["file"][1:]
    return HubId(match["id"], revision or match["revision"], file, match["tag"])


def settings_from_environment(environment: Mapping[str, str] = os.environ) -> HubSettings:
    """HF_ENDPOINT, HF_TOKEN (else the file that a login left), HF_HUB_CACHE or HF_HOME, HF_HUB_OFFLINE.

    Raises DP411 for an endpoint that is no URL.
    """
    home = Path(
        environment.get("HF_HOME")
        or Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    ).expanduser()
    cache = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    endpoint = (environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if not re.fullmatch(r"https?://[^\s/]+(/[^\s?#]*)?", endpoint):
        raise DraftproofError(
            "DP411",
            "HF_ENDPOINT",
            without_credentials(endpoint)[:200],
            "the URL of a hub, such as https://huggingface.co",
            "Correct HF_ENDPOINT or unset it.",
        )
    return HubSettings(
        endpoint=endpoint,
        token=environment.get("HF_TOKEN", "").strip()
        or _stored_token(home, environment.get("HF_TOKEN_PATH")),
        cache=Path(cache).expanduser() if cache else home / "hub",
        is_offline=any(
            environment.get(name, "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        ),
    )


def without_credentials(url: str) -> str:
    """The URL without user name and password."""
    return re.sub(r"//[^/@\s]*@", "//", url)


def _stored_token(home: Path, path: str | None) -> str | None:
    try:
        with open_regular(Path(path or home / "token").expanduser()) as file:
            return file.read(_MAX_TOKEN_BYTES).decode("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def cached_snapshot(cache: Path | None, hub_id: HubId) -> tuple[Path, str] | None:
    """Directory and commit of `hub_id` in the hub's local cache, or None where it is not there.

    The layout: models--org--name/refs/<branch or tag> holds a commit, models--org--name/snapshots/<commit> its files.
    """
    if cache is None:
        return None
    repository = cache / ("models--" + hub_id.name.replace("/", "--"))
    revision = hub_id.revision or "main"
    commit = revision if COMMIT.fullmatch(revision) else _read_ref(repository / "refs" / revision)
    if commit is None:
        return None
    snapshot = repository / "snapshots" / commit
    return (snapshot, commit) if snapshot.is_dir() else None


def cached_name(path: str) -> str | None:
    """The repository, owner/name, whose snapshot in the hub's local cache lies at `path`; None for other places."""
    match = _SNAPSHOT.search(path)
    return None if match is None else f"{match['owner']}/{match['name']}"


def where_to_look(reference: str) -> str:
    """What to do about a name that is no path here."""
    if "/" in reference or os.sep in reference or reference.endswith((".gguf", ".safetensors")):
        return "Check the path."
    return (
        "Check the path. Of a model in Ollama name the file behind FROM in `ollama show --modelfile "
        f"{reference[:80]}`."
    )


def _read_ref(path: Path) -> str | None:
    try:
        with open_regular(path) as file:
            text = file.read(64).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if COMMIT.fullmatch(text) else None
