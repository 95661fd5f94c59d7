"""Answers that bend: beside every prepared column its cosine and its sine.

A linear model of x, cos(ωx) and sin(ωx) rises and falls along a column. Nothing of it is learnt:
the wave's length and the weights follow from deviations that were released already, and rows are
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
TIMES = 3  # as many columns as before
_TURN = 1.2  # radians for one deviation
_SHARE = 0.5  # how wide a wave is beside its column


class Bends:
    """Prepared columns, then their cosines, then their sines.

    For a normal column of mean 0 and deviation 1, cos(ωx) has the mean e^(−ω²/2) and the deviation
    (1 − e^(−ω²))/√2, and sin(ωx) the mean 0 and the deviation √((1 − e^(−2ω²))/2): by these, which
    no record knows, waves are centred, and made half as wide as their column.

    Args:
        inner: what prepares the columns; no further release follows.

    >>> X = np.random.default_rng(0).normal(3.0, 2.0, (20000, 1))
    >>> scaler = PrivateStandardScaler(9.0, 1e-6, low=-9.0, high=15.0, random_state=0).fit(X)
    >>> rows = Bends(scaler).transform(X)
    >>> abs(rows.mean(axis=0)).round(1).tolist(), rows.std(axis=0).round(1).tolist()
    ([0.0, 0.0, 0.0], [1.0, 0.5, 0.5])
    """

    def __init__(self, inner: PrivateStandardScaler | Whitening) -> None:
        self.inner = inner

    @property
    def scaler(self) -> PrivateStandardScaler:
        """What standardises the columns."""
        return self.inner.scaler if isinstance(self.inner, Whitening) else self.inner

    @property
    def bound(self) -> float | None:
        """As without bends: rows are about as long as before."""
        return self.inner.bound

    @property
    def waves(self) -> dict[str, Any]:
        """Of a prepared row x: (x, cosine·(cos(pitch·x) − middle), sine·sin(pitch·x))·factor."""
        units = self.scaler.deviation_ / self.scaler.scale_  # root mean squares of the columns
        if isinstance(self.inner, Whitening):  # of all together: the columns are mixed
            units = np.full(len(units), math.sqrt(float(np.mean(units**2))))
        return {
            "pitch": _TURN / units,
            "cosine": units * (_SHARE * math.sqrt(2) / -math.expm1(-(_TURN**2))),
            "middle": math.exp(-(_TURN**2) / 2),
            "sine": units * (_SHARE * math.sqrt(2 / -math.expm1(-2 * _TURN**2))),
            # Where rows are shortened, and not rescaled, they have to be as long as before.
            "factor": 1.0 if self.bound is None else 1 / math.sqrt(1 + 2 * _SHARE**2),
        }

    def transform(self, X: Any) -> Array:
        """Prepare, and append the waves."""
        rows, waves = self.inner.transform(X), self.waves
        columns = rows.shape[1]
        bent = np.empty((len(rows), TIMES * columns))
        plain, cosines, sines = np.split(bent, TIMES, axis=1)
        plain[:] = rows
        phases = np.multiply(rows, waves["pitch"], out=rows)
        np.cos(phases, out=cosines)
        np.sin(phases, out=sines)
        cosines -= waves["middle"]
        cosines *= waves["cosine"]
        sines *= waves["sine"]
        bent *= waves["factor"]
        return bent

    def again(self, X: Array, removed: int | None, seed: int) -> Self:
        """A copy with statistics drawn anew, of other records; of one nothing is in them."""
        other = copy.copy(self)
        other.inner = self.inner.again(X, removed, seed)
        return other


def used_numbers(curved: bool) -> tuple[str, ...]:
    """What a model uses of its scaler, and the scaler's certificate is bound to."""
    return ("mean_", "scale_", "deviation_") if curved else ("mean_", "scale_")
