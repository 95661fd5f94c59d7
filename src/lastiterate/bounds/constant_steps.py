"""Shifted interpolation in closed form when every step has the same c, s and nu.

No vector of shifts is built, so a million million steps cost as much as one. Values are rounded
up by one part in 10**12, ten times what the special functions below can lose.

Derivations: docs/theory/shifted-interpolation.md, sections 4 and 5.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from lastiterate.bounds.replay import Floats, check_start, schedule
from lastiterate.curves.bracket import last_good
from lastiterate.errors import DescriptionError

_UP = 1.0 + 1e-12
_TINY = 1e-290  # lifts what underflowed back above the truth


def _scalars(c: float, s: float, nu: float) -> tuple[float, float, float]:
    factor, jump, noise = schedule(float(c), float(s), float(nu))
    return float(factor[0]), float(jump[0]), float(noise[0])


def _counts(steps: ArrayLike) -> Floats:
    counts = np.asarray(steps, dtype=np.float64)
    if np.any(counts < 0) or np.any(counts != np.floor(counts)) or np.any(counts > 2**53):
        raise DescriptionError("steps", steps, "whole numbers of at least 0", "it counts updates")
    return counts


def _spread_evenly(c: float, s: float, start: float, steps: Floats) -> Floats:
    """(c^m z + s sum c^i) / sqrt(sum c^(2i)), i < m: mu with unit noise if z >= 0 never binds.

    For c > 1 numerator and denominator are divided by c^(m-1), so nothing overflows.
    """
    if c == 0:
        return np.full(steps.shape, s)
    if c == 1:
        return (start + s * steps) / np.sqrt(steps)
    ratio, gap = (c, 1 - c) if c < 1 else (1 / c, (c - 1) / c)
    exponent = -steps * abs(math.log(c))
    with np.errstate(under="ignore"):
        carried = start * np.exp(exponent) if c < 1 else np.full(steps.shape, start * c)
        arrived = s * -np.expm1(exponent) / gap
        weight = -np.expm1(2 * exponent) / (gap * (1 + ratio))
    lifted = np.where(start > 0, np.maximum(carried, _TINY), 0.0)
    return np.asarray((lifted + arrived) / np.sqrt(weight), dtype=np.float64)


def constant(c: float, s: float, nu: float, steps: int, start: float = 0.0) -> float:
    """The optimal mu of ``steps`` equal steps from distance ``start``, rounded up.

    With q = c^T: mu^2 = (s/nu)^2 (1-q)/(1+q) (1+c)/(1-c) for c < 1 and start 0, and T (s/nu)^2
    (plain composition) for c >= 1. A start that is not 0 and c > 1: the start is paid off over
    the first j steps, the rest is composition; j comes from a bisection of the pooling rule.

    Status: sound, and attained by linear maps.

    >>> round(constant(0.9, 1.0, 1.0, 3), 6)
    1.725695
    >>> round(constant(1.1, 2.0, 1.0, 10**12), 3)
    2000000.0
    """
    c, s, nu = _scalars(c, s, nu)
    start = check_start(start)
    total = int(_counts(steps))
    if total == 0:
        return math.inf if start > 0 else 0.0
    if s == 0 and (start == 0 or c == 0):
        return 0.0
    if nu == 0:
        return math.inf
    pooled = total
    if c > 1:
        pooled = 0 if start == 0 else _pooled_steps(c, s, start, total)
    even = float(_spread_evenly(c, s, start, np.array(pooled, float))) if pooled else 0.0
    return max(math.hypot(even, math.sqrt(total - pooled) * s) / nu * _UP, _TINY)


def _pooled_steps(c: float, s: float, start: float, steps: int) -> int:
    """The first j with A_j/V_j <= c s, the pooling rule; monotone in j."""

    def stops(j: int) -> bool:
        decay = -j * math.log(c)
        total = start - s * math.expm1(decay) / (c - 1)  # A_j / c^j
        weight = -math.expm1(2 * decay) / (c - 1) / (c + 1)  # V_j / c^(2j)
        if not (total > 0 and weight > 0):  # below all doubles: any answer gives a valid bound
            return True
        return math.log(total) - math.log(weight) + decay <= math.log(c) + math.log(s)

    return last_good(stops, good=steps, bad=0) if s > 0 else steps


def constant_restart(c: float, s: float, nu: float, steps: int, diameter: float) -> float:
    """The best mu when the distance restarts from the diameter of a bounded domain, rounded up.

    The minimum over m <= T - 1 steps left of (c^m D + s sum c^i)^2 / (nu^2 sum c^(2i)), i < m.
    In q = c^m its derivative has the one zero q = 1 + (c-1) D/s, so the best whole m is next to
    log q / log c. For c > 1 a given m may be beaten by paying earlier, but that policy is one of
    the other m followed by steps that only cost, so the minimum over m is the optimum.
    Infinite when no restart is possible (fewer than two steps, unbounded domain).

    >>> round(constant_restart(1.0, 0.08, 1.0, 200, 1.0) ** 2 / 2, 6)
    0.160062
    """
    return float(_restart(*_scalars(c, s, nu), _counts(steps), diameter))


def _restart(c: float, s: float, nu: float, steps: Floats, diameter: float) -> Floats:
    if math.isnan(diameter) or diameter < 0:
        raise DescriptionError("diameter", diameter, "at least 0", "it is a distance")
    if math.isinf(diameter):
        return np.full(steps.shape, math.inf)
    if nu == 0:
        free = s == 0 and (c == 0 or diameter == 0)
        return np.where(steps > 1, 0.0 if free else math.inf, math.inf)
    near = _near_best(c, s, diameter)
    last = np.maximum(steps - 1, 1)
    left = np.clip(near, 1, last[..., np.newaxis])
    with np.errstate(over="ignore"):
        mu = np.maximum(_spread_evenly(c, s, diameter, left).min(axis=-1) / nu * _UP, _TINY)
    return np.where(steps > 1, mu, math.inf)


def _near_best(c: float, s: float, diameter: float) -> Floats:
    """Whole numbers of remaining steps next to the one zero of the derivative."""
    if s == 0 or (c - 1) * diameter <= -s:
        ideal = math.inf
    elif c == 1:
        ideal = diameter / s
    else:
        ideal = math.log1p((c - 1) * diameter / s) / math.log(c) if c > 0 else 1.0
    return math.floor(min(ideal, 2.0**53)) + np.arange(-1, 3, dtype=np.float64)


def best_restart(c: float, s: float, nu: float, steps: int, diameter: float) -> int:
    """How many steps are left at the restart that `constant_restart` found (at least 2 steps).

    >>> best_restart(1.0, 0.08, 1.0, 200, 1.0)
    13
    """
    left = {int(min(max(near, 1), steps - 1)) for near in _near_best(c, s, diameter)}
    return min(sorted(left), key=lambda count: constant(c, s, nu, count, diameter))


def constant_curve(
    c: float, s: float, nu: float, steps: ArrayLike, diameter: float = math.inf
) -> Floats:
    """The best mu for each number of steps: from a common start or from the diameter.

    >>> constant_curve(1.0, 1.0, 1.0, [1, 4, 100], diameter=2.0).round(6)
    array([1.      , 2.      , 2.828427])
    """
    c, s, nu = _scalars(c, s, nu)
    counts = _counts(steps)
    if nu == 0 or s == 0:
        common = np.where((counts > 0) & (s > 0), math.inf, 0.0)
    else:
        some = np.maximum(counts, 1)
        mu = s * np.sqrt(some) if c > 1 else _spread_evenly(c, s, 0.0, some)
        common = np.where(counts > 0, np.maximum(mu / nu * _UP, _TINY), 0.0)
    return np.minimum(common, _restart(c, s, nu, counts, diameter))
