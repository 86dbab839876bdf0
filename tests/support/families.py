"""Sizes of small invented models, family by family, for tests of geometry; and the geometry of a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from draftproof.checkpoints.geometry import Geometry, geometry
from draftproof.checkpoints.view import open_view

TINY: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT = {
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
}
DELTA_NET = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "head_dim": 32,
}
ROUTED = EXPERTS | {"n_routed_experts": 8, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}
INDEXER = {"index_n_heads": 4, "index_head_dim": 16}
LLAMA4 = {"num_local_experts": 8, "head_dim": 16, "attention_chunk_size": 64, "intermediate_size_mlp": 112}
DEEPSEEK_V4 = EXPERTS | INDEXER | {
    "n_routed_experts": 8, "q_lora_rank": 24, "o_lora_rank": 20, "o_groups": 2, "head_dim": 32,
    "sliding_window": 64,
}  # fmt: skip
NEMOTRON_H = EXPERTS | {
    "n_routed_experts": 8, "moe_shared_expert_intermediate_size": 40, "mamba_num_heads": 8, "mamba_head_dim": 16,
    "ssm_state_size": 24, "n_groups": 2, "head_dim": 16,
}  # fmt: skip
KIMI = LATENT | {
    "num_experts": 8, "num_experts_per_token": 2, "moe_intermediate_size": 48, "linear_head_dim": 8,
    "linear_num_heads": 3, "num_expert_group": 1, "topk_group": 1,
}  # fmt: skip
GEMMA_3N = {
    "num_hidden_layers": 10, "head_dim": 16, "num_kv_shared_layers": 4, "vocab_size_per_layer_input": 300,
    "hidden_size_per_layer_input": 12, "laurel_rank": 6, "altup_num_inputs": 3, "sliding_window": 64,
}  # fmt: skip
GEMMA_4 = {
    "num_hidden_layers": 6, "head_dim": 16, "global_head_dim": 32, "sliding_window": 64,
    "hidden_size_per_layer_input": 0,
}  # fmt: skip
MAMBA_2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 24}
ZAMBA_LAYERS = ["linear_attention", "hybrid", "linear_attention", "hybrid", "hybrid"]
ZAMBA = {"num_hidden_layers": 5, "layers_block_type": ZAMBA_LAYERS, "num_key_value_heads": 4}
LAGUNA = {
    "num_experts": 8, "shared_expert_intermediate_size": 40, "head_dim": 16, "sliding_window": 64,
    "layer_types": ["full_attention", "sliding_attention"] * 2,
}  # fmt: skip
LONGCAT = LATENT | {
    "n_routed_experts": 8, "moe_topk": 2, "zero_expert_num": 0, "expert_ffn_hidden_size": 48, "ffn_hidden_size": 96,
    "num_layers": 2,
}  # fmt: skip
STEP = EXPERTS | {
    "moe_num_experts": 8, "moe_top_k": 2, "share_expert_dim": 40, "num_attention_groups": 2, "head_dim": 16,
    "sliding_window": 64,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip


def write_config(directory: Path, config: dict[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def of(directory: Path) -> Geometry:
    return geometry(open_view(str(directory)))
