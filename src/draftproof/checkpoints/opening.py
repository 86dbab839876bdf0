"""What a reference names, and the view of it. Called through `view.open_view`."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

from draftproof.checkpoints.files import detect
from draftproof.checkpoints.folder import MAX_FILES, Folder, LocalFolder, readable
from draftproof.checkpoints.gguf_naming import choose, models_among, parts_of
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


def open_reference(
    reference: str, revision: str | None, hub: HubSettings | None, preferred: tuple[str, ...]
) -> CheckpointView:
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
            return _gguf_view(reference, LocalFolder(path.parent, named=path.name), path.name, remarks)
    hub_id = parse_hub_id(reference, revision)
    if hub_id is None or (hub_id.file is not None and Path(reference.partition("/")[0]).is_dir()):
        raise DraftproofError(
            "DP401",
            "checkpoint",
            reference[:300],
            "a directory with config.json, a GGUF file, or org/name of a hub (of a GGUF model, org/name:Q4_K_M)",
            "Check the path.",
        )
    return _open_hub(reference, hub_id, hub or settings_from_environment(), preferred)


def _open_directory(reference: str, folder: LocalFolder, remarks: tuple[str, ...]) -> CheckpointView:
    names = folder.names()
    gguf = models_among(names)
    if len(gguf) == 1 and not _has_safetensors(names):
        with readable(folder.path):
            return _gguf_view(reference, folder, gguf[0], remarks)
    if "config.json" in names or _has_safetensors(names):
        return _folder_view(reference, folder, remarks)
    if not gguf:  # where `hf download` puts what a repository keeps in folders
        with readable(folder.path):
            below = list(islice(folder.path.glob("*/*.gguf"), MAX_FILES))
        gguf = models_among(path.relative_to(folder.path).as_posix() for path in below)
    raise DraftproofError(
        "DP401",
        "checkpoint",
        f"{folder.place} without config.json and without safetensors",
        "a directory with config.json, or a GGUF file",
        f"Name one of its GGUF files: {', '.join(folder.label(name) for name in gguf[:3])}"
        if gguf
        else "Check that the download is complete.",
    )


def _open_hub(reference: str, hub_id: HubId, hub: HubSettings, preferred: tuple[str, ...]) -> CheckpointView:
    found = cached_snapshot(hub.cache, hub_id)
    cached = None
    if found is not None:
        snapshot, commit = found
        cached = LocalFolder(snapshot, f"hub cache {snapshot}")
        view = _open_cached(reference, hub_id, cached, hub.is_offline, preferred)
        if view is not None:
            return view
        hub_id = replace(hub_id, revision=commit)
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
    if not _means_gguf(hub_id, folder.names(), folder.paths, preferred):
        return _folder_view(reference, folder)
    name = _choose(folder.place, hub_id, folder.paths, preferred)
    under, _, file = name.rpartition("/")
    return _gguf_view(reference, folder.subfolder(under), file)


def _open_cached(
    reference: str, hub_id: HubId, cached: LocalFolder, is_offline: bool, preferred: tuple[str, ...]
) -> CheckpointView | None:
    """From the hub's local cache, where that has all files or the hub is not to be asked."""
    found = islice(cached.path.rglob("*.gguf"), MAX_FILES)
    paths = frozenset(path.relative_to(cached.path).as_posix() for path in found)
    if not _means_gguf(hub_id, cached.names(), paths, preferred):
        shards = find_shards(cached)
        has_all = shards is not None and not shards.missing
        return _folder_view(reference, cached) if is_offline or has_all else None
    if not is_offline and hub_id.file is None and hub_id.quantisation is None:
        return None
    try:
        name = _choose(cached.place, hub_id, paths, preferred)
    except DraftproofError:
        if is_offline:
            raise
        return None
    if not is_offline and not paths.issuperset(parts_of(name)):
        return None
    under, _, file = name.rpartition("/")
    return _gguf_view(reference, LocalFolder(cached.path / under, cached.place), file)


def _has_safetensors(names: frozenset[str]) -> bool:
    return any(name.endswith(_WEIGHTS) for name in names)


def _means_gguf(
    hub_id: HubId, names: frozenset[str], paths: frozenset[str], preferred: tuple[str, ...]
) -> bool:
    """Whether a GGUF model is named, or is all that there is, or all that the engine reads."""
    if hub_id.file is not None or hub_id.quantisation is not None:
        return True
    models = models_among(paths)
    if preferred and models:
        return True
    return not _has_safetensors(names) and (len(models) == 1 or "config.json" not in names)


def _choose(place: str, hub_id: HubId, paths: frozenset[str], preferred: tuple[str, ...]) -> str:
    reference = hub_id.name if hub_id.revision is None else f"{hub_id.name}@{hub_id.revision}"
    return choose(place, reference, paths, hub_id.file, hub_id.quantisation, preferred)


def _folder_view(reference: str, folder: Folder, remarks: tuple[str, ...] = ()) -> CheckpointView:
    from draftproof.checkpoints.folder_view import FolderView

    return FolderView(reference, folder, remarks)


def _gguf_view(reference: str, folder: Folder, name: str, remarks: tuple[str, ...] = ()) -> CheckpointView:
    from draftproof.checkpoints.gguf_view import GgufView

    return GgufView(reference, folder, name, remarks)
