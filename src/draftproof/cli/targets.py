"""What TARGET on a command line names, for commands that judge without loading.

A directory, a GGUF file, a name from `draftproof models list`, or a hub id. Knows nothing of what is done with it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from draftproof.checkpoints.hub_settings import where_to_look
from draftproof.checkpoints.view import CheckpointView, open_view
from draftproof.configs.identity import is_hub_id
from draftproof.core.errors import DraftproofError


@dataclass(frozen=True, slots=True)
class Target:
    """`view` is None where only the name is known; `unread` then says why, in words."""

    reference: str
    view: CheckpointView | None
    unread: str | None = None


def open_local(reference: str) -> Target:
    """Files of this machine; a hub id that is no path here is kept as a name, and nothing is fetched.

    Raises DP401 for what is neither, DP402 and DP407 as `open_view`.
    """
    path = _model_here(reference)
    if path is None and not os.path.exists(os.path.expanduser(reference)):
        if is_hub_id(reference):
            return Target(reference, None, "no files of this name on this machine; the hub was not asked")
        raise DraftproofError(
            "DP401",
            "TARGET",
            reference[:200],
            "a directory, a GGUF file, a name from `draftproof models list`, or a hub id (owner/name)",
            where_to_look(reference),
        )
    return Target(reference, open_view(path or os.path.expanduser(reference)))


def _model_here(name: str) -> str | None:
    """The path of a model of our own catalogue. Raises DP401 for one that was not fetched yet."""
    if os.path.exists(name) or is_hub_id(name):
        return None
    from draftproof.models.catalogue import CATALOGUE, is_available, local_path

    model = CATALOGUE.get(name)
    if model is None:
        return None
    if not is_available(model):
        raise DraftproofError(
            "DP401",
            "TARGET",
            f"{name}, which is not here yet",
            "a model that is here",
            f"draftproof models pull {name}",
        )
    return str(local_path(model))
