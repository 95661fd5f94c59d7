"""Linear support vector classification with a smoothed hinge."""

from __future__ import annotations

from typing import Any

from lastiterate.losses import LinearLoss, OneVsRest, SmoothedHinge
from lastiterate.models.classifier import PrivateClassifier


class PrivateLinearSVC(PrivateClassifier):
    """A linear support vector classifier with a privacy certificate.

    Args:
        epsilon: how much one record may change what is released; inf trains without noise.
        delta: the probability with which epsilon may fail; 1/(10 n) with a warning.
        feature_bound: rows of features longer than this are shortened. Missing: every row is
            rescaled to norm 1, the intercept's column inside, because a bound measured on the
            private rows would itself leak.
        width: margin over which the corner of the hinge is rounded; the smoothness is R²/width.
        regularization: coefficient of the L2 term, on the intercept too; 0.1/n if
            missing (scikit-learn's C is 1/(n * regularization)).
        steps: number of updates; chosen if missing.
        batch_size: records per update; chosen if missing, full batches if at least n.
        final_noise: factor on the variance of the last step's noise, or "best"; if missing, a
            burst or an equalised last epoch, whichever has the less predicted risk.
        fit_intercept: append a column of ones.
        adjacency: "zero-out" (a record's contribution removed) or "replace".
        prepare: a `PrivateStandardScaler` to fit first; certificate_ then covers both.
        classes: the classes that a label can have, whether or not they occur: they fix the shape
            of the model, and another label is refused. Missing: the classes that occur in y,
            whose set is then released beside the certificate.
        random_state: a seed makes a reproducible experiment, without a certificate; None draws
            cryptographically secure noise.

    Attributes:
        coef_, intercept_: the model.
        classes_: the classes, sorted: those declared, or else those that occur, which is then a
            release that certificate_ does not cover.
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
        width: float = 1.0,
        regularization: float | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        final_noise: float | str | None = None,
        fit_intercept: bool = True,
        adjacency: str = "zero-out",
        prepare: Any = None,
        classes: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.feature_bound = feature_bound
        self.width = width
        self.regularization = regularization
        self.steps = steps
        self.batch_size = batch_size
        self.final_noise = final_noise
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.prepare = prepare
        self.classes = classes
        self.random_state = random_state

    def _objective(self) -> LinearLoss:
        hinge = SmoothedHinge(self.width)
        return hinge if self._one_score else OneVsRest(hinge, len(self.classes_))
