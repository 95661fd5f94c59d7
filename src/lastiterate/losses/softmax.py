"""Softmax regression: one score per class.

The slope is p − e_y for a probability vector p, so its norm is below √2; the Hessian in the
scores, diag(p) − ppᵀ, has no eigenvalue above 1/2 (a variance of a variable with range at most
√2·‖v‖). Clipping the gradient of this loss breaks the contraction of a step for three or more
classes (docs/theory); clipping a margin has no meaning, as there is no single margin.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from lastiterate.errors import UnsupportedError
from lastiterate.losses.base import Array, ScorePerClass, bound
from lastiterate.losses.rounding import root_up, up


@dataclass(frozen=True)
class Softmax(ScorePerClass):
    """log Σ exp(scores) − score of the true class; labels 0, 1, ..., classes − 1.

    >>> Softmax(10).smoothness(2.0), Softmax(10).outputs()
    (2.0, 10)
    """

    classes: int

    origin_name = "softmax"

    @property
    def clipping(self) -> Literal["none", "margin"]:
        return "none"

    def gradient_norm(self, feature_bound: float) -> float:
        return root_up(2 * Fraction(bound(feature_bound)) ** 2)

    def smoothness(self, feature_bound: float) -> float:
        return up(Fraction(bound(feature_bound)) ** 2 / 2)

    def margin_limit(self, gradient_norm: float, feature_bound: float) -> float:
        raise UnsupportedError(
            "Softmax has one score per class, so there is no margin derivative to clip: use "
            "clipping='none' with bounded features, or OneVsRest with a binary loss."
        )

    def value(self, scores: Array, y: Array) -> Array:
        top = scores.max(axis=1, keepdims=True)
        total = np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0]
        return np.asarray(total - scores[np.arange(len(y)), y])

    def slope(self, scores: Array, y: Array) -> Array:
        slope: Array = scores - scores.max(axis=1, keepdims=True)
        np.exp(slope, out=slope)
        slope /= slope.sum(axis=1, keepdims=True)
        slope[np.arange(len(y)), y] -= 1
        return slope
