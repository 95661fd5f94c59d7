"""How well N(d, 1+g) can be told from N(0, 1), in closed form.

Two Gaussians with different variances, after moving and scaling so that the second is standard.
The privacy loss exceeds epsilon on an interval, outside one, or on a half-line, so the hockey-stick
divergence needs nothing but normal tails. Posteriors of neighbouring datasets are such pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

Floats = NDArray[np.float64]

UNIT = 2.0**-53


def _mass(low: Floats, high: Floats, log_weight: Floats) -> tuple[Floats, Floats]:
    """e^log_weight P(low < Z < high) for standard normal Z, and a bound on its rounding error.

    Taken from the side that does not cancel, in logarithms, so that a huge weight may meet a
    tiny mass.
    """
    flip = low > 0
    log_near = log_ndtr(np.where(flip, -low, high))
    log_far = log_ndtr(np.where(flip, -high, low))
    near = np.exp(np.minimum(log_near + log_weight, 600.0))
    far = np.exp(np.minimum(log_far + log_weight, 600.0))
    # a point x known to a few units moves ln ndtr(x), about -x^2/2, by a few times itself
    units = 16 + 16 * np.minimum(-log_near, 1e12) + 4 * np.abs(log_weight)
    far_units = 16 + 16 * np.minimum(-log_far, 1e12) + 4 * np.abs(log_weight)
    return np.maximum(near - far, 0.0), UNIT * (units * near + far_units * far)


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
    total = everything | (line & (c > 0))
    nothing = empty | (line & (c <= 0))

    def weighed(centre: Floats, scale: Floats, log_weight: Floats) -> tuple[Floats, Floats]:
        """The region's mass under N(centre, scale^2), times e^log_weight, and its error."""
        with np.errstate(invalid="ignore", over="ignore"):
            left = (first - centre) / scale
            right = np.where(a == 0, np.inf, (second - centre) / scale)
        low, high = np.minimum(left, right), np.maximum(left, right)
        endless = np.full(d.shape, np.inf)
        inside, inside_error = _mass(low, high, log_weight)
        below, below_error = _mass(-endless, low, log_weight)
        above, above_error = _mass(high, endless, log_weight)
        mass = np.where(a > 0, below + above, inside)
        error = np.where(a > 0, below_error + above_error, inside_error)
        return np.where(total, np.exp(np.minimum(log_weight, 0.0)), mass), error

    p_mass, p_error = weighed(d, np.sqrt(1 + g), np.zeros(d.shape))
    q_mass, q_error = weighed(np.zeros(d.shape), np.ones(d.shape), eps)
    value = np.maximum(p_mass - q_mass, 0.0) + p_error + q_error
    upper = np.clip(value + 1e-300, 0.0, 1.0)  # 1e-300: underflow
    # no loss beats epsilon, but rounding of the discriminant may hide one that just does
    unsure = 8 * UNIT * (b * b + np.abs(4 * a * c))
    with np.errstate(divide="ignore", invalid="ignore"):
        hidden = np.where(empty & (discriminant > -unsure), unsure / np.abs(a), 0.0)
    return np.asarray(np.where(nothing, np.minimum(hidden, 1.0), upper))


def renyi(distance: ArrayLike, excess: ArrayLike, order: float) -> Floats:
    """Renyi divergence of ``order`` > 1 of N(distance, 1+excess) from N(0, 1).

    D = -ln(1+g)/2 - ln(v)/(2(order-1)) + order d^2/(2v), v = 1 - (order-1) g; infinite for v <= 0
    (Gil, Alajaji, Linder 2013; Heller & Fetaya's eq. (20) inverts the first logarithm and the
    factor of the second). Rounded up.

    >>> float(renyi(0.0, 1 / 1.21 - 1, 5.0).round(4))      # s1 = 1, s2 = 1.1
    0.0294
    """
    d, g = np.asarray(distance, dtype=np.float64), np.asarray(excess, dtype=np.float64)
    v = 1 - (order - 1) * g
    with np.errstate(divide="ignore", invalid="ignore"):
        first = -0.5 * np.log1p(g)
        second = -0.5 * np.log1p(-(order - 1) * g) / (order - 1)
        shift = 0.5 * order * d * d / v
        # nearly equal variances: the logarithms cancel; v near 0: it has few digits left
        slack = np.abs(first) + np.abs(second) + np.abs(g) / v + shift * (1 + 1 / v)
        value = first + second + shift + 8 * UNIT * slack
    return np.asarray(np.where(v > 0, np.maximum(value, 0.0), np.inf))
