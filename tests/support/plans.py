"""Setups of small invented models, for tests of planning."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftproof.checkpoints.view import CheckpointView, open_view
from draftproof.configs.speculation import Deployment, ModelRef, Speculation
from draftproof.planning.assemble import Wish, assemble
from draftproof.planning.setup import Setup

TARGET: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
    "max_position_embeddings": 131072,
}  # fmt: skip
"""Shaped as Llama 3.1 8B is."""
DRAFT = TARGET | {
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "intermediate_size": 8192,
    "tie_word_embeddings": True,
}
HEAD = TARGET | {
    "num_hidden_layers": 1,
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": 32000,
}
QWEN_35_9B: dict[str, Any] = {
    "model_type": "qwen3_5_text", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 12288, "vocab_size": 248320,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
    "mamba_ssm_dtype": "float32", "torch_dtype": "bfloat16",
}  # fmt: skip
GIB = 2**30


def write_config(directory: Path, config: dict[str, Any]) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return str(directory)


def view_of(directory: Path, config: dict[str, Any]) -> CheckpointView:
    return open_view(write_config(directory, config))


def setup_of(
    directory: Path,
    engine: str = "vllm",
    speculation: Speculation | None = None,
    drafter: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
    wish: Wish | None = None,
    **deployment: Any,
) -> Setup:
    """`deployment` are fields of `Deployment`; memory is 24 GiB unless `wish` says otherwise."""
    said = speculation or Speculation()
    if drafter is not None:
        said = replace(said, drafter=ModelRef(name=write_config(directory / "draft", drafter)))
    view = view_of(directory / "target", target or TARGET)
    whole = Deployment(engine=engine, speculation=said, **deployment)
    return assemble(view, whole, wish or Wish(memory=24 * GIB), open_view)


CHAIN = Speculation(method="draft_model", depth=5)
