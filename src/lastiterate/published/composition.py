"""Composition as He, Wang & Tao 2020 printed it: refuted, for study only.

Their Theorems 4 and 6 and Corollary 2 bound the probability of rectangles of outputs alone. The
event "some round revealed the record" is the complement of a rectangle: it alone costs
1 - prod(1 - delta_i), which the printed delta' can undercut. Corollary 3 carries a wrong sign.
No guarantee rests on anything in this file; ``lastiterate.composition`` has the true values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.composition import (
    Pair,
    kairouz_forms,
    kairouz_heterogeneous,
    log_chernoff,
    pure_composition,
)
from lastiterate.composition.validation import check_lists, check_pair, check_slack
from lastiterate.errors import UnsupportedError


def theorem_4(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> Pair:
    """He, Wang & Tao 2020, Theorem 4 (unequal rounds, epsilon' the least of Kairouz' three forms).
    REFUTED.

    delta' = max over a of 2 - prod(1 - e^a_i d_i/(1+e^e_i)) - prod(1 - d_i/(1+e^e_i)) + slack,
    where sum a_i = epsilon' and all but one a_i are 0 or e_i. The maximum is relaxed upwards
    (the last a_i on a chord), in favour of the claim.

    >>> claimed = theorem_4([1.0] * 1000, [1e-5] * 1000, 1e-6)
    >>> claimed.delta < 1 - (1 - 1e-5) ** 1000      # below what revealing alone costs
    True
    """
    epsilon = kairouz_heterogeneous(epsilons, deltas, slack).epsilon
    return Pair(epsilon, _rectangles(epsilons, deltas, epsilon, slack))


def theorem_6(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> Pair:
    """He, Wang & Tao 2020, Theorem 6: Theorem 4 with epsilon' of Theorem 5. REFUTED by the same
    event.

    >>> claimed = theorem_6([1.0] * 1000, [1e-5] * 1000, 1e-6)
    >>> claimed.delta < 1 - (1 - 1e-5) ** 1000
    True
    """
    check_lists(epsilons, deltas)
    epsilon = pure_composition(epsilons, slack).epsilon
    return Pair(epsilon, _rectangles(epsilons, deltas, epsilon, slack))


def corollary_2(epsilon: float, delta: float, rounds: int, slack: float) -> Pair:
    """He, Wang & Tao 2020, Corollary 2 (equal rounds). REFUTED.

    delta' = 1 - (1 - e^e d/(1+e^e))^m (1 - d/(1+e^e))^(T-m) + 1 - (1 - d/(1+e^e))^T + slack with
    m = ceil(epsilon'/epsilon) and epsilon' the least of Kairouz' three forms.

    >>> from lastiterate.composition import optimal
    >>> claim = corollary_2(1.0, 1e-5, 1000, 1e-6)
    >>> round(claim.delta, 6), round(optimal(1.0, 1e-5, 1000, claim.epsilon), 6)
    (0.008267, 0.00995)
    """
    check_pair(epsilon, delta)
    target = min(kairouz_forms(epsilon, rounds, slack))
    return Pair(target, float(_equal_rectangles(epsilon, delta, rounds, target) + slack))


def corollary_3(epsilon: float, delta: float, rounds: int, slack: float) -> Pair:
    """He, Wang & Tao 2020, Corollary 3 (equal rounds, Chernoff's bound for the slack). REFUTED even
    at delta = 0.

    The print has e^(-(epsilon' + T epsilon)/2) where the proof's own optimiser gives the plus
    sign; ``lastiterate.composition.chernoff`` is the corrected value.

    >>> round(corollary_3(0.1, 0.0, 100, 1e-5).delta, 13)     # at least 6.2e-8 in truth
    1.1e-12
    """
    check_pair(epsilon, delta)
    check_slack(slack)
    target = kairouz_forms(epsilon, rounds, slack).azuma
    if not 0.0 < target < rounds * epsilon:
        raise UnsupportedError(
            f"He, Wang & Tao 2020, Corollary 3 is undefined at epsilon' = {target:g}: it "
            f"needs epsilon' < T epsilon "
            f"= {rounds * epsilon:g}; use lastiterate.composition.optimal, which has no such limit."
        )
    printed = math.exp(log_chernoff(epsilon, rounds, target) - (target + rounds * epsilon))
    return Pair(target, float(_equal_rectangles(epsilon, delta, rounds, target) + printed))


def subsampled_linear(epsilon: float, delta: float, rate: float) -> Pair:
    """(2 q epsilon, q delta), the subsampling rule He, Wang & Tao 2020, Theorems 7 and 8 rest on.
    REFUTED.

    Sound only while ln(1 + q (e^epsilon - 1)) <= 2 q epsilon.

    >>> subsampled_linear(3.0, 0.0, 0.01).epsilon        # randomised response attains 0.1747
    0.06
    """
    check_pair(epsilon, delta)
    return Pair(2.0 * rate * epsilon, rate * delta)


def _equal_rectangles(
    epsilon: float, delta: ArrayLike, rounds: int, target: float
) -> NDArray[np.float64]:
    """The two rectangle terms of Corollary 2, without the slack."""
    small = np.asarray(delta, dtype=np.float64) / (1.0 + math.exp(epsilon))
    large = np.asarray(delta, dtype=np.float64) / (1.0 + math.exp(-epsilon))
    m = min(rounds, math.ceil(target / epsilon * (1 - 1e-12))) if epsilon > 0.0 else rounds
    first = -np.expm1(m * np.log1p(-large) + (rounds - m) * np.log1p(-small))
    return np.asarray(first - np.expm1(rounds * np.log1p(-small)), dtype=np.float64)


def _rectangles(
    epsilons: Sequence[float], deltas: Sequence[float], budget: float, slack: float
) -> float:
    """The printed maximum, relaxed upwards.

    -ln(1 - e^a d/(1+e^e)) is convex in a, hence below its chord on [0, e]; with chords the
    maximum is a fractional knapsack, filled in the order of steepest chords.
    """
    e = np.asarray(epsilons, dtype=np.float64)
    d = np.asarray(deltas, dtype=np.float64)
    at_rest = -np.log1p(-d / (1.0 + np.exp(e)))
    spent = -np.log1p(-d / (1.0 + np.exp(-e)))
    gain = spent - at_rest
    order = np.argsort(-gain / np.where(e > 0.0, e, np.inf))
    before = np.concatenate(([0.0], np.cumsum(e[order])[:-1]))
    share = np.clip((budget - before) / np.where(e[order] > 0.0, e[order], 1.0), 0.0, 1.0)
    exponent = float(np.sum(at_rest) + np.sum(share * gain[order]))
    return float(-math.expm1(-exponent) - math.expm1(-float(np.sum(at_rest))) + slack)
