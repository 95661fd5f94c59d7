"""The strongest record for a hidden-state adversary: one that crafts its own gradient.

Whoever sees only the last iterate gains most when the record pushes in one fixed direction at
every step, with the full length that clipping allows, where the other records push least (Cebere,
Bellet, Papernot 2024). Neighbours: the record pushes along +u or along −u ("replace"), or +u
against nothing ("zero-out").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
GradientFunction = Callable[[Array, NDArray[np.int64]], ArrayLike]


def quiet_direction(models: ArrayLike) -> Array:
    """Where reference models (one row each, trained without the record) vary least.

    >>> quiet_direction([[3.0, 1.0], [-3.0, 1.1], [1.0, 0.9]]).round(2).tolist()
    [0.02, 1.0]
    """
    rows = np.asarray(models, float)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(rows.T)))
    quiet: Array = vectors[:, int(np.argmin(values))]
    return np.asarray(quiet * np.sign(quiet[np.argmax(np.abs(quiet))]))


@dataclass(frozen=True)
class CraftedGradient:
    """A gradient function (see `noisy_descent`) in which one record pushes along ``push``.

    ``push`` = −K·u moves the parameters along +u by step_size·K/batch whenever the record is used;
    zeros are the dataset without it. Score the final parameters with `DirectionScore(u)`.
    """

    gradient: GradientFunction
    record: int
    push: Array

    def __call__(self, parameters: Array, indices: NDArray[np.int64]) -> Any:
        """One gradient per record in ``indices``."""
        rows = np.array(self.gradient(parameters, indices), dtype=np.float64)
        rows[np.asarray(indices) == self.record] = np.reshape(self.push, rows.shape[1:])
        return rows
