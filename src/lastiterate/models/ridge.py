"""Ridge regression: squared error, with residuals that pull no harder than the target bound."""

from __future__ import annotations

import math
from typing import Any

from lastiterate.losses import LinearLoss, SquaredError
from lastiterate.models.regressor import PrivateRegressor

UNCLIPPED = 2.0**500  # a residual that nothing reaches


class PrivateRidge(PrivateRegressor):
    """Ridge regression with a privacy certificate.

    Args:
        epsilon: how much one record may change what is released; inf trains without noise.
        delta: the probability with which epsilon may fail; 1/(10 n) with a warning.
        feature_bound: rows of features longer than this are shortened. Missing: every row is
            rescaled to norm 1, the intercept's column inside, because a bound measured on the
            private rows would itself leak.
        target_bound: targets are clipped to [-target_bound, target_bound]; declared, as the
            largest target is private.
        regularization: coefficient of the L2 term, on the intercept too; 0.1/n if
            missing (scikit-learn's C is 1/(n * regularization)).
        steps: number of updates; chosen if missing.
        batch_size: records per update; chosen if missing, full batches if at least n.
        final_noise: factor on the variance of the last step's noise, or "best"; if missing, a
            burst or an equalised last epoch, whichever has the less predicted risk.
        fit_intercept: append a column of ones.
        adjacency: "zero-out" (a record's contribution removed) or "replace".
        prepare: a `PrivateStandardScaler` to fit first; certificate_ then covers both.
        random_state: a seed makes a reproducible experiment, without a certificate; None draws
            cryptographically secure noise.

    Attributes:
        coef_, intercept_: the model.
        certificate_: the privacy that was spent, checkable by anybody; None for experiments.
        training_, loss_: what ran, as the accountant sees it.
        choice_: what was chosen and why (print it).
        n_iter_: number of updates.
        delta_: the delta in force.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        feature_bound: float | None = None,
        *,
        target_bound: float = 1.0,
        regularization: float | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        final_noise: float | str | None = None,
        fit_intercept: bool = True,
        adjacency: str = "zero-out",
        prepare: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.feature_bound = feature_bound
        self.target_bound = target_bound
        self.regularization = regularization
        self.steps = steps
        self.batch_size = batch_size
        self.final_noise = final_noise
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.prepare = prepare
        self.random_state = random_state

    def _objective(self) -> LinearLoss:
        # In units of the target bound: at the start no residual is clipped.
        return SquaredError(UNCLIPPED if math.isinf(self.epsilon) else 1.0)
