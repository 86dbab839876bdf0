"""Where an endpoint is: its URL as it was given, the address of chat completions, and how a key is shown to it.

Called by the command and the client. Holds no key; sends nothing.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qs, quote, urlencode, urlsplit

from draftproof.configs.providers import DeploymentType
from draftproof.configs.providers.model import Auth
from draftproof.core.errors import DraftproofError

_CHAT = "/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`origin` is scheme, host and port; `chat_path` that of chat completions, with its query."""

    origin: str
    host: str
    chat_path: str
    auth: Auth
    model_in_path: bool = False

    @property
    def chat_url(self) -> str:
        return self.origin + self.chat_path

    @property
    def models_path(self) -> str:
        """Where the names of the models are, next to chat completions."""
        return self.chat_path.partition("?")[0].removesuffix(_CHAT) + "/models"

    @property
    def base(self) -> str:
        """Without `/v1` and what follows: where an engine's own pages are."""
        return self.origin + self.chat_path.partition("?")[0].removesuffix(_CHAT).removesuffix("/v1")

    @property
    def is_local(self) -> bool:
        """Whether this machine answers: no one else is asked, and nothing is billed."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_encrypted(self) -> bool:
        return self.origin.startswith("https://")


def parse_endpoint(
    url: str, row: DeploymentType | None, model: str | None, api_version: str | None
) -> Endpoint:
    """The endpoint at `url`: a host, a base such as `…/v1`, or the full address of chat completions.

    Raises DP121 for what is no such address, and for credentials inside it, which are not shown.
    """
    parts = _split(url)
    host = (parts.hostname or "").lower()
    query = _query(parts, row, api_version)
    path = _chat_path(parts.path.rstrip("/"), row, model)
    shown = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{shown}" + (f":{parts.port}" if parts.port else "")
    return Endpoint(
        origin=origin,
        host=host,
        chat_path=path + (f"?{urlencode(query)}" if query else ""),
        auth=row.auth if row is not None else "bearer",
        model_in_path=row is not None and "{model}" in (row.path or "") and "/deployments/" in path,
    )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _mistake("an address that cannot be read", f"Check host and port ({error}).") from error
    if "@" in parts.netloc:
        raise _mistake(
            "an address with credentials in it",
            "Take them out of the address; give a key by --api-key-env VARIABLE.",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise _mistake(url[:200], "Give http:// or https://, a host, and the path if it is not /v1.")
    if parts.fragment or any(not char.isprintable() or char == " " for char in url):
        raise _mistake("an address with a fragment, blanks or control characters", "Give the address alone.")
    return parts


def _query(parts: SplitResult, row: DeploymentType | None, api_version: str | None) -> dict[str, str]:
    """Only api-version may stand in the address: other parameters may be keys, and would be sent and shown."""
    given = parse_qs(parts.query, keep_blank_values=True)
    if set(given) - {"api-version"}:
        raise _mistake(
            "parameters in the address other than api-version",
            "Take them out; give a key by --api-key-env VARIABLE.",
        )
    version = api_version or given.get("api-version", [""])[0] or (row.api_version if row else None)
    return {"api-version": version} if version else {}


def _chat_path(path: str, row: DeploymentType | None, model: str | None) -> str:
    if path.endswith(_CHAT):
        return path
    if path:
        return path + _CHAT
    shape = (row.path if row else None) or "/v1" + _CHAT
    if "{model}" in shape and model is None:
        raise DraftproofError(
            "DP121",
            "--model",
            "no name of the deployment",
            f"the name that stands in {shape}",
            "Give it by --model, or give the full address of chat completions.",
        )
    return shape.replace("{model}", quote(model or "", safe=""))


def _mistake(found: str, remedy: str) -> DraftproofError:
    return DraftproofError("DP121", "URL", found, "the address of an OpenAI-compatible endpoint", remedy)
