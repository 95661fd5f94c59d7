"""Standardisation whose means and deviations are private, at a cost of its own.

Every value is clipped to a declared range and mapped to [-1, 1]; the means of v and of v² − 1/2
over all records are released by one Gaussian mechanism. That is one full-batch noisy step with
gradients of norm at most √(5/4) per column, so it runs, is accounted and certified as one. The
shift by 1/2 is data-free and makes the vector shorter than (v, v²) would be.
"""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from lastiterate.certificate import certify
from lastiterate.certificate.signing import Computed
from lastiterate.description import FullBatch, Loss, Training
from lastiterate.description.failure import large_delta, promised_delta
from lastiterate.losses.rounding import root_up
from lastiterate.models.privacy_warning import PrivacyWarning, warn_if_selected
from lastiterate.models.ranges import middle_and_half
from lastiterate.plan.calibration import calibrate
from lastiterate.printing import printed
from lastiterate.train import Descent, noisy_descent
from lastiterate.train.grid import on_its_grid
from lastiterate.train.summation import gradient_arithmetic

Array = NDArray[Any]


class PrivateStandardScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Subtract a private mean and divide by a private standard deviation, column by column.

    Args:
        epsilon: what the statistics may cost; it comes on top of the model's.
        delta: the probability with which epsilon may fail; 1/(10 n) with a warning.
        low, high: the range of every column, a number or one per column; values are clipped to
            it. Declared, because the extremes of a private column are private.
        adjacency: "zero-out" or "replace", the same as the model's.
        random_state: a seed makes an experiment, without a certificate.

    Attributes:
        mean_, scale_: private statistics, in the units of the data.
        certificate_: what they cost; None for experiments.
        training_: the mechanism as a run of one step.

    In a `Pipeline`, `certificate_of(pipeline)` composes the costs; given to a model as
    ``prepare=``, the model's certificate covers both.
    """

    def __init__(
        self,
        epsilon: float = 0.1,
        delta: float | None = None,
        *,
        low: Any = -1.0,
        high: Any = 1.0,
        adjacency: str = "zero-out",
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.low = low
        self.high = high
        self.adjacency = adjacency
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Release the means and deviations of the columns."""
        self.learnt_before_ = warn_if_selected()
        X = validate_data(self, X, dtype=np.float64)
        records, columns = X.shape
        loss = Loss.unknown(provenance="proved")
        delta = self._delta(records)
        run = Training(
            records=records,
            steps=1,
            step_size=1.0,
            noise=1.0,
            gradient_norm=root_up(Fraction(5, 4) * columns),
            batches=FullBatch(),
            adjacency=self.adjacency,
            clipping="gradient",
        )
        self.training_, _ = on_its_grid(
            run,
            gradient_arithmetic(run, 2 * columns),
            np.zeros(2 * columns),
            loss,
            lambda described: calibrate(described, loss, self.epsilon, delta),
        )
        released = self._release(self._contributions(X), self.random_state)
        self.training_ = released.training  # what is certified is what was computed
        self.certificate_ = None
        if not released.experiment:
            parameters = Computed({"mean_": self.mean_, "scale_": self.scale_})
            self.certificate_ = certify(self.training_, loss, delta, parameters=parameters)
        return self

    def _contributions(self, X: Array) -> Array:
        """What every record adds to the sums: v and v² − 1/2."""
        v = self._unit(X)
        return np.hstack([v, v**2 - 0.5])

    def _release(self, contributions: Array, random_state: Any) -> Descent:
        """Draw the noisy means and set the statistics by them."""
        released = noisy_descent(
            lambda _, indices: -contributions[indices],
            None,
            self.training_,
            start=np.zeros(contributions.shape[1]),
            random_state=random_state,
        )
        first, second = np.split(released.parameters, 2)
        mean = np.clip(first, -1, 1)
        # Below the noise a variance cannot be told from 0.
        variance = np.clip(second + 0.5 - mean**2, float(self.training_.noises[0]), 1.0)
        middle, half = self._range()
        self.mean_, self.scale_ = middle + half * mean, half * np.sqrt(variance)
        return released

    def transform(self, X: Any) -> Array:
        """Clip to the declared range, subtract the mean, divide by the deviation."""
        check_is_fitted(self, "scale_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        middle, half = self._range()
        return np.asarray((middle + half * self._unit(X) - self.mean_) / self.scale_)

    def _unit(self, X: Array) -> Array:
        middle, half = self._range()
        inside = np.clip(X, middle - half, middle + half)  # a warning of overflow would tell
        return np.asarray(np.clip((inside - middle) / half, -1.0, 1.0))

    def _range(self) -> tuple[Array, Array]:
        why = "a value outside of every range could shift a mean without limit"
        return middle_and_half(self.low, self.high, self.n_features_in_, why)

    def _delta(self, records: int) -> float:
        if self.delta is not None:
            delta = promised_delta(self.delta)
            if said := large_delta(delta, records):
                warnings.warn(said, PrivacyWarning, stacklevel=3)
            return delta
        warnings.warn(
            f"delta was not given; 1 / (10 * records) = {printed(1 / (10 * records))} is used.",
            PrivacyWarning,
            stacklevel=3,
        )
        return 1 / (10 * records)
