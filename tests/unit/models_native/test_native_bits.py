"""The native pass: right values, and bits of a row that depend on its own tokens and positions alone."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftproof.kv.cache import KVCache
from draftproof.models.base import (
    ExpertConfig,
    FrequencyDivisors,
    LayerConfig,
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    RopeConfig,
)
from draftproof.models.blocks import BlockTensor, quantize
from draftproof.models.decoder import Decoder
from draftproof.models.native import NativeModel, status
from support.native_models import (
    SMALL,
    blocks_for,
    chain,
    decode64,
    join,
    random_tokens,
    random_weights,
    variant,
)

pytestmark = pytest.mark.skipif(not status().available, reason=status().reason)

LLAMA3 = RopeConfig(500000.0, Llama3Scaling(8.0, 1.0, 4.0, 32))
CONFIGS: dict[str, ModelConfig] = {
    "small": SMALL,
    "untied, biases of qwen2, a cache head per head": variant(
        num_heads=4, num_kv_heads=4, qkv_bias=True, tie_embeddings=False, rope=RopeConfig(1e6)
    ),
    "all biases, head_dim 96, sizes that fill no vector": variant(
        head_dim=96, hidden_size=70, intermediate_size=37, vocab_size=33, o_bias=True, mlp_bias=True
    ),
    "head_dim 128, one cache head, K >= 1536": variant(
        head_dim=128, num_kv_heads=1, hidden_size=1540, intermediate_size=1600, num_layers=1, rope=LLAMA3
    ),
    "head_dim 80, frequency divisors, K = 2056": variant(
        head_dim=80,
        num_heads=14,
        hidden_size=48,
        intermediate_size=2056,
        rope=RopeConfig(10000.0, FrequencyDivisors(tuple(1 + 0.1 * index for index in range(40)))),
    ),
}
PLAIN = RopeConfig(10000.0)
FAMILIES: dict[str, ModelConfig] = {
    "norms of heads and behind each branch, two rotary rules, windows, scales, GELU": variant(
        qk_norm=True,
        post_norms=True,
        activation="gelu_tanh",
        embedding_scale=8.485,
        attention_scale=0.19,
        head_dim=48,
        layers=(
            LayerConfig(RopeConfig(300.0), window=7),
            LayerConfig(RopeConfig(1e6, LinearScaling(8.0))),
            LayerConfig(RopeConfig(300.0), window=40),
        ),
    ),
    "a window of one, layers without rotary embedding": variant(
        layers=(LayerConfig(None, window=33), LayerConfig(PLAIN, window=1), LayerConfig(None))
    ),
    "part of a head rotated, factor of attention": variant(
        head_dim=96,
        rope=RopeConfig(10000.0, FrequencyDivisors((1.5,) * 24), rotary_dim=48, attention_factor=1.2),
    ),
    "experts, a dense layer, norms behind them": variant(
        post_norms=True,
        layers=(
            LayerConfig(PLAIN, experts=ExpertConfig(5, 2, 44, is_normalised=True)),
            LayerConfig(PLAIN),
            LayerConfig(PLAIN, window=20, experts=ExpertConfig(9, 4, 100, is_normalised=False)),
        ),
    ),
}
CONFIGS |= FAMILIES
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
NUM_TOKENS = 75


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> ModelConfig:
    return CONFIGS[request.param]


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return DTYPES[request.param]


def poisoned_cache(model: NativeModel) -> KVCache:
    """What was never written must not matter."""
    cache = model.new_cache(24)
    cache.data.fill_(float("nan"))
    return cache


def whole(model: NativeModel, tokens: list[int], seed: int = 0) -> Tensor:
    return model.forward(chain(tokens, 0, blocks_for(len(tokens), seed)), poisoned_cache(model))


def in_chunks(model: NativeModel, tokens: list[int], cuts: list[int], seed: int = 1) -> Tensor:
    """Logits of a sequence that is cut before each of `cuts`."""
    cache, blocks = poisoned_cache(model), blocks_for(len(tokens), seed)
    edges = [0, *cuts, len(tokens)]
    parts = [
        model.forward(chain(tokens[start:stop], start, blocks), cache)
        for start, stop in itertools.pairwise(edges)
    ]
    return torch.cat(parts)


def test_values(config: ModelConfig, dtype: torch.dtype) -> None:
    weights = random_weights(config, dtype)
    tokens = random_tokens(NUM_TOKENS, config.vocab_size, 1)
    exact = decode64(config, weights, tokens)
    error = (whole(NativeModel(config, weights, dtype, 2), tokens) - exact).abs().max() / exact.abs().max()
    # In bfloat16 the weights are the same numbers; what differs is the rounding of keys and values in the cache.
    assert error < (2e-6 if dtype == torch.float32 else 1.5e-2)


def test_scalar_code_gives_the_same_bits(config: ModelConfig, dtype: torch.dtype) -> None:
    model = NativeModel(config, random_weights(config, dtype), dtype, 2)
    tokens = random_tokens(40, config.vocab_size, 1)
    batch = chain(tokens, 0, blocks_for(40, 0))
    cache, scalar_cache = poisoned_cache(model), poisoned_cache(model)
    assert torch.equal(model.forward(batch, cache), model.forward_reference(batch, scalar_cache))
    assert torch.equal(cache.data.nan_to_num(), scalar_cache.data.nan_to_num())


def test_threads_chunks_and_blocks_change_no_bit(config: ModelConfig, dtype: torch.dtype) -> None:
    weights = random_weights(config, dtype)
    tokens = random_tokens(NUM_TOKENS, config.vocab_size, 1)
    expected = whole(NativeModel(config, weights, dtype, 1), tokens)
    for num_threads in (1, 2, 3):
        model = NativeModel(config, weights, dtype, num_threads)
        assert torch.equal(whole(model, tokens, seed=5), expected)
        for step in (1, 2, 3, 5, 7, 8, 13, 32, 33) if num_threads == 2 else (1, 7):
            cuts = list(range(step, NUM_TOKENS, step))
            assert torch.equal(in_chunks(model, tokens, cuts), expected), (num_threads, step)


def test_every_number_of_rows_gives_the_same_bits(dtype: torch.dtype) -> None:
    config = CONFIGS["head_dim 128, one cache head, K >= 1536"]
    model = NativeModel(config, random_weights(config, dtype), dtype, 2)
    tokens = random_tokens(130, config.vocab_size, 1)
    expected = whole(model, tokens)
    cache, blocks = poisoned_cache(model), blocks_for(130, 2)
    for num_rows in [*range(1, 30), 47, 48, 49, 96, 97, 130]:
        logits = model.forward(chain(tokens[:num_rows], 0, blocks), cache)
        assert torch.equal(logits, expected[:num_rows]), num_rows


@pytest.mark.parametrize("name", ["small", *FAMILIES])
def test_every_number_of_visible_keys_equals_scalar_code(name: str, dtype: torch.dtype) -> None:
    model = NativeModel(CONFIGS[name], random_weights(CONFIGS[name], dtype), dtype, 2)
    tokens = random_tokens(70, SMALL.vocab_size, 1)
    cache, scalar_cache, blocks = poisoned_cache(model), poisoned_cache(model), blocks_for(70, 2)
    for position, token in enumerate(tokens):
        batch = chain([token], position, blocks)
        assert torch.equal(model.forward(batch, cache), model.forward_reference(batch, scalar_cache))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), is_bfloat16=st.booleans(), name=st.sampled_from(["small", *FAMILIES]))
def test_mixed_passes_change_no_bit(seed: int, is_bfloat16: bool, name: str) -> None:
    """Sequences of many lengths side by side, each advancing by its own number of rows per pass."""
    dtype = torch.bfloat16 if is_bfloat16 else torch.float32
    model = NativeModel(CONFIGS[name], random_weights(CONFIGS[name], dtype), dtype, 2)
    draw = random.Random(seed)
    sequences = [random_tokens(draw.randint(1, 90), 101, draw.randrange(2**31)) for _ in range(4)]
    expected = [whole(model, tokens) for tokens in sequences]
    order = draw.sample(range(24), 24)
    blocks = [order[6 * index : 6 * index + 6] for index in range(4)]
    cache, done = poisoned_cache(model), [0] * 4
    while any(start < len(tokens) for start, tokens in zip(done, sequences, strict=True)):
        active = [index for index in range(4) if done[index] < len(sequences[index]) and draw.random() < 0.7]
        parts = []
        for index in active:
            start = done[index]
            done[index] = min(len(sequences[index]), start + draw.choice((1, 1, 2, 4, 9, 33)))
            parts.append((sequences[index][start : done[index]], start, blocks[index], None))
        if not parts:
            continue
        logits = model.forward(join(parts), cache)
        for index, (tokens, start, _, _) in zip(active, parts, strict=True):
            rows, logits = logits[: len(tokens)], logits[len(tokens) :]
            assert torch.equal(rows, expected[index][start : start + len(tokens)])


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), is_bfloat16=st.booleans(), name=st.sampled_from(["small", *FAMILIES]))
def test_a_path_in_a_tree_has_the_bits_of_the_chain(seed: int, is_bfloat16: bool, name: str) -> None:
    dtype = torch.bfloat16 if is_bfloat16 else torch.float32
    model = NativeModel(CONFIGS[name], random_weights(CONFIGS[name], dtype), dtype, 2)
    draw = random.Random(seed)
    context = random_tokens(draw.choice((0, 1, 17, 31, 32, 33, 64, 70)), 101, draw.randrange(2**31))
    num_rows = draw.randint(1, 40)
    tokens = random_tokens(num_rows, 101, draw.randrange(2**31))
    deep = draw.random()
    parents = [0] + [row - 1 if draw.random() < deep else draw.randrange(row) for row in range(1, num_rows)]
    other = random_tokens(21, 101, 4)
    cache = poisoned_cache(model)
    blocks, other_blocks = list(range(4)), [9]
    if context:
        model.forward(chain(context, 0, blocks), cache)
    batch = join([(other, 0, other_blocks, None), (tokens, len(context), blocks, parents)])
    logits = model.forward(batch, cache)[len(other) :]
    for row in range(num_rows):
        path = [row]
        while path[0] != 0:
            path.insert(0, parents[path[0]])
        expected = whole(model, context + [tokens[step] for step in path])
        assert torch.equal(logits[row], expected[-1]), (parents, row)


@pytest.mark.parametrize("name", ["small", *FAMILIES])
def test_trees_equal_scalar_code(name: str, dtype: torch.dtype) -> None:
    model = NativeModel(CONFIGS[name], random_weights(CONFIGS[name], dtype), dtype, 2)
    tokens, parents = random_tokens(12, 101, 1), [0, 0, 0, 1, 1, 2, 3, 5, 5, 8, 9, 9]
    context, blocks = random_tokens(61, 101, 2), blocks_for(73, 0)
    results = []
    for forward in (model.forward, model.forward_reference):
        cache = poisoned_cache(model)
        forward(chain(context, 0, blocks), cache)
        results.append(forward(join([(tokens, 61, blocks, parents)]), cache))
    assert torch.equal(*results)


def test_experts_in_blocks_and_in_floats(dtype: torch.dtype) -> None:
    """Each expert's matrices in another storage: rows go to it as floats, as integers or as both."""
    config = variant(
        hidden_size=96,
        intermediate_size=64,
        layers=(
            LayerConfig(PLAIN, experts=ExpertConfig(6, 3, 64, is_normalised=True)),
            LayerConfig(PLAIN),
            LayerConfig(PLAIN, experts=ExpertConfig(7, 2, 32, is_normalised=False)),
        ),
    )
    weights: dict[str, Tensor | BlockTensor] = dict(random_weights(config, dtype))
    types = itertools.cycle(["Q8_0", "Q4_0", None, "Q5_1", "Q4_1"])
    for name, weight in weights.items():
        type_name = next(types)
        if ".mlp." in name and not name.endswith(".mlp.gate.weight") and type_name is not None:
            assert isinstance(weight, Tensor)
            weights[name] = quantize(weight.float(), type_name)
    tokens = random_tokens(NUM_TOKENS, config.vocab_size, 1)
    model = NativeModel(config, weights, dtype, 1)
    expected = whole(model, tokens)
    batch = chain(tokens, 0, blocks_for(NUM_TOKENS, 0))
    assert torch.equal(model.forward_reference(batch, poisoned_cache(model)), expected)
    other = random_tokens(30, config.vocab_size, 2)
    for num_threads in (2, 3):
        model = NativeModel(config, weights, dtype, num_threads)
        for step in (1, 2, 3, 11, 32):
            assert torch.equal(in_chunks(model, tokens, list(range(step, NUM_TOKENS, step))), expected)
        both = model.forward(
            join([(other, 0, [20], None), (tokens, 0, [3, 1, 2], None)]), poisoned_cache(model)
        )
        assert torch.equal(both[len(other) :], expected)
    plain = {name: w.dequantize() if isinstance(w, BlockTensor) else w for name, w in weights.items()}
    exact = decode64(config, plain, tokens)
    # Rows are rounded to 8 bits before they are multiplied with blocks, so that a row may now and then choose another
    # expert; most are near.
    assert ((expected - exact).abs().amax(dim=1) < 0.05 * exact.abs().max()).float().mean() > 0.8


def test_logits_of_chosen_rows_in_any_order() -> None:
    model = NativeModel(SMALL, random_weights(SMALL, torch.float32), torch.float32, 2)
    tokens = random_tokens(20, 101, 1)
    expected = whole(model, tokens)
    for rows in ([19], [], [3, 3, 0, 19], list(range(19, -1, -1)) * 2):
        logits = model.forward(chain(tokens, 0, [0], rows), poisoned_cache(model))
        assert torch.equal(logits, expected[rows])


def test_a_row_of_nan_spoils_its_own_sequence_only() -> None:
    weights = random_weights(SMALL, torch.float32)
    expected = whole(NativeModel(SMALL, weights, torch.float32, 2), [1, 2, 3])
    weights["model.embed_tokens.weight"][7] = float("nan")
    model = NativeModel(SMALL, weights, torch.float32, 2)
    logits = model.forward(
        join([([5, 7, 5], 0, [1], None), ([1, 2, 3], 0, [0], None)]), poisoned_cache(model)
    )
    other = [token for token in range(101) if token != 7]  # the embedding is the head too
    assert logits[0, other].isfinite().all()
    assert logits[1:3].isnan().all()
    assert torch.equal(logits[3:, other], expected[:, other])


@pytest.mark.parametrize("hidden_size", [20, 44, 64])
def test_a_pass_leaves_no_nan_behind_for_the_next(config: ModelConfig, hidden_size: int) -> None:
    """Buffers are used again: also what lies behind the end of a row must not reach another pass."""
    config = replace(config, hidden_size=hidden_size)
    weights = random_weights(config, torch.float32)
    weights["model.embed_tokens.weight"][7] = float("nan")
    fresh = whole(NativeModel(config, weights, torch.float32, 2), [1, 2, 3])
    model = NativeModel(config, weights, torch.float32, 2)
    assert whole(model, [7, 7, 7]).isnan().any()
    assert torch.equal(whole(model, [1, 2, 3]).nan_to_num(), fresh.nan_to_num())
    other = [token for token in range(config.vocab_size) if token != 7]
    assert fresh[:, other].isfinite().all()


@pytest.mark.parametrize("name", ["small", "untied, biases of qwen2, a cache head per head", *FAMILIES])
def test_the_pure_decoder_gives_the_same_values(name: str, dtype: torch.dtype) -> None:
    config = CONFIGS[name]
    weights = random_weights(config, dtype)
    tokens = random_tokens(NUM_TOKENS, config.vocab_size, 1)
    native = whole(NativeModel(config, weights, dtype, 2), tokens)
    decoder = Decoder(config, weights, dtype)
    pure = decoder.forward(chain(tokens, 0, [2, 0, 1]), decoder.new_cache(3))
    if dtype == torch.bfloat16 and any(layer.experts for layer in config.layers):
        return  # a rounded score may choose another expert
    # The pure path rounds the inputs and outputs of each linear layer to bfloat16.
    assert (native - pure).abs().max() < pure.abs().max() * (2e-6 if dtype == torch.float32 else 2e-2)
