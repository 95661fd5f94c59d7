"""What a loss on a linear model is.

A record with features x and label y scores θᵀx (one number, or one per output). Its loss depends
on the scores alone, so its gradient is x ⊗ slope, and two numbers follow from a bound R on the
norm of x: how long the gradient can be and how fast it can turn. Both are proved here, rounded up.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.description import Loss, Origin
from lastiterate.description.fields import integer, number
from lastiterate.errors import DescriptionError

Array = NDArray[Any]


class LinearLoss(ABC):
    """A convex loss of the scores of a linear model, with proved constants.

    Features include the intercept's column, if there is one: R bounds the whole row.
    """

    origin_name: ClassVar[str | None] = None  # under which `Origin` derives the constants again

    @property
    @abstractmethod
    def clipping(self) -> Literal["none", "margin"]:
        """How the gradient is kept short: by the loss itself, or by a clipped margin derivative."""

    @abstractmethod
    def gradient_norm(self, feature_bound: float) -> float:
        """No record with features of norm at most ``feature_bound`` has a longer gradient."""

    @abstractmethod
    def smoothness(self, feature_bound: float) -> float:
        """The gradient of one such record turns at most this fast."""

    @abstractmethod
    def outputs(self, classes: int | None = None) -> int:
        """Scores per record; raises if the loss cannot tell so many classes apart."""

    @abstractmethod
    def targets(self, labels: ArrayLike) -> Array:
        """The labels as `value` and `slope` want them; raises if they cannot be read."""

    @abstractmethod
    def value(self, scores: Array, y: Array) -> Array:
        """The loss of every record, shape (n,)."""

    @abstractmethod
    def slope(self, scores: Array, y: Array) -> Array:
        """The derivative of every record's loss in its scores, shaped like the scores."""

    @abstractmethod
    def margin_limit(self, gradient_norm: float, feature_bound: float) -> float:
        """Where to clip each margin derivative so that no gradient is longer than the bound."""

    def at_zero(self) -> float:
        """No record's loss is larger where all scores are 0; numbers as labels within ±1.

        >>> from lastiterate.losses import Huber, Softmax
        >>> Huber(0.5).at_zero(), round(Softmax(4).at_zero(), 4)
        (0.375, 1.3863)
        """
        scores = np.zeros(1 if self.outputs() == 1 else (1, self.outputs()))
        return float(self.value(scores, self.targets([1]))[0])

    def regularity(self, feature_bound: float, regularization: float = 0.0) -> Loss:
        """What the accountant needs to know, vouched for by this library.

        >>> from lastiterate.losses import Logistic
        >>> print(Logistic().regularity(2.0, regularization=0.01))
        convex, 1-smooth, L2 term 0.01 (proved)
        """
        return Loss(
            smoothness=self.smoothness(feature_bound),
            regularization=regularization,
            provenance="proved",
            origin=self.origin(feature_bound),
        )

    def origin(self, feature_bound: float) -> Origin | None:
        """What the constants can be derived from again; None for a loss of somebody else.

        A subclass inherits no proof: what it overrides, this library has not looked at.
        """
        name = vars(type(self)).get("origin_name")
        if name is None:
            return None
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        classes = settings.pop("classes", None)
        limit = next(iter(settings.values()), None)
        return Origin(name, bound(feature_bound), limit, classes)


class ScorePerClass(LinearLoss):
    """A loss with one score for each of its classes; labels 0, 1, ..., classes - 1."""

    classes: int

    def __post_init__(self) -> None:
        count = integer("classes", self.classes, at_least=2)
        object.__setattr__(self, "classes", count)

    def outputs(self, classes: int | None = None) -> int:
        if classes not in (None, self.classes):
            why = "each class has its own score"
            raise DescriptionError("classes", classes, str(self.classes), why)
        return self.classes

    def targets(self, labels: ArrayLike) -> Array:
        return class_labels(labels, self.classes)


def bound(feature_bound: float) -> float:
    """R, checked."""
    return number("feature_bound", feature_bound, at_least=0.0)


def real_labels(labels: ArrayLike) -> NDArray[np.float64]:
    """Labels of a regression: finite numbers."""
    y = np.asarray(labels)
    if y.dtype.kind not in "biuf" or y.ndim != 1:
        raise _labels(f"an array of shape {y.shape} and type {y.dtype}", "one number per record")
    y = y.astype(np.float64)
    if not np.isfinite(y).all():
        raise _labels("not always finite", "finite numbers")
    return y


def sign_labels(labels: ArrayLike) -> NDArray[np.float64]:
    """Labels of two classes: -1 and +1."""
    y = real_labels(labels)
    if not np.isin(y, (-1.0, 1.0)).all():
        raise _labels("something else in places", "-1 or +1 for every record")
    return y


def class_labels(labels: ArrayLike, classes: int) -> NDArray[np.int64]:
    """Labels of several classes: 0, 1, ..., classes - 1."""
    y = real_labels(labels)
    if not ((y >= 0) & (y < classes) & (y == np.floor(y))).all():
        raise _labels("something else in places", f"a whole number from 0 to {classes - 1}")
    return y.astype(np.int64)


def _labels(found: str, allowed: str) -> DescriptionError:
    why = "a gradient bound is proved only for labels that the loss knows"
    return DescriptionError("labels", found, allowed, why)
