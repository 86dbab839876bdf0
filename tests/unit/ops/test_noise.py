"""Keyed noise: the same bits everywhere, and good ones."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftproof.ops import noise
from draftproof.ops.noise import Purpose, draw, gumbel, stream, uniform, uniforms

WORDS = st.integers(0, 2**64 - 1)
FALSE_ALARM_RATE = 1e-6
"""Of each statistical test, were its fixed keys chosen afresh."""


PINNED_STREAMS = [0x68AC638DA2EDDA0C, 0x2F3B279E2010AB0C, 0x3EDFBA9281257392, 0xEB9C778D9F228C9]
PINNED_UNIFORMS = [0.2307323842392498, 0.9989700123215269, 0.718260214355866, 0.015298059266505182]


def p_value(counts: Tensor, expected: Tensor) -> float:
    """Pearson's chi-square of counts against expected counts."""
    statistic = float(((counts.double() - expected) ** 2 / expected).sum())
    half = torch.tensor([(counts.numel() - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def random_weights(seed: int, *shape: int, scale: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(scale * torch.randn(*shape, dtype=torch.float64, generator=generator), dim=-1)


# ---- bits ------------------------------------------------------------------------------------------------


def test_the_bits_are_pinned() -> None:
    """Every seeded text depends on them: changing the hash is a breaking change of the product."""
    streams = [
        stream(0, 0, Purpose.TARGET),
        stream(1, 2, Purpose.DRAFT, 3),
        stream(-1, 0, Purpose.ACCEPT),
        stream(2**64 - 1, 7, Purpose.RECOVER),
    ]
    assert streams == PINNED_STREAMS
    assert [uniform(s, 5) for s in streams] == PINNED_UNIFORMS


@given(word=WORDS, index=st.integers(0, 2**31))
def test_uniforms_are_odd_multiples_of_two_to_the_minus_53(word: int, index: int) -> None:
    numerator = uniform(word, index) * 2**53
    assert numerator == int(numerator)
    assert int(numerator) % 2 == 1
    assert 0.0 < uniform(word, index) < 1.0


@pytest.mark.parametrize("bits", [0, 2**64 - 1])
def test_the_ends_of_the_interval_are_open(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even for the extreme hashes the uniform is neither 0 nor 1, and the Gumbel noise is finite."""
    monkeypatch.setattr(noise, "_mix", lambda state: bits)
    assert uniform(0) == (2.0**-53 if bits == 0 else 1.0 - 2.0**-53)
    assert math.isfinite(gumbel(0))


@settings(deadline=None)
@given(words=st.lists(WORDS, min_size=1, max_size=4), ids=st.lists(st.integers(0, 2**40), min_size=1))
def test_tensor_and_scalar_bits_are_equal(words: list[int], ids: list[int]) -> None:
    expected = [[uniform(word, index) for index in ids] for word in words]
    assert uniforms(words, torch.tensor(ids)).tolist() == expected


def test_bits_do_not_depend_on_place_batch_or_stride() -> None:
    words = [stream(seed, 3, Purpose.TARGET) for seed in range(5)]
    ids = torch.arange(1003)
    full = uniforms(words, ids)
    for start, stop, step in [(0, 1, 1), (1, 18, 1), (1002, 1003, 1), (5, 1003, 7)]:
        assert torch.equal(uniforms(words, ids[start:stop:step]), full[:, start:stop:step])
    assert torch.equal(uniforms(words[2:3], ids), full[2:3])
    assert torch.equal(uniforms(words, ids.flip(0)), full.flip(1))


# ---- quality ---------------------------------------------------------------------------------------------


def test_uniformity_over_each_part_of_the_key() -> None:
    num = 20_000
    by_part = {
        "seed": [uniform(stream(k, 0, Purpose.TARGET)) for k in range(num)],
        "position": [uniform(stream(0, k, Purpose.TARGET)) for k in range(num)],
        "draw": [uniform(stream(0, 0, Purpose.TARGET, k)) for k in range(num)],
        "token": uniforms([stream(0, 0, Purpose.TARGET)], torch.arange(num))[0].tolist(),
    }
    for part, values in by_part.items():
        counts = torch.histc(torch.tensor(values, dtype=torch.float64), bins=64, min=0.0, max=1.0)
        assert p_value(counts, torch.full((64,), num / 64)) > FALSE_ALARM_RATE, part


def test_the_lowest_used_bits_are_uniform_too() -> None:
    values = uniforms([stream(5, 6, Purpose.TARGET)], torch.arange(40_000))[0]
    low = (values * 2**53).to(torch.int64).bitwise_right_shift(1).bitwise_and(63)
    assert p_value(torch.bincount(low, minlength=64), torch.full((64,), 40_000 / 64)) > FALSE_ALARM_RATE


def test_neighbouring_keys_are_independent() -> None:
    """Pairs of keys that differ by one in one part, on a 16 x 16 grid."""
    num = 12_000
    ids = torch.arange(num)

    def row(seed: int, position: int, purpose: Purpose, draw_index: int = 0) -> Tensor:
        return uniforms([stream(seed, position, purpose, draw_index)], ids)[0]

    base = row(7, 9, Purpose.TARGET)
    pairs = {
        "seed": (base, row(8, 9, Purpose.TARGET)),
        "negative seed": (base, row(-7, 9, Purpose.TARGET)),
        "position": (base, row(7, 10, Purpose.TARGET)),
        "purpose": (base, row(7, 9, Purpose.ACCEPT)),
        "draw": (base, row(7, 9, Purpose.TARGET, 1)),
        "seed and position swapped": (base, row(9, 7, Purpose.TARGET)),
        "token": (base, base.roll(1)),
        "token of the next position": (base, row(7, 10, Purpose.TARGET).roll(1)),
    }
    for name, (left, right) in pairs.items():
        cells = (left * 16).long() * 16 + (right * 16).long()
        counts = torch.bincount(cells, minlength=256)
        assert p_value(counts, torch.full((256,), num / 256)) > FALSE_ALARM_RATE, name


def test_every_bit_of_the_key_flips_half_of_the_bits() -> None:
    def bits(seed: int, position: int, draw_index: int, token: int) -> int:
        return int(uniform(stream(seed, position, Purpose.TARGET, draw_index), token) * 2**53) >> 1

    num_bits = {0: 64, 1: 32, 2: 16, 3: 18}
    for part, width in num_bits.items():
        for bit in range(width):
            flips = 0
            for sample in range(60):
                key = [sample * 7919, sample + 3, sample % 5, sample * 31]
                other = list(key)
                other[part] ^= 1 << bit
                flips += (bits(*key) ^ bits(*other)).bit_count()
            # 60 x 52 fair coins: 1560 on average, standard deviation 28; six of them for about 130 cases.
            assert abs(flips - 1560) < 6 * 28, (part, bit, flips)


def test_streams_do_not_collide() -> None:
    streams = {
        stream(seed, position, purpose, draw_index)
        for seed in range(-5, 15)
        for position in range(40)
        for purpose in Purpose
        for draw_index in range(8)
    }
    assert len(streams) == 20 * 40 * len(Purpose) * 8


# ---- draw ------------------------------------------------------------------------------------------------


def naive_order(weights: Tensor, word: int) -> list[int]:
    """Ids of positive weight by log w + gumbel, best first, as the definition has it."""
    scores = {x: math.log(w) + gumbel(word, x) for x, w in enumerate(weights.tolist()) if w > 0}
    return sorted(scores, key=lambda x: -scores[x])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), vocab=st.integers(1, 300), num_zeros=st.integers(0, 250))
def test_draw_is_the_gumbel_argmax(seed: int, vocab: int, num_zeros: int) -> None:
    weights = random_weights(seed, 2, vocab)
    shuffled = torch.randperm(vocab, generator=torch.Generator().manual_seed(seed))
    weights[:, shuffled[: min(num_zeros, vocab - 1)]] = 0.0
    words = [stream(seed, position, Purpose.TARGET) for position in range(2)]
    num_draws = min(4, int((weights > 0).sum(1).min()))
    expected = [naive_order(row, word)[:num_draws] for row, word in zip(weights, words, strict=True)]
    assert draw(weights, words, num_draws).tolist() == expected
    assert draw(weights, words).tolist() == [order[:1] for order in expected]


def test_draw_over_a_large_vocabulary_is_the_gumbel_argmax() -> None:
    """Several tiles, peaked and flat rows, with and without zeros."""
    vocab = 100_003
    for seed, scale in enumerate([0.0, 1.0, 4.0]):
        weights = random_weights(seed, vocab, scale=scale)
        weights[::3] = 0.0
        for position in range(4):
            word = stream(seed, position, Purpose.TARGET)
            log_u = uniforms([word], torch.arange(vocab))[0].log()
            naive = (weights.log() - (-log_u).log()).topk(3).indices.tolist()
            assert draw(weights[None], [word], 3).tolist() == [naive]
            assert draw(weights[None], [word]).tolist() == [naive[:1]]


def test_each_tile_can_win() -> None:
    vocab = 2 * noise._TILE + 100
    weights = torch.full((1, vocab), 1.0 / vocab, dtype=torch.float64)
    winners = [int(draw(weights, [stream(0, k, Purpose.TARGET)])) // noise._TILE for k in range(40)]
    assert set(winners) >= {0, 1}
    weights[0, : 2 * noise._TILE] = 0.0
    weights[0, -1] = 0.5
    assert int(draw(weights, [stream(0, 0, Purpose.TARGET)])) >= 2 * noise._TILE


def test_a_draw_does_not_depend_on_other_rows_memory_layout_or_support_path() -> None:
    """Rows alone, in batches, transposed in memory, and as support (sparse rows hash only their positive
    ids)."""
    weights = random_weights(3, 33, 401)
    weights[::2, 40:] = 0.0  # these rows take the sparse path
    words = [stream(1, row, Purpose.TARGET) for row in range(33)]
    together = draw(weights, words, 3)
    assert torch.equal(draw(weights.t().contiguous().t(), words, 3), together)
    for row in range(33):
        assert torch.equal(draw(weights[row : row + 1], words[row : row + 1], 3), together[row : row + 1])
        ids = weights[row].nonzero().squeeze(1)
        assert noise._winners(weights[row], None, words[row], 3) == together[row].tolist()
        assert noise._winners(weights[row][ids], ids, words[row], 3) == together[row].tolist()
        assert torch.equal(draw(weights[row : row + 1, ids], [words[row]], 3, ids)[0], together[row])
        padded = torch.cat([ids, torch.arange(401, 801)])  # and zeros among the given ids
        sparse = torch.cat([weights[row, ids], torch.zeros(400, dtype=torch.float64)])
        assert torch.equal(draw(sparse[None], [words[row]], 3, padded)[0], together[row])


def test_the_bound_never_loses_a_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one and by bounds, the same tokens: the short cut is only a short cut."""
    weights = random_weights(8, 60, 30, scale=2.0)
    words = [stream(2, row, Purpose.TARGET) for row in range(60)]
    one_by_one = draw(weights, words, 2)
    monkeypatch.setattr(noise, "_FEW", 0)
    assert torch.equal(draw(weights, words, 2), one_by_one)
    monkeypatch.setattr(noise, "_TILE", 7)
    assert torch.equal(draw(weights, words, 2), one_by_one)
    sparse = torch.zeros(60, 200, dtype=torch.float64)
    sparse[:, 5::7][:, :28] = weights[:, :28]  # 28 ids of 200: the support path, in four tiles
    in_tiles = draw(sparse, words, 2)
    monkeypatch.undo()
    assert torch.equal(draw(sparse, words, 2), in_tiles)


def test_weights_need_no_normalisation_and_may_be_tiny() -> None:
    weights = random_weights(4, 20, 50)
    words = [stream(3, row, Purpose.RECOVER) for row in range(20)]
    assert torch.equal(draw(weights * 2.0**-900, words), draw(weights, words))
    assert torch.equal(draw(weights * 2.0**20, words), draw(weights, words))


def test_the_only_token_is_drawn() -> None:
    assert draw(torch.ones(1, 1, dtype=torch.float64), [9]).tolist() == [[0]]
    one_hot = torch.zeros(1, 5000, dtype=torch.float64)
    one_hot[0, 4321] = 1e-300
    assert draw(one_hot, [9]).tolist() == [[4321]]


@pytest.mark.parametrize("vocab", [3, 5000])
def test_more_draws_than_tokens_is_our_fault(vocab: int) -> None:
    weights = torch.zeros(1, vocab, dtype=torch.float64)
    weights[0, :2] = 0.5
    assert sorted(draw(weights, [1], 2).tolist()[0]) == [0, 1]
    with pytest.raises(AssertionError, match="fewer tokens"):
        draw(weights, [1], 3)
    with pytest.raises(AssertionError, match="fewer tokens"):
        draw(torch.zeros(1, vocab, dtype=torch.float64), [1])


def test_several_draws_are_drawn_without_replacement() -> None:
    """The pair's frequency is q(x) q(y) / (1 - q(x))."""
    q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    num = 6000
    pairs = draw(q.expand(num, 3), [stream(seed, 0, Purpose.DRAFT) for seed in range(num)], 2)
    counts = torch.bincount(pairs[:, 0] * 3 + pairs[:, 1], minlength=9)
    expected = (q[:, None] * q[None] / (1 - q[:, None]) * num).fill_diagonal_(0.0).flatten()
    assert counts[expected == 0].sum() == 0
    assert p_value(counts[expected > 0], expected[expected > 0]) > FALSE_ALARM_RATE
