"""Paired ratios with an interval: the one statistic behind "faster" and "slower".

Called by measurements and reports. Knows numbers in pairs; nothing of engines, prompts or units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class RatioEstimate:
    """A geometric mean of paired ratios. `low` and `high` are None where one pair gives no interval."""

    ratio: float
    low: float | None
    high: float | None
    num_pairs: int
    confidence: float

    @property
    def verdict(self) -> str:
        """`pays` when the whole interval lies above 1, `does_not_pay` when below, else `within_noise`."""
        if self.low is not None and self.low > 1.0:
            return "pays"
        if self.high is not None and self.high < 1.0:
            return "does_not_pay"
        return "within_noise"


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = 0.95
) -> RatioEstimate:
    """Geometric mean of numerators[i] / denominators[i] with Student's t interval on the logarithms.

    One pair per prompt, both of one unit. Prompts are the sample: the interval says where the mean ratio of
    other prompts of this kind would lie, not how steady the clock was. Ratios are multiplicative, so their
    logarithms are averaged (Fleming & Wallace 1986, "How not to lie with statistics"); with the handful of
    prompts of a demo the t interval (Student 1908) holds its level where a percentile bootstrap is too narrow
    (Hesterberg 2015, "What teachers should know about the bootstrap").

    Raises ValueError for lists of different or no length, and for values that are not positive and finite.
    """
    if len(numerators) != len(denominators) or not numerators:
        raise ValueError(f"{len(numerators)} and {len(denominators)} values cannot be paired")
    values = np.array([numerators, denominators], dtype=np.float64)  # [2, num_pairs]
    if not bool(np.all(np.isfinite(values) & (values > 0.0))):
        raise ValueError("a ratio needs positive, finite values")
    logs = np.log(values[0]) - np.log(values[1])  # [num_pairs]
    mean = float(logs.mean())
    num_pairs = len(numerators)
    if num_pairs < 2:
        return RatioEstimate(math.exp(mean), None, None, num_pairs, confidence)
    standard_error = float(logs.std(ddof=1)) / math.sqrt(num_pairs)
    margin = t_quantile(0.5 + confidence / 2, num_pairs - 1) * standard_error
    return RatioEstimate(
        math.exp(mean), math.exp(mean - margin), math.exp(mean + margin), num_pairs, confidence
    )


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive values. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def t_cdf(t: float, degrees: int) -> float:
    """P(T <= t) of Student's t with whole degrees of freedom (Abramowitz & Stegun 26.7.3, 26.7.4)."""
    theta = math.atan2(t, math.sqrt(degrees))
    cosine_squared = math.cos(theta) ** 2
    odd = degrees % 2 == 1
    term = math.cos(theta) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for step in range(3 if odd else 2, degrees - 1, 2):
        term *= cosine_squared * (step - 1) / step
        total += term
    central = 2 / math.pi * (theta + math.sin(theta) * total) if odd else math.sin(theta) * total
    return 0.5 + central / 2


def t_quantile(probability: float, degrees: int) -> float:
    """The t with P(T <= t) = probability, by bisection of `t_cdf`; probability in (0, 1), degrees >= 1."""
    if not 0.0 < probability < 1.0 or degrees < 1:
        raise ValueError(f"no quantile for probability {probability} and {degrees} degrees of freedom")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, high * 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_cdf(middle, degrees) < probability else (low, middle)
    return high
