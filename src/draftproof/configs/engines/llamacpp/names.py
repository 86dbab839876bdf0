"""Whether a model's name is a file for llama.cpp, or a repository of the hub.

Called by this dialect's reading and writing, so that both decide alike.
"""

from __future__ import annotations


def is_file(name: str) -> bool:
    """A path, or a name that ends in .gguf; `owner/name` is a repository."""
    owner, slash, rest = name.partition("/")
    return (
        name.endswith(".gguf")
        or not slash
        or not owner
        or owner in (".", "..", "~")
        or "/" in rest
        or not rest
    )
