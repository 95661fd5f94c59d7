"""The elementary pairs of distributions that random subsampling leads to.

One noisy step on a random batch is dominated by a pair of one-dimensional laws. Each pair knows
its loss distribution, cut on a grid so that the discrete pair is harder to protect than the true
one in both orders (connect the dots: the masses of both laws are kept in every cell), and its
Renyi moments. Rounding errors of the special functions are bounded and counted against us.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

Array = npt.NDArray[np.float64]

ROUNDING = float(np.finfo(float).eps)
REACH = 11.5  # a standard normal is farther out than this with probability 1e-30
CELLS = 1 << 17  # more cells than this in one pair would slow down without visible gain
NODES = 1 << 18  # a quadrature that would need more nodes is replaced by a closed upper bound
FARTHEST = 1e6  # shifts beyond this many standard deviations count as no protection at all


class Atoms(NamedTuple):
    """``weights[i]`` is the mass of the loss ``(first + i) * grid``; the rest is infinite."""

    first: int
    weights: Array
    infinity: float


class Pair(Protocol):
    """What a privacy-loss distribution needs to know about one step."""

    @property
    def reach(self) -> float:
        """The length of the interval of losses that matter."""

    @property
    def variance(self) -> float:
        """The variance of the loss (only used to choose a grid)."""

    def atoms(self, grid: float) -> tuple[Atoms, Atoms]:
        """Pessimistic loss distributions in both orders on multiples of ``grid``."""

    def log_moments(self, tilt: float) -> tuple[float, float]:
        """Log of E exp(tilt * loss) in both orders, rounded up."""


def _cells(edges: Array, centre: float) -> tuple[Array, Array]:
    """Masses of N(centre, 1) between consecutive edges, and a bound on their rounding error.

    The difference is taken in the tail that is the smaller one; ``ndtr`` itself is trusted to a
    relative error of (4 + x^2) units, the sensitivity of exp(-x^2/2) to its argument.
    """
    left, right = edges[:-1] - centre, edges[1:] - centre
    flip = left + right > 0
    near = ndtr(np.where(flip, -left, right))
    far = ndtr(np.where(flip, -right, left))
    square = np.minimum(np.where(flip, left, right) ** 2, 1e4)
    return np.maximum(near - far, 0.0), ROUNDING * (4.0 + square) * near


def _dots(first: int, grid: float, upper: Array, lower: Array) -> Array:
    """Connect the dots: spread each cell's mass over its two ends, keeping both laws' masses.

    Cell i lies between the losses (first + i) * grid and (first + i + 1) * grid. ``upper`` is the
    first law's mass there (rounded up), ``lower`` the second's (rounded down). The answer is the
    first law's mass at the ends: the hockey-stick curve of the new pair joins the dots of the old.
    """
    ends = (first + np.arange(len(upper) + 1)) * grid
    left = np.minimum(ends[:-1], 700.0)  # beyond, `lower` is below e^-700 and may count as zero
    slip = 4.0 * ROUNDING * (1.0 + np.abs(left)) * upper
    to_right = (np.maximum(upper - lower * np.exp(left), 0.0) + slip) / -math.expm1(-grid)
    weights = np.zeros(len(upper) + 1)
    weights[1:] += to_right
    weights[:-1] += np.maximum(upper - to_right, 0.0)
    return weights


@dataclass(frozen=True)
class SampledPair:
    """(1 - rate) N(low, 1) + rate N(high, 1) against N(0, 1), with 0 <= low <= high.

    ``low = 0`` is the sampled Gaussian; ``rate = 1`` one Gaussian with shift ``high``.

    >>> pair = SampledPair(rate=1.0, low=0.0, high=2.0)
    >>> round(pair.log_moments(2.0)[0], 6)  # tilt (tilt + 1) mu^2 / 2
    12.0
    """

    rate: float
    low: float
    high: float

    @cached_property
    def _floor(self) -> float:
        """The smaller of the two shifts that really occur."""
        return self.high if self.rate >= 1.0 else self.low

    def loss(self, x: Array) -> Array:
        """Log of the likelihood ratio at x, increasing and convex."""
        a, b = self._floor, self.high
        base = a * x - a * a / 2
        if a == b:
            return base
        gap = (b - a) * x - (b * b - a * a) / 2
        value: Array = base + np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + gap)
        return value

    def _slope(self, x: Array) -> Array:
        a, b = self._floor, self.high
        gap = (b - a) * x - (b * b - a * a) / 2 + math.log(self.rate) - math.log1p(-self.rate)
        value: Array = a + (b - a) * np.exp(-np.logaddexp(0.0, -gap))
        return value

    def inverse(self, loss: Array) -> Array:
        """The point where the loss is reached, minus infinity below its infimum.

        An error in the point changes the hockey-stick value at that dot only to second order,
        because the point is the optimal threshold there.
        """
        a, b = self._floor, self.high
        if a == b:
            return loss / b + b / 2
        if a == 0.0:
            excess = np.expm1(np.minimum(loss, 700.0)) + self.rate
            with np.errstate(divide="ignore", invalid="ignore"):
                x = (np.log(np.maximum(excess, 0.0)) - math.log(self.rate)) / b + b / 2
            return np.where(loss > 700.0, (loss - math.log(self.rate)) / b + b / 2, x)
        knots = np.linspace(-REACH - 1.0, b + REACH + 1.0, 4097)
        at = self.loss(knots)
        place = np.clip(np.searchsorted(at, loss), 1, len(knots) - 1)
        x = np.interp(loss, at, knots)
        for _ in range(3):
            x = x - (self.loss(x) - loss) / self._slope(x)
            x = np.clip(x, knots[place - 1], knots[place])
        return x

    @cached_property
    def _ends(self) -> tuple[float, float]:
        low, high = self.loss(np.array([-REACH, self.high + REACH]))
        return float(low), float(high)

    @property
    def reach(self) -> float:
        return self._ends[1] - self._ends[0] if self.high < FARTHEST else math.inf

    @cached_property
    def variance(self) -> float:
        x = np.linspace(-9.0, self.high + 9.0, 2001)
        density = self.rate * np.exp(-((x - self.high) ** 2) / 2)
        density += (1.0 - self.rate) * np.exp(-((x - self.low) ** 2) / 2)
        density /= density.sum()
        loss = self.loss(x)
        return float(density @ (loss - density @ loss) ** 2)

    def _masses(self, edges: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """(rounded up, rounded down) masses of the mixture, then of N(0, 1), between edges."""
        plain, slip = _cells(edges, 0.0)
        low, low_slip = _cells(edges, self.low)
        high, high_slip = _cells(edges, self.high)
        mixed = (1.0 - self.rate) * low + self.rate * high
        mixed_slip = (1.0 - self.rate) * low_slip + self.rate * high_slip + 4 * ROUNDING * mixed
        return (
            (mixed + mixed_slip, np.maximum(mixed - mixed_slip, 0.0)),
            (plain + slip, np.maximum(plain - slip, 0.0)),
        )

    def atoms(self, grid: float) -> tuple[Atoms, Atoms]:
        first = math.floor(self._ends[0] / grid)
        last = max(math.ceil(self._ends[1] / grid), first + 1)
        inner = self.inverse(grid * np.arange(first, last + 1, dtype=np.float64))
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
        (p_up, p_down), (r_up, r_down) = self._masses(edges)
        forward = _dots(first, grid, p_up[1:-1], r_down[1:-1])
        forward[0] += p_up[0]
        backward = _dots(-last, grid, r_up[1:-1][::-1], p_down[1:-1][::-1])
        backward[0] += r_up[-1]
        return (
            Atoms(first, forward, float(p_up[-1])),
            Atoms(-last, backward, float(r_up[0])),
        )

    def log_moments(self, tilt: float) -> tuple[float, float]:
        return self._log_power(1.0 + tilt), self._log_power(-tilt)

    def _log_power(self, power: float) -> float:
        """Log of E exp(power * loss) under N(0, 1), by the trapezoid rule.

        The integrand is analytic in the strip |Im x| < pi / high and nowhere sharper than
        a normal density of precision 1 + |power| high^2 / 4, so the rule converges geometrically.
        Where that would take too many nodes, convexity of the power gives the mixture of moments.
        """
        half = power * (power - 1.0) / 2
        apart = [half * self.low**2, half * self.high**2]
        if self._floor == self.high:
            return _up(apart[1])
        sharp = 1.0 + abs(power) * (self.high - self._floor) ** 2 / 4
        step = min(0.25 / math.sqrt(sharp), 0.5 / max(self.high, 1e-9))
        centres = (power * self.low, power * self.high, 0.0)
        start, stop = min(centres) - REACH, max(centres) + REACH
        if stop - start > NODES * step:
            return _up(float(np.logaddexp(apart[0], math.log(self.rate) + apart[1])))
        x = np.arange(start, stop + step, step)
        log = _log_sum(power * self.loss(x) - x * x / 2)
        return _up(log + math.log(step) - math.log(2 * math.pi) / 2)


@dataclass(frozen=True)
class ReplacedPair:
    """The symmetric pair whose profile is rate * delta_mu(log(1 + (e^eps - 1) / rate)).

    One Gaussian step with shift ``mu`` on a batch drawn without replacement, one record replaced.
    Differentiating the profile shows the pair: for positive losses it is the sampled Gaussian
    (1 - rate) N(0, 1) + rate N(mu, 1) against N(0, 1) on x > mu / 2, an atom of mass
    (1 - rate)(2 Phi(mu/2) - 1) sits at loss zero, and the negative losses mirror the positive.

    >>> pair = ReplacedPair(rate=0.5, mu=2.0)
    >>> round(pair.log_moments(1.0)[0], 4)
    2.6759
    """

    rate: float
    mu: float

    @cached_property
    def _half(self) -> SampledPair:
        return SampledPair(self.rate, 0.0, self.mu)

    @property
    def reach(self) -> float:
        return 2.0 * self._half._ends[1] if self.mu < FARTHEST else math.inf

    @property
    def variance(self) -> float:
        return self._half.variance

    @property
    def atom(self) -> float:
        """The mass at loss zero, the same under both laws."""
        return (1.0 - self.rate) * math.erf(self.mu / math.sqrt(8.0)) * (1.0 + 4 * ROUNDING)

    def atoms(self, grid: float) -> tuple[Atoms, Atoms]:
        last = max(math.ceil(self._half._ends[1] / grid), 1)
        edges = np.append(self._half.inverse(grid * np.arange(last + 1, dtype=np.float64)), np.inf)
        edges[0] = self.mu / 2  # where the loss is zero
        (p_up, p_down), (r_up, r_down) = self._half._masses(edges)
        weights = np.zeros(2 * last + 1)
        weights[last:] += _dots(0, grid, p_up[:-1], r_down[:-1])
        weights[: last + 1] += _dots(-last, grid, r_up[:-1][::-1], p_down[:-1][::-1])
        weights[last] += self.atom
        weights[0] += r_up[-1]
        atoms = Atoms(-last, weights, float(p_up[-1]))
        return atoms, atoms

    def log_moments(self, tilt: float) -> tuple[float, float]:
        """Both orders are equal; Gauss-Legendre panels on x > mu / 2, summed in log space."""
        order = max(abs(1.0 + tilt), abs(tilt))
        width = min(1.0 / math.sqrt(1.0 + order * self.mu**2 / 4), 2.0 / max(self.mu, 1e-9))
        stop = order * self.mu + REACH
        if stop > NODES * width / 16:
            # convex powers again: the two halves and the atom are at most 3 + the far moment
            far = order * (order - 1.0) * self.mu**2 / 2
            log = _up(float(np.logaddexp(math.log(3.0), math.log(self.rate) + far)))
            return log, log
        panels = np.linspace(self.mu / 2, stop, 2 + int((stop - self.mu / 2) / width))
        nodes, weights = np.polynomial.legendre.leggauss(16)
        half = np.diff(panels)[:, None] / 2
        x = (panels[:-1, None] + half) + half * nodes
        loss = self._half.loss(x)
        base = np.log(half * weights) - x * x / 2 - math.log(2 * math.pi) / 2
        parts = [
            _log_sum(base + (1.0 + tilt) * loss),
            _log_sum(base - tilt * loss),
        ]
        if self.atom > 0.0:
            parts.append(math.log(self.atom))
        log = _up(_log_sum(np.array(parts)))
        return log, log


def _log_sum(logs: Array) -> float:
    """Log of the sum of exponentials."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def _up(log: float) -> float:
    """A logarithm found in floating point, raised by more than its rounding error."""
    return log + 1e-12 * (1.0 + abs(log))
