"""Coupling on a bounded domain, computed a second time with every rounding accounted for.

    V_0(r) = 1{r > 0},   V_j(r) = min{ delta_mu(r,j)(eps), E V_{j-1}(min(D, B(c r + s))) },

docs/theory/coupling.md. Special functions and strings come from ball arithmetic. The recursion is
one product of non-negative doubles per step, whose error has a bound beforehand: n terms are off by
at most n + 1 roundings, in whatever order they are added. Every result is then raised by more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import CertificateError
from lastiterate.verifier.balls import Ball, above, arb, gaussian_delta, precision, proved
from lastiterate.verifier.strings import geometric

Floats = NDArray[np.float64]

MOST_CELLS = 1000
MOST_PRODUCTS = 4_000_000_000  # of one question; the steps before them are covered by the diameter
MOST_STEPS = 20_000
WIDEST = 100.0  # domain and impulse, in standard deviations of the noise
SETTLED = 3e-4  # V(D)/V(0) - 1 below this: more steps change nothing that is printed
_U = 2.0**-53  # a rounding error, relative
_TINY = 1e-290  # more than any number of underflows can lose
_SPACING = 2.0**-7  # of the table of Phi
_PROFILE_POINTS = 1000


def _up(ball: Ball) -> float:
    """A double that is not below."""
    return math.nextafter(float(above(ball)), math.inf)


def _down(ball: Ball) -> float:
    """A double that is not above."""
    return math.nextafter(float(ball.lower()), -math.inf)


class NormalTail:
    """Phi(-x) for 0 <= x <= ``reach``, from both sides: Taylor about a table of exact values.

    Phi(-x0 - t) = Phi(-x0) + phi(x0) (-t + x0 t^2/2 - (x0^2 - 1) t^3/6) + R, |t| <= spacing/2. The
    next derivative is (x^3 - 3x) phi(x), at most (x^3 + 3x) phi(x) in size, so
    |R| <= t^4/24 (y^3 + 3y) phi(x0) e^(y |t|), y = x0 + |t|. Up to x0 = 37 the other terms are
    below Phi(-x0)/5, so a dozen roundings stay below 16 of Phi(-x0); beyond, all is below 1e-290.
    """

    def __init__(self, reach: float) -> None:
        points = [arb(k) * _SPACING for k in range(math.ceil(reach / _SPACING) + 2)]
        root, scale = arb(2).sqrt(), (2 * arb.pi()).rsqrt()
        tails = [(x / root).erfc() / 2 for x in points]
        self._low = np.array([_down(tail) for tail in tails])
        self._high = np.array([_up(tail) for tail in tails])
        densities = [scale * (-x * x / 2).exp() for x in points]
        self._slope = np.array([_up(density) for density in densities])

    def bounds(self, x: Floats) -> tuple[Floats, Floats]:
        """Doubles below and above Phi(-x)."""
        k = np.rint(x / _SPACING).astype(np.int64)
        x0 = k * _SPACING  # exact, and so is the difference of two doubles this close
        t = x - x0
        slope = self._slope[k]
        bend = slope * (-t + x0 * t * t / 2 - (x0 * x0 - 1) * t**3 / 6)
        y = x0 + np.abs(t)
        rest = t**4 / 24 * (y**3 + 3 * y) * slope * np.exp(y * np.abs(t)) * 1.001
        slack = rest + 32 * _U * self._high[k] + _TINY
        return self._low[k] + bend - slack, self._high[k] + bend + slack


@dataclass(frozen=True, eq=False)
class Coupled:
    """Equal steps with c <= 1 on a convex set; ``delta`` answers for the last iterate.

    All numbers are doubles that bound the exact ones from the safe side: c, s and the diameter from
    above; the noise is exact.
    """

    c: float
    s: float
    nu: float
    diameter: float
    steps: int
    cells: int

    def __post_init__(self) -> None:
        sound = 0 <= self.c <= 1 and self.s >= 0 and self.nu > 0 and self.steps >= 0
        if not (sound and 0 < self.diameter < math.inf and 1 <= self.cells <= MOST_CELLS):
            raise CertificateError("coupling needs noise, a bounded domain and a grid of its size")
        if not self.diameter + self.s < WIDEST * self.nu:
            raise CertificateError("the domain or an impulse is too large for so little noise")

    def delta(self, epsilon: float, sufficient: float = 0.0) -> float:
        """An upper bound on delta(epsilon) in both orders; one below ``sufficient`` will do."""
        with precision():
            return self._delta(epsilon, sufficient)

    @cached_property
    def _width(self) -> float:
        """h, at least D over the number of cells: the set may be taken larger."""
        h = math.nextafter(self.diameter / self.cells, math.inf)
        assert proved(arb(h) * self.cells >= self.diameter)
        return h

    @cached_property
    def _survival(self) -> Floats:
        """P(B(c r_i + s) > y_k), from above, at the points r_i = i h and y_k = k h.

        It is Phi((rho - y)/2nu) - Phi(-(rho + y)/2nu), which increases with rho and is the
        probability that a Brownian motion from rho of variance 4 nu^2 ends above y before it
        meets 0. Arguments are computed within 8 roundings of (rho + y)/2nu and moved by more.
        """
        points = np.arange(self.cells + 1) * self._width
        rho = (self.c * points + self.s)[:, None]
        far = (rho + points) / (2 * self.nu)
        near = (rho - points) / (2 * self.nu) + 16 * _U * far
        far = far * (1 + 16 * _U)  # what is subtracted must not be too much
        tail = NormalTail(float(np.abs(far).max()) + 1.0)
        low, high = tail.bounds(np.abs(near))
        first = np.where(near < 0, high, 1 - low)  # 1 - x rounds by at most 1/2 unit of 1
        lost, _ = tail.bounds(far)
        return np.minimum(first - np.maximum(lost, 0.0) + 4 * _U * first + _TINY, 1.0)

    def _delta(self, epsilon: float, sufficient: float) -> float:
        if self.steps == 0:
            return 0.0
        h, nu, n = self._width, self.nu, self.cells
        raised = 1 + 4 * (n + 16) * _U
        trapezoid = h * h / (48 * nu * nu) * raised  # of S on a cell: -S_yy <= S/4nu^2
        bend = self.c**2 * h * h / (32 * nu * nu) * raised  # of E V on a cell
        prices = _Prices(self, epsilon)
        V = np.append(0.0, np.ones(n))
        chord = np.zeros(n, dtype=bool)  # cells on which V is below its chord
        stopping = True
        last = min(self.steps, MOST_PRODUCTS // (n + 1) ** 2, MOST_STEPS)
        for left in range(1, last + 1):
            rise = np.diff(V)
            weights = np.append(rise * np.where(chord, 0.5 + trapezoid, 1.0), 0.0)
            weights[1:] += np.where(chord, 0.5 * rise, 0.0)
            gain = (self._survival @ weights) * raised + _TINY
            gain[:-1] += bend * gain[1:]
            gain[-1] *= 1 + bend
            goes_on = np.minimum(np.maximum.accumulate((V[0] + gain) * raised), 1.0)
            V, free = goes_on, goes_on < 1
            if stopping:
                stops = prices(left)
                V, free = np.minimum(goes_on, stops), goes_on < stops
                # Strings of more steps than a start is worth cost more and more; nobody need stop.
                stopping = not (left * self.s > self.diameter and free.all())
            chord = free[:-1] & free[1:]
            if V[-1] <= max(V[0] * (1 + SETTLED), sufficient):
                last = left
                break
        # No distance exceeds the diameter, whatever happened before the steps looked at.
        return float(V[0] if last == self.steps else V[-1])


class _Prices:
    """delta of stopping: the taut string of the steps left, from every point of the grid.

    One block pays everything off, which is feasible for c <= 1: mu = (c^j r + s sum c^i) / (nu
    sqrt(sum c^(2i))). The derivative of delta_mu in mu is phi(eps/mu - mu/2). It grows up to
    mu = sqrt(2 eps): chords of a table are above delta_mu there. It never exceeds 0.4.
    """

    def __init__(self, problem: Coupled, epsilon: float) -> None:
        self._problem = problem
        self._points = np.arange(problem.cells + 1) * problem._width
        self._convex = math.sqrt(2 * epsilon) * (1 - 4 * _U)
        low = max(self._convex / 60, problem.s / problem.nu / 2, 1e-6)
        self._mus = np.geomspace(low, max(2 * low, 3 * self._convex, 4.0), _PROFILE_POINTS)
        point = arb(epsilon)
        self._deltas = np.array([_up(gaussian_delta(arb(mu) ** 2, point)) for mu in self._mus])

    def __call__(self, left: int) -> Floats:
        problem = self._problem
        c = arb(problem.c)
        weight = problem.nu * geometric(c * c, left).sqrt()
        carried, arrived = _up(c**left / weight), _up(problem.s * geometric(c, left) / weight)
        mus = (carried * self._points + arrived) * (1 + 8 * _U)
        k = np.clip(np.searchsorted(self._mus, mus), 1, len(self._mus) - 1)
        x0, x1, y0, y1 = self._mus[k - 1], self._mus[k], self._deltas[k - 1], self._deltas[k]
        beyond = np.maximum(mus - x0, 0.0)  # below the table: its first value
        steep = np.where(x1 <= self._convex, (y1 - y0) / (x1 - x0), 0.4)
        prices = (y0 + steep * beyond) * (1 + 32 * _U) + _TINY
        known = (mus <= self._mus[-1]) & (prices < 1)
        return np.maximum.accumulate(np.where(known, prices, 1.0))
