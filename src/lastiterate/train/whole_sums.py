"""Sums of gradients in whole numbers, the same in any order and however records are divided.

A disk is read in pieces and a cluster adds in whatever order its workers answer, so the sum must
not depend on either. Features are rounded once, towards zero, to 23 bits of the bound on rows: the
data set is then that one, and no row is longer. Parameters and slopes are whole numbers of 51 bits
of the largest, cut into three limbs of 17. Then every product, and every partial sum of up to 8,192
of them, is a whole number of at most 23 + 17 + 13 = 53 bits, which doubles add without rounding, by
whatever library, in whatever order; blocks are added as integers.

**Statement.** The computed scores are within γ_{d+8}·R·‖θ‖ of exact ones (what `score_error`
charges), and a computed sum of m gradients differs from that of the described slopes by at most
m·K·4γ_{C+8} and what turning three limbs into a double rounds (`whole_arithmetic`).

*Proof.* A parameter moves by half a unit, t·2⁻⁵² for a power of two t < 2·max|θ|, that is by less
than 4u·max|θ|, u = 2⁻⁵³: a score by less than 4u·√d·R·‖θ‖. Limbs have the sign of what they are cut
from, so adding three of them rounds by less than 3u·R·‖θ‖. And 4√d + 3 ≤ d + 8. A slope moves by
half a unit as well, at most t·2⁻⁵² with t < 2K/R: √C of them times R are at most 4√C·u·K. Cutting
off at t moves no slope away from an exact one, all of which are at most K/R long. ∎
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import UnsupportedError
from lastiterate.losses import LinearLoss
from lastiterate.losses.rounding import up

Array = NDArray[Any]
Limbs = NDArray[np.int64]
"""A sum: high and low halves (32 bits) of three limbs of every parameter; (2, 3, columns, C)."""

_FEATURE, _LIMB, _HALF = 23, 17, 32  # bits
_WHOLE = 3 * _LIMB
MOST_ROWS = MOST_COLUMNS = 1 << (53 - _FEATURE - _LIMB)
_NEAR = 1 << 18  # numbers of a block that stay in a core's caches
_EXPONENTS = 200  # of bounds, either way: far from where doubles end


@dataclass(frozen=True)
class WholeSums:
    """The sums of one loss on rows of one width, in units that public bounds fix.

    >>> from lastiterate.losses import Logistic
    >>> sums = WholeSums(Logistic(), columns=2, feature_bound=1.0, gradient_norm=1.0)
    >>> X, y = sums.features(np.eye(2)), np.array([1.0, -1.0])
    >>> both, parts = sums.of(np.zeros(2), X, y), [sums.of(np.zeros(2), X[:1], y[:1])]
    >>> parts.append(sums.of(np.zeros(2), X[1:], y[1:]))
    >>> sums.value(both).tolist(), bool((both == sum(parts)).all())
    ([-0.5, 0.5], True)
    """

    objective: LinearLoss
    columns: int
    feature_bound: float
    gradient_norm: float

    def __post_init__(self) -> None:
        steep = self._steepest
        sizes = [abs(math.frexp(bound)[1]) for bound in (self.feature_bound, steep)]
        if self.columns > MOST_COLUMNS or max(sizes) > _EXPONENTS or not math.isfinite(steep):
            raise UnsupportedError(
                f"Sums in whole numbers are for up to {MOST_COLUMNS} columns (here: "
                f"{self.columns}), and for rows and slopes of ordinary size (here: up to "
                f"{self.feature_bound:g} and {steep:g}). Take fewer columns or other units, or "
                "train in memory."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the parameters."""
        outputs = self.objective.outputs()
        return (self.columns,) if outputs == 1 else (self.columns, outputs)

    @property
    def _feature(self) -> float:
        """One unit of a feature."""
        return math.ldexp(1.0, math.frexp(self.feature_bound)[1] - _FEATURE)

    @property
    def _steepest(self) -> float:
        """No exact slope is longer."""
        return up(Fraction(self.gradient_norm) / Fraction(self.feature_bound))

    @property
    def _slope(self) -> float:
        """One unit of a slope."""
        return math.ldexp(1.0, math.frexp(self._steepest)[1] - _WHOLE)

    def features(self, rows: Array) -> NDArray[np.float32]:
        """Rows in whole numbers of their unit, rounded towards zero; a float32 holds them.

        >>> from lastiterate.losses import Logistic
        >>> WholeSums(Logistic(), 1, 0.75, 1.0).features(np.array([[0.5], [-1e-9]])).tolist()
        [[4194304.0], [-0.0]]
        """
        top = float(1 << _FEATURE)
        whole = np.trunc(rows.astype(np.float64) * (1 / self._feature))
        return np.clip(whole, -top, top, out=whole).astype(np.float32)

    def of(self, parameters: Array, X: Array, y: Array) -> Limbs:
        """Σ of the gradients of these records at these parameters.

        Args:
            parameters: of shape `shape`.
            X: rows in their unit (`features`).
            y: targets of the loss.
        """
        outputs = self.objective.outputs()
        theta = parameters.reshape(self.columns, outputs)
        largest = math.frexp(float(np.abs(theta).max(initial=0.0)))[1]
        unit = math.ldexp(1.0, max(largest, -4 * _EXPONENTS) - _WHOLE)
        cut, scale = _limbs(np.rint(theta / unit)), unit * self._feature
        total = np.zeros((2, 3, self.columns, outputs), np.int64)
        length = max(64, min(MOST_ROWS, _NEAR // self.columns))
        for first in range(0, len(X), length):
            some = slice(first, first + length)
            block = X[some].astype(np.float64)
            scores = _joined(_split(block @ cut)) * scale
            slope = self.objective.slope(scores if outputs > 1 else scores[:, 0], y[some])
            whole = np.rint(slope.reshape(-1, outputs) * (1 / self._slope))
            top = float(1 << _WHOLE)
            added = _split(block.T @ _limbs(np.clip(whole, -top, top))).astype(np.int64)
            high = added >> _HALF
            total[0] += high
            total[1] += added - (high << _HALF)
        return total

    def value(self, total: Limbs) -> NDArray[np.float64]:
        """What a sum stands for."""
        high, low = total.astype(np.float64)
        gradient: NDArray[np.float64] = _joined(high * 2.0**_HALF + low)
        return (gradient * (self._feature * self._slope)).reshape(self.shape)


def _limbs(whole: Array) -> Array:
    """Whole numbers of up to 51 bits in three limbs of their sign, the highest first."""
    high = np.trunc(whole * 2.0 ** (-2 * _LIMB))
    rest = whole - high * 2.0 ** (2 * _LIMB)
    middle = np.trunc(rest * 2.0**-_LIMB)
    return np.hstack([high, middle, rest - middle * 2.0**_LIMB])


def _split(products: Array) -> Array:
    """(rows, 3·C) as three tables (3, rows, C)."""
    return np.ascontiguousarray(products.reshape(len(products), 3, -1).transpose(1, 0, 2))


def _joined(limbs: Array) -> Array:
    high, middle, low = limbs
    joined: Array = (high * 2.0 ** (2 * _LIMB) + middle * 2.0**_LIMB) + low
    return joined
