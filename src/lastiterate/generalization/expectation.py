"""Bounds on expected gaps: privacy says how much the average training risk can flatter.

Swapping a training record for a fresh one changes the law of the output by at most one
neighbour's distance; each bound here measures that distance in its own way.
"""

from __future__ import annotations

import math

import numpy as np

_UP = 1 + 1e-12


def pure_expectation(epsilon: float) -> float:
    """|E gap| <= tanh(epsilon/4) for pure epsilon.

    Proof: given the other records, E gap <= E_z TV(W_z, mean W). Output by output, W_z lies in
    [a, a e^epsilon] and E(W_z - mean)_+ over the mean is largest for two values, where it is
    (e^(epsilon/2) - 1)/(e^(epsilon/2) + 1). Status: sound, tight.

    >>> round(pure_expectation(1.0), 6)
    0.244919
    """
    return math.tanh(epsilon / 4.0) * _UP


def on_average(epsilon: float, delta: float, parts: int = 1) -> float:
    """|E[Rhat_i - R]| <= 1 - e^-epsilon + e^-epsilon k delta, i chosen privately among k samples.

    Reference: He, Wang & Tao 2020, Theorem 2. Status: sound (about 4 times loose at k = 1, delta =
    0).

    >>> round(on_average(1.0, 0.0), 6)
    0.632121
    """
    return (-math.expm1(-epsilon) + math.exp(-epsilon) * parts * delta) * _UP


def second_moment(kl: float, records: int) -> float:
    """E[gap^2] <= min over 0 < l < 1 of [n kl + ln(1/(1-l))/2] / (2 n l).

    Proof: the information between sample and output is at most n kl (chain rule, independent
    records); under the product law the gap is 1/(4n)-subgaussian, so E e^(2nl gap^2) <=
    (1-l)^(-1/2); Donsker and Varadhan join the two. Status: sound. (E|gap| <= sqrt(kl/2) is false:
    an output that ignores its data has kl = 0, and its gap is not 0.)

    >>> round(math.sqrt(second_moment(0.0, 1000)), 4)
    0.0158
    """
    if math.isinf(kl):
        return math.inf
    odds = np.linspace(-30.0, 30.0, 2001)
    for _ in range(3):
        share = 1.0 / (1.0 + np.exp(-odds))
        value = (records * kl + 0.5 * np.logaddexp(0.0, odds)) / (2.0 * records * share)
        best = int(np.argmin(value))
        odds = np.linspace(odds[max(best - 1, 0)], odds[min(best + 1, odds.size - 1)], 2001)
    return float(value[best]) * _UP
