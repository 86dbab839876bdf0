"""Where tensors lie in checkpoints that fuse, stack, rename or shift them, and what does not fit is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from draftproof.checkpoints.gguf import open_checkpoint
from draftproof.core.errors import DraftproofError
from draftproof.models.loading import load_weights
from support.checkpoints import write_checkpoint, write_gguf
from support.specs import TINY, Family, Spec, build_weights

LAYER = "model.layers.0."


def rewrite(directory: Path, change: Mapping[str, Tensor | None]) -> Path:
    weights = load_file(directory / "model.safetensors") | change
    kept = {name: weight.contiguous() for name, weight in weights.items() if weight is not None}
    save_file(kept, directory / "model.safetensors")
    return directory


def refusal(path: Path) -> DraftproofError:
    with pytest.raises(DraftproofError) as caught:
        load_weights(open_checkpoint(path))
    return caught.value


def test_fused_tensors_are_read_by_rows(tmp_path: Path) -> None:
    spec = replace(TINY, family="phi3", kv_heads=1)
    fused = build_weights(spec)[LAYER + "self_attn.qkv_proj.weight"]
    _, weights = load_weights(open_checkpoint(write_checkpoint(tmp_path, spec)))
    for name, rows in (("q", slice(0, 64)), ("k", slice(64, 80)), ("v", slice(80, 96))):
        assert torch.equal(weights[f"{LAYER}self_attn.{name}_proj.weight"], fused[rows])


@pytest.mark.parametrize("family", ["mixtral", "qwen3moe"])
def test_experts_one_by_one_and_stacked_are_the_same(tmp_path: Path, family: Family) -> None:
    """Transformers 5 keeps gate and up of all experts in one tensor; files on hubs hold each by itself."""
    spec = replace(TINY, family=family)
    _, single = load_weights(open_checkpoint(write_checkpoint(tmp_path / "single", spec)))
    directory = write_checkpoint(tmp_path / "stacked", spec)
    changes: dict[str, Tensor | None] = dict.fromkeys(n for n in build_weights(spec) if ".experts." in n)
    for layer in range(spec.layers):
        prefix = f"model.layers.{layer}.mlp.experts."
        parts = {
            part: torch.stack([single[f"{prefix}{expert}.{part}_proj.weight"] for expert in range(4)])
            for part in ("gate", "up", "down")
        }
        changes[prefix + "gate_up_proj"] = torch.cat([parts["gate"], parts["up"]], dim=1)
        changes[prefix + "down_proj"] = parts["down"]
    _, stacked = load_weights(open_checkpoint(rewrite(directory, changes)))
    assert set(stacked) == set(single)
    for name in single:
        assert torch.equal(stacked[name], single[name])


def test_norms_of_gemma_are_the_factors_that_they_stand_for(tmp_path: Path) -> None:
    spec = replace(TINY, family="gemma3", window=9, tie=True, dtype=torch.bfloat16)
    stored = build_weights(spec)
    _, weights = load_weights(open_checkpoint(write_checkpoint(tmp_path, spec)))
    norms = [name for name in stored if name.endswith("norm.weight")]
    assert len(norms) == 6 * spec.layers + 1
    for name in norms:
        assert torch.equal(weights[name], stored[name].bfloat16().float() + 1)


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("phi3", {"self_attn.qkv_proj.weight": torch.zeros(95, 64)}),
        ("phi3", {"self_attn.qkv_proj.weight": torch.zeros(128, 63)}),
        ("phi3", {"self_attn.qkv_proj.weight": torch.zeros(128)}),
        ("phi3", {"self_attn.q_proj.weight": torch.zeros(64, 64)}),
        ("phi3", {"mlp.gate_up_proj.weight": torch.zeros(255, 64)}),
        ("llama", {"self_attn.qkv_proj.weight": torch.zeros(128, 64)}),
        ("llama", {"mlp.experts.down_proj": torch.zeros(4, 64, 128)}),
        ("qwen3", {"self_attn.q_norm.weight": torch.zeros(64)}),
        ("qwen3", {"self_attn.k_norm.weight": None}),
        ("gemma3", {"post_feedforward_layernorm.weight": None}),
        ("mixtral", {"block_sparse_moe.experts.3.w2.weight": None}),
        ("mixtral", {"block_sparse_moe.experts.4.w2.weight": torch.zeros(64, 128)}),
        ("mixtral", {"mlp.experts.down_proj": torch.zeros(4, 64, 128)}),
        ("qwen3moe", {"mlp.gate.weight": torch.zeros(3, 64)}),
        ("qwen3moe", {"mlp.gate_proj.weight": torch.zeros(128, 64)}),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_tensors_that_do_not_fit_are_refused(
    tmp_path: Path, family: Family, change: dict[str, Tensor | None]
) -> None:
    directory = write_checkpoint(tmp_path, replace(TINY, family=family, window=9))
    changes = {LAYER + name: weight for name, weight in change.items()}
    assert refusal(rewrite(directory, changes)).code == "DP404"


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_parts_of_quantised_tensors_are_those_rows(tmp_path: Path, kind: str) -> None:
    specs: list[tuple[Spec, dict[str, Any]]] = [
        (replace(TINY, family="phi3"), {"blk.0.attn_qkv.weight": ["self_attn.q", "self_attn.k", "self_attn.v"]}),
        (replace(TINY, family="mixtral"), {"blk.0.ffn_up_exps.weight": [f"mlp.experts.{n}.up" for n in range(4)]}),
    ]  # fmt: skip
    for spec, parts in specs:
        file = open_checkpoint(write_gguf(tmp_path / "m.gguf", spec, kind))
        _, weights = load_weights(file)
        whole = dict(_gguf_values(tmp_path / "m.gguf"))
        for stored, names in parts.items():
            joined = torch.cat([weights[f"{LAYER}{name}_proj.weight"] for name in names])
            assert torch.equal(joined, whole[stored].view(joined.shape))


def _gguf_values(path: Path) -> list[tuple[str, Tensor]]:
    """All tensors by the library that defines the format."""
    import gguf

    return [
        (tensor.name, torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy()))
        for tensor in gguf.GGUFReader(path).tensors
    ]
