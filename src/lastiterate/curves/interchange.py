"""Our curves as dp-accounting's privacy-loss distributions, and nothing else.

People compose a training run with other mechanisms (histograms, releases of statistics) that
dp-accounting describes. A curve is handed over as the pessimistic distribution whose hockey-stick
divergences connect the dots of ours. dp-accounting is the extra ``interchange``: our own curves do
not need it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lastiterate.curves.base import Curve
from lastiterate.errors import MissingExtraError

_POINTS = 20_000  # of the grid of losses, at most
_TAIL = 1e-14  # the delta where the grid ends; what is beyond counts as an infinite loss


def to_dp_accounting(curve: Curve, discretization: float = 1e-4) -> Any:
    """A ``dp_accounting`` PrivacyLossDistribution that is at least as pessimistic as ``curve``.

    The losses lie on a grid that is a multiple of ``discretization``, widened where the curve
    reaches far. Its two orders are alike, as our curves hold in both.

    >>> from lastiterate.curves.gaussian import Gaussian
    >>> handed_over = to_dp_accounting(Gaussian(1.0))
    >>> two = handed_over.compose(handed_over)
    >>> 0 <= two.get_epsilon_for_delta(1e-5) - Gaussian(2**0.5).epsilon(1e-5) < 0.01
    True
    """
    try:
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    except ModuleNotFoundError as missing:
        what = "Handing a guarantee over to dp-accounting"
        raise MissingExtraError(what, missing.name, "interchange") from None

    reach = curve.epsilon(_TAIL)
    if math.isinf(reach):
        everything = pld_pmf.SparsePLDPmf({}, discretization, 1.0, True)
        return privacy_loss_distribution.PrivacyLossDistribution(everything)
    step = discretization * max(math.ceil(2 * reach / discretization / _POINTS), 1)
    top = math.ceil(reach / step) + 1
    positive = np.array([curve.delta(step * k) for k in range(top + 1)])
    # δ at −ε follows from the other order: 1 − e^(−ε)(1 − δ(ε)).
    below = np.exp(-step * np.arange(top, 0, -1))
    deltas = np.concatenate([1 - below * (1 - positive[:0:-1]), positive])
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.DensePLDPmf(step, -top, _masses(deltas, step), float(positive[-1]), True)
    )


def _masses(deltas: np.ndarray[Any, np.dtype[np.float64]], step: float) -> Any:
    """Masses whose divergences are ``deltas`` at the grid points; rounding takes no mass away."""
    rises = np.diff(np.concatenate([[1.0], deltas]))
    left = rises / math.expm1(-step)
    left[0] = 1 - deltas[0]  # eps_0 = -infinity
    right = np.append(rises[1:] / math.expm1(step), 0.0)
    return np.maximum(left + right, 0.0)
