"""What every `Linear` promises: values, shapes, and bits of a row that do not depend on the number of rows.

A new implementation is one more entry of `IMPLEMENTATIONS`; the tests stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from draftproof.core.errors import DraftproofError
from draftproof.models.linear import MAX_ROWS, Linear, PackedLinear

Build = Callable[[Tensor, Tensor | None], Linear]


def _packed(dtype: torch.dtype) -> Build:
    return lambda weight, bias: PackedLinear(weight, bias, dtype)


def _native(dtype: torch.dtype) -> Build:
    def build(weight: Tensor, bias: Tensor | None) -> Linear:
        from draftproof.models.native import NativeLinear, status

        if not status().available:
            pytest.skip(status().reason)
        return NativeLinear(weight, bias, dtype)

    return build


IMPLEMENTATIONS: dict[str, tuple[Build, torch.dtype]] = {
    "packed float32": (_packed(torch.float32), torch.float32),
    "packed bfloat16": (_packed(torch.bfloat16), torch.bfloat16),
    "native float32": (_native(torch.float32), torch.float32),
    "native bfloat16": (_native(torch.bfloat16), torch.bfloat16),
}
SHAPES = [(64, 96), (576, 320), (1536, 200), (2048, 77), (8960, 64), (100, 33)]
"""(num_inputs, num_outputs): inner dimensions below and above 1536, and sizes that fill no vector."""


@pytest.fixture(params=IMPLEMENTATIONS)
def build(request: pytest.FixtureRequest) -> Build:
    return IMPLEMENTATIONS[request.param][0]


@pytest.fixture
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return IMPLEMENTATIONS[request.node.callspec.params["build"]][1]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("num_rows", [1, 2, 5, 64])
@pytest.mark.parametrize(("num_inputs", "num_outputs"), SHAPES)
@pytest.mark.parametrize("has_bias", [False, True])
def test_values(
    build: Build, dtype: torch.dtype, num_inputs: int, num_outputs: int, num_rows: int, has_bias: bool
) -> None:
    weight, x = draw(num_outputs, num_inputs), draw(num_rows, num_inputs, seed=1)
    bias = draw(num_outputs, seed=2) if has_bias else None
    y = build(weight, bias)(x)
    assert y.shape == (num_rows, num_outputs)
    assert y.dtype == torch.float32
    exact = x.to(dtype).double() @ weight.to(dtype).double().T
    if bias is not None:
        exact = exact + bias
    # Rounding errors grow with the root of the sum's length; one rounding of the result in bfloat16 comes on top.
    scale = float(num_inputs) ** 0.5
    tolerance = scale * 1e-5 if dtype == torch.float32 else scale * 3e-2
    assert (y - exact).abs().max() < tolerance


@pytest.mark.parametrize(("num_inputs", "num_outputs"), SHAPES)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_bits_of_a_row_do_not_depend_on_the_number_of_rows(
    build: Build, num_inputs: int, num_outputs: int, num_threads: int
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        linear = build(draw(num_outputs, num_inputs), None)
        x = draw(70, num_inputs, seed=1)
        whole = linear(x)
        for num_rows in range(1, 70):
            start = num_rows * 7 % (71 - num_rows)
            assert torch.equal(linear(x[start : start + num_rows]), whole[start : start + num_rows]), num_rows
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("num_inputs", [576, 1536])
def test_bits_hold_for_long_passes(build: Build, num_inputs: int) -> None:
    linear = build(draw(48, num_inputs), None)
    x = draw(2 * MAX_ROWS + 3, num_inputs, seed=1)
    whole = linear(x)
    for start, stop in (
        (0, 1),
        (MAX_ROWS - 1, MAX_ROWS + 1),
        (MAX_ROWS, 2 * MAX_ROWS + 1),
        (5, 5 + MAX_ROWS),
    ):
        assert torch.equal(linear(x[start:stop]), whole[start:stop])


def test_no_rows_give_no_rows(build: Build) -> None:
    assert build(draw(8, 64), None)(torch.empty((0, 64))).shape == (0, 8)


def test_the_weight_is_copied(build: Build) -> None:
    weight, x = draw(8, 64), draw(3, 64, seed=1)
    linear = build(weight, None)
    before = linear(x)
    weight.zero_()
    assert torch.equal(linear(x), before)


def test_rows_may_lie_apart_in_memory(build: Build) -> None:
    linear = build(draw(8, 64), None)
    x = draw(6, 128, seed=1)
    assert torch.equal(linear(x[::2, :64]), linear(x[::2, :64].contiguous()))


def test_bfloat16_without_processor_support_rounds_like_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftproof.models.linear.has_native_bfloat16", lambda: False)
    weight, x = draw(200, 1536), draw(9, 1536, seed=1)
    y = PackedLinear(weight, None, torch.bfloat16)(x)
    exact = x.bfloat16().double() @ weight.bfloat16().double().T
    assert torch.equal(y, y.bfloat16().float())
    assert (y - exact).abs().max() <= exact.abs().max() * 2**-8


def test_a_pytorch_without_onednn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_has_mkldnn", False)
    with pytest.raises(DraftproofError) as caught:
        PackedLinear(draw(8, 64))
    assert caught.value.code == "DP703"
