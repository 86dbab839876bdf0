"""What a round costs, learnt from rounds: passes by batch, context and rows, drafting by method, requests and depth.

The depth controller feeds it measured seconds and asks for expected ones. It never reads a clock and knows neither
models nor proposers. Everything is kept relative to the machine's present speed, so that a machine that slows down
(or speeds up) makes no figure stale: what decides is only how costs compare.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from statistics import median

import numpy as np

FIRST_STEP = 0.4
"""Log ratio that a single measurement may differ from what was expected: a pause of the machine is no cost."""
CLIP = 2.5
"""Spreads beyond which a measurement counts as far as that and no farther."""
LEAST_GAIN = 0.03
"""Weight of a new measurement once many were taken: old ones are forgotten over some thirty."""
MATURE, TRUSTED = 3, 12
"""Measurements from which a point moves by itself, and from which it is trusted to show the machine's speed: of a
point that was measured badly the machine's speed must not take the blame."""
DOUBT, MOST_COUNTED = 1.5, 60
"""Standard errors by which rows are taken to cost less than measured, so that what was measured seldom and badly is
measured again; and measurements beyond which there are no more to count, since old ones are forgotten."""
EXACT_ROWS = 16
"""Rows up to which costs may have steps; beyond, they are taken to lie on lines between measured points."""
NEWS_TO_REBUILD = 8
"""Measurements of mature points after which a curve is drawn anew; a young point counts for all of them."""
NEWS = 0.05
"""Log ratio by which a young point must move what was expected for decisions to be made anew."""
ASSUMED_CHEAP_ROWS, ASSUMED_ROW = 4, 0.02
"""Before anything is measured: rows up to the first cost one, each other this much of it. Rather too little: what
is tried is measured, what is never tried is not."""

ASSUMED_READING = 0.03
"""What a token costs that a drafter reads, relative to a pass of one row, before that was measured."""


@dataclass(slots=True)
class _Point:
    """Measured costs of one number of rows (or one depth), as logarithms."""

    at: float
    value: float = 0.0
    count: int = 0
    first: float = 0.0

    def learn(self, at: float, value: float, expected: float, spread: float) -> None:
        self.count += 1
        gain = max(1.0 / self.count, LEAST_GAIN)
        self.at += (at - self.at) * gain
        if self.count == 1:
            self.first = value
            self.value = expected + max(-FIRST_STEP, min(FIRST_STEP, value - expected)) / 2
        elif self.count == 2:
            self.value = median((expected, self.first, value))
        else:
            reach = CLIP * spread if self.count > MATURE else max(FIRST_STEP, CLIP * spread)
            self.value += gain * max(-reach, min(reach, value - self.value))


def _bucket(rows: int) -> int:
    """Every number of rows up to `EXACT_ROWS` by itself, then four to an octave."""
    return rows if rows <= EXACT_ROWS else EXACT_ROWS + 1 + int(4 * math.log2(rows / (EXACT_ROWS + 1)))


def _assumed(size: int) -> np.ndarray:
    """Log cost of 0 … `size` - 1 rows, relative to one, where nothing was measured."""
    return np.log1p(ASSUMED_ROW * np.maximum(0, np.arange(size) - ASSUMED_CHEAP_ROWS))


class Curve:
    """Log cost by rows: measured points, between and beyond them the shape of the parent."""

    def __init__(self, parent: Curve | None = None) -> None:
        self._parent = parent
        self._points: dict[int, _Point] = {}
        self._buckets: list[int] = []
        self._logs = self._shape = np.zeros(0)
        self._costs: list[float] = []
        self._expected_costs: list[float] = []
        self._news = 0
        self._spread = 0.0
        self.moved = 0.0
        """How far the last measurement moved what was expected of its rows, as a log ratio."""

    def learn(self, rows: int, value: float, spread: float) -> float | None:
        """Takes one measurement; returns how far it was from what its point said, if that is to be trusted."""
        bucket = _bucket(rows)
        expected = float(self.logs(rows)[rows])
        point = self._points.get(bucket)
        if point is None:
            point = self._points[bucket] = _Point(rows)
            insort(self._buckets, bucket)
        residual = value - point.value if point.count >= TRUSTED else None
        point.learn(rows, value, expected, spread)
        self.moved = abs(point.value - expected)
        self._spread = spread
        # A young point moves much, an old one little: its curve may wait.
        self._news += NEWS_TO_REBUILD if point.count <= 8 else 1
        return residual

    def is_young(self, rows: int) -> bool:
        return self._points[_bucket(rows)].count <= MATURE

    def logs(self, upto: int) -> np.ndarray:
        """Log cost of 0 to `upto` rows (and more, maybe); never falls."""
        if upto >= len(self._logs) or self._news >= NEWS_TO_REBUILD:
            size = max(upto + 1, len(self._logs))
            self._shape = self._parent.logs(size - 1)[:size] if self._parent else _assumed(size)
            self._logs = self._draw(0.0)
            self._costs = []
            self._expected_costs = []
            self._news = 0
        return self._logs

    def costs(self, upto: int) -> list[float]:
        """Relative cost of 0 to `upto` rows to decide by: what was measured seldom is taken for a little less."""
        self.logs(upto)
        if not self._costs:
            self._costs = np.exp(self._draw(DOUBT * self._spread)).tolist()
        return self._costs

    def expected(self, upto: int) -> list[float]:
        """Relative cost of 0 to `upto` rows as it was measured, without the benefit of the doubt."""
        logs = self.logs(upto)
        if not self._expected_costs:
            self._expected_costs = np.exp(logs).tolist()
        return self._expected_costs

    @property
    def largest(self) -> int:
        """Most rows that were measured."""
        return round(self._points[self._buckets[-1]].at) if self._buckets else 0

    def adopt(self, other: Curve) -> None:
        """Starts from another curve's points, lightly: the first own measurements outweigh them."""
        for bucket, point in other._points.items():
            self._points[bucket] = _Point(point.at, point.value, min(point.count, MATURE), point.value)
        self._buckets = list(other._buckets)
        self._news = NEWS_TO_REBUILD

    def _draw(self, doubt: float) -> np.ndarray:
        """The curve through the points, each less `doubt` standard errors, along the shape that is expected."""
        shape = self._shape
        if not self._buckets:
            return shape
        at, offsets = self._offsets(doubt)
        known, values = at, offsets
        if self._parent is None:
            # Nothing at all is known of few rows between points: as little as they can cost, so that they are measured.
            few = [index for index in range(1, len(at)) if at[index] <= EXACT_ROWS]
            known, values = list(at), list(offsets)
            for index in reversed(few):
                known.insert(index, at[index] - 1e-9)
                values.insert(index, offsets[index - 1])
        rows = np.arange(len(shape))
        logs = shape + np.interp(rows, known, values)
        beyond = shape[math.floor(at[-1]) + 1 :] - self._expected(at[-1])
        if len(beyond):
            logs[-len(beyond) :] -= self._flatter(at, offsets) * beyond
        return np.maximum.accumulate(logs)

    def _flatter(self, at: list[float], offsets: list[float]) -> float:
        """By what share the curve rises less than assumed towards its end, and so may go on rising less beyond it."""
        if self._parent is not None:
            return 0.0
        trusted = [
            index
            for index, bucket in enumerate(self._buckets)
            if 2 * at[index] >= at[-1] and self._points[bucket].count >= TRUSTED
        ]
        first, last = (trusted[0], trusted[-1]) if trusted else (0, 0)
        rise = self._expected(at[last]) - self._expected(at[first])
        return max(0.0, min(1.0, (offsets[first] - offsets[last]) / rise)) if rise > 0.0 else 0.0

    def _offsets(self, doubt: float) -> tuple[list[float], list[float]]:
        """The measured points as differences from the shape, made monotone: neighbours that fall are pooled."""
        pools: list[tuple[float, float, int]] = []  # value, weight, number of points
        at = []
        for bucket in self._buckets:
            point = self._points[bucket]
            at.append(point.at)
            weight = float(min(point.count, MOST_COUNTED))
            value, number = point.value - doubt / math.sqrt(weight), 1
            while pools and pools[-1][0] > value:
                other, other_weight, others = pools.pop()
                value = (other * other_weight + value * weight) / (other_weight + weight)
                weight += other_weight
                number += others
            pools.append((value, weight, number))
        values = [value for value, _, number in pools for _ in range(number)]
        return at, [v - self._expected(a) for v, a in zip(values, at, strict=True)]

    def _expected(self, at: float) -> float:
        return float(self._shape[min(len(self._shape) - 1, round(at))])


@dataclass(slots=True)
class _Drafting:
    """Cost of drafting of one method for some number of requests: a start and so much per step.

    Nothing until some depth was measured twice: optimism costs two rounds, a wrong first measurement could cost all.
    """

    points: dict[int, _Point] = field(default_factory=dict)
    start: float = 0.0
    step: float = 0.0

    def learn(self, depth: int, cost: float, spread: float) -> bool:
        """Takes one measurement; True where there were few."""
        value = math.log(max(cost, 1e-9))
        point = self.points.setdefault(depth, _Point(depth))
        # There is nothing to expect, so the lower of two is believed first: a pause of the machine is no cost.
        expected = value if point.count == 0 else min(point.first, value)
        point.learn(depth, value, expected, spread)
        if point.count <= NEWS_TO_REBUILD or point.count % NEWS_TO_REBUILD == 0:
            self._fit()
        return point.count <= MATURE

    @property
    def is_known(self) -> bool:
        return self.start + self.step > 0.0

    def at(self, depth: int) -> float:
        return self.start + self.step * depth

    def _fit(self) -> None:
        known = [
            (p.at, math.exp(p.value), float(min(p.count, 30))) for p in self.points.values() if p.count > 1
        ]
        if not known:
            return
        if len(known) == 1:
            # One depth says nothing of the parts: half of a step to start with, the rest by steps.
            at, cost, _ = known[0]
            self.step = cost / (at + 0.5)
            self.start = 0.5 * self.step
            return
        weight = sum(w for _, _, w in known)
        mean_at = sum(a * w for a, _, w in known) / weight
        mean_cost = sum(c * w for _, c, w in known) / weight
        spread = sum(w * (a - mean_at) ** 2 for a, _, w in known)
        self.step = max(0.0, sum(w * (a - mean_at) * (c - mean_cost) for a, c, w in known) / spread)
        self.start = max(0.0, mean_cost - self.step * mean_at)


class CostModel:
    """Expected seconds of passes and of drafting. All times are taken and given in seconds."""

    def __init__(self) -> None:
        self._shared = Curve()
        self._cells: dict[tuple[int, int], Curve] = {}
        self._drafting: dict[tuple[int, int], _Drafting] = {}
        self._commits: dict[int, float] = {}
        self._reading: dict[int, float] = {}
        self._level: float | None = None
        self._spread = 0.1
        self._residuals: deque[float] = deque(maxlen=5)
        self._prefill_row = 0.0
        self.has_news = False
        """Whether the last round measured something that was measured seldom before, and not what was expected."""

    @property
    def knows_speed(self) -> bool:
        """Whether a pass was measured at all."""
        return self._level is not None

    @property
    def scale(self) -> float:
        """Seconds per unit of relative cost."""
        assert self._level is not None
        return math.exp(self._level)

    def observe_pass(
        self, batch: int, context: float, rows: int, num_prefill_rows: int, seconds: float
    ) -> None:
        """A pass with `rows` rows of `batch` decoding requests, and prompt rows beside them."""
        self.has_news = False
        if batch < 1 or seconds <= 0.0:
            return
        if num_prefill_rows:
            if self._level is not None:
                extra = seconds / self.scale - self.passes(batch, context, rows)[rows]
                share = max(0.0, extra / num_prefill_rows)
                old = self._prefill_row
                self._prefill_row = share if old == 0.0 else old + 0.2 * (min(share, 2 * old) - old)
            return
        log_cost = math.log(seconds)
        cell = self._cell(batch, context)
        if self._level is None:
            self._level = log_cost - _assumed(rows + 1)[rows]
        value = log_cost - self._level
        residual = cell.learn(rows, value, self._spread)
        self._shared.learn(rows, value, self._spread)
        if residual is not None:
            self._follow_speed(residual)
        self.has_news = cell.is_young(rows) and cell.moved > NEWS

    def passes(self, batch: int, context: float, upto: int) -> list[float]:
        """Relative cost of a pass of 0 … `upto` rows; times `scale` for seconds."""
        return self._cell(batch, context).costs(upto)

    def expected_passes(self, batch: int, context: float, upto: int) -> list[float]:
        """The same without the benefit of the doubt that rows have which were measured seldom."""
        return self._cell(batch, context).expected(upto)

    @property
    def most_rows(self) -> int:
        """Rows up to which costs may be extrapolated: half as many again as were ever measured."""
        return self._shared.largest * 3 // 2 + 2

    @property
    def prefill_row(self) -> float:
        """Relative cost that a prompt row adds to a pass."""
        return self._prefill_row

    def observe_drafting(self, method: int, num_requests: int, depth: int, seconds: float) -> None:
        """Time inside a method's proposers in a round in which it drafted up to `depth` tokens for so many."""
        if self._level is None:
            return
        cost = seconds / self.scale
        if num_requests == 0 or depth == 0:
            old = self._commits.get(method, cost)
            self._commits[method] = old + 0.1 * (min(cost, 2 * old + 1e-6) - old)
            return
        self.has_news |= self._drafting_of(method, num_requests).learn(depth, cost, self._spread)

    def drafting(self, method: int, num_requests: int, depth: int) -> float:
        """Relative cost of drafting `depth` tokens for so many requests, 0 where nothing was measured yet."""
        if depth == 0:
            return self._commits.get(method, 0.0)
        wanted = (num_requests - 1).bit_length()
        known = self._drafting.get((method, wanted))
        if known is None or not known.is_known:
            others = [
                (abs(size - wanted), size)
                for (name, size), other in self._drafting.items()
                if name == method and other.is_known
            ]
            if not others:
                return 0.0
            known = self._drafting[method, min(others)[1]]
        return known.at(depth)

    def observe_reading(self, method: int, num_tokens: int, seconds: float) -> None:
        """Time that a method's proposer spent on text that it had not read yet."""
        if self._level is not None and num_tokens > 0:
            cost = seconds / self.scale / num_tokens
            old = self._reading.get(method, cost)
            self._reading[method] = old + 0.2 * (min(cost, 2 * old) - old)

    def reading(self, method: int, num_tokens: int) -> float:
        """Relative cost of reading so many tokens."""
        return self._reading.get(method, ASSUMED_READING) * num_tokens

    def knows_drafting(self, method: int) -> bool:
        return any(name == method and known.is_known for (name, _), known in self._drafting.items())

    def forget_method(self, method: int) -> None:
        self._commits.pop(method, None)
        self._reading.pop(method, None)
        for key in [key for key in self._drafting if key[0] == method]:
            del self._drafting[key]

    def _drafting_of(self, method: int, num_requests: int) -> _Drafting:
        return self._drafting.setdefault((method, (num_requests - 1).bit_length()), _Drafting())

    def _cell(self, batch: int, context: float) -> Curve:
        size = _bucket(batch)
        span = (int(context) // 256).bit_length()
        cell = self._cells.get((size, span))
        if cell is None:
            cell = self._cells[size, span] = Curve(self._shared)
            spans = sorted((abs(known - span), known) for number, known in self._cells if number == size)
            if len(spans) > 1:
                cell.adopt(self._cells[size, spans[1][1]])
        return cell

    def _follow_speed(self, residual: float) -> None:
        """Moves the level by what the last passes have in common; a single odd one moves nothing."""
        assert self._level is not None
        reach = CLIP * self._spread
        self._spread += 0.05 * (1.25 * min(abs(residual), 2 * reach) - self._spread)
        self._spread = max(self._spread, 0.02)
        self._residuals.append(residual)
        if len(self._residuals) == self._residuals.maxlen:
            self._level += 0.15 * median(self._residuals)
