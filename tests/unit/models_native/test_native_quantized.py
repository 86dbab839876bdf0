"""Weights in GGUF's quantised types: no value changed, bits of a row its own, products near those of the values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof.core.errors import DraftproofError
from draftproof.models.blocks import KERNEL_TYPES, BlockTensor, block_size, quantize
from draftproof.models.native import NativeLinear, NativeModel, status
from support.checkpoints import random_k_quant
from support.native_models import SMALL, random_weights, variant

pytestmark = pytest.mark.skipif(not status().available, reason=status().reason)

SHAPES = [(768, 83), (256, 16), (2048, 1), (1536, 200)]
"""(num_inputs, num_outputs): whole and broken tiles of sixteen outputs."""


@pytest.fixture(params=sorted(KERNEL_TYPES))
def type_name(request: pytest.FixtureRequest) -> str:
    return request.param


def random_blocks(type_name: str, num_rows: int, num_columns: int, seed: int = 0) -> BlockTensor:
    """Weights with a deviation near 1 / sqrt(num_columns). K-quants are random bytes: every factor occurs."""
    deviation = num_columns**-0.5
    if type_name.endswith("_K"):
        random = np.random.default_rng(seed)
        data = random_k_quant(random, (num_rows, num_columns), type_name, deviation)
        return BlockTensor(type_name, (num_rows, num_columns), torch.from_numpy(data))
    generator = torch.Generator().manual_seed(seed)
    return quantize(torch.randn(num_rows, num_columns, generator=generator) * deviation, type_name)


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
    """Rows are rounded to 8 bits a block of 32: 0.6 % of the result's deviation for normally distributed rows."""
    blocks, bias = random_blocks(type_name, num_outputs, num_inputs), draw(num_outputs, seed=2)
    x = draw(40, num_inputs)
    exact = x.double() @ blocks.dequantize().double().T
    difference = NativeLinear(blocks, bias, num_threads=2)(x) - bias - exact
    assert difference.pow(2).mean().sqrt() < 0.008 * exact.pow(2).mean().sqrt()


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
