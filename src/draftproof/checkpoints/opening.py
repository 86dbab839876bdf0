"""What a reference names, and the view of it. Called through `view.open_view`."""

from __future__ import annotations

from pathlib import Path

from draftproof.checkpoints.files import detect
from draftproof.checkpoints.folder import LocalFolder
from draftproof.checkpoints.folder_view import FolderView
from draftproof.checkpoints.gguf_view import GgufView
from draftproof.checkpoints.view import CheckpointView
from draftproof.core.errors import DraftproofError


def open_reference(reference: str, revision: str | None) -> CheckpointView:
    """As `view.open_view`."""
    path = Path(reference)
    if path.is_dir():
        return _open_directory(reference, path, revision)
    if path.is_file() or path.exists():
        detect(path)
        return GgufView(reference, path)
    raise DraftproofError(
        "DP401",
        "checkpoint",
        reference,
        "a directory with config.json, or a GGUF file",
        "Check the path.",
    )


def _open_directory(reference: str, path: Path, revision: str | None) -> CheckpointView:
    folder = LocalFolder(path)
    names = folder.names()
    has_model = "config.json" in names or any(
        name.endswith((".safetensors", ".safetensors.index.json")) for name in names
    )
    if has_model:
        return FolderView(reference, folder, revision)
    gguf = sorted(name for name in names if name.endswith(".gguf"))
    if len(gguf) == 1:
        return GgufView(reference, path / gguf[0])
    raise DraftproofError(
        "DP401",
        "checkpoint",
        f"{path} without config.json and without safetensors",
        "a directory with config.json, or a GGUF file",
        f"Name one of its GGUF files: {', '.join(gguf[:3])}"
        if gguf
        else "Check that the download is complete.",
    )
