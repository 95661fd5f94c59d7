"""How well N(d, 1+g) can be told from N(0, 1), in closed form.

Two Gaussians with different variances, after moving and scaling so that the second is standard.
The privacy loss exceeds epsilon on an interval, outside one, or on a half-line, so the hockey-stick
divergence needs nothing but normal tails. Posteriors of neighbouring datasets are such pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

UNIT = 2.0**-53


def _mass(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """P(low < Z < high) for standard normal Z, from the side that does not cancel; its error."""
    flip = low > 0
    near = np.where(flip, -low, high)
    far = np.where(flip, -high, low)
    mass = np.maximum(ndtr(near) - ndtr(far), 0.0)
    error = UNIT * (_units(near) * ndtr(near) + _units(far) * ndtr(far))
    return mass, error


def _units(x: Floats) -> Floats:
    """Relative error of ndtr(x), in units: x itself is known to a few, and the tail is steep."""
    return np.asarray(8 + 8 * np.clip(-x, 1.0, 40.0) ** 2)


def hockey_stick(distance: ArrayLike, excess: ArrayLike, epsilon: ArrayLike) -> Floats:
    """Upper value of sup_S P(S) - e^epsilon Q(S) for P = N(distance, 1+excess), Q = N(0, 1).

    ``excess`` > -1 is given instead of the variance because neighbouring posteriors have nearly
    equal variances, and 1+excess would round the difference away. ``epsilon`` may be negative.
    The value is the closed form plus a bound on its rounding error. Arguments broadcast.

    >>> float(hockey_stick(1.0, 0.0, 0.0).round(6))       # equal variances: 2 Phi(1/2) - 1
    0.382925
    """
    d, g, eps = np.broadcast_arrays(
        np.abs(np.asarray(distance, dtype=np.float64)),
        np.asarray(excess, dtype=np.float64),
        np.asarray(epsilon, dtype=np.float64),
    )
    # loss(x) > eps  <=>  a x^2 + b x + c > 0, multiplied through by 2 (1 + g)
    a, b = g, 2 * d
    c = -(d * d) - (1 + g) * (np.log1p(g) + 2 * eps)
    discriminant = b * b - 4 * a * c
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        root = np.sqrt(np.maximum(discriminant, 0.0))
        q = -0.5 * (b + root)  # b >= 0: no cancellation
        first, second = c / q, q / a
    empty = (a < 0) & (discriminant <= 0)
    everything = (a > 0) & (discriminant <= 0)
    line = (a == 0) & (b == 0)
    first = np.where(line, 0.0, first)  # equal laws: decided by the sign of c below
    spread = np.sqrt(1 + g)
    p_mass = np.empty(d.shape)
    q_mass = np.empty(d.shape)
    p_error = np.empty(d.shape)
    q_error = np.empty(d.shape)
    infinity = np.full(d.shape, np.inf)
    for mass, error, centre, scale in (
        (p_mass, p_error, d, spread),
        (q_mass, q_error, np.zeros(d.shape), np.ones(d.shape)),
    ):
        left = (first - centre) / scale
        with np.errstate(invalid="ignore", over="ignore"):
            right = np.where(a == 0, infinity, (second - centre) / scale)
        inner, inner_error = _mass(np.minimum(left, right), np.maximum(left, right))
        low_tail, low_error = _mass(-infinity, np.minimum(left, right))
        high_tail, high_error = _mass(np.maximum(left, right), infinity)
        mass[...] = np.where(a > 0, low_tail + high_tail, inner)
        error[...] = np.where(a > 0, low_error + high_error, inner_error)
    total = everything | (line & (c > 0))
    nothing = empty | (line & (c <= 0))
    p_mass = np.where(total, 1.0, np.where(nothing, 0.0, p_mass))
    q_mass = np.where(total, 1.0, np.where(nothing, 0.0, q_mass))
    with np.errstate(over="ignore", invalid="ignore"):
        weight = np.exp(np.minimum(eps, 709.0))
        value = p_mass - np.where(q_mass > 0, weight * q_mass, 0.0)
        slack = p_error + np.where(q_mass > 0, weight * (q_error + 4 * UNIT * q_mass), 0.0)
    upper = np.clip(np.maximum(value, 0.0) + slack + 1e-300, 0.0, 1.0)  # 1e-300: underflow
    # no loss beats epsilon, but rounding of the discriminant may hide one that just does
    unsure = 8 * UNIT * (b * b + np.abs(4 * a * c))
    with np.errstate(divide="ignore", invalid="ignore"):
        hidden = np.where(empty & (discriminant > -unsure), unsure / np.abs(a), 0.0)
    return np.asarray(np.where(nothing, np.minimum(hidden, 1.0), upper))


def renyi(distance: ArrayLike, excess: ArrayLike, order: float) -> Floats:
    """Renyi divergence of ``order`` > 1 of N(distance, 1+excess) from N(0, 1).

    D = -ln(1+g)/2 - ln(v)/(2(order-1)) + order d^2/(2v), v = 1 - (order-1) g; infinite for v <= 0
    (Gil, Alajaji, Linder 2013; HF's eq. (20) inverts the first logarithm and the factor of the
    second).

    >>> float(renyi(0.0, 1 / 1.21 - 1, 5.0).round(4))      # s1 = 1, s2 = 1.1
    0.0294
    """
    d, g = np.asarray(distance, dtype=np.float64), np.asarray(excess, dtype=np.float64)
    v = 1 - (order - 1) * g
    with np.errstate(divide="ignore", invalid="ignore"):
        value = (
            -0.5 * np.log1p(g)
            - 0.5 * np.log1p(-(order - 1) * g) / (order - 1)
            + 0.5 * order * d * d / v
        )
    return np.asarray(np.where(v > 0, np.maximum(value, 0.0), np.inf))
