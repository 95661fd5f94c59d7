"""Standardisation whose means and deviations are private, at a cost of its own.

Every value is clipped to a declared range and mapped to [-1, 1]; the means of v and of v² − 1/2
over all records are released by one Gaussian mechanism. That is one full-batch noisy step with
gradients of norm at most √(5/4) per column, so it runs, is accounted and certified as one. The
shift by 1/2 is data-free and makes the vector shorter than (v, v²) would be.
"""

from __future__ import annotations

import copy
import math
import warnings
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from lastiterate._internal.formatting import printed
from lastiterate.description.fields import checked_delta, large_delta, number
from lastiterate.errors import DescriptionError
from lastiterate.losses.rounding import root_up
from lastiterate.models.noisy_mean import ANY_LOSS, SCALES, noisy_mean
from lastiterate.models.privacy_warning import PrivacyWarning, warn_if_selected
from lastiterate.models.ranges import middle_and_half, unit
from lastiterate.models.read_numbers import read_numbers
from lastiterate.models.rows import LONGEST
from lastiterate.models.unsealed import SealedWhenRead, Unsealed
from lastiterate.noise.seeded import another
from lastiterate.train import Descent, noisy_descent
from lastiterate.train.summation import gradient_arithmetic

Array = NDArray[Any]
_LEAST = 1e-5  # of a variance, where all columns but one hardly differ from 0
_NOTHING = 1e-14  # a variance without noise that rounding explains


class PrivateStandardScaler(SealedWhenRead, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Subtract a private mean and divide by a private standard deviation, column by column.

    Args:
        epsilon: what the statistics may cost; it comes on top of the model's. Infinite: exact
            statistics, without a certificate; constant columns are divided by half their range.
        delta: the probability with which epsilon may fail; 1/(10 n) with a warning.
        low, high: the range of every column, a number or one per column; values are clipped to
            it. Declared, because the extremes of a private column are private.
        power: 1 divides by the deviation, 0 by half the range, 1/2 by their geometric mean: rare
            values of a column that is nearly constant then weigh less.
        row_norm: the root mean square of the rows' norms afterwards, by the private statistics;
            as it comes if missing. The deviations are then drawn to each other, as far as noise
            makes them differ, and a model whose ``prepare=`` this is shortens longer rows to it.
        longest: with row_norm, what longer rows are shortened to instead.
        together: means and second moments are drawn to those of all columns, within their ranges,
            as far as noise makes them differ: of few records that is nearer to the truth.
        adjacency: "zero-out" or "replace", the same as the model's.
        random_state: a seed makes an experiment, without a certificate.

    Attributes:
        mean_, deviation_: private statistics, in the units of the data.
        scale_: what is divided by: the deviation, unless power or row_norm say otherwise.
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
        power: float = 1.0,
        row_norm: float | None = None,
        longest: float | None = None,
        together: bool = False,
        adjacency: str = "zero-out",
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.low = low
        self.high = high
        self.power = power
        self.row_norm = row_norm
        self.longest = longest
        self.together = together
        self.adjacency = adjacency
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Release the means and deviations of the columns."""
        self.learnt_before_ = warn_if_selected()
        X = read_numbers(self, X, dtype=np.float64)
        self._learn(X, self._delta(X.shape[0]))
        return self

    def _learn(self, X: Array, delta: float) -> None:
        records, columns = X.shape
        self.n_features_in_ = columns
        if not isinstance(self.together, bool):
            why = "it says whether columns are drawn to each other"
            raise DescriptionError("together", self.together, "True or False", why)
        number("power", self.power, at_least=0.0, at_most=1.0)
        if self.row_norm is not None:
            number("row_norm", self.row_norm, above=0.0, at_most=LONGEST)
            if self.longest is not None:
                number("longest", self.longest, above=0.0, at_most=LONGEST)
        elif self.longest is not None:
            why = "how long rows are is known only if they are made so long"
            raise DescriptionError("longest", self.longest, "absent without row_norm", why)
        self.training_ = noisy_mean(
            records,
            root_up(Fraction(5, 4) * columns),
            self.adjacency,
            self.epsilon,
            delta,
            2 * columns,
            lambda run: gradient_arithmetic(run, 2 * columns),
        )
        released = self._release(self._contributions(X), another(self.random_state, SCALES))
        self.training_ = released.training  # what is certified is what was computed
        self.certificate_ = None
        if not released.experiment and math.isfinite(self.epsilon):
            parameters = {"mean_": self.mean_, "scale_": self.scale_}
            self.certificate_ = Unsealed.of(released, ANY_LOSS, delta, parameters)

    def again(self, X: Array, removed: int | None, seed: Any) -> Self:
        """A copy with statistics drawn anew, of other records; of one nothing is in them."""
        other, contributions = copy.copy(self), self._contributions(X)
        if removed is not None:
            contributions[removed] = 0.0
        other._release(contributions, seed)
        return other

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
        noise = float(self.training_.noises[0])
        if self.together:
            first, second = (drawn_together(each, noise)[0] for each in (first, second))
        mean = np.clip(first, -1, 1)
        self._variance = second + 0.5 - mean**2
        if math.isinf(self.epsilon):
            self._variance = np.where(self._variance > _NOTHING, self._variance, 1.0)
        variance = np.clip(self._variance, noise, 1.0)  # below, it cannot be told from 0
        middle, half = self._range()
        self.mean_, self.deviation_ = middle + half * mean, half * np.sqrt(variance)
        self._temper()
        return released

    def _temper(self) -> None:
        """Set the scales by the deviations."""
        _, half = self._range()
        deviation = self.deviation_
        if self.row_norm is not None:
            noise = float(self.training_.noises[0])
            drawn, own = drawn_together(self._variance, noise)
            least = max(own * noise, float(self._variance.mean()) / 16, _LEAST)
            deviation = half * np.sqrt(np.clip(drawn, least, 1.0))
        self.scale_ = half * (deviation / half) ** self.power
        if self.row_norm is not None:
            self.scale_ *= float(np.linalg.norm(deviation / self.scale_)) / self.row_norm

    @property
    def bound(self) -> float | None:
        """What a model shortens rows to; None: each is rescaled to 1."""
        return self.row_norm if self.longest is None else self.longest

    def transform(self, X: Any) -> Array:
        """Clip to the declared range, subtract the mean, divide by the deviation."""
        check_is_fitted(self, "scale_")
        X = read_numbers(self, X, dtype=np.float64, reset=False)
        middle, half = self._range()
        return np.asarray((middle + half * self._unit(X) - self.mean_) / self.scale_)

    def _unit(self, X: Array) -> Array:
        return unit(X, *self._range())

    def _range(self) -> tuple[Array, Array]:
        why = "a value outside of every range could shift a mean without limit"
        return middle_and_half(self.low, self.high, self.n_features_in_, why)

    def _delta(self, records: int) -> float:
        if math.isinf(number("epsilon", self.epsilon, above=0.0, infinite=True)):
            return 0.0
        if self.delta is not None:
            delta = checked_delta(self.delta)
            if said := large_delta(delta, records):
                warnings.warn(said, PrivacyWarning, stacklevel=3)
            return delta
        warnings.warn(
            f"delta was not given; 1 / (10 * records) = {printed(1 / (10 * records))} is used.",
            PrivacyWarning,
            stacklevel=3,
        )
        return 1 / (10 * records)


def drawn_together(values: Array, noise: float) -> tuple[Array, float]:
    """Values drawn to their mean, as far as noise makes them differ (empirical Bayes).

    Also how much of its own each keeps: the part of their variance that noise does not explain.

    >>> drawn, own = drawn_together(np.array([0.1, 0.3, -0.1]), 0.2)
    >>> drawn.round(2).tolist(), own
    ([0.1, 0.1, 0.1], 0.0)
    >>> drawn_together(np.array([0.1, 0.3, 0.02]), 1e-3)[0].round(2).tolist()
    [0.1, 0.3, 0.02]
    """
    mean, spread = values.mean(), max(float(values.var()) - noise**2, 0.0)
    own = spread / (spread + noise**2) if spread else 0.0
    return np.asarray(mean + own * (values - mean)), own
