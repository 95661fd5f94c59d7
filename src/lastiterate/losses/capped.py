"""Logistic and softmax losses in which no record can push harder than a cap.

The slope of the softmax loss is p − e_y. Here the probability that a record gives to wrong classes,
1 − p_y, counts only up to ``cap``: if it is larger, p_y is set to 1 − cap and the wrong classes
share cap in their old proportions. So the gradient is at most √2·cap·R long (logistic: cap·R).

This is no gradient clipping, which would destroy convexity for three or more classes: it is the
gradient of another convex loss that is just as smooth. The softmax loss is the maximum over
probability vectors p of ⟨p − e_y, scores⟩ + entropy(p); restrict it to the convex set
p_y ≥ 1 − cap. A maximum of affine functions is convex, its gradient is p − e_y at the maximiser
(the one above, by Lagrange), and it is as smooth as the reciprocal of the strong convexity of
−entropy, which restricting p cannot lessen. So the hidden state may be used as for the plain loss.

A cap κ below 1/2 makes it smoother. Where the cap is not reached the wrong classes have w = 1 −
p_y ≤ κ and the curvature is diag(p) − ppᵀ: for two classes w(1 − w) in the margin, at most κ(1 −
κ). In general Gershgorin's row i gives 2 p_i(1 − p_i), where p_i ≤ w ≤ 1/2 for the wrong classes
and 1 − w for the right one, so at most 2κ(1 − κ). Where it is reached the logistic loss is linear,
and the softmax loss bends as κ(diag(r) − rrᵀ) with probabilities r of the wrong classes: at most
κ/2 ≤ 2κ(1 − κ). The slope is continuous where the two regions meet, so the larger constant holds
across them.

Nothing is lost in the limit: scores that are optimal for true class probabilities π satisfy
π_j ∝ p_j·max(1, (1 − p_j)/cap), which `probability` computes. Of two numbers with sum at most 1,
the larger one has the larger p·max(1, (1 − p)/cap), so the likeliest class has the highest score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import expit, log_expit, logsumexp, softmax

from lastiterate.description.fields import number
from lastiterate.losses.base import Array, bound
from lastiterate.losses.margin import BinaryLoss
from lastiterate.losses.rounding import root_up, up
from lastiterate.losses.softmax import Softmax


@dataclass(frozen=True)
class CappedLogistic(BinaryLoss):
    """The logistic loss, linear beyond the margin where the wrong class has probability ``cap``.

    >>> CappedLogistic(0.5).gradient_norm(1.0), CappedLogistic(0.5).smoothness(1.0)
    (0.5, 0.25)
    >>> CappedLogistic(0.25).smoothness(1.0)  # cap (1 - cap)
    0.1875
    """

    cap: float

    origin_name = "capped-logistic"

    def __post_init__(self) -> None:
        object.__setattr__(self, "cap", _cap(self.cap))

    @property
    def steepest(self) -> Fraction:
        return Fraction(self.cap)

    @property
    def sharpest(self) -> Fraction:
        return _bend(self.cap)

    def value(self, scores: Array, y: Array) -> Array:
        margin = scores * y
        linear = _entropy(self.cap) - self.cap * margin
        return np.where(expit(-margin) <= self.cap, -log_expit(margin), linear)

    def slope(self, scores: Array, y: Array) -> Array:
        return np.asarray(-y * np.minimum(expit(-scores * y), self.cap))

    def probability(self, scores: Array) -> Array:
        """The probability of +1 for which a score is optimal: where the two pulls balance."""
        up, down = (np.minimum(expit(sign * scores), self.cap) for sign in (1, -1))
        return np.asarray(up / (up + down))


@dataclass(frozen=True)
class CappedSoftmax(Softmax):
    """The softmax loss in which the wrong classes together pull with at most ``cap``.

    >>> CappedSoftmax(10, cap=0.5).smoothness(1.0) == Softmax(10).smoothness(1.0)
    True
    >>> CappedSoftmax(10, cap=0.25).smoothness(1.0)  # 2 cap (1 - cap)
    0.375
    """

    cap: float = 1.0

    origin_name = "capped-softmax"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "cap", _cap(self.cap))

    def gradient_norm(self, feature_bound: float) -> float:
        return root_up(2 * (Fraction(self.cap) * Fraction(bound(feature_bound))) ** 2)

    def smoothness(self, feature_bound: float) -> float:
        return up(2 * _bend(self.cap) * Fraction(bound(feature_bound)) ** 2)

    def value(self, scores: Array, y: Array) -> Array:
        everyone = np.arange(len(y))
        others = scores.copy()
        others[everyone, y] = -np.inf
        lead = logsumexp(others, axis=1) - scores[everyone, y]
        linear = _entropy(self.cap) + self.cap * lead
        return np.where(expit(lead) <= self.cap, np.logaddexp(0, lead), linear)

    def slope(self, scores: Array, y: Array) -> Array:
        slope = super().slope(scores, y)
        everyone = np.arange(len(y))
        wrong = -slope[everyone, y]  # 1 − p_y
        shrink = np.divide(self.cap, wrong, out=np.ones_like(wrong), where=wrong > self.cap)
        slope *= shrink[:, None]
        return slope

    def probability(self, scores: Array) -> Array:
        """The class probabilities for which scores are optimal: where all pulls balance."""
        p = softmax(scores, axis=1)
        balanced = p * np.maximum(1, (1 - p) / self.cap)
        return np.asarray(balanced / balanced.sum(axis=1, keepdims=True))


def _cap(value: float) -> float:
    return number("cap", value, above=0.0, at_most=1.0)


def _bend(cap: float) -> Fraction:
    """The largest w (1 - w) with w at most ``cap``."""
    widest = min(Fraction(cap), Fraction(1, 2))
    return widest * (1 - widest)


def _entropy(cap: float) -> float:
    """Of a coin with this bias; 0 at the ends."""
    return -sum(p * math.log(p) for p in (cap, 1 - cap) if p > 0)
