"""The elementary pairs of distributions that random subsampling leads to.

One noisy step on a random batch is dominated by a pair of one-dimensional laws. Each pair knows
its loss distribution, cut on a grid so that the discrete pair is harder to protect than the true
one in both orders (connect the dots: the masses of both laws are kept in every cell), and its
Renyi moments. Rounding errors of the special functions are bounded and counted against us.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
LEGENDRE = np.polynomial.legendre.leggauss(16)  # nodes and weights of one panel
NOWHERE = 1e100  # no law has mass so many standard deviations away
FARTHEST = 1e6  # shifts beyond this many standard deviations count as no protection at all


class Atoms(NamedTuple):
    """``weights[i]`` is the mass of the loss ``(first + i) * grid``; the rest is infinite."""

    first: int
    weights: Array
    infinity: float


class Pair(Protocol):
    """What a privacy-loss distribution needs to know about one step."""

    def __hash__(self) -> int:
        """Equal pairs are counted, not repeated."""

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
    at = edges - centre
    tails = ndtr(-np.abs(at))
    left, right = at[:-1], at[1:]
    flip = left + right > 0
    near = np.where(flip, tails[:-1], tails[1:])
    far = np.where(flip, tails[1:], tails[:-1])
    middle = np.flatnonzero((left < 0) & (right > 0))  # the larger part lies beyond the middle
    near[middle] = 1.0 - near[middle]
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


def _mixed(rate: float, loss: Array) -> Array:
    """log(1 - rate + rate e^loss), exact for losses far below 1e-16 too."""
    if rate <= 0.5 and loss.max(initial=0.0) < 700.0:  # nothing cancels
        return np.asarray(np.log1p(rate * np.expm1(loss)))
    small = np.log1p(rate * np.expm1(np.clip(loss, -0.5, 0.5)))
    large = np.logaddexp(math.log1p(-rate), math.log(rate) + loss)
    return np.where(np.abs(loss) < 0.5, small, large)


def _shifted(loss: Array, mu: float) -> Array:
    """Where N(mu, 1) against N(0, 1) has a loss; beyond ``NOWHERE`` no law has any mass."""
    with np.errstate(over="ignore"):
        return np.clip(loss / mu + mu / 2, -NOWHERE, NOWHERE)


class _Increasing(Protocol):
    """A pair on the line whose loss increases."""

    @property
    def _ends(self) -> tuple[float, float]:
        """The losses at the ends of what matters."""

    def inverse(self, loss: Array) -> Array:
        """The point where a loss is reached."""

    def _masses(self, edges: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """(rounded up, rounded down) masses of the first law, then of the second."""


def _cut(pair: _Increasing, grid: float) -> tuple[Atoms, Atoms]:
    """Connect the dots in both orders; what lies beyond the ends is raised, at last to infinity."""
    first = math.floor(pair._ends[0] / grid)
    last = max(math.ceil(pair._ends[1] / grid), first + 1)
    inner = pair.inverse(grid * np.arange(first, last + 1, dtype=np.float64))
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    (p_up, p_down), (r_up, r_down) = pair._masses(edges)
    forward = _dots(first, grid, p_up[1:-1], r_down[1:-1])
    forward[0] += p_up[0]
    backward = _dots(-last, grid, r_up[1:-1][::-1], p_down[1:-1][::-1])
    backward[0] += r_up[-1]
    return (
        Atoms(first, forward, float(p_up[-1])),
        Atoms(-last, backward, float(r_up[0])),
    )


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
        return base + _mixed(self.rate, gap)

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
            return _shifted(loss, b)
        if a == 0.0:
            # log((e^loss - 1 + rate) / rate), exact for losses far below 1e-16 too.
            excess = np.maximum(np.expm1(np.minimum(loss, 700.0)) / self.rate, -1.0)
            with np.errstate(divide="ignore"):
                far = np.where(loss > 700.0, loss - math.log(self.rate), np.log1p(excess))
            return _shifted(far, b)
        knots = np.linspace(-REACH - 1.0, b + REACH + 1.0, 8193)
        at = self.loss(knots)
        x = np.interp(loss, at, knots)
        spacing = float(knots[1] - knots[0])
        for _ in range(4):
            # A step of Newton's method leaves at most b/2 times the square of what it moved.
            moved = np.clip((self.loss(x) - loss) / self._slope(x), -spacing, spacing)
            x = np.clip(x - moved, knots[0], knots[-1])
            if float(np.abs(moved).max(initial=0.0)) < 1e-5 / (1.0 + b) ** 2:
                break
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
        low, low_slip = _cells(edges, self.low) if self.low else (plain, slip)
        high, high_slip = _cells(edges, self.high)
        mixed = (1.0 - self.rate) * low + self.rate * high
        mixed_slip = (1.0 - self.rate) * low_slip + self.rate * high_slip + 4 * ROUNDING * mixed
        return (
            (mixed + mixed_slip, np.maximum(mixed - mixed_slip, 0.0)),
            (plain + slip, np.maximum(plain - slip, 0.0)),
        )

    def atoms(self, grid: float) -> tuple[Atoms, Atoms]:
        return _cut(self, grid)

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
class OpposedPair:
    """(1 - rate) N(low, 1) + rate N(high, 1) against (1 - rate) N(0, 1) + rate N(-back, 1).

    A Poisson batch with one record replaced by another that pulls the opposite way, with the same
    coin; 0 <= low <= high, 0 <= back. ``low = 0``, ``high = back`` is a step whose state is public.

    >>> pair = OpposedPair(rate=1.0, low=0.0, high=1.0, back=1.0)
    >>> round(pair.log_moments(2.0)[0], 6)  # one Gaussian with shift 2
    12.0
    """

    rate: float
    low: float
    high: float
    back: float

    def _logs(self, x: Array) -> tuple[Array, Array]:
        """Logs of both densities relative to N(0, 1)."""
        far, against = self.high * x - self.high**2 / 2, -self.back * x - self.back**2 / 2
        if self.rate >= 1.0:
            return far, against
        near = self.low * x - self.low**2 / 2
        return near + _mixed(self.rate, far - near), _mixed(self.rate, against)

    def loss(self, x: Array) -> Array:
        """Log of the likelihood ratio at x, increasing."""
        one, other = self._logs(x)
        value: Array = one - other
        return value

    def _slope(self, x: Array) -> Array:
        one, other = self._logs(x)
        with np.errstate(divide="ignore"):
            used = np.log(self.rate)
        far = np.exp(used + self.high * x - self.high**2 / 2 - one)
        against = np.exp(used - self.back * x - self.back**2 / 2 - other)
        value: Array = self.low + (self.high - self.low) * far + self.back * against
        return value

    def inverse(self, loss: Array) -> Array:
        """The point where the loss is reached; an error changes a dot only to second order."""
        return inverted(self.loss, self._slope, loss, -self.back - REACH, self.high + REACH)

    @cached_property
    def _ends(self) -> tuple[float, float]:
        low, high = self.loss(np.array([-self.back - REACH, self.high + REACH]))
        return float(low), float(high)

    @property
    def reach(self) -> float:
        far = self.high + self.back >= FARTHEST
        return math.inf if far else self._ends[1] - self._ends[0]

    @cached_property
    def variance(self) -> float:
        x = np.linspace(-self.back - 9.0, self.high + 9.0, 4001)
        weight = np.exp(self._logs(x)[0] - x * x / 2)
        weight /= weight.sum()
        loss = self.loss(x)
        return float(weight @ (loss - weight @ loss) ** 2)

    def _masses(self, edges: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        cells = [_cells(edges, centre) for centre in (self.low, self.high, 0.0, -self.back)]
        answer = []
        for near, far in (cells[:2], cells[2:]):
            mixed = (1.0 - self.rate) * near[0] + self.rate * far[0]
            slip = (1.0 - self.rate) * near[1] + self.rate * far[1] + 4 * ROUNDING * mixed
            answer.append((mixed + slip, np.maximum(mixed - slip, 0.0)))
        return answer[0], answer[1]

    def atoms(self, grid: float) -> tuple[Atoms, Atoms]:
        forward, backward = _cut(self, grid)
        # Reflecting the line exchanges the two laws of a public step.
        mirrored = self.low == 0.0 and self.high == self.back
        return (forward, forward) if mirrored else (forward, backward)

    def log_moments(self, tilt: float) -> tuple[float, float]:
        return self._log_moment(1.0 + tilt), self._log_moment(-tilt)

    def _log_moment(self, power: float) -> float:
        """Log of the integral of first^power second^(1 - power), by the trapezoid rule.

        As for `SampledPair`: analytic in a strip, no sharper than the precision below. Where that
        takes too many nodes the power divergence is jointly convex: the mixture of moments.
        """
        widest = self.high + self.back
        if self.rate >= 1.0:
            factor = power * (power - 1.0) / 2
            return _up(factor * _square(widest)) if factor else 0.0
        bends = abs(power) * _square(self.high - self.low) + abs(1.0 - power) * _square(self.back)
        step = min(0.25 / math.sqrt(1.0 + bends / 4), 0.5 / max(self.high, self.back, 1e-9))
        centres = [
            power * one - (1.0 - power) * other
            for one in (self.low, self.high)
            for other in (0.0, self.back)
        ]
        start, stop = min(*centres, 0.0) - REACH, max(*centres, 0.0) + REACH
        if stop - start > NODES * step:
            half = max(power * (power - 1.0) / 2, 0.0)  # between 0 and 1 it is at most 1 (Hoelder)
            near, far = half * self.low**2, math.log(self.rate) + half * widest**2
            return _up(float(np.logaddexp(near, far)))
        x = np.arange(start, stop + step, step)
        one, other = self._logs(x)
        log = _log_sum(power * one + (1.0 - power) * other - x * x / 2)
        return _up(log + math.log(step) - math.log(2 * math.pi) / 2)


@dataclass(frozen=True)
class ReplacedPair:
    """One Gaussian step on a batch drawn without replacement, one record replaced.

    Its profile in both orders, for gamma = e^eps >= 1, is the least over t <= gamma of
    (1 - rate) delta_low(log t) + rate delta_mu(log((gamma - (1 - rate) t) / rate)). ``low = 0`` is
    a public state, rate * delta_mu(log(1 + (gamma - 1) / rate)); otherwise the step also absorbs
    ``low`` of what earlier ones left over, and mu includes it.

    Differentiating the profile shows a pair: losses above low * mu / 2 are those of the mixture
    (1 - rate) N(low, 1) + rate N(mu, 1) against N(0, 1) on x > (low + mu) / 2; smaller positive
    ones those of two Gaussian pairs whose label is known; for low = 0 that is an atom at zero. The
    negative losses mirror the positive.

    >>> pair = ReplacedPair(rate=0.5, mu=2.0)
    >>> round(pair.log_moments(1.0)[0], 4)
    2.6759
    """

    rate: float
    mu: float
    low: float = 0.0

    @cached_property
    def _half(self) -> SampledPair:
        return SampledPair(self.rate, self.low, self.mu)

    @property
    def _join(self) -> float:
        """The point where both Gaussian likelihood ratios and that of the mixture agree."""
        return (self.low + self.mu) / 2

    @property
    def reach(self) -> float:
        return 2.0 * self._half._ends[1] if self.mu < FARTHEST else math.inf

    @property
    def variance(self) -> float:
        return self._half.variance

    @property
    def atom(self) -> float:
        """The mass at loss zero, the same under both laws."""
        if self.low > 0.0:
            return 0.0
        return (1.0 - self.rate) * math.erf(self.mu / math.sqrt(8.0)) * (1.0 + 4 * ROUNDING)

    def _edges(self, losses: Array) -> tuple[Array, Array]:
        """Where each Gaussian reaches the losses: apart below the join, together above it."""
        together = np.maximum(self._half.inverse(losses), self._join)
        small = losses < self.low * self.mu / 2
        if not small.any():
            return together, together
        near, far = (
            np.where(small, np.minimum(_shifted(losses, shift), self._join), together)
            for shift in (self.low, self.mu)
        )
        return near, far

    def atoms(self, grid: float) -> tuple[Atoms, Atoms]:
        last = max(math.ceil(self._half._ends[1] / grid), 1)
        losses = grid * np.arange(last + 1, dtype=np.float64)
        near, far = (np.append(edges, np.inf) for edges in self._edges(losses))
        if self.low == 0.0:
            near[0] = far[0] = self._join  # where the loss is zero
        (p_up, p_down), (r_up, r_down) = self._masses(near, far)
        weights = np.zeros(2 * last + 1)
        weights[last:] += _dots(0, grid, p_up[:-1], r_down[:-1])
        weights[: last + 1] += _dots(-last, grid, r_up[:-1][::-1], p_down[:-1][::-1])
        weights[last] += self.atom
        weights[0] += r_up[-1]
        atoms = Atoms(-last, weights, float(p_up[-1]))
        return atoms, atoms

    def _masses(self, near: Array, far: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """(rounded up, rounded down) masses of the first law, then of the second."""
        answer = []
        for low, high in ((self.low, self.mu), (0.0, 0.0)):
            (one, one_slip), (two, two_slip) = _cells(near, low), _cells(far, high)
            mixed = (1.0 - self.rate) * one + self.rate * two
            slip = (1.0 - self.rate) * one_slip + self.rate * two_slip + 4 * ROUNDING * mixed
            answer.append((mixed + slip, np.maximum(mixed - slip, 0.0)))
        return answer[0], answer[1]

    def log_moments(self, tilt: float) -> tuple[float, float]:
        """Both orders are equal; Gauss-Legendre panels, summed in log space."""
        order = max(abs(1.0 + tilt), abs(tilt))
        width = min(1.0 / math.sqrt(1.0 + order * _square(self.mu) / 4), 2.0 / max(self.mu, 1e-9))
        stop = order * self.mu + REACH
        if stop > NODES * width / 16:
            # A known label is worse; its powers, the mirrored half and the atom, counted roughly.
            half = order * (order - 1.0) / 2
            near, far = (max(half * shift**2, 0.0) for shift in (self.low, self.mu))
            log = _up(float(np.logaddexp(math.log(3.0) + near, math.log(self.rate) + far)))
            return log, log
        pieces: list[tuple[float, float, float, Callable[[Array], Array]]]
        pieces = [(self._join, stop, 0.0, self._half.loss)]
        for weight, shift in ((1.0 - self.rate, self.low), (self.rate, self.mu)):
            if self.low > 0.0 and weight > 0.0:
                pieces.append((shift / 2, self._join, math.log(weight), _gaussian_loss(shift)))
        parts = [] if self.atom == 0.0 else [math.log(self.atom)]
        for start, end, log_weight, loss in pieces:
            if end <= start:
                continue
            panels = np.linspace(start, end, 2 + int((end - start) / width))
            half_width = np.diff(panels)[:, None] / 2
            x = (panels[:-1, None] + half_width) + half_width * LEGENDRE[0]
            base = np.log(half_width * LEGENDRE[1]) - x * x / 2 - math.log(2 * math.pi) / 2
            losses = loss(x)
            parts.append(log_weight + _log_sum(base + (1.0 + tilt) * losses))
            parts.append(log_weight + _log_sum(base - tilt * losses))
        log = _up(_log_sum(np.array(parts)))
        return log, log


def _gaussian_loss(shift: float) -> Callable[[Array], Array]:
    """Log of the likelihood ratio of N(shift, 1) against N(0, 1)."""
    return lambda x: shift * x - shift * shift / 2


def _square(x: float) -> float:
    """x², infinite beyond the range of doubles (``x**2`` would raise)."""
    return float(x) * float(x)


def _log_sum(logs: Array) -> float:
    """Log of the sum of exponentials."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def _up(log: float) -> float:
    """A logarithm found in floating point, raised by more than its rounding error."""
    return log + 1e-12 * (1.0 + abs(log))


def inverted(
    curve: Callable[[Array], Array],
    slope: Callable[[Array], Array],
    values: Array,
    low: float,
    high: float,
) -> Array:
    """Where a rising curve takes the values, between a little below ``low`` and above ``high``."""
    knots = np.linspace(low - 1.0, high + 1.0, 8193)
    at = np.maximum.accumulate(curve(knots))
    place = np.clip(np.searchsorted(at, values), 1, len(knots) - 1)
    left, right = knots[place - 1], knots[place]
    x = np.clip(np.interp(values, at, knots), left, right)
    for _ in range(4):
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = x - (curve(x) - values) / slope(x)
        x = np.where(np.isfinite(newton), np.clip(newton, left, right), x)
    return x
