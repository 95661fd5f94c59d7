"""Ridge regression: squared error, with residuals that pull no harder than a limit."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

from lastiterate.losses import LinearLoss, SquaredError
from lastiterate.models.regressor import PrivateRegressor

UNCLIPPED = 2.0**500  # a residual that nothing reaches


@dataclass(eq=False, repr=False)
class PrivateRidge(PrivateRegressor):
    """Ridge regression with a privacy certificate.

    Arguments are those of `PrivateLogisticRegression`, and so are the attributes, but for cap and
    the classes.

    Args:
        target_range: (low, high), to which targets are clipped. Missing: found privately, with a
            share of epsilon, by prepare="auto"; else [-1, 1], with a warning. Predictions are
            scores plus the middle of the range.
        target_bound: short for target_range=(-target_bound, target_bound).
        residual_limit: residuals beyond it, in the targets' units, pull no harder. Missing: a
            tenth of the range with noise, none without.
    """

    _: KW_ONLY
    residual_limit: float | None = None

    def _objective(self) -> LinearLoss:
        if self.residual_limit is None and math.isinf(self.epsilon):
            return SquaredError(UNCLIPPED)
        return SquaredError(self._limit("residual_limit", self.residual_limit))
