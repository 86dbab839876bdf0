"""Paired ratios: known values of Student's t, coverage over simulated prompts, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.core.stats import geometric_mean, paired_ratio, t_cdf, t_quantile

# Two-sided 95 % values from the printed table in Abramowitz & Stegun, table 26.10.
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 29: 2.045, 120: 1.980}


@pytest.mark.parametrize(("degrees", "expected"), TABLE.items())
def test_quantiles_equal_the_printed_table(degrees: int, expected: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(expected, abs=6e-4)
    assert t_quantile(0.025, degrees) == pytest.approx(-expected, abs=6e-4)


@given(st.floats(0.001, 0.999), st.integers(1, 60))
def test_quantile_is_the_inverse_of_the_distribution(probability: float, degrees: int) -> None:
    assert t_cdf(t_quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-9)


def test_distribution_with_one_and_two_degrees_has_closed_forms() -> None:
    for t in (-3.0, -0.5, 0.0, 1.0, 10.0):
        assert t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi)
        assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)))


def test_ratio_is_the_geometric_mean_and_its_interval_encloses_it() -> None:
    estimate = paired_ratio([2.0, 8.0, 4.0], [1.0, 1.0, 1.0])
    assert estimate.ratio == pytest.approx(4.0)
    assert estimate.num_pairs == 3
    margin = t_quantile(0.975, 2) * math.log(2) / math.sqrt(3)
    assert estimate.low == pytest.approx(4.0 * math.exp(-margin))
    assert estimate.high == pytest.approx(4.0 * math.exp(margin))


@given(st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)), min_size=2, max_size=12))
def test_swapping_the_arms_inverts_everything(pairs: list[tuple[float, float]]) -> None:
    above, below = zip(*pairs, strict=True)
    forward, backward = paired_ratio(above, below), paired_ratio(below, above)
    assert forward.low is not None
    assert backward.high is not None
    assert forward.ratio * backward.ratio == pytest.approx(1.0)
    assert math.log(forward.low) == pytest.approx(-math.log(backward.high), abs=1e-6)
    assert forward.low <= forward.ratio * (1 + 1e-12)


@pytest.mark.parametrize("num_pairs", [3, 4, 8])
def test_the_interval_covers_the_true_ratio_as_often_as_it_says(num_pairs: int) -> None:
    # 4,000 experiments with a fixed seed: the binomial standard error is 0.35 points, 4 of them allowed.
    random = np.random.default_rng(7)
    plain = random.lognormal(0.0, 0.5, (4000, num_pairs))
    speculative = plain / np.exp(random.normal(math.log(1.3), 0.4, (4000, num_pairs)))
    estimates = [paired_ratio(list(a), list(b)) for a, b in zip(plain, speculative, strict=True)]
    covered = sum(e.low is not None and e.high is not None and e.low <= 1.3 <= e.high for e in estimates)
    assert covered / 4000 == pytest.approx(0.95, abs=0.014)


def test_one_pair_gives_a_ratio_and_no_interval() -> None:
    estimate = paired_ratio([3.0], [2.0])
    assert (estimate.ratio, estimate.low, estimate.high) == (pytest.approx(1.5), None, None)
    assert estimate.verdict == "within_noise"


@pytest.mark.parametrize(
    ("plain", "verdict"),
    [([2.0, 2.1, 1.9], "pays"), ([0.5, 0.6, 0.4], "does_not_pay"), ([0.8, 1.3, 1.1], "within_noise")],
)
def test_verdict_follows_the_interval(plain: list[float], verdict: str) -> None:
    assert paired_ratio(plain, [1.0, 1.0, 1.0]).verdict == verdict


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ([], []),
        ([1.0], [1.0, 2.0]),
        ([0.0], [1.0]),
        ([1.0], [-1.0]),
        ([math.nan], [1.0]),
        ([1.0], [math.inf]),
    ],
)
def test_what_cannot_be_paired_is_refused(above: list[float], below: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pair|positive"):
        paired_ratio(above, below)


def test_quantiles_outside_the_distribution_are_refused() -> None:
    for probability, degrees in ((0.0, 3), (1.0, 3), (0.5, 0)):
        with pytest.raises(ValueError, match="no quantile"):
            t_quantile(probability, degrees)


def test_geometric_mean() -> None:
    assert geometric_mean([1.0, 100.0]) == pytest.approx(10.0)
    with pytest.raises(ValueError, match="no values"):
        geometric_mean([])
