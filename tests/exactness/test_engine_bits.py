"""Layer 3: the whole engine. Output with speculation equals output without, bit for bit.

Generated mixes of requests run together; each request must give the very tokens, text, log probabilities and logits
that it gives alone, plainly, on a fresh engine. Seeds rotate by the day; `DRAFTPROOF_TEST_SEED` repeats one.
"""

from __future__ import annotations

import dataclasses
import os
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from draftproof.core.intent import Auto, Cascade, NGram, NoSpeculation, Predicted, Suffix
from draftproof.core.params import SamplingParams
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.models.loading import load_model
from support.checkpoints import write_checkpoint, write_gguf
from support.mixes import DOUBLES, assert_same_bits, generate_mix
from support.specs import LLAMA3_SCALING, YARN, Spec

SEED = int(os.environ.get("DRAFTPROOF_TEST_SEED", time.time() // 86400))

# K >= 1536 is where one row and several take different kernels in common libraries: both shapes have such a layer.
SPECS = {
    "llama": Spec(
        hidden=96, intermediate=1600, heads=6, kv_heads=2, head_dim=16, rope_scaling=LLAMA3_SCALING
    ),
    "qwen2": Spec(family="qwen2", hidden=1536, intermediate=256, layers=2, heads=12, kv_heads=2, tie=True),
}
_SMALL = Spec(hidden=96, intermediate=160, heads=6, kv_heads=2, head_dim=16)
FAMILY_SPECS = {
    "mistral": replace(_SMALL, family="mistral", window=40),
    "mixtral": replace(_SMALL, family="mixtral"),
    "qwen3": replace(_SMALL, family="qwen3", rope_scaling=YARN),
    "qwen3moe": replace(_SMALL, family="qwen3moe", experts=6, used_experts=3),
    "smollm3": replace(_SMALL, family="smollm3", layers=3, extra={"no_rope_layers": [1, 0, 1]}),
    "gemma3": replace(
        _SMALL, family="gemma3", layers=3, window=17, tie=True, extra={"sliding_window_pattern": 2}
    ),
    "phi3": replace(
        _SMALL, family="phi3", head_dim=None, hidden=192, rotary_dim=16, window=50, extra={"head_dim": 32}
    ),
}
FAMILY_MIXES = {"native": 15, "python": 2}
NUM_MIXES = {
    ("native", "llama"): 110,
    ("native", "qwen2"): 40,
    ("python", "llama"): 20,
    ("python", "qwen2"): 8,
}


@pytest.fixture(scope="module")
def checkpoint_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkpoints")
    for name, spec in (SPECS | FAMILY_SPECS).items():
        write_checkpoint(root / name, spec)
    return root


@pytest.fixture(
    scope="module", params=["native-float32", "native-bfloat16", "python-float32", "python-bfloat16"]
)
def flavour(request: pytest.FixtureRequest) -> tuple[str, str]:
    kernels, dtype = request.param.split("-")
    return kernels, dtype


@pytest.mark.parametrize("name", [*SPECS, *FAMILY_SPECS])
def test_speculation_changes_no_bit(name: str, flavour: tuple[str, str], checkpoint_dir: Path) -> None:
    kernels, dtype = flavour
    loaded = load_model(checkpoint_dir / name, dtype=dtype, kernels=kernels)
    assert loaded.model.kernels == kernels
    engine = Engine(loaded, EngineConfig(max_num_seqs=1))
    assert engine.selftest.promise, engine.selftest.reason
    # Each flavour walks its own part of the space.
    offset = zlib.crc32(f"{name} {kernels} {dtype}".encode())
    vocab_size = loaded.model.config.vocab_size
    stats = [
        assert_same_bits(
            loaded, generate_mix(SEED * 1_000_000_007 + offset + index, vocab_size, engine.max_len)
        )[1]
        for index in range(NUM_MIXES.get((kernels, name), FAMILY_MIXES[kernels]))
    ]
    if len(stats) >= 100:  # of fewer mixes it may happen that none preempts
        assert sum(each.num_preemptions for each in stats) > 0
        assert sum(each.num_cached_tokens for each in stats) > 0


@pytest.mark.parametrize(("name", "types"), [("gemma3", "Q4_0"), ("qwen3moe", "Q8_0"), ("phi3", "Q5_1")])
def test_speculation_changes_no_bit_of_quantised_files(name: str, types: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", FAMILY_SPECS[name], types)
    loaded = load_model(path, dtype="float32", kernels="native")
    assert loaded.weight_types[types] > 0
    engine = Engine(loaded, EngineConfig(max_num_seqs=1))
    assert engine.selftest.promise, engine.selftest.reason
    for index in range(6):
        seed = SEED * 1_000_000_007 + zlib.crc32(name.encode()) + index
        assert_same_bits(loaded, generate_mix(seed, loaded.model.config.vocab_size, engine.max_len))


QUANTIZED_MIXES = 6
K_QUANTS = {
    "attn_v.weight": "Q6_K",
    "attn_output.weight": "Q5_K",
    "ffn_down.weight": "Q6_K",
    "output.weight": "Q6_K",
}
MATRICES = ("token_embd", "attn_q", "attn_k", "ffn_gate", "ffn_up")


@pytest.mark.parametrize("name", ["llama int4", "K-quants"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_speculation_changes_no_bit_of_quantised_weights(
    name: str, dtype: str, checkpoint_dir: Path, tmp_path: Path
) -> None:
    if name == "K-quants":
        types = {f"{matrix}.weight": "Q4_K" for matrix in MATRICES} | K_QUANTS
        spec = replace(_SMALL, hidden=256, intermediate=512, heads=8, head_dim=32)
        loaded = load_model(write_gguf(tmp_path / "model.gguf", spec, types), dtype=dtype)
        assert set(loaded.weight_types) == {"Q4_K", "Q5_K", "Q6_K"}
    else:
        family, weights = name.split()
        loaded = load_model(checkpoint_dir / family, dtype=dtype, weights=weights)
        assert set(loaded.weight_types) & {"Q4_0", "Q8_0"}
    engine = Engine(loaded, EngineConfig(max_num_seqs=1))
    assert engine.selftest.promise, engine.selftest.reason
    offset = zlib.crc32(f"{name} {dtype}".encode())
    for index in range(QUANTIZED_MIXES):
        seed = SEED * 1_000_000_007 + offset + index
        assert_same_bits(loaded, generate_mix(seed, loaded.model.config.vocab_size, engine.max_len))


def test_generated_mixes_cover_the_space() -> None:
    """What the generator promises: over the mixes of one run every method and parameter takes part."""
    mixes = [generate_mix(SEED * 1000 + index, 384, 512) for index in range(60)]
    requests = [request for mix in mixes for request in mix.requests]
    assert {type(request.intent) for request in requests} >= {
        NoSpeculation,
        NGram,
        Suffix,
        Cascade,
        Auto,
        Predicted,
    }
    assert {request.intent for request in requests} >= set(DOUBLES)
    fields = [field.name for field in dataclasses.fields(SamplingParams) if field.name != "allowed_token_ids"]
    for name in fields:
        assert len({repr(getattr(request.params, name)) for request in requests}) > 1, name


DEFAULT_MODEL_MIXES = 6


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_speculation_changes_no_bit_of_the_default_model(dtype: str) -> None:
    """The same on real weights, with what is shorter to compute: fewer mixes of the same generator."""
    loaded = load_model("smollm2-135m", dtype=dtype)
    engine = Engine(loaded, EngineConfig(max_num_seqs=1))
    assert engine.selftest.promise, engine.selftest.reason
    offset = zlib.crc32(dtype.encode())
    for index in range(DEFAULT_MODEL_MIXES):
        seed = SEED * 1_000_000_007 + offset + index
        assert_same_bits(loaded, generate_mix(seed, loaded.model.config.vocab_size, engine.max_len))
