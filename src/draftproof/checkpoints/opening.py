"""What a reference names, and the view of it. Called through `view.open_view`."""

from __future__ import annotations

from pathlib import Path

from draftproof.checkpoints.files import detect
from draftproof.checkpoints.folder import LocalFolder, readable
from draftproof.checkpoints.folder_view import FolderView
from draftproof.checkpoints.gguf_naming import models_among
from draftproof.checkpoints.gguf_view import GgufView
from draftproof.checkpoints.hub_settings import (
    HubId,
    HubSettings,
    cached_snapshot,
    parse_hub_id,
    settings_from_environment,
)
from draftproof.checkpoints.shards import find_shards
from draftproof.checkpoints.view import CheckpointView
from draftproof.core.errors import DraftproofError

_WEIGHTS = (".safetensors", ".safetensors.index.json")


def open_reference(reference: str, revision: str | None, hub: HubSettings | None) -> CheckpointView:
    """As `view.open_view`."""
    path = Path(reference)
    with readable(path):
        is_directory, exists = (False, False) if "\0" in reference else (path.is_dir(), path.exists())
    remarks = () if revision is None else (f"revision {revision} is not compared: a local checkpoint",)
    if is_directory:
        return _open_directory(reference, LocalFolder(path), remarks)
    if exists:
        with readable(path):
            detect(path)
            return GgufView(reference, LocalFolder(path.parent, named=path.name), path.name, remarks)
    hub_id = parse_hub_id(reference, revision)
    if hub_id is None:
        raise DraftproofError(
            "DP401",
            "checkpoint",
            reference[:300],
            "a directory with config.json, a GGUF file, or org/name of a hub",
            "Check the path.",
        )
    return _open_hub(reference, hub_id, hub or settings_from_environment())


def _open_directory(reference: str, folder: LocalFolder, remarks: tuple[str, ...]) -> CheckpointView:
    names = folder.names()
    if "config.json" in names or any(name.endswith(_WEIGHTS) for name in names):
        return FolderView(reference, folder, remarks)
    gguf = models_among(names)
    if len(gguf) == 1:
        with readable(folder.path):
            return GgufView(reference, folder, gguf[0], remarks)
    raise DraftproofError(
        "DP401",
        "checkpoint",
        f"{folder.place} without config.json and without safetensors",
        "a directory with config.json, or a GGUF file",
        f"Name one of its GGUF files: {', '.join(gguf[:3])}"
        if gguf
        else "Check that the download is complete.",
    )


def _open_hub(reference: str, hub_id: HubId, hub: HubSettings) -> CheckpointView:
    found = cached_snapshot(hub.cache, hub_id)
    cached = None
    if found is not None:
        snapshot, commit = found
        cached = LocalFolder(snapshot, f"hub cache {snapshot}")
        shards = find_shards(cached)
        if hub.is_offline or (shards is not None and not shards.missing):
            return _open_directory(reference, cached, ())
        hub_id = HubId(hub_id.name, commit)
    if hub.is_offline:
        raise DraftproofError(
            "DP414",
            "checkpoint",
            f"{reference}, which is neither a local path nor in the cache {hub.cache}",
            "a checkpoint on this machine: HF_HUB_OFFLINE is set",
            "Unset HF_HUB_OFFLINE, or download the model first.",
        )
    from draftproof.checkpoints.hub import HubFolder
    from draftproof.checkpoints.hub_client import HubClient

    folder = HubFolder(HubClient(hub), hub_id, cached)
    if "config.json" not in folder.names() and not any(name.endswith(_WEIGHTS) for name in folder.names()):
        gguf = models_among(folder.names())
        raise DraftproofError(
            "DP401",
            "checkpoint",
            f"{folder.place} without config.json and without safetensors",
            "a repository with config.json",
            "Download one of its GGUF files and name that." if gguf else "Check the name.",
        )
    return FolderView(reference, folder)
