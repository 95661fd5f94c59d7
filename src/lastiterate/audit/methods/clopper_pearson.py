r"""Clopper-Pearson bounds on the two error rates, and the epsilon they refute (Heller & Fetaya
2022, eq. (10)-(12)).

**Statement.** If training is (ε, δ)-DP, every test fixed independently of the evaluated models has
FPR + e^ε FNR ≥ 1 − δ and FNR + e^ε FPR ≥ 1 − δ (Kairouz, Oh, Viswanath 2015). With FPR ≤ p and
FNR ≤ q, each failing with probability at most ``level``, with probability 1 − 2·level

    ε ≥ max(ln((1 − δ − p)/q), ln((1 − δ − q)/p)),

at every δ at once. **Status**: sound; no assumption on how training works.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

Array = NDArray[np.float64]

_SLACK = 1e-9  # far above the error of betaincinv; bounds move away from the claim


def rate_above(errors: ArrayLike, trials: int, level: float) -> Array:
    """A bound that the true rate exceeds with probability at most ``level``.

    >>> round(float(rate_above(0, 250, 0.05)), 5)      # 1 - 0.05^(1/250)
    0.01191
    """
    x = np.asarray(errors, float)
    bound = betaincinv(x + 1, np.maximum(trials - x, 1e-300), 1 - level)
    return np.where(x >= trials, 1.0, np.minimum(bound * (1 + _SLACK), 1.0))


def rate_below(errors: ArrayLike, trials: int, level: float) -> Array:
    """A bound that the true rate is below with probability at most ``level``."""
    return 1 - rate_above(trials - np.asarray(errors, float), trials, level)


def log_ratio(fpr: ArrayLike, fnr: ArrayLike, delta: float) -> Array:
    """The right-hand side of the statement; negative values refute nothing."""
    p, q = np.asarray(fpr, float), np.asarray(fnr, float)
    with np.errstate(divide="ignore"):
        one = np.log(np.maximum(1 - delta - p, 0.0)) - np.log(q)
        two = np.log(np.maximum(1 - delta - q, 0.0)) - np.log(p)
    best: Array = np.maximum(one, two)
    return best


def epsilon_below(fpr: float, fnr: float, delta: float) -> float:
    """The epsilon that upper bounds on the rates refute, rounded down.

    >>> p = float(rate_above(0, 250, 0.05))
    >>> round(epsilon_below(p, p, 1e-5), 3)
    4.418
    """
    value: Any = log_ratio(fpr, fnr, delta)
    return max(0.0, float(value) * (1 - _SLACK) - _SLACK)
