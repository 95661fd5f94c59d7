r"""Gaussian differential privacy refuted by the two error rates (Nasr et al. 2023).

**Statement.** If training is μ-GDP, every fixed test has FNR ≥ Φ(Φ⁻¹(1 − FPR) − μ) (Dong, Roth, Su
2022). So upper bounds p, q on the rates refute every μ below Φ⁻¹(1 − p) − Φ⁻¹(q).
**Status**: sound against a claim of μ-GDP. The epsilon that belongs to this μ is a lower bound
only *under a Gaussian hypothesis*: randomised response with ε = 2 is (2, 0)-DP and yet has two
rates that only μ ≥ 2.36 allows, whose epsilon at δ = 1e-5 is 12.3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from lastiterate.curves import gaussian

Array = NDArray[np.float64]

_SLACK = 1e-9


def separation(fpr: ArrayLike, fnr: ArrayLike) -> Array:
    """Φ⁻¹(1 − FPR) − Φ⁻¹(FNR); −inf when a rate is not bounded away from 1."""
    with np.errstate(invalid="ignore"):
        value = -ndtri(np.asarray(fpr, float)) - ndtri(np.asarray(fnr, float))
    return np.where(np.isnan(value), -np.inf, value)


def mu_below(fpr: float, fnr: float) -> float:
    """The mu that upper bounds on the rates refute, rounded down.

    >>> round(mu_below(0.1587, 0.1587), 3)
    2.0
    """
    return max(0.0, float(separation(fpr, fnr)) * (1 - _SLACK) - _SLACK)


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon of mu-GDP at delta, rounded down.

    >>> round(epsilon_of(1.0, 1e-5), 5)
    4.37718
    """
    return max(0.0, gaussian.epsilon(mu, delta) * (1 - _SLACK) - _SLACK) if mu > 0 else 0.0
