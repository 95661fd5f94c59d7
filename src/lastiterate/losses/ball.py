"""The softmax loss in which no slope is longer than a radius: capped by a ball.

The softmax loss is the maximum over probability vectors p of ⟨p − e_y, scores⟩ + entropy(p); here
the maximum is over those with ‖p − e_y‖ ≤ c. It is convex, its gradient is p − e_y at the
maximiser, so at most c·R long, and it is as smooth as the reciprocal of the strong convexity of
−entropy, which restricting p cannot lessen (docs/theory/ball.md, with all proofs). `CappedSoftmax`
bounds the sum of the wrong classes instead: at the same length of gradients their share is at most
c/√2 there, and up to c·√((C − 1)/C) here, so that a record of which nothing is known yet pulls up
to √2 times as hard. For two classes both are the same loss.

**The maximiser.** Where the plain softmax is inside of the ball, it is that. Otherwise Lagrange's
conditions say log p_j + λ p_j = score_j + λ·1[j = y] − ν. Let d_j ≥ 0 be how far the score of a
wrong class is below the largest of theirs, which leads the right one by D. With r_j the ratio of
p_j to that of the largest and t = λ times the latter,

    log r_j = t(1 − r_j) − d_j,    p_j = c·r_j/n,    n² = Σr² + (Σr)²,    λ = t·n/c,

and what is left is one equation in t:

    F(t) = log(1 − c·Σr/n) + log(n/c) + D − t(1 + Σr) = 0.

A point with F(t) = f is the maximiser for scores in which the right class has f more, so a root
that is off by f in this sense gives a slope that is off by at most f/(2 + λ/2).

**Alone or with others.** Rows are computed together until the slowest is found. A number that is
found stays as it is meanwhile, so that the slope of a record, to the last bit, depends on no other:
calibration counts on that, and so do sums that are the same however records are divided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import entr

from lastiterate.description.fields import number
from lastiterate.losses.base import Array, bound
from lastiterate.losses.rounding import up
from lastiterate.losses.softmax import Softmax

NEAR_BY = 1 << 13  # numbers that stay in a core's own memory
HIGHEST = 32  # classes whose probabilities are found together
_AT_ONCE = 1 << 20  # numbers of `probability` that exist at the same time
_NEWTON, _BISECTIONS, _HALLEY = 24, 72, 40
_NEAR = 2.0**-18  # its third power is below what a double resolves


@dataclass(frozen=True)
class BallSoftmax(Softmax):
    """The softmax loss whose slope p − e_y is kept in the ball of this radius, at most 1.

    >>> loss = BallSoftmax(26, radius=0.75)
    >>> loss.gradient_norm(2.0), loss.smoothness(2.0)
    (1.5, 2.0)
    >>> BallSoftmax(26, radius=0.25).smoothness(1.0)  # 2 radius (1 - radius)
    0.375
    """

    radius: float = 0.75

    origin_name = "ball-softmax"

    def __post_init__(self) -> None:
        super().__post_init__()
        radius = number("radius", self.radius, above=0.0, at_most=1.0)
        object.__setattr__(self, "radius", radius)

    def gradient_norm(self, feature_bound: float) -> float:
        return up(Fraction(self.radius) * Fraction(bound(feature_bound)))

    def smoothness(self, feature_bound: float) -> float:
        widest = min(Fraction(self.radius), Fraction(1, 2))
        return up(2 * widest * (1 - widest) * Fraction(bound(feature_bound)) ** 2)

    def slope_roundings(self) -> Fraction:
        """What a computed slope is off, in 2⁻⁵³ of the radius (docs/theory/ball.md)."""
        C, c = self.classes, Fraction(self.radius)
        digits = math.ceil(C / c).bit_length()
        least = 1 - c * (1 - Fraction(1, 2 * C))  # no right class has less where the ball acts
        return (C + 8) * (512 + 32 * digits + 24 / c) / least

    def value(self, scores: Array, y: Array) -> Array:
        p = self.slope(scores.copy(), y)
        right = np.arange(len(y)), y
        linear = (p * (scores - scores[right][:, None])).sum(axis=1)
        p[right] += 1
        return np.asarray(linear + entr(np.maximum(p, 0)).sum(axis=1))

    def slope(self, scores: Array, y: Array) -> Array:
        plain = super().slope(scores, y)
        hit = y[:, None] == np.arange(self.classes)
        return np.asarray(in_ball(np, plain, scores, hit, self.radius))

    def probability(self, scores: Array) -> Array:
        """The class probabilities for which scores are optimal: where all pulls balance.

        With p⁽ʸ⁾ the maximiser for label y, the expected gradient vanishes where π = Σ_y π_y p⁽ʸ⁾:
        the stationary law of a chain that goes from y to j with probability p⁽ʸ⁾_j. Of many
        classes that is found for those with the highest scores; the others follow the last of
        them as in the plain softmax.
        """
        order = np.argsort(-scores, axis=1)  # hardly anything may leave the highest class
        if self.classes > HIGHEST:
            ranked, law = np.take_along_axis(scores, order, axis=1), np.empty(scores.shape)
            best = BallSoftmax(HIGHEST, self.radius).probability(ranked[:, :HIGHEST])
            rest = np.exp(ranked[:, HIGHEST:] - ranked[:, HIGHEST - 1 : HIGHEST])
            all_of_them = np.hstack([best, best[:, -1:] * rest])
            np.put_along_axis(law, order, all_of_them, axis=1)
            return np.asarray(law / law.sum(axis=1, keepdims=True))
        C, law = self.classes, np.empty(scores.shape)
        length = max(1, _AT_ONCE // C**2)
        for first in range(0, len(scores), length):
            some = slice(first, first + length)
            ranked = np.take_along_axis(scores[some], order[some], axis=1)
            each, labels = np.repeat(ranked, C, axis=0), np.tile(np.arange(C), len(ranked))
            moves = self.slope(each, labels).reshape(-1, C, C)
            np.put_along_axis(law[some], order[some], _stationary(moves), axis=1)
        return law


def in_ball(
    xp: Any, plain: Any, scores: Any, hit: Any, radius: float, at_once: int = NEAR_BY
) -> Any:
    """The slopes of the plain softmax, those outside of the ball replaced; in place.

    ``xp`` is NumPy or PyTorch; ``hit`` marks the label of every row; so many numbers
    are computed at once.
    """
    outside = xp.argwhere((plain * plain).sum(1) > radius**2)[:, 0]
    length = max(1, at_once // plain.shape[1])
    for first in range(0, len(outside), length):
        some = outside[first : first + length]
        if len(some) == 1:  # one column alone would be added up in another order
            some = some[[0, 0]]
        plain[some] = _on_sphere(xp, _lines(xp, scores[some]), _lines(xp, hit[some]), radius).T
    return plain


def _lines(xp: Any, rows: Any) -> Any:
    """One line of memory for every class: sums of few classes are slow along a row."""
    lines = xp.zeros_like(rows).reshape(rows.shape[1], -1)
    lines[:] = rows.T
    return lines


def _on_sphere(xp: Any, scores: Any, hit: Any, c: float) -> Any:
    """The slopes of columns whose plain slope is too long: Newton's method on F, or bisection."""
    C, unit = len(scores), float(xp.finfo(scores.dtype).eps) / 2
    right = xp.where(hit, scores, 0.0).sum(0)
    top = xp.amax(xp.where(hit, -math.inf, scores), 0)
    farthest = float(xp.finfo(scores.dtype).max)  # where r is 0 as well
    below = xp.clip(xp.where(hit, 0.0, top - scores), None, farthest)
    lead = top - right
    high = xp.clip((lead + math.log(math.sqrt(2) * C / c)) / 2, 0.0, None)
    low = t = xp.zeros_like(lead)
    log_r = -below
    for k in range(_NEWTON + _BISECTIONS):
        r = xp.exp(log_r)
        r[hit] = 0.0
        total = r.sum(0)
        n = xp.sqrt((r * r).sum(0) + total * total)
        wrong = c * total / n
        logs = xp.log1p(-wrong) + xp.log(n / c)
        F = logs + lead - t * (1 + total)
        done = abs(F) <= 2 * (C + 8) * unit * (abs(logs) + abs(lead) + t * (1 + total) + 1)
        if done.all():
            break
        turn = (1 - r) / (1 + t * r)  # of log r in t
        rise = r * turn
        turned = rise.sum(0)
        growth = ((r * rise).sum(0) + total * turned) / (n * n)  # of log n
        steep = growth - 1 - total - t * turned
        steep = steep - wrong * (turned / total - growth) / (1 - wrong)
        low, high = xp.where(F > 0, t, low), xp.where(F > 0, high, t)
        middle, newton = low + (high - low) / 2, t - F / steep
        inside = (newton > low) & (newton < high) & (k < _NEWTON)
        new = xp.where(done, t, xp.where(inside, newton, middle))
        found = _log_ratios(xp, new, below, log_r + turn * (new - t), unit)
        log_r = xp.where(done, log_r, found)
        t = new
    return xp.where(hit, -wrong, r * (c / n))


def _log_ratios(xp: Any, t: Any, below: Any, start: Any, unit: float) -> Any:
    """log r = t(1 − r) − d ≤ 0, by Halley's method from somewhere near.

    log r is concave in t, so a tangent starts above it, and the left side minus the right is
    convex in log r, so steps come down to the root.
    """
    away = t - below
    log_r = xp.clip(xp.where(start < away, start, away), None, 0.0)
    found = xp.isnan(log_r)
    for _ in range(_HALLEY):
        r = xp.exp(log_r)
        w = t * r
        g, slope = log_r + w - away, 1 + w
        after = xp.clip(log_r - g / slope / (1 - g / slope * (w / slope) / 2), None, 0.0)
        log_r = xp.where(found, log_r, after)
        # A step leaves the third power of what was left; of very small ratios nothing is left.
        small = (g >= 0) & (r * g <= 32 * unit * slope)
        found = found | (abs(g) <= _NEAR * slope) | small
        if found.all():
            break
    return log_r


def _stationary(moves: Array) -> Array:
    """The stationary laws of chains, from what goes elsewhere (off the diagonal) alone.

    Grassmann, Taksar and Heyman: states are taken out one by one, the first one last, without a
    subtraction, so that every probability is right relatively to itself. Overwrites ``moves``.
    """
    C = moves.shape[1]
    for k in range(C - 1, 0, -1):
        moves[:, :k, k] /= moves[:, k, :k].sum(axis=1)[:, None]
        moves[:, :k, :k] += moves[:, :k, k, None] * moves[:, k, None, :k]
    law = np.ones(moves.shape[:2])
    for k in range(1, C):
        law[:, k] = (law[:, :k] * moves[:, :k, k]).sum(axis=1)
    return np.asarray(law / law.sum(axis=1, keepdims=True))
