"""The pure decoder: Transformers' logits on the same weights, and equal bits however rows are grouped."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from draftproof.checkpoints.gguf import GgufFile, open_checkpoint
from draftproof.core.errors import DraftproofError
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.models.base import ForwardBatch
from draftproof.models.decoder import Decoder
from draftproof.models.loading import load_model, load_weights, reload_weights
from draftproof.models.mlp import silu
from support.checkpoints import write_checkpoint, write_gguf
from support.passes import blocks_for, forward, logits_in_chunks, segment
from support.specs import (
    GGUF_NAMES,
    K_QUANT,
    LLAMA3_SCALING,
    TINY,
    WIDE,
    WIDE_HIDDEN,
    YARN,
    Spec,
    build_weights,
    hf_config,
)

transformers = pytest.importorskip("transformers")

SPECS = {
    "llama": TINY,
    "llama tied": replace(TINY, tie=True, seed=1),
    "llama3 rope, transformers 4": replace(TINY, rope_scaling=LLAMA3_SCALING, rope_theta=500000.0),
    "llama3 rope, transformers 5": replace(TINY, rope_scaling=LLAMA3_SCALING, config_style="transformers5"),
    "llama biases, head_dim, shards": replace(
        TINY, attention_bias=True, mlp_bias=True, head_dim=32, num_shards=3, seed=2
    ),
    "one key/value head": replace(TINY, kv_heads=1),
    "a key/value head for each head": replace(TINY, kv_heads=4),
    "qwen2": replace(TINY, family="qwen2"),
    "qwen2 tied, transformers 5": replace(
        TINY, family="qwen2", tie=True, config_style="transformers5", seed=3
    ),
    "inner dimension 1536": WIDE,
    "mistral": replace(TINY, family="mistral"),
    "mistral, window, head_dim": replace(TINY, family="mistral", window=9, head_dim=32, seed=4),
    "mistral, default window": replace(TINY, family="mistral", context=8192, extra={"sliding_window": 12}),
    "qwen2, windows from layer 1 on": replace(TINY, family="qwen2", window=16, seed=5),
    "qwen3": replace(TINY, family="qwen3", head_dim=32, tie=True),
    "qwen3, windows, biases, transformers 5": replace(
        TINY, family="qwen3", window=5, attention_bias=True, config_style="transformers5", layers=3
    ),
    "smollm3, every fourth layer without rotary": replace(TINY, family="smollm3", layers=5, tie=True),
    "smollm3, windows, biases": replace(
        TINY, family="smollm3", window=7, mlp_bias=True, attention_bias=True, extra={"no_rope_layers": [0, 1]}
    ),
    "gemma3": replace(TINY, family="gemma3", layers=7, window=10, tie=True, head_dim=32),
    "gemma3, transformers 5, linear scaling": replace(
        TINY,
        family="gemma3",
        layers=3,
        window=10,
        tie=True,
        config_style="transformers5",
        extra={
            "sliding_window_pattern": 2,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 50000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
            },
        },
    ),
    "gemma3, linear scaling as transformers 4 writes it": replace(
        TINY,
        family="gemma3",
        layers=3,
        window=10,
        tie=True,
        rope_theta=50000.0,
        rope_scaling={"rope_type": "linear", "factor": 4.0},
        extra={"sliding_window_pattern": 2, "rope_local_base_freq": 300.0},
    ),
    "phi3": replace(TINY, family="phi3"),
    "phi3, part of a head rotated, window": replace(
        TINY, family="phi3", rotary_dim=12, window=20, tie=True, head_dim=None
    ),
    "phi3, longrope": replace(
        TINY,
        family="phi3",
        rotary_dim=12,
        context=256,
        rope_scaling={
            "type": "longrope",
            "short_factor": [1.0, 1.1, 1.3, 1.5, 2.0, 2.5],
            "long_factor": [4.0] * 6,
        },
        extra={"original_max_position_embeddings": 128},
    ),
    "linear": replace(TINY, rope_scaling={"type": "linear", "factor": 3.0}),
    "yarn": replace(TINY, family="qwen3", rope_scaling=YARN, extra={"max_position_embeddings": 256}),
    "yarn, all keys": replace(
        TINY,
        head_dim=32,
        rope_theta=500.0,
        config_style="transformers5",
        rope_scaling=YARN | {"beta_fast": 8.0, "beta_slow": 0.5, "attention_factor": 1.2, "truncate": False},
    ),
    "yarn, mscale": replace(TINY, rope_scaling=YARN | {"mscale": 0.7, "mscale_all_dim": 1.3}),
    "dynamic": replace(TINY, rope_scaling={"type": "dynamic", "factor": 2.0}),
    "mixtral": replace(TINY, family="mixtral"),
    "mixtral, window": replace(TINY, family="mixtral", window=11, used_experts=3, seed=6),
    "qwen3moe": replace(TINY, family="qwen3moe", experts=6, used_experts=2, head_dim=32),
    "qwen3moe, shares as they are, a dense layer": replace(
        TINY, family="qwen3moe", layers=3, used_experts=3, extra={"norm_topk_prob": False}
    ),
}


def load(path: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    config, weights = load_weights(open_checkpoint(path))
    return Decoder(config, weights, dtype)


def reference(directory: Path, token_ids: list[int], **options: str) -> Tensor:
    """Transformers' logits, float32 [num_tokens, vocab]."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **options)
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([token_ids])).logits[0]
    return logits


def tokens(num_tokens: int, vocab: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(vocab), k=num_tokens)


@pytest.mark.parametrize("name", SPECS)
def test_logits_equal_those_of_transformers(tmp_path: Path, name: str) -> None:
    spec = SPECS[name]
    path = write_checkpoint(tmp_path, spec)
    token_ids = tokens(100, spec.vocab)
    logits = logits_in_chunks(load(path), token_ids, [7, 1, 40])
    torch.testing.assert_close(logits, reference(path, token_ids), rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize(
    "kind",
    ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"],
)
def test_logits_of_gguf_files_equal_those_of_transformers(tmp_path: Path, kind: str, family: str) -> None:
    path = write_gguf(tmp_path / "model.gguf", replace(K_QUANT, layers=1, context=64), kind, family=family)
    token_ids = tokens(40, K_QUANT.vocab)
    logits = logits_in_chunks(load(path), token_ids, [40])
    torch.testing.assert_close(
        logits, reference(tmp_path, token_ids, gguf_file="model.gguf"), rtol=0, atol=1e-4
    )


def test_gguf_with_rope_divisors_equals_the_rule_in_a_directory(tmp_path: Path) -> None:
    spec = replace(TINY, rope_scaling=LLAMA3_SCALING)
    token_ids = tokens(100, spec.vocab)
    by_rule = logits_in_chunks(load(write_checkpoint(tmp_path / "hf", spec)), token_ids, [100])
    by_divisors = logits_in_chunks(load(write_gguf(tmp_path / "m.gguf", spec)), token_ids, [100])
    torch.testing.assert_close(by_divisors, by_rule, rtol=0, atol=1e-4)
    plain = logits_in_chunks(load(write_gguf(tmp_path / "p.gguf", TINY)), token_ids, [100])
    assert not torch.allclose(plain, by_rule, atol=1e-2)


LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.0, 1.125, 1.25, 1.5, 2.0, 2.5], "long_factor": [4.0] * 6,
    "original_max_position_embeddings": 128, "attention_factor": 1.125,
}  # fmt: skip
TWINS = {
    "mistral, window": replace(TINY, family="mistral", window=9),
    "mixtral": replace(TINY, family="mixtral"),
    "qwen3": replace(TINY, family="qwen3"),
    "qwen3, yarn": replace(TINY, family="qwen3", rope_scaling=YARN),
    "qwen3moe": replace(TINY, family="qwen3moe"),
    "smollm3": replace(TINY, family="smollm3", layers=5, tie=True, rope_theta=2e6),
    "gemma3": replace(
        TINY, family="gemma3", layers=7, window=10, tie=True, head_dim=32, rope_theta=1e6,
        rope_scaling={"rope_type": "linear", "factor": 4.0}, extra={"query_pre_attn_scalar": 32},
    ),
    "phi3": replace(TINY, family="phi3", window=20),
    "phi3, longrope, part of a head": replace(
        TINY, family="phi3", rotary_dim=12, context=256, rope_scaling=LONGROPE,
        extra={"original_max_position_embeddings": 128},
    ),
    "llama, linear": replace(TINY, rope_scaling={"type": "linear", "factor": 3.0}),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
@pytest.mark.parametrize("name", TWINS)
def test_gguf_files_equal_their_twins_in_directories(tmp_path: Path, name: str, kind: str) -> None:
    """Same configuration, same tensors; F32 files hold the same numbers, Q8_0 ones nearly so."""
    spec = replace(TWINS[name], intermediate=96)
    hf_config, hf_weights = load_weights(open_checkpoint(write_checkpoint(tmp_path / "hf", spec)))
    config, weights = load_weights(open_checkpoint(write_gguf(tmp_path / "m.gguf", spec, kind)))
    assert replace(config, architecture="", rms_norm_eps=1e-5) == replace(hf_config, architecture="")
    assert config.architecture == GGUF_NAMES.get(spec.family, spec.family)
    assert set(weights) == set(hf_weights)
    for tensor in weights:
        assert weights.shape(tensor) == hf_weights.shape(tensor)
        tolerance = 0.02 * float(hf_weights[tensor].abs().max()) if kind == "Q8_0" else 0
        torch.testing.assert_close(
            weights[tensor].float(), hf_weights[tensor].float(), rtol=0, atol=tolerance
        )


def test_longrope_beyond_the_original_context(tmp_path: Path) -> None:
    """Transformers takes the long factors for a whole text that is longer, and so does a model loaded for such."""
    spec = TWINS["phi3, longrope, part of a head"]
    path, file = write_checkpoint(tmp_path / "hf", spec), write_gguf(tmp_path / "m.gguf", spec)
    token_ids = tokens(200, spec.vocab)
    expected = reference(path, token_ids)
    for checkpoint in (path, file):
        config, weights = load_weights(open_checkpoint(checkpoint), wanted_len=256)
        assert config.context_length == 256
        logits = logits_in_chunks(Decoder(config, weights, torch.float32), token_ids, [64, 1, 100])
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
    loaded = load_model(path, kernels="python", dtype="float32", max_model_len=200)
    assert loaded.config.context_length == reload_weights(loaded, "int8").config.context_length == 256
    assert load_model(path, kernels="python").config.context_length == 128
    engine = Engine.load(path, kernels="python", config=EngineConfig(max_model_len=200))
    assert engine.describe()["context_length"] == 200


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_text_part_of_a_model_that_reads_images(tmp_path: Path, prefix: str) -> None:
    spec = replace(TINY, family="gemma3", layers=3, window=10, tie=True, extra={"sliding_window_pattern": 2})
    text = {key: value for key, value in hf_config(spec).items() if key != "architectures"}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 28, "patch_size": 14}  # fmt: skip
    config = transformers.Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, eos_token_id=[2, 9],
        image_token_index=5, boi_token_index=6, eoi_token_index=7,
    )  # fmt: skip
    model = transformers.Gemma3ForConditionalGeneration(config).eval()
    weights = {name.removeprefix("model."): weight for name, weight in build_weights(spec).items()}
    model.model.language_model.load_state_dict(weights)
    directory = write_checkpoint(tmp_path, spec)
    model.save_pretrained(directory)
    stored = load_file(directory / "model.safetensors")
    renamed = {name.replace("language_model.model.", prefix): weight for name, weight in stored.items()}
    save_file(renamed, directory / "model.safetensors")
    token_ids = [token for token in tokens(60, spec.vocab) if token not in (5, 6, 7)]
    with torch.no_grad():
        expected = model(torch.tensor([token_ids])).logits[0]
    decoder = load(directory)
    assert set(decoder.config.eos_token_ids) == {2, 9}
    torch.testing.assert_close(logits_in_chunks(decoder, token_ids, [40]), expected, rtol=0, atol=1e-4)


def test_a_file_with_one_of_two_longrope_tensors_is_refused(tmp_path: Path) -> None:
    file = open_checkpoint(write_gguf(tmp_path / "m.gguf", TWINS["phi3, longrope, part of a head"]))
    assert isinstance(file, GgufFile)
    del file.tensors["rope_factors_long.weight"]
    with pytest.raises(DraftproofError, match="rope_factors") as caught:
        load_weights(file)
    assert caught.value.code == "DP404"


BITS = {
    "windows, norms on both sides": replace(TINY, family="gemma3", layers=3, window=6, tie=True,
                                            extra={"sliding_window_pattern": 2}),
    "windows, layers without rotary": replace(TINY, family="smollm3", window=33, extra={"no_rope_layers": [0, 1]}),
    "part of a head rotated": replace(TINY, family="phi3", rotary_dim=12),
    "experts": replace(TINY, family="qwen3moe", experts=7, used_experts=3, window=20),
}  # fmt: skip


@pytest.fixture(scope="module", params=["wide", "wide hidden", "qwen2", "one group", *BITS])
def spec(request: pytest.FixtureRequest) -> Spec:
    specs = {
        "wide": WIDE,
        "wide hidden": replace(WIDE_HIDDEN, layers=1),
        "qwen2": replace(TINY, family="qwen2"),
        "one group": replace(TINY, kv_heads=4, head_dim=8),
        **BITS,
    }
    return specs[request.param]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def decoder(spec: Spec, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load(write_checkpoint(tmp_path_factory.mktemp("model"), spec), getattr(torch, request.param))


def test_bits_do_not_depend_on_chunks(decoder: Decoder) -> None:
    token_ids = tokens(80, decoder.config.vocab_size)
    one_by_one = logits_in_chunks(decoder, token_ids, [1])
    for chunks in ([80], [3, 2, 5], [31, 1, 33], [79, 1], [5, 64, 7, 4]):
        assert torch.equal(logits_in_chunks(decoder, token_ids, chunks), one_by_one), chunks


@pytest.mark.parametrize("num_threads", [2, 3])
def test_bits_do_not_depend_on_chunks_with_more_threads(decoder: Decoder, num_threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        token_ids = tokens(60, decoder.config.vocab_size)
        whole = logits_in_chunks(decoder, token_ids, [60])
        for chunks in ([50, 1], [33, 2, 5, 7]):
            assert torch.equal(logits_in_chunks(decoder, token_ids, chunks), whole), chunks
    finally:
        torch.set_num_threads(before)


def test_bits_do_not_depend_on_other_sequences(decoder: Decoder) -> None:
    vocab = decoder.config.vocab_size
    texts = [tokens(length, vocab, seed) for seed, length in enumerate((70, 33, 64, 5))]
    alone = [logits_in_chunks(decoder, text, [len(text)])[-3:] for text in texts]
    cache = decoder.new_cache(40)
    block_lists = [blocks_for(70, first=10 * rank) for rank in range(4)]
    for text, block_ids in zip(texts, block_lists, strict=True):
        forward(decoder, cache, text[:-3], [segment(block_ids, 0, len(text) - 3)])
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 0]):
        segments = [
            segment(block_lists[rank], len(texts[rank]) - 3, 3, 3 * place) for place, rank in enumerate(order)
        ]
        together = forward(decoder, cache, [token for rank in order for token in texts[rank][-3:]], segments)
        assert torch.equal(together, torch.cat([alone[rank] for rank in order]))


def test_a_tree_gives_each_path_the_bits_of_a_chain(decoder: Decoder) -> None:
    vocab = decoder.config.vocab_size
    prompt = tokens(40, vocab)
    parents = [0, 0, 1, 0, 3, 3, 2]
    drafted = tokens(len(parents), vocab, seed=5)
    block_ids = blocks_for(64)
    cache = decoder.new_cache(block_ids[-1] + 1)
    forward(decoder, cache, prompt, [segment(block_ids, 0, len(prompt))])
    tree = forward(decoder, cache, drafted, [segment(block_ids, len(prompt), len(parents), parents=parents)])
    for row in range(len(parents)):
        path = [row]
        while path[0]:
            path.insert(0, parents[path[0]])
        chain = logits_in_chunks(decoder, prompt + [drafted[node] for node in path], [len(prompt), 1])
        assert torch.equal(tree[row], chain[-1]), row


def test_only_wanted_rows_get_logits(decoder: Decoder) -> None:
    token_ids = tokens(20, decoder.config.vocab_size)
    everything = logits_in_chunks(decoder, token_ids, [20])
    for rows in ([19], [3, 19], [19, 3, 3], []):
        batch = ForwardBatch(
            torch.tensor(token_ids),
            torch.arange(20),
            [segment([0], 0, 20)],
            torch.tensor(rows, dtype=torch.int64),
        )
        assert torch.equal(decoder.forward(batch, decoder.new_cache(1)), everything[rows])


def test_bfloat16_stores_weights_and_cache_in_bfloat16(tmp_path: Path) -> None:
    spec = replace(TINY, seed=4)
    token_ids = tokens(50, spec.vocab)
    model = load(write_checkpoint(tmp_path, spec), torch.bfloat16)
    assert model.new_cache(2).data.dtype == torch.bfloat16
    rounded = {name: weight.bfloat16().float() for name, weight in build_weights(spec).items()}
    exact = logits_in_chunks(Decoder(model.config, rounded, torch.float32), token_ids, [50])
    coarse = logits_in_chunks(model, token_ids, [50])
    assert not torch.equal(coarse, exact)
    assert (coarse - exact).abs().max() < 0.05 * exact.abs().max()


def test_silu_has_the_same_bits_at_every_place() -> None:
    x = torch.randn(40_000, generator=torch.Generator().manual_seed(0)) * 4
    whole = silu(x)
    torch.testing.assert_close(whole, torch.nn.functional.silu(x))
    for start, length in ((0, 1), (3, 7), (100, 15), (1000, 33), (5, 39_000)):
        assert torch.equal(silu(x[start : start + length].clone()), whole[start : start + length])
