"""Probabilities that are right on average: one number sharpens or softens them all, paid for.

Links of the losses are right for models that converged (`LinearLoss.probability`). A model that
stops in time is less sure than it could be, and noise makes models too sure. With
``calibrate=True`` probabilities p become p^a / Σ p^a, which leaves every predicted class as it is,
with the a for which the mean probability of the predicted class is the share of those that are
right.

**Cost.** For every a of `SCALES` a record tells 1[right] − confidence(a), a number of [−1, 1]: as a
vector no longer than the root of their number. The mean of these vectors is released by one
Gaussian mechanism, a noisy step like that of `PrivateStandardScaler`. Confidence grows with a, so
the means fall, and a is where they cross one deviation of the noise: in doubt a model is less
sure. Model and mechanism add up in mu, and what the mechanism costs is fixed before the model
trains: what an error of `_BLUR` in the mean confidence needs, at most a tenth of mu squared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import softmax

from lastiterate._internal.formatting import printed
from lastiterate.certificate import Certificate, certify
from lastiterate.certificate.signing import Computed
from lastiterate.curves import gaussian
from lastiterate.description import Training
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.losses.rounding import root_up
from lastiterate.models.base import Array
from lastiterate.models.classifier import PrivateClassifier
from lastiterate.models.noisy_mean import ANY_LOSS, CALIBRATION, mu_of, noisy_mean
from lastiterate.noise.seeded import another
from lastiterate.train import noisy_descent
from lastiterate.train.summation import gradient_arithmetic

SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)
_BLUR = 0.01  # what noise may move the mean confidence by
_LARGEST = 0.1  # of mu squared
_SMALLEST = 1e-3  # of epsilon


def sharpened(probabilities: Array, scale: float) -> Array:
    """p^a / Σ p^a, row by row.

    >>> sharpened(np.array([[0.25, 0.75]]), 2.0).round(3).tolist()
    [[0.1, 0.9]]
    """
    smallest = np.finfo(np.float64).tiny
    return np.asarray(softmax(scale * np.log(np.maximum(probabilities, smallest)), axis=1))


def crossing(differences: NDArray[np.float64]) -> float:
    """The scale at which right answers less confidence, measured at `SCALES`, fall through 0.

    >>> round(crossing(np.array([0.5, 0.25, 0.0, -0.1, -0.2])), 6), crossing(np.full(5, -0.3))
    (2.0, 0.5)
    """
    falling = isotonic_regression(differences, increasing=False).x
    slanted = falling - 1e-9 * np.arange(len(SCALES))  # equal ones have no order
    return float(2.0 ** np.interp(0.0, -slanted, np.log2(SCALES)))


def planned(records: int, epsilon: float, delta: float, adjacency: str) -> tuple[Training, float]:
    """The mechanism as a run of one step, with its share of the budget, and its mu.

    >>> run, mu = planned(10_000, 1.0, 1e-5, "zero-out")
    >>> mu < 0.1 * gaussian.mu(1.0, 1e-5)
    True
    """
    length = root_up(Fraction(len(SCALES)))
    whole = gaussian.mu(epsilon, delta)
    weight = 2 if adjacency == "replace" else 1
    needed = min(math.sqrt(_LARGEST) * whole, weight * length / records / _BLUR)
    cost = max(gaussian.epsilon(needed, delta), _SMALLEST * epsilon)
    scales = len(SCALES)
    run = noisy_mean(
        records,
        length,
        adjacency,
        cost,
        delta,
        scales,
        lambda run: gradient_arithmetic(run, scales),
    )
    return run, mu_of(run)


@dataclass(eq=False, repr=False)
class ProbableClassifier(PrivateClassifier):
    """A classifier that tells probabilities."""

    _: KW_ONLY
    calibrate: bool = False

    def _linked(self, X: Any) -> Array:
        """The probabilities for which the scores are optimal."""
        raise NotImplementedError

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes.

        A capped loss pulls scores of confident records too far, which is undone, and ``calibrate``
        makes them right on average.
        """
        scale = self.__dict__.get("sharpness_")
        found = self._linked(X)
        return found if scale is None else sharpened(found, scale)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def _plan_after(self, records: int) -> tuple[float, tuple[tuple[str, str], ...]]:
        if not self.calibrate:
            return super()._plan_after(records)
        if math.isinf(self.epsilon):
            why = "it is paid for with a share of epsilon"
            raise DescriptionError("calibrate", self.calibrate, "absent with epsilon=inf", why)
        if self.max_records_per_group is not None:
            raise UnsupportedError(
                "calibrate= is paid for by the record, and max_records_per_group= asks for a "
                "guarantee by the person: leave one of them out."
            )
        self._mechanism, mu = planned(records, self.epsilon, self.delta_, self.adjacency)
        cost = printed(gaussian.epsilon(mu, self.delta_))
        why = f"{cost} of epsilon by itself for the scale at which confidence is right on average"
        return mu, (("calibration", why),)

    def _release_after(self, X: Any, y: Array) -> Sequence[Certificate | None]:
        if not self.calibrate:
            return super()._release_after(X, y)
        linked = self._linked(X)
        right = self.classes_[linked.argmax(axis=1)] == y
        each = np.column_stack([right - sharpened(linked, a).max(axis=1) for a in SCALES])
        released = noisy_descent(
            lambda _, indices: -each[indices],
            None,
            self._mechanism,
            start=np.zeros(len(SCALES)),
            random_state=another(self.random_state, CALIBRATION),
        )
        doubt = float(released.training.noises[0])
        self.sharpness_ = crossing(released.parameters - doubt)
        if released.experiment:
            return [None]
        found = Computed({"sharpness_": np.array(self.sharpness_)})
        return [certify(released.training, ANY_LOSS, self.delta_, parameters=found)]
