"""Layer 3 with drafters that have weights: whatever drafts, each request's text is that of plain decoding.

Coupled and greedy requests are compared bit by bit, as in `test_engine_bits.py`; every request here has a seed.
"""

from __future__ import annotations

import os
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from draftproof.models.loading import load_model
from support.checkpoints import write_checkpoint
from support.drafters import FaultyLoader, drafter_intents, write_drafters
from support.mixes import assert_same_bits, generate_mix
from support.specs import Spec

SEED = int(os.environ.get("DRAFTPROOF_TEST_SEED", time.time() // 86400))
TARGET = Spec(hidden=96, intermediate=1600, heads=6, kv_heads=2, head_dim=16, context=320)
NUM_MIXES = {"native": 26, "python": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("drafters")
    write_checkpoint(root / "target", TARGET)
    write_drafters(root, TARGET)
    return root


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernels", ["native", "python"])
def test_a_drafter_changes_no_bit(kernels: str, dtype: str, folder: Path) -> None:
    loaded = load_model(folder / "target", dtype=dtype, kernels=kernels)
    load = FaultyLoader()
    offset = zlib.crc32(f"drafters {kernels} {dtype}".encode())
    intents = drafter_intents(folder)
    accepted = 0
    for index in range(NUM_MIXES[kernels]):
        seed = SEED * 1_000_000_007 + offset + index
        # One kind after the other beside another one, so that each takes part whatever the seed.
        drafters = [intents[index % len(intents)], intents[(7 * index + 3) % len(intents)]]
        mix = generate_mix(seed, loaded.model.config.vocab_size, TARGET.context, drafters)
        outputs, _ = assert_same_bits(loaded, mix, load)
        accepted += sum(output.stats.accepted for output in outputs.values())
    assert accepted > 0


FAMILIES: dict[str, Spec] = {
    "windows": replace(
        TARGET, family="gemma3", intermediate=160, layers=3, window=17, tie=True, extra={"sliding_window_pattern": 2}
    ),
    "experts": replace(TARGET, family="qwen3moe", intermediate=160, experts=6, used_experts=3),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_a_drafter_changes_no_bit_of_other_families(name: str, tmp_path: Path) -> None:
    """With drafters of another family, and the target's own weights at four bits in its own cache."""
    loaded = load_model(write_checkpoint(tmp_path, FAMILIES[name]), dtype="float32")
    write_drafters(tmp_path, replace(TARGET, intermediate=64))
    load, intents = FaultyLoader(), drafter_intents(tmp_path)
    for index in range(8):
        seed = SEED * 1_000_000_007 + zlib.crc32(name.encode()) + index
        drafters = [intents[index % len(intents)], intents[(7 * index + 3) % len(intents)]]
        mix = generate_mix(seed, loaded.model.config.vocab_size, TARGET.context, drafters)
        assert_same_bits(loaded, mix, load)
