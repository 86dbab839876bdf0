"""`NativeModel` as its callers meet it: what it refuses, what it keeps, several callers at once."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest
import torch
from torch import Tensor

from draftproof.core.errors import DraftproofError
from draftproof.engine.memory import resident_bytes
from draftproof.kv.cache import KVCache
from draftproof.models.base import ForwardBatch, Segment
from draftproof.models.native import NativeLinear, NativeModel, status
from draftproof.models.native.library import OUT_OF_MEMORY, check
from support.native_models import SMALL, chain, join, random_tokens, random_weights, variant

pytestmark = pytest.mark.skipif(not status().available, reason=status().reason)


@pytest.fixture(scope="module")
def model() -> NativeModel:
    return NativeModel(SMALL, random_weights(SMALL, torch.bfloat16), torch.bfloat16, 2)


def replaced(batch: ForwardBatch, **changes: object) -> ForwardBatch:
    return dataclasses.replace(batch, **changes)  # type: ignore[arg-type]


def segment(**changes: object) -> list[Segment]:
    return [dataclasses.replace(Segment([0], 0, 0, 3), **changes)]  # type: ignore[arg-type]


GOOD = chain([1, 2, 3], 0, [0])
BAD_BATCHES: dict[str, ForwardBatch] = {
    "token id beyond the vocabulary": replaced(GOOD, token_ids=torch.tensor([1, 101, 3])),
    "token id below zero": replaced(GOOD, token_ids=torch.tensor([1, -1, 3])),
    "token ids of another type": replaced(GOOD, token_ids=torch.tensor([1, 2, 3], dtype=torch.int32)),
    "token ids of another shape": replaced(GOOD, token_ids=torch.tensor([[1, 2, 3]])),
    "position beyond the context": replaced(GOOD, positions=torch.tensor([0, 1, 4096])),
    "position below zero": replaced(GOOD, positions=torch.tensor([-1, 1, 2])),
    "fewer positions than rows": replaced(GOOD, positions=torch.tensor([0, 1])),
    "logit row beyond the rows": replaced(GOOD, logit_rows=torch.tensor([3])),
    "logit row below zero": replaced(GOOD, logit_rows=torch.tensor([-1])),
    "no segments": replaced(GOOD, segments=[]),
    "segment without rows": replaced(GOOD, segments=[*segment(), Segment([1], 0, 3, 0)]),
    "segments leave a gap": replaced(GOOD, segments=segment(first_row=1)),
    "segments cover too little": replaced(GOOD, segments=segment(num_rows=2)),
    "segments cover too much": replaced(GOOD, segments=segment(num_rows=4)),
    "a huge number of rows": replaced(GOOD, segments=segment(num_rows=2**40)),
    "context below zero": replaced(GOOD, segments=segment(context_len=-1)),
    "a huge context": replaced(GOOD, segments=segment(context_len=2**40)),
    "too few blocks": replaced(GOOD, segments=segment(context_len=30)),
    "block beyond the cache": replaced(GOOD, segments=segment(block_ids=[4])),
    "block below zero": replaced(GOOD, segments=segment(block_ids=[-1])),
    "parents for other rows": replaced(GOOD, segments=segment(parent_rows=[0, 0])),
    "root with a parent": replaced(GOOD, segments=segment(parent_rows=[1, 0, 0])),
    "parent behind its child": replaced(GOOD, segments=segment(parent_rows=[0, 2, 0])),
    "parent below zero": replaced(GOOD, segments=segment(parent_rows=[0, 0, -1])),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_batch_that_contradicts_itself_is_refused_and_writes_nothing(model: NativeModel, name: str) -> None:
    cache = model.new_cache(4)
    cache.data.fill_(1.0)
    with pytest.raises(ValueError, match=r"."):
        model.forward(BAD_BATCHES[name], cache)
    assert (cache.data == 1.0).all()


@pytest.mark.parametrize(
    "cache",
    [
        KVCache(2, 4, 2, 64, torch.float32),
        KVCache(1, 4, 2, 64, torch.bfloat16),
        KVCache(2, 4, 2, 32, torch.bfloat16),
    ],
)
def test_a_cache_of_another_model_is_refused(model: NativeModel, cache: KVCache) -> None:
    with pytest.raises(ValueError, match="cache"):
        model.forward(GOOD, cache)


def test_logits_are_fresh_and_an_empty_pass_gives_none(model: NativeModel) -> None:
    cache = model.new_cache(4)
    first = model.forward(GOOD, cache)
    kept = first.clone()
    model.forward(chain([9, 8, 7], 0, [0]), cache)
    assert torch.equal(first, kept)
    empty = ForwardBatch(GOOD.token_ids[:0], GOOD.positions[:0], [], GOOD.logit_rows[:0])
    assert model.forward(empty, cache).shape == (0, 101)


def test_interface_and_new_cache(model: NativeModel) -> None:
    assert model.kernels == "native"
    assert model.config is SMALL
    cache = model.new_cache(3)
    assert cache.data.shape == (3, 2, 2, 2, 32, 64)
    assert cache.data.dtype == model.dtype == torch.bfloat16


def test_several_callers_at_once_get_their_own_results(model: NativeModel) -> None:
    """Passes that grow the rotary tables among them; each thread has its own cache, all share model and pool."""
    other = NativeModel(SMALL, random_weights(SMALL, torch.float32, seed=1), torch.float32, 3)
    jobs = [
        (each, chain(random_tokens(3, 101, seed), seed * 40, list(range(10))))
        for seed in range(6)
        for each in (model, other)
    ]

    def cache_of(owner: NativeModel) -> KVCache:
        cache = owner.new_cache(10)
        cache.data.zero_()
        return cache

    expected = [owner.forward(batch, cache_of(owner)) for owner, batch in jobs]
    found: list[Tensor | None] = [None] * len(jobs)

    def work(index: int) -> None:
        owner, batch = jobs[index]
        cache = cache_of(owner)
        for _ in range(20):
            found[index] = owner.forward(batch, cache)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True) if b is not None)
    assert None not in found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_computes_too(model: NativeModel) -> None:
    cache = model.new_cache(4)
    expected = model.forward(GOOD, cache)  # the parent's workers exist now; the child does not inherit them
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if torch.equal(model.forward(GOOD, cache), expected) else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(model.forward(GOOD, cache), expected)


class OnDemand(Mapping[str, Tensor]):
    """Produces each tensor when asked; counts how many are alive."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> Tensor:
        self.asked.append(name)
        return self._tensors[name].clone()

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def test_each_tensor_is_asked_for_once() -> None:
    config = variant(tie_embeddings=False, qkv_bias=True)
    weights = OnDemand(random_weights(config, torch.bfloat16))
    NativeModel(config, weights, torch.bfloat16, 1)
    assert sorted(weights.asked) == sorted(weights)


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stored_types_are_rounded_as_pytorch_does(stored: torch.dtype, dtype: torch.dtype) -> None:
    weights = random_weights(SMALL, stored)
    weights["model.norm.weight"][:4] = torch.tensor(
        [6e-8, -3e-5, 65504.0, 0.0]
    )  # subnormal halves among them
    rounded = {
        name: tensor.to(dtype) if tensor.dim() == 2 else tensor.float() for name, tensor in weights.items()
    }
    results = [
        NativeModel(SMALL, given, dtype, 1).forward(GOOD, KVCache(2, 4, 2, 64, dtype))
        for given in (weights, rounded)
    ]
    assert torch.equal(*results)


def without(name: str) -> Callable[[dict[str, Tensor]], None]:
    return lambda weights: weights.__delitem__(name)


def reshaped(name: str) -> Callable[[dict[str, Tensor]], None]:
    return lambda weights: weights.update({name: weights[name][:-1]})


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.norm.weight", without),
        ("model.layers.1.mlp.up_proj.weight", without),
        ("model.layers.0.self_attn.k_proj.weight", reshaped),
        ("model.embed_tokens.weight", reshaped),
    ],
)
def test_tensors_that_are_missing_or_misshapen(
    name: str, damage: Callable[[str], Callable[[dict[str, Tensor]], None]]
) -> None:
    weights = random_weights(SMALL, torch.float32)
    damage(name)(weights)
    with pytest.raises(DraftproofError) as caught:
        NativeModel(SMALL, weights, torch.float32, 1)
    assert caught.value.code == "DP404"
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (variant(head_dim=72), torch.float32),
        (variant(head_dim=1024), torch.float32),
        (variant(num_heads=5), torch.float32),
        (SMALL, torch.float16),
    ],
)
def test_shapes_and_types_that_are_not_served(config: type[SMALL], dtype: torch.dtype) -> None:  # type: ignore[valid-type]
    with pytest.raises(DraftproofError) as caught:
        NativeModel(config, {}, dtype, 1)
    assert caught.value.code == "DP702"


@pytest.mark.parametrize("num_threads", [0, -1, 100_000])
def test_thread_counts_that_make_no_sense(num_threads: int) -> None:
    with pytest.raises(ValueError, match="num_threads"):
        NativeModel(SMALL, {}, torch.float32, num_threads)


def test_linears_alone_leave_later_passes_as_they_were(model: NativeModel) -> None:
    cache = model.new_cache(4)
    expected = model.forward(GOOD, cache)
    model.linears_only(2)
    model.linears_only(70)
    assert torch.equal(model.forward(GOOD, cache), expected)
    with pytest.raises(ValueError, match="num_rows"):
        model.linears_only(0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system does not tell what is resident")
def test_a_cache_takes_the_memory_of_the_blocks_in_use() -> None:
    """Also in huge pages, and also where every configuration of a drafter has a cache of its own."""
    config = variant(num_layers=16)
    model = NativeModel(config, random_weights(config, torch.float32), torch.float32, 1)
    caches = [model.new_cache(num_blocks=512) for _ in range(4)]
    before = resident_bytes()
    for cache in caches:
        for part in cache.slot([0], 0):
            part.fill_(1.0)
    in_use = sum(cache.data.nbytes // cache.num_blocks for cache in caches)
    assert (
        resident_bytes() - before < in_use + len(caches) * 3 * 2**21
    )  # of the largest pages, those at the ends


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(1, 1), (3, 17), (257, 40), (2050, 31)])
def test_a_linear_layer_equals_scalar_code(num_inputs: int, num_outputs: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(num_outputs, num_inputs, generator=generator)
    bias = torch.randn(num_outputs, generator=generator)
    x = torch.randn(53, num_inputs, generator=generator)
    for linear in (NativeLinear(weight, bias, dtype, 2), NativeLinear(weight, None, dtype, 2)):
        for num_rows in range(54):
            assert torch.equal(linear(x[:num_rows]), linear.reference(x[:num_rows]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_threads_that_pack_together_lose_nothing(dtype: torch.dtype) -> None:
    weight = torch.randn(2000, 9, generator=torch.Generator().manual_seed(0))
    x = torch.eye(9)
    expected = NativeLinear(weight, None, dtype, 1)(x)
    for _ in range(200):
        assert torch.equal(NativeLinear(weight, None, dtype, 4)(x), expected)


def test_negative_zeros_and_infinities_pass_through() -> None:
    linear = NativeLinear(torch.tensor([[1.0, -1.0], [0.0, 0.0]]), None, torch.float32)
    inf = float("inf")
    y = linear(torch.tensor([[-0.0, 0.0], [inf, 1.0], [inf, inf]]))
    assert y[1, 0] == inf
    assert y[1, 1].isnan()
    assert y[2, 0].isnan()
    assert torch.equal(
        y.nan_to_num(), linear.reference(torch.tensor([[-0.0, 0.0], [inf, 1.0], [inf, inf]])).nan_to_num()
    )


def test_passes_over_trees_and_chains_mix(model: NativeModel) -> None:
    cache = model.new_cache(4)
    tree = ([1, 2, 3, 4], 0, [0], [0, 0, 0, 1])
    logits = model.forward(join([([5, 6], 0, [1], None), tree, ([7], 0, [2], None)]), cache)
    assert torch.equal(logits[:2], model.forward(chain([5, 6], 0, [1]), cache))
    assert torch.equal(logits[5], model.forward(chain([1, 2, 4], 0, [0]), cache)[2])
    assert torch.equal(logits[6:], model.forward(chain([7], 0, [2]), cache))


def test_memory_that_runs_out_is_told_as_such() -> None:
    with pytest.raises(DraftproofError, match="DP701"):
        check(OUT_OF_MEMORY)
