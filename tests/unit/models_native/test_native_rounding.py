"""Floats rounded to blocks by the kernels: the bits of the library that defines the types."""

from __future__ import annotations

import pytest
import torch

from draftproof.models import blocks, native
from draftproof.models.native.library import ROUNDED_TYPES

pytestmark = pytest.mark.skipif(not native.status().available, reason=native.status().reason)

NUM_COLUMNS = 96
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(params=sorted(ROUNDED_TYPES))
def type_name(request: pytest.FixtureRequest) -> str:
    return request.param


def values_of_every_size(dtype: torch.dtype) -> torch.Tensor:
    """Rows of which each has a size of its own, from such that scales are zero or subnormal to infinite ones."""
    generator = torch.Generator().manual_seed(1)
    exponents = torch.arange(-100, 40).repeat(20)[:, None]
    values = torch.randn(len(exponents), NUM_COLUMNS, generator=generator) * torch.exp2(exponents.float())
    largest = torch.finfo(dtype).max
    return values.clamp(-largest, largest).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes(type_name: str, dtype: torch.dtype) -> None:
    values = values_of_every_size(dtype)
    expected = blocks.quantize(values, type_name)
    rounded = native.quantize(values, type_name)
    assert (rounded.type_name, rounded.shape) == (expected.type_name, expected.shape)
    assert torch.equal(rounded.data, expected.data)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_half_way_and_of_equal_size(type_name: str, dtype: torch.dtype) -> None:
    """Few distinct values a block: ties of rounding, both signs of the largest value, zeros of both signs."""
    generator = torch.Generator().manual_seed(2)
    halves = torch.randint(-16, 17, (3000, NUM_COLUMNS), generator=generator)
    limits = torch.randint(0, 17, (3000, 1), generator=generator)
    values = (halves.clamp(-limits, limits) / 2).to(dtype) * torch.tensor([1.0, -1.0], dtype=dtype).repeat(48)
    assert torch.equal(native.quantize(values, type_name).data, blocks.quantize(values, type_name).data)


def test_every_scale(type_name: str) -> None:
    """One value a block, over float32's bits: each way of rounding to half precision, subnormal and infinite ones."""
    bits = torch.arange(0x2A000000, 0x4C000000, 4099, dtype=torch.int32)
    values = torch.zeros(len(bits), 32)
    values[:, 5] = bits.view(torch.float32) * torch.tensor([1.0, -1.0]).repeat(len(bits))[: len(bits)]
    assert torch.equal(native.quantize(values, type_name).data, blocks.quantize(values, type_name).data)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("column", [0, 31])
def test_values_that_are_not_finite_are_told_by_the_scale(type_name: str, odd: float, column: int) -> None:
    values = torch.ones(2, 64)
    values[1, column] = odd
    scales = native.quantize(values, type_name).data.view(2, 2, -1)[..., :2].contiguous().view(torch.float16)
    assert torch.isfinite(scales.squeeze(2)).tolist() == [[True, True], [False, True]]


def test_values_that_lie_apart(type_name: str) -> None:
    values = torch.randn(64, 40, generator=torch.Generator().manual_seed(3)).T
    expected = blocks.quantize(values.contiguous(), type_name)
    assert torch.equal(native.quantize(values, type_name).data, expected.data)
