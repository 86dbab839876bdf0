"""What a running endpoint tells of itself: which model, which version, which settings. Reads pages, sends no prompt.

Called by `checking`. Pages read: `/v1/models` (all), `/version` and `/server_info` (vLLM 0.33.0; the second only in
its development mode), `/server_info` (SGLang 0.5.23), `/props` (llama.cpp b11434). What a page does not say is hidden.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from draftproof.checkpoints.files import decode, parse_json
from draftproof.checkpoints.hub_client import HubClient
from draftproof.checkpoints.hub_settings import HubSettings
from draftproof.configs.lock.drift import Setting
from draftproof.configs.lock.record import DeploymentRecord, template_digest
from draftproof.configs.lock.redaction import is_secret_name
from draftproof.core.errors import DraftproofError

_PAGE_MAX_BYTES = 8 << 20
_MAX_DEPTH = 4

_VLLM = {
    ("speculation", "method"): "speculative_config.method",
    ("speculation", "depth"): "speculative_config.num_speculative_tokens",
    ("max_model_len",): "model_config.max_model_len",
    ("tensor_parallel",): "parallel_config.tensor_parallel_size",
    ("max_num_seqs",): "scheduler_config.max_num_seqs",
    ("max_num_batched_tokens",): "scheduler_config.max_num_batched_tokens",
}
"""Neutral setting → where vLLM's /server_info?config_format=json has it."""
_LLAMACPP_TYPES = {
    "draft_model": "draft-simple",
    "none": "none",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
}


@dataclass(slots=True)
class Live:
    """As `drift.Now` has it; `hidden` by part in words."""

    version: str | None = None
    served: tuple[str, ...] | None = None
    template: str | None = None
    settings: list[Setting] = field(default_factory=list)
    hidden: dict[str, str] = field(default_factory=dict)


def look(url: str, lock: DeploymentRecord, api_key: str | None = None) -> Live:
    """Raises DP411 where nobody answers at `url`, DP412 where a key is needed."""
    base = url.rstrip("/").removesuffix("/v1")
    client = HubClient(HubSettings(endpoint=base, token=api_key, timeout_s=10.0, deadline_s=30.0))
    live = Live()
    models = _page(client, "/v1/models")
    if isinstance(models, DraftproofError):
        if models.code in ("DP411", "DP412"):
            raise DraftproofError(
                models.code,
                models.field,
                models.found,
                "an endpoint that answers",
                "Start the engine, check the address, and name its key where it needs one.",
            ) from models
        live.hidden["the served model"] = _why("/v1/models", models)
    else:
        live.served = tuple(_model_names(models))
    if lock.engine.name == "llamacpp":
        _llamacpp(client, lock, live)
    elif lock.engine.name == "sglang":
        _sglang(client, lock, live)
    elif lock.engine.name == "vllm":
        _vllm(client, lock, live)
    else:
        live.hidden["engine version"] = f"no page of {lock.engine.name} that says it was read"
        live.hidden["settings"] = f"no page of {lock.engine.name} that says them was read"
    return live


def _page(client: HubClient, path: str) -> Mapping[str, Any] | DraftproofError:
    address = client.settings.endpoint + path
    try:
        return parse_json(path, decode(path, client.read(address, _PAGE_MAX_BYTES)))
    except DraftproofError as error:
        return error


def _why(path: str, error: DraftproofError) -> str:
    return f"{path} gives {error.found}"


def _model_names(document: Mapping[str, Any]) -> Iterator[str]:
    """Names, and what vLLM calls root: the path or hub id from which the model was loaded."""
    for model in document.get("data") or document.get("models") or ():
        if isinstance(model, dict):
            for key in ("id", "root", "model", "name"):
                if isinstance(model.get(key), str):
                    yield model[key]


def _vllm(client: HubClient, lock: DeploymentRecord, live: Live) -> None:
    version = _page(client, "/version")
    if isinstance(version, DraftproofError):
        live.hidden["engine version"] = _why("/version", version)
    else:
        live.version = str(version.get("version"))
    info = _page(client, "/server_info?config_format=json")
    config = info.get("vllm_config") if isinstance(info, Mapping) else None
    if not isinstance(config, dict):
        why = (
            _why("/server_info", info)
            if isinstance(info, DraftproofError)
            else "/server_info has no vllm_config"
        )
        live.hidden["settings"] = f"{why}; vLLM shows them only with VLLM_SERVER_DEV_MODE=1"
        return
    flat = dict(_leaves(config))
    for path, name in _VLLM.items():
        recorded = _inner(lock.deployment, path)
        found = flat.get(name)
        if path == ("speculation", "method") and recorded == "none" and found is None:
            found = "none"
        if recorded is not None:
            _compare(live, ".".join(path), recorded, found, "/server_info")


def _sglang(client: HubClient, lock: DeploymentRecord, live: Live) -> None:
    info = _page(client, "/server_info")
    if isinstance(info, DraftproofError):
        live.hidden["engine version"] = live.hidden["settings"] = _why("/server_info", info)
        return
    live.version = str(info["version"]) if "version" in info else None
    if live.version is None:
        live.hidden["engine version"] = "/server_info does not say it"
    for name, value in flags(lock.arguments):
        if name in info and not is_secret_name(name):
            _compare(live, name, value, info[name], "/server_info")


def _llamacpp(client: HubClient, lock: DeploymentRecord, live: Live) -> None:
    props = _page(client, "/props")
    if isinstance(props, DraftproofError):
        live.hidden["engine version"] = live.hidden["settings"] = _why("/props", props)
        return
    build = str(props.get("build_info", "b0-"))
    live.version = None if build.startswith("b0-") else build
    if live.version is None:
        live.hidden["engine version"] = (
            "/props names no build: it was built from sources without their history"
        )
    if isinstance(props.get("model_path"), str):
        live.served = (*(live.served or ()), props["model_path"])
    if isinstance(props.get("chat_template"), str):
        live.template = template_digest(props["chat_template"])
    method = str(_inner(lock.deployment, ("speculation", "method")))
    speculates = _speculates(client)
    if speculates is not None:
        live.settings.append(Setting("speculation", _on(method != "none"), _on(speculates), "/slots"))
    defaults = props.get("default_generation_settings")
    parameters = defaults.get("params") if isinstance(defaults, dict) else None
    kinds = parameters.get("speculative.types") if isinstance(parameters, dict) else None
    wanted = _LLAMACPP_TYPES.get(method)
    if isinstance(kinds, str) and kinds != "none" and wanted is not None:
        live.settings.append(Setting("speculative.types", wanted, kinds, "/props"))
    elif (
        method != "none"
    ):  # what /props calls none is the default of a request, also of a server that speculates
        live.hidden["the method of speculation"] = f"/props says {kinds!r}, the record {method!r}"
    live.hidden["draft length and other arguments"] = "/props does not say them"


def _speculates(client: HubClient) -> bool | None:
    """Whether llama.cpp's slots (b11434, `/slots`) say that they speculate; None where they do not say it."""
    address = client.settings.endpoint + "/slots"
    try:
        slots = json.loads(client.read(address, _PAGE_MAX_BYTES))
    except (DraftproofError, ValueError, RecursionError):
        return None
    said = (
        {slot.get("speculative") for slot in slots if isinstance(slot, dict)}
        if isinstance(slots, list)
        else set()
    )
    return True in said if said and said <= {True, False} else None


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"


def flags(arguments: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Options of a command by name with underscores; True for one without a value."""
    for index, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if not name.startswith("--"):
            continue
        following = arguments[index + 1] if index + 1 < len(arguments) else "-"
        given: object = value if equals else True if following.startswith("-") else following
        yield name.lstrip("-").replace("-", "_"), given


def _compare(live: Live, name: str, recorded: object, found: object, where: str) -> None:
    live.settings.append(Setting(name, _text(recorded), _text(found), where))


def _text(value: object) -> str:
    """Numbers alike however they are written, in lower case."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    try:
        return f"{float(str(value)):g}"
    except ValueError:
        return str(value).lower()


def _leaves(value: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        if isinstance(part, dict) and depth < _MAX_DEPTH:
            yield from _leaves(part, f"{before}{key}.", depth + 1)
        else:
            yield f"{before}{key}", part


def _inner(value: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = value
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
