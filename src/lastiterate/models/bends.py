"""Answers that bend: beside every prepared column waves of it, cosines and sines.

A linear model of x, cos(ωx) and sin(ωx) rises and falls along a column. Nothing of it is learnt:
the waves' lengths and widths follow from deviations that were released already, and rows are
rescaled or shortened afterwards as without it, so that a record's row, whatever its numbers are in
the last bit, is no longer than the noise is made for (docs/theory/preparation.md).
"""

from __future__ import annotations

import copy
import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lastiterate.models.scaler import PrivateStandardScaler
from lastiterate.models.whitening import Whitening

Array = NDArray[Any]
_TURN = 1.2  # radians for one deviation, of the longest wave
_SHARE = 0.5  # how wide a wave is beside its column


class Bends:
    """Prepared columns, then the cosines of all and their sines, once for every wave.

    For a normal column of mean 0 and deviation 1, cos(ωx) has the mean e^(−ω²/2) and the deviation
    (1 − e^(−ω²))/√2, and sin(ωx) the mean 0 and the deviation √((1 − e^(−2ω²))/2): by these, which
    no record knows, waves are centred, and made half as wide as their column.

    Args:
        inner: what prepares the columns; no further release follows.
        count: how many waves stand beside a column, each shorter than the one before.

    >>> X = np.random.default_rng(0).normal(3.0, 2.0, (20000, 1))
    >>> scaler = PrivateStandardScaler(9.0, 1e-6, low=-9.0, high=15.0, random_state=0).fit(X)
    >>> rows = Bends(scaler, 1).transform(X)
    >>> abs(rows.mean(axis=0)).round(1).tolist(), rows.std(axis=0).round(1).tolist()
    ([0.0, 0.0, 0.0], [1.0, 0.5, 0.5])
    """

    def __init__(self, inner: PrivateStandardScaler | Whitening, count: int) -> None:
        self.inner, self.count = inner, count

    @property
    def scaler(self) -> PrivateStandardScaler:
        """What standardises the columns."""
        return self.inner.scaler if isinstance(self.inner, Whitening) else self.inner

    @property
    def bound(self) -> float | None:
        """As without bends: rows are about as long as before."""
        return self.inner.bound

    @property
    def factor(self) -> float:
        """Where rows are shortened, and not rescaled, they have to be as long as before."""
        return 1.0 if self.bound is None else 1 / math.sqrt(1 + 2 * self.count * _SHARE**2)

    @property
    def waves(self) -> list[dict[str, Any]]:
        """Beside a prepared row x: cosine·(cos(pitch·x) − middle) and sine·sin(pitch·x)."""
        units = self.scaler.deviation_ / self.scaler.scale_  # root mean squares of the columns
        if isinstance(self.inner, Whitening):  # of all together: the columns are mixed
            units = np.full(len(units), math.sqrt(float(np.mean(units**2))))
        return [
            {
                "pitch": turn / units,
                "cosine": units * (_SHARE * math.sqrt(2) / -math.expm1(-(turn**2))),
                "middle": math.exp(-(turn**2) / 2),
                "sine": units * (_SHARE * math.sqrt(2 / -math.expm1(-2 * turn**2))),
            }
            for turn in (_TURN * (each + 1) for each in range(self.count))
        ]

    def transform(self, X: Any) -> Array:
        """Prepare, and append the waves."""
        rows = self.inner.transform(X)
        bent = np.empty((len(rows), wide(rows.shape[1], self.count)))
        parts = iter(np.split(bent, 1 + 2 * self.count, axis=1))
        next(parts)[:] = rows
        for wave, cosines, sines in zip(self.waves, parts, parts, strict=True):
            np.multiply(rows, wave["pitch"], out=cosines)
            np.sin(cosines, out=sines)
            np.cos(cosines, out=cosines)
            cosines -= wave["middle"]
            cosines *= wave["cosine"]
            sines *= wave["sine"]
        bent *= self.factor
        return bent

    def again(self, X: Array, removed: int | None, seed: int) -> Self:
        """A copy with statistics drawn anew, of other records; of one nothing is in them."""
        other = copy.copy(self)
        other.inner = self.inner.again(X, removed, seed)
        return other


def wide(columns: int, count: int) -> int:
    """How many columns a table of so many has with so many waves."""
    return columns * (1 + 2 * count)


def used_numbers(count: int) -> tuple[str, ...]:
    """What a model uses of its scaler, and the scaler's certificate is bound to."""
    return ("mean_", "scale_", "deviation_") if count else ("mean_", "scale_")
