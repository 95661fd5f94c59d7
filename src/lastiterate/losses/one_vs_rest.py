"""Several classes as several binary problems that share one budget.

The C binary gradients of a record are stacked into one vector: its norm is at most √C times the
binary bound, while the Hessian is block diagonal, so the smoothness is the binary one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from lastiterate.description import Origin
from lastiterate.errors import DescriptionError
from lastiterate.losses.base import Array, ScorePerClass, bound
from lastiterate.losses.margin import BinaryLoss
from lastiterate.losses.rounding import root_up


@dataclass(frozen=True)
class OneVsRest(ScorePerClass):
    """The sum over classes of a binary loss "this class against the rest".

    >>> from lastiterate.losses import Logistic
    >>> OneVsRest(Logistic(), classes=4).gradient_norm(1.0)
    2.0
    """

    binary: BinaryLoss
    classes: int

    def __post_init__(self) -> None:
        if not isinstance(self.binary, BinaryLoss):
            why = "each class is told from the rest by a loss of one score and labels -1, +1"
            raise DescriptionError("binary", self.binary, "a binary loss such as Logistic()", why)
        super().__post_init__()

    @property
    def clipping(self) -> Literal["none", "margin"]:
        return self.binary.clipping

    def gradient_norm(self, feature_bound: float) -> float:
        return root_up(self.classes * (self.binary.steepest * Fraction(bound(feature_bound))) ** 2)

    def smoothness(self, feature_bound: float) -> float:
        return self.binary.smoothness(feature_bound)

    def origin(self, feature_bound: float) -> Origin | None:
        each = self.binary.origin(feature_bound) if type(self) is OneVsRest else None
        return None if each is None else replace(each, classes=self.classes)

    def margin_limit(self, gradient_norm: float, feature_bound: float) -> float:
        return self.binary.margin_limit(gradient_norm, feature_bound * self.classes**0.5)

    def value(self, scores: Array, y: Array) -> Array:
        return np.asarray(self.binary.value(scores, self._signs(scores, y)).sum(axis=1))

    def slope(self, scores: Array, y: Array) -> Array:
        return self.binary.slope(scores, self._signs(scores, y))

    def _signs(self, scores: Array, y: Array) -> Array:
        signs = np.full_like(scores, -1)
        signs[np.arange(len(y)), y] = 1
        return signs
