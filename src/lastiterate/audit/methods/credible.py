r"""Zanella-Béguelin's credible interval (2023): Bayesian, **not** a confidence bound.

FPR ~ Beta(x + ½, n − x + ½) and FNR likewise; the value reported is the ``error`` quantile of
max(ln((1−δ−FPR)/FNR), ln((1−δ−FNR)/FPR)) under this posterior. **Status**: as a frequentist bound
refuted: on randomised response the nominal 5 % quantile exceeds the true epsilon with probability
0.11 (ε = 1) to 0.21 (ε = 3.9), whatever the number of models. Offered because others report it;
never compared with a certificate.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)
_LEVELS, _SHARES = (_NODES + 1) / 2, _WEIGHTS / 2


def belief(fp: float, outside: int, fn: float, inside: int, epsilon: float, delta: float) -> float:
    """The posterior probability that the rates refute ``epsilon``."""
    p = betaincinv(fp + 0.5, outside - fp + 0.5, _LEVELS)  # equally likely values of the FPR
    enough = np.maximum((1 - delta - p) * math.exp(-epsilon), 1 - delta - math.exp(epsilon) * p)
    chance = betainc(fn + 0.5, inside - fn + 0.5, np.clip(enough, 0.0, 1.0))
    return float(chance @ _SHARES)


def epsilon_credible(
    fp: int, outside: int, fn: int, inside: int, delta: float, error: float
) -> float:
    """The ``error`` quantile of epsilon's posterior.

    >>> round(epsilon_credible(0, 250, 0, 250, 1e-5, 0.05), 2)
    5.82
    """

    def excess(epsilon: float) -> float:
        return belief(fp, outside, fn, inside, epsilon, delta) - (1 - error)

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0 and high < 700:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-9))
