"""Weights in GGUF's quantised types: no value changed, bits of a row its own, products near those of the values."""

from __future__ import annotations

import pytest
import torch

from draftproof.core.errors import DraftproofError
from draftproof.models.blocks import KERNEL_TYPES, BlockTensor, block_size
from draftproof.models.native import NativeLinear, NativeModel, status
from support.native_models import (
    MIXED,
    SMALL,
    blocks_for,
    chain,
    decode64,
    mixed_weights,
    random_blocks,
    random_tokens,
    random_weights,
    variant,
)

pytestmark = pytest.mark.skipif(not status().available, reason=status().reason)

SHAPES = [(768, 83), (256, 16), (2048, 1), (1536, 200)]
"""(num_inputs, num_outputs): whole and broken tiles of sixteen outputs."""


@pytest.fixture(params=sorted(KERNEL_TYPES))
def type_name(request: pytest.FixtureRequest) -> str:
    return request.param


def draw(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("num_inputs", "num_outputs"), SHAPES)
def test_packing_changes_no_weight(type_name: str, num_inputs: int, num_outputs: int) -> None:
    blocks = random_blocks(type_name, num_outputs, num_inputs)
    linear = NativeLinear(blocks, None, num_threads=2)
    read = torch.stack([linear.weights_of(output) for output in range(num_outputs)])
    assert torch.equal(read, blocks.dequantize())


@pytest.mark.parametrize(("num_inputs", "num_outputs"), SHAPES)
def test_products_are_near_those_of_the_values(type_name: str, num_inputs: int, num_outputs: int) -> None:
    """Rows are rounded to 8 bits a block: for normally distributed ones 0.5 % (32) or 0.7 % (256) of the result."""
    blocks, bias = random_blocks(type_name, num_outputs, num_inputs), draw(num_outputs, seed=2)
    x = draw(40, num_inputs)
    exact = x.double() @ blocks.dequantize().double().T
    difference = NativeLinear(blocks, bias, num_threads=2)(x) - bias - exact
    assert difference.pow(2).mean().sqrt() < 0.009 * exact.pow(2).mean().sqrt()


def test_every_number_of_rows_equals_scalar_code(type_name: str) -> None:
    num_inputs = 3 * block_size(type_name)
    blocks = random_blocks(type_name, 70, num_inputs)
    x = (
        draw(53, num_inputs) * torch.logspace(-45, 30, 53)[:, None]
    )  # rows that vanish, and far beyond any sense
    expected = NativeLinear(blocks, draw(70, seed=2)).reference(x)
    for num_threads in (1, 3):
        linear = NativeLinear(blocks, draw(70, seed=2), num_threads=num_threads)
        for num_rows in range(54):
            assert torch.equal(linear(x[:num_rows]), expected[:num_rows])


def test_largest_integers_do_not_overflow(type_name: str) -> None:
    """All bits of weights and activations set: sums of two products must not be cut off at sixteen bits."""
    size = block_size(type_name)
    blocks = random_blocks(type_name, 16, size)
    data = blocks.data.clone()
    scales = {"Q4_0": 2, "Q4_1": 4, "Q5_0": 2, "Q5_1": 4, "Q8_0": 2, "Q4_K": 4, "Q5_K": 4, "Q6_K": 0}[
        type_name
    ]
    end = 208 if type_name == "Q6_K" else data.shape[1]
    for byte in (0xFF, 0x7F, 0x80, 0x00):
        data[:, scales:end] = byte
        linear = NativeLinear(BlockTensor(type_name, blocks.shape, data), None)
        for sign in (1.0, -1.0):
            x = torch.full((1, size), sign)
            exact = x.double() @ torch.stack([linear.weights_of(output) for output in range(16)]).double().T
            assert torch.equal(linear(x), linear.reference(x))
            assert torch.allclose(linear(x).double(), exact, rtol=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_spoils_itself_alone(type_name: str, value: float) -> None:
    num_inputs = 2 * block_size(type_name)
    linear = NativeLinear(random_blocks(type_name, 40, num_inputs), None, num_threads=2)
    x = draw(6, num_inputs)
    expected = linear(x)
    x[2, num_inputs // 2] = value
    y = linear(x)
    assert y[2].isnan().all()
    others = [0, 1, 3, 4, 5]
    assert torch.equal(y[others], expected[others])
    assert linear.reference(x)[2].isnan().all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scales_that_are_not_finite_are_refused(type_name: str, value: float) -> None:
    blocks = random_blocks(type_name, SMALL.vocab_size, 256)
    at = 208 if type_name == "Q6_K" else 0
    blocks.data[77, at : at + 2] = torch.tensor([value], dtype=torch.float16).view(torch.uint8)
    config = variant(hidden_size=256)
    weights = {**random_weights(config, torch.float32), "model.embed_tokens.weight": blocks}
    with pytest.raises(DraftproofError) as caught:
        NativeModel(config, weights, torch.float32, 2)
    assert (caught.value.code, caught.value.field) == ("DP404", "model.embed_tokens.weight")


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def test_a_model_of_all_types_equals_scalar_code_whatever_the_chunks(dtype: torch.dtype) -> None:
    weights, tokens, blocks = (
        mixed_weights(MIXED, dtype),
        random_tokens(75, MIXED.vocab_size, 1),
        blocks_for(75, 0),
    )
    batch = chain(tokens, 0, blocks)
    for num_threads in (1, 2, 3):
        model = NativeModel(MIXED, weights, dtype, num_threads)
        if num_threads == 1:
            expected = model.forward_reference(batch, model.new_cache(24))
        for step in (1, 2, 5, 7, 12, 13, 25, 75):
            cache = model.new_cache(24)
            parts = [
                model.forward(chain(tokens[start : start + step], start, blocks), cache)
                for start in range(0, 75, step)
            ]
            assert torch.equal(torch.cat(parts), expected), (num_threads, step)


def test_logits_are_near_those_of_the_values(dtype: torch.dtype) -> None:
    """The values in float64, the same numbers but for activations of 8 bits: 1.5 % of the logits' deviation."""
    weights = mixed_weights(MIXED, dtype)
    values = {
        name: weight.dequantize() if isinstance(weight, BlockTensor) else weight
        for name, weight in weights.items()
    }
    tokens = random_tokens(60, MIXED.vocab_size, 1)
    exact = decode64(MIXED, values, tokens)
    model = NativeModel(MIXED, weights, dtype, 2)
    logits = model.forward(chain(tokens, 0, blocks_for(60, 0)), model.new_cache(24))
    assert (logits - exact).pow(2).mean().sqrt() < 0.015 * exact.pow(2).mean().sqrt()
