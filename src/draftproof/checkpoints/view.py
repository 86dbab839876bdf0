"""One view of a checkpoint for everything that judges without loading: configuration, tokenizer, tensor shapes.

Called by rules, the planner, advice and the deployment record. Local directory, GGUF file or hub id; nothing is read
before it is asked for, no tensor data beyond small index tensors, everything bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from draftproof.checkpoints.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """dtype by the format's own name (BF16, F8_E4M3, Q4_K …), shape with rows first, bytes in the file `where`."""

    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    where: str


class CheckpointView(Protocol):
    """What is known of one checkpoint. Absent parts are None or empty, broken ones raise DP402, never guessed."""

    @property
    def reference(self) -> str:
        """As the user named it."""
        ...

    @property
    def kind(self) -> Literal["safetensors", "gguf", "config"]:
        """config: a directory or repository with a config.json and no weights at hand."""
        ...

    @property
    def revision(self) -> str | None: ...

    @property
    def config(self) -> Mapping[str, Any]:
        """config.json; for GGUF its metadata, keys as in the file."""
        ...

    @property
    def generation_config(self) -> Mapping[str, Any]: ...

    @property
    def tokenizer_config(self) -> Mapping[str, Any]: ...

    @property
    def chat_template(self) -> str | None: ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo] | None:
        """By name in the file; None where only the configuration is at hand."""
        ...

    def vocabulary(self) -> Vocabulary | None:
        """None where there is no tokenizer file."""
        ...

    def integers(self, tensor: str, limit: int = 1 << 20) -> list[int] | None:
        """Values of a small integer or boolean tensor (d2t, t2d); None where it is absent or larger than `limit`."""
        ...

    def hashes(self) -> Mapping[str, str]:
        """File name → sha256 of each file that decides what the model computes (large: reads everything)."""
        ...
