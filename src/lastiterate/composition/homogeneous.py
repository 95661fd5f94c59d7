"""Composition of equal guarantees, exactly.

The worst (epsilon, delta)-private mechanism reveals its input with probability delta and is
randomised response otherwise (Kairouz, Oh, Viswanath 2015). Its T-fold composition is a binomial
law, so the smallest delta' at any epsilon' is one sum of nonnegative terms.
"""

from __future__ import annotations

import math
from typing import overload

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from lastiterate.composition.validation import check_pair, check_rounds, check_target
from lastiterate.curves.base import Curve
from lastiterate.curves.bracket import halved
from lastiterate.description.fields import number

_U = 2.0**-53
_REVEALING = 700.0  # e^-700: from here on randomised response never lies, as far as doubles can say
Array = NDArray[np.float64]


@overload
def optimal(epsilon: float, delta: float, rounds: int) -> OptimalComposition: ...
@overload
def optimal(epsilon: float, delta: float, rounds: int, target: float) -> float: ...
def optimal(
    epsilon: float, delta: float, rounds: int, target: float | None = None
) -> OptimalComposition | float:
    """The smallest delta' at epsilon' = ``target``; without ``target`` the whole curve.

    Statement: ``rounds`` adaptive (epsilon, delta)-private mechanisms together are
    (target, delta')-private, and no smaller delta' holds for all of them.
    Assumptions: each mechanism is private for every fixed past output.
    Reference: Kairouz, Oh, Viswanath (2015), Theorem 3.3. Status: sound, exact, rounded up.

    >>> round(optimal(1.0, 1e-5, 1000, target=628.34), 6)
    0.00995
    >>> round(optimal(0.1, 0.0, 100).epsilon(1e-6), 4)
    4.7746
    """
    curve = OptimalComposition(epsilon, delta, rounds)
    return curve if target is None else curve.delta(target)


class OptimalComposition(Curve):
    """The exact curve of ``rounds`` adaptive (epsilon, delta)-private mechanisms.

    >>> round(OptimalComposition(0.5, 0.0, 1).delta(0.0), 9)    # tanh(epsilon/2), total variation
    0.244918662
    """

    def __init__(self, epsilon: float, delta: float, rounds: int) -> None:
        check_pair(epsilon, delta)
        check_rounds(rounds)
        self.step_epsilon = float(epsilon)
        self.step_delta = float(delta)
        self.rounds = int(rounds)

    def __repr__(self) -> str:
        return f"OptimalComposition({self.step_epsilon!r}, {self.step_delta!r}, {self.rounds!r})"

    def delta(self, epsilon: float) -> float:
        """1 - (1 - delta)^T (1 - D(epsilon')), D that of T rounds of randomised response."""
        check_target(epsilon)
        tail = randomised_response_delta(self.step_epsilon, self.rounds, epsilon)
        return join_deltas(self.rounds * _log1m(self.step_delta), tail)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon' at ``delta``; infinite below 1 - (1 - delta)^T."""
        check_pair(0.0, delta)
        # just above T epsilon nothing but the revealed bits counts
        safe = math.nextafter(self.rounds * self.step_epsilon, math.inf)
        if not self.delta(safe) <= delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        return halved(lambda each: self.delta(each) <= delta, safe, 0.0, tolerance=1e-13)

    def rdp(self, order: float) -> float:
        """T times the Renyi divergence of randomised response; infinite if delta > 0."""
        number("order", order, above=1, infinite=True)
        if self.step_delta > 0.0 or math.isinf(self.step_epsilon):
            return math.inf
        e = self.step_epsilon
        if math.isinf(order):
            return self.rounds * e * (1 + 8 * _U)
        # ln(p^a q^(1-a) + q^a p^(1-a)) / (a-1) with p = e^e/(1+e^e), q = 1-p
        log_moment = (order - 1.0) * e + math.log1p(math.exp((1.0 - 2.0 * order) * e))
        log_moment -= math.log1p(math.exp(-e))
        per_round = min(e, log_moment / (order - 1.0) + 8 * _U * (1.0 + e) / (order - 1.0))
        return self.rounds * per_round * (1 + 8 * _U)


def join_deltas(log_kept: float, tail: float) -> float:
    """1 - e^log_kept (1 - tail), rounded up, without cancellation."""
    if log_kept == 0.0:
        return tail
    joined = -math.expm1(log_kept + _log1m(tail)) * (1 + 16 * _U)
    return min(1.0, max(joined, math.ulp(0.0)))


def _log1m(probability: float) -> float:
    return math.log1p(-probability) if probability < 1.0 else -math.inf


def randomised_response_delta(epsilon: float, rounds: int, target: float) -> float:
    """delta at ``target`` of ``rounds`` epsilon-randomised responses, rounded up.

    D = sum over l with (T-2l) epsilon > target of Bin(l; T, q) (1 - e^(target - (T-2l) epsilon)),
    q = 1/(1+e^epsilon). Terms farther than a window from the largest are bounded by geometric
    series, so the cost grows like the square root of T.

    >>> round(randomised_response_delta(1.0, 1, 0.0), 9)
    0.462117157
    """
    if epsilon == 0.0:
        return 0.0
    if math.isinf(epsilon):
        return 1.0
    largest = float(_excess(epsilon, np.array([float(rounds)]), target)[0])
    if largest <= 0.0:
        return 0.0
    largest_weight = -math.expm1(-largest)
    if epsilon > _REVEALING:
        return min(1.0, largest_weight * (1 + 8 * _U))

    last = _last_losing_count(epsilon, rounds, target)
    peak = min(last, int(rounds / (1.0 + math.exp(epsilon))))
    width = 6 * math.isqrt(rounds) + 50
    first, final = max(0, peak - width), min(last, peak + width)
    count = np.arange(first, final + 1, dtype=np.float64)
    log_pmf = _log_binomial(count, rounds, epsilon)
    weight = -np.expm1(-_excess(epsilon, rounds - 2.0 * count, target))
    shift = float(np.max(log_pmf))
    pmf = np.exp(log_pmf - shift)
    total = float(np.sum(pmf * weight))

    # left out below: ratios l e^epsilon/(T-l+1) < 1 shrink further down; weights are largest at 0
    if first > 0:
        ratio = math.exp(epsilon + math.log(first) - math.log(rounds - first + 1))
        total += float(pmf[0]) * ratio / (1.0 - ratio) * largest_weight
    # left out above: ratios (T-l) e^-epsilon/(l+1) < 1 shrink further up; weights decrease
    if final < last:
        ratio = math.exp(-epsilon + math.log(rounds - final) - math.log(final + 1))
        total += float(pmf[-1]) * ratio / (1.0 - ratio) * float(weight[-1])
    if total <= 0.0:
        return math.ulp(0.0)
    value = math.exp(min(0.0, shift + math.log(total))) * (1 + 64 * _U) + math.ulp(0.0)
    return min(1.0, value)


def _excess(epsilon: float, surplus: Array, target: float) -> Array:
    """surplus * epsilon - target to full relative accuracy.

    epsilon is split so that both products are exact; when they cancel, the subtraction is exact.
    """
    bits = int(np.max(np.abs(surplus))).bit_length()
    mantissa, exponent = math.frexp(epsilon)
    scale = 2.0 ** max(1, 53 - bits)
    high = math.ldexp(math.floor(mantissa * scale) / scale, exponent)
    low = epsilon - high
    return np.asarray((surplus * high - target) + surplus * low, dtype=np.float64)


def _last_losing_count(epsilon: float, rounds: int, target: float) -> int:
    """The largest l with (rounds - 2 l) epsilon > target (it exists: l = 0)."""
    last = max(0, min(rounds // 2, int((rounds - target / epsilon) / 2.0)))
    surplus = rounds - 2.0 * np.arange(max(0, last - 2), last + 3, dtype=np.float64)
    above = _excess(epsilon, surplus, target) > 0.0
    return max(0, last - 2) + int(np.count_nonzero(above)) - 1


def _log_binomial(count: Array, rounds: int, epsilon: float) -> Array:
    """ln Bin(count; rounds, 1/(1+e^epsilon)), rounded up, by Loader's saddle-point expansion.

    ln pmf = s(T) - s(l) - s(T-l) - d(l, Tq) - d(T-l, Tp) + ln(T/(2 pi l (T-l)))/2, s Stirling's
    remainder and d(x, m) = x ln(x/m) + m - x. The relative error of d and that of Tq, Tp (which
    enters times |l - Tq|) are added, so nothing of size T ln T is ever subtracted.
    """
    liar = math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    mean, mirror = rounds * liar, rounds / (1.0 + math.exp(-epsilon))
    inner = np.where(count == 0.0, 1.0, count)
    rest = rounds - inner
    if rounds == 1:  # only count 0 exists below one half
        return np.full_like(count, -math.log1p(math.exp(-epsilon)) + 8 * _U)
    deviance = _deviance(inner, mean) + _deviance(rest, mirror)
    stirling = _stirling(np.array([float(rounds)]))[0] - _stirling(inner) - _stirling(rest)
    log_pmf = stirling - deviance + 0.5 * np.log(rounds / (2.0 * math.pi * inner * rest))
    log_pmf += _U * (64.0 + 8.0 * deviance + 8.0 * np.abs(inner - mean))
    honest = -rounds * math.log1p(math.exp(-epsilon)) * (1 - 8 * _U)
    return np.where(count == 0.0, honest, log_pmf)


def _deviance(value: Array, mean: float) -> Array:
    """value ln(value/mean) + mean - value, accurate also where the two nearly agree."""
    difference = value - mean
    v = difference / (value + mean)
    near = np.abs(v) < 0.1
    small = np.where(near, v, 0.0)
    series = np.zeros_like(small)
    for j in range(10, 0, -1):  # v^21 is far below the last bit
        series = (series + 1.0 / (2 * j + 1)) * small * small
    close = difference * small + 2.0 * value * small * series
    far = value * np.log(value / mean) - difference
    return np.where(near, close, far)


def _stirling(value: Array) -> Array:
    """ln(n!) - ln(sqrt(2 pi n) (n/e)^n)."""
    n = np.maximum(value, 1.0)
    direct = gammaln(n + 1.0) - (n + 0.5) * np.log(n) + n - 0.5 * math.log(2.0 * math.pi)
    s = 1.0 / (n * n)
    series = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / n
    return np.where(n < 16.0, direct, series)
