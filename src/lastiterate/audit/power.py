"""How many models an audit needs, and how much it can certify at best.

Everything is computed from the binomial law of the two error counts, for a Gaussian attack: scores
N(0, 1) without the record and N(mu, 1) with it, the best threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import binom

from lastiterate._internal.formatting import printed
from lastiterate.audit.methods import clopper_pearson, one_run
from lastiterate.curves import gaussian
from lastiterate.curves.bracket import last_good
from lastiterate.description.fields import integer, number, one_of
from lastiterate.errors import TargetError

Array = NDArray[np.float64]

_MOST = 1 << 40  # models; beyond it nobody trains
_NEAR = np.linspace(-0.6, 0.6, 9)
_COUNTS = 120  # values of one count that are looked at; the others lie between them


def highest_epsilon(models: int, delta: float = 1e-5, level: float = 0.025) -> float:
    """What a perfect attack certifies: no error among ``models`` evaluated models of each world.

    >>> round(highest_epsilon(250, level=0.05), 3), round(highest_epsilon(500, level=0.05), 3)
    (4.418, 5.114)
    """
    integer("models", models)
    p = float(clopper_pearson.rate_above(0, models, level))
    return clopper_pearson.epsilon_below(p, p, delta)


def fewest_models(epsilon: float, delta: float = 0.0, level: float = 0.025) -> int:
    """Below this number per world even a perfect attack cannot certify ``epsilon``.

    >>> fewest_models(4.0, level=0.05)      # the real number is 165.05
    166
    """
    rate = (1 - delta) / (1 + math.exp(epsilon))
    return math.ceil(math.log(level) / math.log1p(-rate))


def required_models(
    mu: float,
    epsilon: float,
    delta: float = 1e-5,
    power: float = 0.8,
    method: str = "clopper-pearson",
    confidence: float = 0.95,
) -> int:
    """Evaluated models *per world* (one-run: canaries) to certify ``epsilon`` with ``power``.

    Within about 2 %. One-run assumes independent canary scores and the best number of guesses
    (at least 166 of them for epsilon = 4), fixed in advance; `audit` tries several numbers, which
    takes some more canaries. `audit` counts both worlds and sets a share aside for choosing: give
    it 2 * required / (1 - choosing) models.

    Args:
        mu: what the run is believed to leak, as Gaussian differential privacy.
        epsilon: the lower bound that the audit shall prove.
        delta: of that epsilon.
        power: the probability with which it shall succeed.
        method: "clopper-pearson", "gdp", "credible" or "one-run".
        confidence: of the lower bound, both error rates together.

    >>> required_models(2.0, 4.0, method="gdp") < 100 < required_models(2.0, 4.0)
    True
    """
    mu = number("mu", mu, above=0.0)
    epsilon = number("epsilon", epsilon, above=0.0)
    delta = number("delta", delta, above=0.0)
    power = number("power", power, above=0.0)
    names = ("clopper-pearson", "gdp", "credible", "one-run")
    method = one_of("method", method, names)
    truth = gaussian.epsilon(mu, delta)
    if truth <= epsilon or power >= 1:
        raise TargetError(
            f"No number of models certifies epsilon = {printed(epsilon)} with power {power:g}: "
            "the true "
            f"value for mu = {printed(mu)} at delta = {printed(delta)} is {printed(truth)}. "
            "Certify less, or find a "
            "stronger attack (a larger mu)."
        )
    if method == "one-run":
        chance = _one_run_chance(mu, epsilon, delta, 1 - confidence)
    else:
        chance = _two_world_chance(mu, epsilon, delta, 1 - confidence, method)
    floor = 2 if method in ("gdp", "credible") else fewest_models(epsilon, delta, 1 - confidence)
    return _smallest(lambda n: chance(n) >= power, floor)


def _smallest(enough: Callable[[int], bool], floor: int) -> int:
    """The smallest number, to 1 %; the power is nearly but not exactly monotone in it."""
    low = high = floor
    while not enough(high):
        low, high = high, 2 * high
        if high > _MOST:
            raise TargetError(f"More than {_MOST:,} models would be needed.")
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _two_world_chance(
    mu: float, epsilon: float, delta: float, error: float, method: str
) -> Callable[[int], float]:
    """n -> the chance that n models per world certify epsilon, at the best threshold.

    For every count x of false positives there is a largest count of misses that still succeeds.
    """
    hypothesis = gaussian.mu(epsilon, delta)

    def allowed_rate(p: Array) -> Array:
        """FNR below this, with FPR = p, refutes epsilon."""
        if method == "gdp":
            return np.asarray(ndtr(-ndtri(p) - hypothesis))
        one, two = (1 - delta - p) * math.exp(-epsilon), 1 - delta - math.exp(epsilon) * p
        return np.clip(np.maximum(one, two), 0.0, 1.0)

    def misses(n: int, x: Array) -> Array:
        """The largest number of misses that succeeds beside x false positives; -1 if none."""
        if method == "credible":
            return _credible_misses(n, x, allowed_rate, error)
        level = error / 2
        rate = allowed_rate(clopper_pearson.rate_above(x, n, level))
        # Clopper-Pearson's bound is below rate exactly if P[Bin(n, rate) <= y] <= level.
        y = binom.ppf(level, n, rate)
        return np.where(rate <= 0, -1.0, np.where(binom.cdf(y, n, rate) <= level, y, y - 1))

    def at(n: int, threshold: float) -> float:
        p, q = float(ndtr(-threshold)), float(ndtr(threshold - mu))
        few, many = (float(binom.ppf(level, n, p)) for level in (1e-9, 1 - 1e-9))
        values = _COUNTS // 3 if method == "credible" else _COUNTS
        x: Array = np.unique(np.round(np.linspace(few, many, values)))
        mass = np.diff(binom.cdf(x, n, p), prepend=0.0)
        return float(np.dot(mass, binom.cdf(misses(n, x), n, q)))

    best = math.nan  # threshold: it moves little from one n to the next

    def chance(n: int) -> float:
        nonlocal best
        coarse = np.linspace(-1.0, mu + 5.0, 41) if math.isnan(best) else best + _NEAR
        values = [at(n, t) for t in coarse]
        middle = float(coarse[int(np.argmax(values))])
        finer = middle + np.linspace(-0.12, 0.12, 9)
        values = [at(n, t) for t in finer]
        if max(values) > 0:
            best = float(finer[int(np.argmax(values))])
        return max(values)

    return chance


def _credible_misses(
    n: int, x: Array, allowed_rate: Callable[[Array], Array], error: float
) -> Array:
    """The same for the Bayesian value: by bisection over the count of misses."""
    from scipy.special import betainc

    nodes, weights = np.polynomial.legendre.leggauss(32)
    p = np.asarray(betaincinv(x[:, None] + 0.5, n - x[:, None] + 0.5, (nodes + 1) / 2), float)
    rate = allowed_rate(p)
    low, high = np.full(len(x), -1.0), np.full(len(x), float(n))
    while (high - low > 1).any():
        y = np.floor((low + high) / 2)
        k = np.maximum(y, 0)[:, None]
        good = (betainc(k + 0.5, n - k + 0.5, rate) @ weights / 2 >= 1 - error) & (y >= 0)
        low, high = np.where(good, y, low), np.where(good, high, y)
    return low


def _one_run_chance(
    mu: float, epsilon: float, delta: float, error: float
) -> Callable[[int], float]:
    """m -> the chance that m canaries certify epsilon, at the best number of guesses."""

    def at(m: int, cut: float) -> float:
        """Guess where the score is at least ``cut`` away from the middle."""
        right, wrong = float(ndtr(mu / 2 - cut)), float(ndtr(-mu / 2 - cut))
        r = round(m * (right + wrong))
        if r < 2:
            return 0.0

        def refutes(v: int) -> bool:
            return one_run.p_value(v, r, m, epsilon, delta) <= error

        fewest = last_good(refutes, good=r + 1, bad=0)
        return float(binom.sf(fewest - 1, r, right / (right + wrong)))

    return lambda m: max(at(m, cut) for cut in np.linspace(0, mu / 2 + 2, 25))
