"""Huber regression: squared error for small residuals, absolute error for large ones."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from lastiterate.losses import Huber, LinearLoss
from lastiterate.models.regressor import PrivateRegressor


@dataclass(eq=False, repr=False)
class PrivateHuberRegressor(PrivateRegressor):
    """Huber regression with a privacy certificate.

    Arguments are those of `PrivateRidge`, and so are the attributes.

    Args:
        threshold: residual at which the loss becomes linear, in the targets' units; a tenth of
            the target range if missing.
    """

    _: KW_ONLY
    threshold: float | None = None

    def _objective(self) -> LinearLoss:
        return Huber(self._limit("threshold", self.threshold))
