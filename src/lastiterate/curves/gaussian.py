"""Gaussian differential privacy: one number mu, and everything it implies.

A release is mu-GDP when telling two neighbouring datasets apart is no easier than telling N(0, 1)
from N(mu, 1) (Dong, Roth, Su 2022). The conversions here hold down to delta = 1e-300, where the
textbook subtraction has lost every digit, and each carries its own rounding error to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr, ndtri

from lastiterate.curves.base import Curve
from lastiterate.curves.bracket import safe_end
from lastiterate.errors import DescriptionError

# delta(epsilon) = Phi(-a) - e^epsilon Phi(-b),  a = epsilon/mu - mu/2,  b = epsilon/mu + mu/2,
#                = exp(-a^2/2)/2 * (erfcx(x) - erfcx(y)),  x = a/sqrt2, y = b/sqrt2.        (*)
#
# ERROR BUDGET. ULP = 2^-52 is twice the unit roundoff u, so every count below has a factor 2 spare.
#  * erfcx: relative error <= ERFCX (SciPy's is below 1.1e-15; the tests measure it).
#    Its relative condition |x erfcx'(x)/erfcx(x)| is <= 1 for x >= 0.
#  * a: the quotient and the difference round, so |error of a| <= u (epsilon/mu + |a|) =: da (with
#    ULP for u). Moving a at fixed mu moves delta by mu/2 exp(-a^2/2) erfcx(y) per unit of a.
#  * exp(-a^2/2), log, sums: counted with the term that carries them.
ULP = 2.0**-52
ERFCX = 4e-15
_ROOT_HALF = math.sqrt(0.5)
# Where numbers would under- or overflow they are moved, always to where delta is larger.
_LARGEST_RATIO = 1e100
_SMALLEST_MU, _LARGEST_MU = 1e-305, 1e99
_FAR = 6 / _ROOT_HALF

# Gauss-Legendre with five nodes on [0, 1].
_NODES, _WEIGHTS = (
    tuple(float(v) for v in side)
    for side in (
        (np.polynomial.legendre.leggauss(5)[0] + 1) / 2,
        np.polynomial.legendre.leggauss(5)[1] / 2,
    )
)

_TOGETHER = 10_000  # points whose nodes are evaluated in one array: calls cost more than numbers

# The formulas below are written once and serve single floats and arrays.
_Real = Any


def _bulk(mu: _Real, ratio: _Real) -> _Real:
    """log delta for a < 0, mu >= 0.1: one minus two positive terms.

    delta = 1 - C, C = exp(-a^2/2)/2 (erfcx(-x) + erfcx(y)). Error of C: its relative part, and
    what da moves: mu/2 exp(-a^2/2) erfcx(y) <= 0.8 exp(-a^2/2), from erfcx(y) < 1/(y sqrt(pi))
    and b >= mu/2.
    """
    a, b = ratio - mu / 2, ratio + mu / 2
    square = a * a / 2
    half = np.exp(-square) / 2
    complement = half * (erfcx(-a * _ROOT_HALF) + erfcx(b * _ROOT_HALF))
    error = complement * (ERFCX + ULP * (square + 8)) + 1.6 * half * ULP * (ratio - a)
    return np.log1p(-np.maximum(complement - error, 0.0)) * (1 - 2 * ULP)


def _difference(mu: _Real, ratio: _Real) -> _Real:
    """log delta for a >= 0 and mu >= max(1, b)/10: equation (*) as it stands.

    The difference is at least 1/50 of its first term, so it costs two digits at most.
    """
    a, b = ratio - mu / 2, ratio + mu / 2
    square = a * a / 2
    near, far = erfcx(a * _ROOT_HALF), erfcx(b * _ROOT_HALF)
    gap = near - far
    error = ((near + far) * (ERFCX + 4 * ULP) + mu * far * ULP * (ratio + a)) / gap
    logarithm = np.log(gap / 2)
    return logarithm - square + error + ULP * (2 * square + 2 * np.abs(logarithm) + 4)


def _steep(t: _Real) -> _Real:
    """-erfcx'(t) = 2/sqrt(pi) - 2 t erfcx(t) for t < 6.7: loses 2 (t^2 + 3/2) of erfcx's error."""
    return 2 / math.sqrt(math.pi) - 2 * t * erfcx(t)


def _flat(t: _Real) -> _Real:
    """-erfcx'(t) for t >= 6, by the continued fraction of erfc (an upper convergent).

    sqrt(pi) erfcx(t) = 1/(t + k) with k = (1/2)/(t + 1/(t + (3/2)/(t + ...))), hence
    -erfcx'(t) = 2/sqrt(pi) k/(t + k): only positive terms. Thirteen levels: excess < 6e-15.
    """
    tail = t
    for level in range(13, 1, -1):
        tail = t + (level / 2) / tail
    k = 0.5 / tail
    return 2 / math.sqrt(math.pi) * k / (t + k)


def _integral(mu: _Real, ratio: _Real, slope: Callable[[_Real], _Real]) -> _Real:
    """log delta for mu < max(1, b)/10, where erfcx(x) - erfcx(y) cancels: integrate its slope.

    -erfcx'(t) is a mixture of decaying exponentials, so all its even derivatives are positive and
    decreasing, and the quadrature error lies in [0, (5!)^4 h^11/(11 (10!)^3) f^(10)(x)], h = y - x.
    With f^(10)(x) <= 11!/(sqrt(pi) x^12), f(y) >= 1/(sqrt(pi) (y^2 + 3/2)) and h <= y/10 it is
    below 1.5e-14 of the integral (y >= 1; far less for y < 1). The slopes: below 4.5e-13.
    da: |d log delta/da| <= sqrt2 erfcx(y)/f(y) <= b + 7.
    """
    a, b = ratio - mu / 2, ratio + mu / 2
    square = a * a / 2
    x, h = a * _ROOT_HALF, mu * _ROOT_HALF
    if isinstance(x, np.ndarray) and x.size < _TOGETHER:
        slopes = slope(x + np.multiply.outer(_NODES, h))
    else:
        slopes = (slope(x + h * node) for node in _NODES)
    mean = sum(weight * value for weight, value in zip(_WEIGHTS, slopes, strict=True))
    logarithm = np.log(h / 2) + np.log(mean)
    error = 5e-13 + (b + 7) * ULP * (ratio + np.abs(a))
    return logarithm - square + error + ULP * (2 * square + 4 * np.abs(logarithm) + 4)


def _near_integral(mu: _Real, ratio: _Real) -> _Real:
    return _integral(mu, ratio, _steep)


def _far_integral(mu: _Real, ratio: _Real) -> _Real:
    return _integral(mu, ratio, _flat)


def _log_delta(mu: float, epsilon: float) -> float:
    """``log_delta`` of two checked floats."""
    if mu == 0 or (epsilon == math.inf and mu < math.inf):
        return -math.inf
    if mu > _LARGEST_MU:
        return 0.0
    mu = max(mu, _SMALLEST_MU)
    ratio = min(epsilon / mu, _LARGEST_RATIO)
    a = ratio - mu / 2
    if mu < 0.1 or mu < 0.1 * (ratio + mu / 2):
        log = _near_integral(mu, ratio) if a < _FAR else _far_integral(mu, ratio)
    else:
        log = _bulk(mu, ratio) if a < 0 else _difference(mu, ratio)
    return min(float(log), 0.0)


def _log_deltas(mu: NDArray[np.float64], epsilon: NDArray[np.float64]) -> NDArray[np.float64]:
    """``log_delta`` of two checked arrays of one shape."""
    log = np.zeros(mu.shape)
    none = (mu == 0) | (np.isinf(epsilon) & ~np.isinf(mu))
    log[none] = -np.inf
    mu = np.maximum(mu, _SMALLEST_MU)
    with np.errstate(over="ignore", invalid="ignore"):  # inf/inf only where mu is inf: not used
        ratio = np.minimum(epsilon / mu, _LARGEST_RATIO)
    a = ratio - mu / 2
    open_ = ~none & (mu <= _LARGEST_MU)
    small = mu < 0.1 * np.maximum(1.0, ratio + mu / 2)
    for case, formula in (
        (small & (a < _FAR), _near_integral),
        (small & (a >= _FAR), _far_integral),
        (~small & (a < 0), _bulk),
        (~small & (a >= 0), _difference),
    ):
        chosen = case & open_
        if chosen.all():
            log = formula(mu, ratio)
        elif chosen.any():
            log[chosen] = formula(mu[chosen], ratio[chosen])
    return np.minimum(log, 0.0)


def _newton(mu: _Real, target: _Real, log: Callable[[_Real, _Real], _Real]) -> _Real:
    """The smallest epsilon with ``log(mu, epsilon) <= target``, from above; floats or arrays.

    log delta is concave in epsilon (the loss has a log-concave density, and delta is its
    convolution with the log-concave (1 - e^-t)_+), so Newton's method started above the root
    stays above it. It starts where Phi(-a) <= exp(-a^2/2)/2 reaches the target.
    """

    def fall(point: _Real, value: _Real) -> _Real:  # -d log delta/d epsilon
        ratio = point / mu
        b = ratio + mu / 2
        logarithm = np.log(erfcx(b * _ROOT_HALF) / 2) - (ratio - mu / 2) ** 2 / 2 - value
        return np.maximum(np.exp(logarithm), 1e-300)

    point = mu * (mu / 2 + np.sqrt(np.maximum(-2 * (target + math.log(2)), 0.0)))
    for _ in range(200):
        value = log(mu, point)
        step = (value - target) / fall(point, value)
        if np.all(step >= -4 * ULP * point):
            break
        point = np.maximum(point + np.minimum(step, 0.0), 0.0)
    for doubling in range(60):  # the answer is a point that was evaluated and found to hold
        value = log(mu, point)
        above = value > target
        if not np.any(above):
            return point
        step = np.clip((value - target) / fall(point, value), ULP * point, point + mu)
        point = np.where(above, point + 2.0**doubling * step, point)
    return np.where(above, np.inf, point)


def _log_delta_any(mu: _Real, epsilon: _Real) -> _Real:
    return _log_delta(float(mu), float(epsilon))


def exp_up(logarithm: _Real) -> _Real:
    """exp of a number <= 0, rounded up: at most 1, and 0 only at -inf.

    >>> float(exp_up(-1e9)), float(exp_up(-math.inf))
    (5e-324, 0.0)
    """
    value = np.minimum(np.nextafter(np.exp(logarithm) * (1 + 2 * ULP), 2.0), 1.0)
    return np.where(np.isneginf(logarithm), 0.0, value)


def log_down(delta: _Real) -> _Real:
    """log of a probability, rounded down; -inf at 0."""
    with np.errstate(divide="ignore"):
        return np.log(delta) * (1 + 2 * ULP)


def check_nonnegative(field: str, value: _Real) -> None:
    """Refuse negative numbers and NaN, which every later comparison would let pass."""
    if not (value >= 0 if isinstance(value, float) else np.all(np.asarray(value) >= 0)):
        raise DescriptionError(
            field, value, "a number of at least 0", "no privacy curve is defined there"
        )


def check_probability(field: str, value: _Real) -> None:
    """Refuse what is not a probability."""
    array = np.asarray(value)
    if not np.all((array >= 0) & (array <= 1)):
        raise DescriptionError(
            field, value, "between 0 and 1", "it is the probability that the guarantee fails"
        )


def check_order(order: float) -> None:
    """Refuse an order of a Renyi divergence that is not above 1."""
    if not order > 1:
        raise DescriptionError(
            "order", order, "above 1", "lower orders give no (epsilon, delta) guarantee"
        )


@overload
def log_delta(mu: float, epsilon: float) -> float: ...
@overload
def log_delta(mu: ArrayLike, epsilon: ArrayLike) -> NDArray[np.float64]: ...
def log_delta(mu: ArrayLike, epsilon: ArrayLike) -> Any:
    """Natural logarithm of an upper bound on delta(epsilon) of mu-GDP; broadcasts.

    >>> round(log_delta(1.0, 30.0), 6)
    -442.849378
    """
    check_nonnegative("mu", mu)
    check_nonnegative("epsilon", epsilon)
    if np.ndim(mu) == 0 and np.ndim(epsilon) == 0:
        return _log_delta_any(mu, epsilon)
    mus, epsilons = np.broadcast_arrays(np.asarray(mu, float), np.asarray(epsilon, float))
    return _log_deltas(mus, epsilons)


@overload
def delta(mu: float, epsilon: float) -> float: ...
@overload
def delta(mu: ArrayLike, epsilon: ArrayLike) -> NDArray[np.float64]: ...
def delta(mu: ArrayLike, epsilon: ArrayLike) -> Any:
    """The smallest delta of mu-GDP at ``epsilon``, rounded up; broadcasts.

    delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2) (Balle, Wang 2018).

    >>> round(delta(1.0, 1.0), 9)
    0.126936738
    """
    logarithm = log_delta(mu, epsilon)
    value = exp_up(logarithm)
    return float(value) if isinstance(logarithm, float) else value


@overload
def epsilon(mu: float, delta: float) -> float: ...
@overload
def epsilon(mu: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]: ...
def epsilon(mu: ArrayLike, delta: ArrayLike) -> Any:
    """The smallest epsilon >= 0 of mu-GDP at ``delta``, rounded up; broadcasts; may be inf.

    0 is returned only where delta(0) is proved to be at most ``delta``.

    >>> round(epsilon(1.0, 1e-5), 6), epsilon(1.0, 0.4), epsilon(1.0, 0.0)
    (4.377178, 0.0, inf)
    """
    check_nonnegative("mu", mu)
    check_probability("delta", delta)
    target = log_down(delta)
    if np.ndim(mu) == 0 and np.ndim(delta) == 0:
        shift, goal = float(mu), float(target)  # type: ignore[arg-type]
        if _log_delta(shift, 0.0) <= goal:
            return 0.0
        if goal == -math.inf or shift > _LARGEST_MU:
            return math.inf
        return float(_newton(max(shift, _SMALLEST_MU), goal, _log_delta_any))
    mus, targets = np.broadcast_arrays(np.asarray(mu, float), target)
    result = np.where(_log_deltas(mus, np.zeros(mus.shape)) <= targets, 0.0, np.inf)
    rest = (result > 0) & ~np.isneginf(targets) & (mus <= _LARGEST_MU)
    if rest.any():
        result[rest] = _newton(np.maximum(mus[rest], _SMALLEST_MU), targets[rest], _log_deltas)
    return result


def mu(epsilon: float, delta: float) -> float:
    """The largest mu whose curve meets (``epsilon``, ``delta``), rounded down: safe to calibrate.

    >>> found = mu(1.0, 1e-5)
    >>> round(found, 6), log_delta(found, 1.0) <= math.log(1e-5)
    (0.268051, True)
    """
    check_nonnegative("epsilon", epsilon)
    check_probability("delta", delta)
    if delta >= 1 or epsilon == math.inf:
        return math.inf
    if delta == 0:
        return 0.0
    target = float(log_down(delta))
    spread = math.sqrt(max(-2 * (target + math.log(2)), 0.0))
    # Two values below the answer: delta <= mu/sqrt(2 pi), and the starting point of _newton.
    start = 2 * epsilon / (spread + math.sqrt(spread**2 + 2 * epsilon)) if epsilon > 0 else 0.0
    safe = max(_SMALLEST_MU, 2 * delta, 0.99 * start)
    if _log_delta(safe, epsilon) > target:
        return 0.0  # the answer is below the smallest mu these formulas can hold
    unsafe = 2 * safe
    while _log_delta(unsafe, epsilon) <= target:
        safe, unsafe = unsafe, 2 * unsafe
    return safe_end(lambda shift: _log_delta(shift, epsilon) - target, safe, unsafe)


def rdp(mu: float, order: float) -> float:
    """The Renyi divergence of ``order`` > 1 between N(mu, 1) and N(0, 1): order mu^2/2, rounded up.

    >>> rdp(2.0, 8.0) >= 16.0, rdp(0.0, math.inf)
    (True, 0.0)
    """
    check_nonnegative("mu", mu)
    check_order(order)
    if mu == 0:
        return 0.0
    return math.nextafter(float(order) * float(mu) / 2 * float(mu) * (1 + 4 * ULP), math.inf)


def tradeoff(mu: float, false_positive_rate: ArrayLike) -> Any:
    """The least false negative rate of any test at ``false_positive_rate``, rounded down.

    Phi(Phi^-1(1 - rate) - mu) (Dong, Roth, Su 2022). ndtri is within 1e-14 of the truth, relative,
    and ndtr within 1e-14 + z^2 ULP, from the square in its exponent (the tests measure both).

    >>> round(tradeoff(1.0, 0.05), 6)
    0.740489
    """
    check_nonnegative("mu", mu)
    check_probability("false_positive_rate", false_positive_rate)
    rates = np.asarray(false_positive_rate, float)
    quantile = -ndtri(np.clip(rates, 1e-320, 1 - 2.0**-53))
    point = np.maximum(quantile - mu, -1e100)
    point = point - 1e-14 * (np.abs(point) + np.abs(quantile) + 1)
    least = np.nextafter(ndtr(point) * (1 - 1e-14 - np.minimum(point**2, 1e4) * ULP), -1.0)
    if mu < math.inf:  # for mu = inf even a test without false positives misses nothing
        least = np.where(rates == 0, 1.0, least)
    least = np.where(rates == 1, 0.0, np.maximum(least, 0.0))
    return float(least) if least.ndim == 0 else least


@dataclass(frozen=True, init=False, repr=False)
class Gaussian(Curve):
    """The curve of mu-GDP: never weaker than N(0, 1) against N(mu, 1).

    >>> curve = Gaussian(3.0).compose(Gaussian(4.0))
    >>> round(curve.mu, 12), round(curve.epsilon(1e-5), 6)
    (5.0, 33.103732)
    """

    _mu: float

    def __init__(self, mu: float) -> None:
        check_nonnegative("mu", mu)
        object.__setattr__(self, "_mu", float(mu))

    def __repr__(self) -> str:
        return f"Gaussian(mu={self._mu!r})"

    @property
    def mu(self) -> float:
        """The parameter of Gaussian differential privacy."""
        return self._mu

    def delta(self, epsilon: float) -> float:
        """The smallest delta at ``epsilon``, rounded up."""
        return delta(self._mu, epsilon)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 at ``delta``, rounded up; may be inf."""
        return epsilon(self._mu, delta)

    def rdp(self, order: float) -> float:
        """The Renyi divergence of ``order`` > 1, rounded up."""
        return rdp(self._mu, order)

    def tradeoff(self, false_positive_rate: ArrayLike) -> Any:
        """The least false negative rate at ``false_positive_rate``, rounded down."""
        return tradeoff(self._mu, false_positive_rate)

    def compose(self, other: Gaussian) -> Gaussian:
        """Both releases together, on the same data: mu^2 adds (rounded up)."""
        if self._mu == 0 or other._mu == 0:
            return other if self._mu == 0 else self
        return Gaussian(math.nextafter(math.hypot(self._mu, other._mu) * (1 + ULP), math.inf))
