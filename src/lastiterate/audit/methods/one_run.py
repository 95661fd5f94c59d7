r"""One training run with m canaries (Steinke, Nasr, Jagielski 2023, Theorem 5.2).

**Statement.** m fair coins decide which canaries take part; the auditor guesses r coins from the
released model and v guesses are right. If training is (ε, δ)-DP when one coin changes, the
probability of v or more right guesses is at most

    F + 2mδ·a,  F = P[B ≥ v],  a = max over 1 ≤ i ≤ v of P[v − i ≤ B < v]/i,

where B ~ Bin(r, e^ε/(1+e^ε)).

**Status**: sound for guesses fixed before the coins are looked at (r and the rule, not the model).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.stats import binom

from lastiterate.curves.bracket import last_good

_PER_UNIT = 1000  # epsilons are rounded down to a thousandth


def p_value(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The bound of the statement: how likely such success is under (epsilon, delta)-DP.

    >>> p_value(10, 10, 10, 0.0, 0.0) == 2.0**-10
    True
    """
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    if delta == 0 or right == 0:
        return min(1.0, tail)
    below = binom.pmf(np.arange(right - 1, -1, -1), guesses, chance)
    densest = float(np.max(np.cumsum(below) / np.arange(1, right + 1)))
    return min(1.0, tail + 2 * canaries * delta * densest)


@lru_cache(maxsize=4096)  # counts repeat when audits do
def epsilon_below(right: int, guesses: int, canaries: int, delta: float, level: float) -> float:
    """The largest epsilon below which everything is refuted at ``level``, rounded down.

    Where F ≤ level < 1/2 the count lies above the mode of B, and both terms grow with epsilon; so
    the first epsilon that survives is found by bisection.

    >>> epsilon_below(95, 100, 100, 1e-5, 0.05)
    2.171
    """

    def refuted(count: int) -> bool:
        return p_value(right, guesses, canaries, count / _PER_UNIT, delta) <= level

    if not refuted(0):
        return 0.0
    low, high = 0, 1
    while refuted(high):
        low, high = high, 2 * high
        if high / _PER_UNIT > 700:  # delta = 0 and no bound: exp would overflow
            return low / _PER_UNIT
    return last_good(refuted, good=low, bad=high) / _PER_UNIT
