"""Losses of one score: binary classification (labels -1 and +1) and regression.

The gradient of a record is φ'(score)·x, so it is at most sup|φ'|·R long and turns at most
sup φ''·R² fast. `MarginLoss` turns these two suprema into the constants; each loss states them.

| loss                                   | sup of the slope | sup of the curvature |
|----------------------------------------|------------------|----------------------|
| logistic                               | 1                | 1/4                  |
| Huber, threshold h                     | h                | 1                    |
| half squared error, slope clipped at h | h                | 1                    |
| smoothed hinge of width w              | 1                | 1/w                  |
| half squared hinge, slope clipped at h | h                | 1                    |

A convex φ keeps φ' nondecreasing when φ' is clipped, and clipping is 1-Lipschitz: clipped margin
derivatives stay the derivatives of a convex loss that is just as smooth.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit

from lastiterate.description.fields import number
from lastiterate.errors import DescriptionError
from lastiterate.losses.base import Array, LinearLoss, bound, real_labels, sign_labels
from lastiterate.losses.rounding import up


class MarginLoss(LinearLoss):
    """A loss φ(score, y) of one score."""

    @property
    def clipping(self) -> Literal["none", "margin"]:
        return "none"

    @property
    @abstractmethod
    def steepest(self) -> Fraction:
        """sup |φ'|."""

    @property
    @abstractmethod
    def sharpest(self) -> Fraction:
        """sup φ''."""

    def gradient_norm(self, feature_bound: float) -> float:
        return up(self.steepest * Fraction(bound(feature_bound)))

    def smoothness(self, feature_bound: float) -> float:
        return up(self.sharpest * Fraction(bound(feature_bound)) ** 2)

    def margin_limit(self, gradient_norm: float, feature_bound: float) -> float:
        return gradient_norm / feature_bound if feature_bound > 0 else 0.0

    def outputs(self, classes: int | None = None) -> int:
        return 1


class BinaryLoss(MarginLoss):
    """A margin loss for labels -1 and +1."""

    def targets(self, labels: ArrayLike) -> Array:
        return sign_labels(labels)

    def outputs(self, classes: int | None = None) -> int:
        if classes not in (None, 1, 2):
            raise DescriptionError(
                "classes", classes, "2", "one score tells two classes apart; use OneVsRest"
            )
        return 1


class RegressionLoss(MarginLoss):
    """A margin loss for labels that are numbers."""

    def targets(self, labels: ArrayLike) -> Array:
        return real_labels(labels)


@dataclass(frozen=True)
class Logistic(BinaryLoss):
    """log(1 + exp(−y·score)).

    >>> Logistic().gradient_norm(3.0), Logistic().smoothness(3.0)
    (3.0, 2.25)
    """

    origin_name = "logistic"
    steepest = Fraction(1)
    sharpest = Fraction(1, 4)

    def value(self, scores: Array, y: Array) -> Array:
        return np.negative(log_expit(scores * y))

    def slope(self, scores: Array, y: Array) -> Array:
        slope: Array = scores * y
        np.minimum(slope, _largest_exponent(slope), out=slope)
        np.exp(slope, out=slope)
        slope += 1
        np.divide(y, slope, out=slope)
        return np.negative(slope, out=slope)


@dataclass(frozen=True)
class Huber(RegressionLoss):
    """Half the squared error up to ``threshold``, then linear.

    >>> Huber(threshold=0.5).gradient_norm(2.0), Huber(threshold=0.5).smoothness(2.0)
    (1.0, 4.0)
    """

    threshold: float

    origin_name = "huber"
    sharpest = Fraction(1)

    def __post_init__(self) -> None:
        _limit(self, "threshold", self.threshold)

    @property
    def steepest(self) -> Fraction:
        return Fraction(self.threshold)

    def value(self, scores: Array, y: Array) -> Array:
        return _capped_square(np.abs(scores - y), self.threshold)

    def slope(self, scores: Array, y: Array) -> Array:
        error: Array = scores - y
        return np.clip(error, -self.threshold, self.threshold, out=error)


@dataclass(frozen=True)
class SquaredError(RegressionLoss):
    """Half the squared error, its margin derivative clipped at ``clip``.

    What is minimised is what the clipped derivative integrates to: `value` grows only linearly
    for errors beyond the clip.
    """

    clip: float

    origin_name = "squared-error"
    sharpest = Fraction(1)

    def __post_init__(self) -> None:
        _limit(self, "clip", self.clip)

    @property
    def clipping(self) -> Literal["none", "margin"]:
        return "margin"

    @property
    def steepest(self) -> Fraction:
        return Fraction(self.clip)

    def value(self, scores: Array, y: Array) -> Array:
        return _capped_square(np.abs(scores - y), self.clip)

    def slope(self, scores: Array, y: Array) -> Array:
        error: Array = scores - y
        return np.clip(error, -self.clip, self.clip, out=error)


@dataclass(frozen=True)
class SmoothedHinge(BinaryLoss):
    """The hinge max(0, 1 − y·score) with its corner rounded over a margin of ``width``.

    >>> SmoothedHinge(width=0.5).gradient_norm(1.0), SmoothedHinge(width=0.5).smoothness(1.0)
    (1.0, 2.0)
    """

    width: float

    origin_name = "smoothed-hinge"
    steepest = Fraction(1)

    def __post_init__(self) -> None:
        _limit(self, "width", self.width)

    @property
    def sharpest(self) -> Fraction:
        return 1 / Fraction(self.width)

    def value(self, scores: Array, y: Array) -> Array:
        short = np.maximum(1 - scores * y, 0)
        return _capped_square(short, self.width) / self.width

    def slope(self, scores: Array, y: Array) -> Array:
        short: Array = _shortfall(scores, y)
        short /= self.width
        np.clip(short, 0, 1, out=short)
        short *= y
        return np.negative(short, out=short)


@dataclass(frozen=True)
class SquaredHinge(BinaryLoss):
    """Half the squared hinge, its margin derivative clipped at ``clip``."""

    clip: float

    origin_name = "squared-hinge"
    sharpest = Fraction(1)

    def __post_init__(self) -> None:
        _limit(self, "clip", self.clip)

    @property
    def clipping(self) -> Literal["none", "margin"]:
        return "margin"

    @property
    def steepest(self) -> Fraction:
        return Fraction(self.clip)

    def value(self, scores: Array, y: Array) -> Array:
        return _capped_square(np.maximum(1 - scores * y, 0), self.clip)

    def slope(self, scores: Array, y: Array) -> Array:
        short: Array = _shortfall(scores, y)
        np.clip(short, 0, self.clip, out=short)
        short *= y
        return np.negative(short, out=short)


def _largest_exponent(values: Array) -> float:
    """exp of it does not overflow in the type of the values (and stays in that type)."""
    return math.log(float(np.finfo(values.dtype).max)) - 1


def _shortfall(scores: Array, y: Array) -> Array:
    """1 − y·score."""
    short: Array = scores * y
    return np.subtract(1, short, out=short)


def _capped_square(distance: Array, cap: float) -> Array:
    """t²/2 up to the cap, then its tangent."""
    inner = np.minimum(distance, cap)
    return inner * (distance - inner / 2)


def _limit(loss: MarginLoss, field: str, value: float) -> None:
    object.__setattr__(loss, field, number(field, value, above=0.0))
