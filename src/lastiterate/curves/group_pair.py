"""One noisy step on a Poisson batch that may hold several records of one person."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from lastiterate.curves.pairs import (
    FARTHEST,
    NODES,
    REACH,
    ROUNDING,
    Array,
    Atoms,
    _cells,
    _cut,
    _log_sum,
    _up,
    inverted,
)


@dataclass(frozen=True)
class GroupPair:
    """sum over i of Bin(records, rate)(i) N(shift_i, 1) against N(0, 1).

    shift_0 = low, shift_i = high + (i - 1) gap, with 0 <= low <= high and gap >= 0: i of the
    person's records are in the batch. ``records = 1`` is a `SampledPair`.

    >>> pair = GroupPair(rate=1.0, records=3, low=0.0, high=1.0, gap=1.0)
    >>> round(pair.log_moments(2.0)[0], 6)  # one Gaussian with shift 3: tilt (tilt + 1) mu^2 / 2
    27.0
    """

    rate: float
    records: int
    low: float
    high: float
    gap: float

    @cached_property
    def _parts(self) -> tuple[Array, Array]:
        """(shifts, weights) of what can happen; the weights are exact to one rounding."""
        q, k = Fraction(self.rate), self.records
        chances = [float(math.comb(k, i) * q**i * (1 - q) ** (k - i)) for i in range(k + 1)]
        more = self.high + self.gap * np.arange(k)
        shifts = np.append(self.low, more * (1.0 + np.where(np.arange(k) > 0, 4 * ROUNDING, 0.0)))
        weights = np.array(chances)
        return shifts[weights > 0], weights[weights > 0]

    @property
    def _top(self) -> float:
        return float(self._parts[0][-1])

    def _terms(self, x: Array) -> tuple[Array, Array]:
        """Every term of the likelihood ratio over the largest one, and the log of that."""
        shifts, weights = self._parts
        logs = np.multiply.outer(shifts, x)
        logs += (np.log(weights) - shifts**2 / 2)[:, None]
        top: Array = logs.max(axis=0)
        logs -= top
        return np.exp(logs, out=logs), top

    def loss(self, x: Array) -> Array:
        """Log of the likelihood ratio at x, increasing and convex."""
        terms, top = self._terms(x)
        value: Array = top + np.log(terms.sum(axis=0))
        return value

    def _slope(self, x: Array) -> Array:
        terms, _ = self._terms(x)
        value: Array = (self._parts[0] @ terms) / terms.sum(axis=0)
        return value

    def inverse(self, loss: Array) -> Array:
        """The point where the loss is reached; an error changes a dot only to second order."""
        return inverted(self.loss, self._slope, loss, -REACH, self._top + REACH)

    @cached_property
    def _ends(self) -> tuple[float, float]:
        low, high = self.loss(np.array([-REACH, self._top + REACH]))
        return float(low), float(high)

    @property
    def reach(self) -> float:
        return math.inf if self._top >= FARTHEST else self._ends[1] - self._ends[0]

    @cached_property
    def variance(self) -> float:
        x = np.linspace(-9.0, self._top + 9.0, 4001)
        loss = self.loss(x)
        weight = np.exp(loss - x * x / 2)
        weight /= weight.sum()
        return float(weight @ (loss - weight @ loss) ** 2)

    def _masses(self, edges: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        mixed, slip = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
        for shift, weight in zip(*self._parts, strict=True):
            mass, off = _cells(edges, float(shift))
            mixed, slip = mixed + weight * mass, slip + weight * off
        slip += (self.records + 4) * ROUNDING * mixed
        plain, off = _cells(edges, 0.0)
        return (
            (mixed + slip, np.maximum(mixed - slip, 0.0)),
            (plain + off, np.maximum(plain - off, 0.0)),
        )

    def atoms(self, grid: float) -> tuple[Atoms, Atoms]:
        return _cut(self, grid)

    def log_moments(self, tilt: float) -> tuple[float, float]:
        return self._log_power(1.0 + tilt), self._log_power(-tilt)

    def _log_power(self, power: float) -> float:
        """Log of E exp(power * loss) under N(0, 1), by the trapezoid rule.

        As for `SampledPair`. The likelihood ratio is a sum of positive multiples of exp(shift x),
        all shifts within ``span``: it has no zero in the strip |Im x| < pi / (2 span), where all
        terms lie in one half plane once the smallest is taken out.
        """
        shifts, weights = self._parts
        half = power * (power - 1.0) / 2
        if len(shifts) == 1:
            return _up(half * float(shifts[0]) ** 2)
        span = float(shifts[-1] - shifts[0])
        sharp = 1.0 + abs(power) * span**2 / 4
        step = min(0.25 / math.sqrt(sharp), 0.25 / max(self._top, 1e-9))
        centres = (power * float(shifts[0]), power * self._top, 0.0)
        start, stop = min(centres) - REACH, max(centres) + REACH
        if stop - start > NODES * step:  # convexity of the power: the mixture of moments
            return _up(_log_sum(np.log(weights) + half * shifts**2))
        x = np.arange(start, stop + step, step)
        log = _log_sum(power * self.loss(x) - x * x / 2)
        return _up(log + math.log(step) - math.log(2 * math.pi) / 2)
