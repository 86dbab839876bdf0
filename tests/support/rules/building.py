"""Builds cases for rules: tiny checkpoints on disk and a deployment around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.checkpoints.view import open_view
from draftproof.configs.rules.case import Case, Traffic
from draftproof.configs.speculation import Deployment, ModelRef, Speculation
from support.tiny_views import write_view

Build = Callable[[Path], Case]


@dataclass(frozen=True)
class Fixtures:
    """Cases in which the rule speaks, and cases in which it looks and says nothing."""

    positive: tuple[Build, ...]
    negative: tuple[Build, ...]


TOKENS = ("<|end|>", "<|start|>", *"abcdefghij", "ab", "cd", "Ġthe", "Ġof")
SPECIAL = ("<|end|>", "<|start|>")

QWEN = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 16, "hidden_size": 64,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
    "max_position_embeddings": 4096, "eos_token_id": 0, "bos_token_id": 1, "rope_theta": 10000.0,
}  # fmt: skip
"""A target's configuration; drafters change parts of it."""


@dataclass(frozen=True)
class Checkpoint:
    """What `write_view` takes."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Any] | None = None
    values: Mapping[str, Any] | None = None
    tokens: Sequence[str] | None = TOKENS
    special: Sequence[str] = SPECIAL
    documents: Mapping[str, Mapping[str, Any]] | None = None
    name: str | None = None


def case(
    engine: str,
    speculation: Speculation,
    target_files: Checkpoint | None = None,
    drafter_files: Checkpoint | None = None,
    traffic: Traffic | None = None,
    remarks: tuple[Any, ...] = (),
    **deployment: Any,
) -> Build:
    """A builder of a case; fields of the deployment as keywords."""

    def build(directory: Path) -> Case:
        views = {}
        for whose, checkpoint in (("target", target_files), ("drafter", drafter_files)):
            if checkpoint is not None:
                path = write_view(
                    directory / (checkpoint.name or whose),
                    checkpoint.config,
                    tensors=checkpoint.tensors,
                    values=checkpoint.values,
                    tokens=checkpoint.tokens,
                    special=checkpoint.special,
                    documents=checkpoint.documents,
                )
                views[f"{whose}_view"] = open_view(str(path))
        fields = {"target": ModelRef(name="org/target"), **deployment}
        return Case(
            deployment=Deployment(engine=engine, speculation=speculation, **fields),
            traffic=traffic,
            remarks=remarks,
            **views,
        )

    return build
