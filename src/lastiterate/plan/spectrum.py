"""The spectrum that is assumed when nobody knows one: public, and only a guide."""

from __future__ import annotations

import numpy as np

from lastiterate.description import Loss
from lastiterate.description.validation import whole
from lastiterate.errors import AssumptionError
from lastiterate.plan.risk import Floats

_CONDITION = 100.0  # smoothness over curvature where the loss declares no curvature


def log_uniform(loss: Loss, dimension: int = 20) -> Floats:
    """Eigenvalues spread evenly, on a logarithmic scale, over what the loss allows.

    From the declared curvature (a hundredth of the smoothness if none is declared) to the
    smoothness, the L2 term included in both.

    >>> log_uniform(Loss(smoothness=1.0, strong_convexity=0.01), dimension=3).round(6)
    array([0.01, 0.1 , 1.  ])
    """
    whole("dimension", dimension, "every coordinate receives noise")
    if not loss.convex or not loss.smoothness or not np.isfinite(loss.smoothness):
        raise AssumptionError(
            f"No spectrum can be assumed for a loss that is {loss}: it needs a finite smoothness "
            "and convexity. Give a spectrum, or choose the schedule by other means."
        )
    high = loss.smoothness + loss.regularization
    low = loss.strong_convexity + loss.regularization or high / _CONDITION
    return np.asarray(np.geomspace(low, high, dimension).clip(low, high), dtype=np.float64)
