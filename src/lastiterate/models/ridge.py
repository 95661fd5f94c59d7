"""Ridge regression: squared error, with residuals that pull no harder than the target bound."""

from __future__ import annotations

import math

from lastiterate.losses import LinearLoss, SquaredError
from lastiterate.models.regressor import PrivateRegressor

UNCLIPPED = 2.0**500  # a residual that nothing reaches


class PrivateRidge(PrivateRegressor):
    """Ridge regression with a privacy certificate.

    Arguments are those of `PrivateLogisticRegression`, and so are the attributes, but for cap and
    the classes.

    Args:
        target_bound: targets are clipped to [-target_bound, target_bound]; declared, as the
            largest target is private.
    """

    def _objective(self) -> LinearLoss:
        # In units of the target bound: at the start no residual is clipped.
        return SquaredError(UNCLIPPED if math.isinf(self.epsilon) else 1.0)
