"""Private whitening: columns that go together are taken apart, by one more Gaussian mechanism.

Standardised rows are rescaled to length 1 and the mean of their x xᵀ is released: one full-batch
noisy step from 0 of ½‖Wᵀx − x‖², whose gradient there is −x xᵀ, no longer than ‖x‖² ≤ 1. What
follows is computed from the released matrix alone (docs/theory/preparation.md).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.losses import LinearLoss
from lastiterate.models.noisy_mean import ANY_LOSS, MOMENTS, noisy_mean
from lastiterate.models.rows import Rows
from lastiterate.models.scaler import PrivateStandardScaler
from lastiterate.models.unsealed import Unsealed
from lastiterate.noise.seeded import another
from lastiterate.train import Descent, noisy_descent
from lastiterate.train.summation import linear_arithmetic

Array = NDArray[Any]


@dataclass(frozen=True)
class _GivenBack(LinearLoss):
    """½‖Wᵀx − x‖²: how far a matrix is from giving rows back; a record's label is its row."""

    columns: int

    @property
    def clipping(self) -> Literal["none", "margin"]:
        return "none"

    def gradient_norm(self, feature_bound: float) -> float:
        return math.inf  # of any matrix; at 0 it is the squared length of the row

    def smoothness(self, feature_bound: float) -> float:
        return math.inf

    def outputs(self, classes: int | None = None) -> int:
        return self.columns

    def targets(self, labels: ArrayLike) -> Array:
        return np.asarray(labels, np.float64)

    def value(self, scores: Array, y: Array) -> Array:
        return np.asarray(((scores - y) ** 2).sum(axis=1) / 2)

    def slope(self, scores: Array, y: Array) -> Array:
        return np.asarray(scores - y)

    def margin_limit(self, gradient_norm: float, feature_bound: float) -> float:
        return gradient_norm / feature_bound


class Whitening:
    """A scaler, and the matrix that its rows are multiplied by.

    Attributes:
        scaler: what standardises the columns.
        matrix_: symmetric, computed from the noisy second moments.
        training_: the mechanism as a run of one step.
        certificate: what it cost, unsealed; None for experiments.

    >>> X = np.random.default_rng(0).normal(size=(20000, 1)) + [[0.0, 0.0]]
    >>> X[:, 1] += 0.1 * np.random.default_rng(1).normal(size=20000)
    >>> scaler = PrivateStandardScaler(1.0, 1e-6, low=-4.0, high=4.0, random_state=0).fit(X)
    >>> white = Whitening(scaler).learn(X, 1.0, 1e-6, 0)
    >>> before, after = (np.corrcoef(each.transform(X).T)[0, 1] for each in (scaler, white))
    >>> bool(after < before)
    True
    """

    def __init__(self, scaler: PrivateStandardScaler) -> None:
        self.scaler = scaler

    def learn(self, X: Array, epsilon: float, delta: float, seed: Any) -> Self:
        """Release the second moments of the rows with this epsilon by itself."""
        rows = self._rows(X)
        columns = rows.shape[1]
        self.training_ = noisy_mean(
            len(rows),
            1.0,
            self.scaler.adjacency,
            epsilon,
            delta,
            (columns, columns),
            lambda run: linear_arithmetic(run, _GivenBack(columns), columns),
        )
        released = self._release(rows, another(seed, MOMENTS))
        self.training_ = released.training  # what is certified is what was computed
        self.certificate = None
        if not released.experiment:
            self.certificate = Unsealed.of(released, ANY_LOSS, delta, self.parameters)
        return self

    @property
    def parameters(self) -> dict[str, Array]:
        """What the certificate is bound to."""
        return {"matrix_": self.matrix_}

    @property
    def bound(self) -> float | None:
        """As the scaler's: rows are usually as long as before."""
        return self.scaler.bound

    def transform(self, X: Any) -> Array:
        """Standardise, then multiply."""
        return np.asarray(self.scaler.transform(X) @ self.matrix_)

    def again(self, X: Array, removed: int | None, seed: int) -> Self:
        """A copy with statistics drawn anew, of other records; of one nothing is in them."""
        first, second = (int(s) for s in np.random.SeedSequence(seed).generate_state(2, np.uint64))
        other = copy.copy(self)
        other.scaler = self.scaler.again(X, removed, first)
        rows = other._rows(X)
        if removed is not None:
            rows[removed] = 0.0
        other._release(rows, second)
        return other

    def _rows(self, X: Array) -> Array:
        """Standardised and of length 1, or 0."""
        return np.asarray(Rows(None, fit_intercept=False).of(self.scaler.transform(X)))

    def _release(self, rows: Array, seed: Any) -> Descent:
        released = noisy_descent(
            _GivenBack(rows.shape[1]), rows, self.training_, labels=rows, random_state=seed
        )
        self.matrix_ = whitening(released.parameters, float(released.training.noises[0]))
        return released


def blur(noise: float, columns: int) -> float:
    """What noise on the entries of a matrix moves the eigenvalues of its symmetric part by."""
    return noise * math.sqrt(2 * columns)


def whitening(moments: Array, noise: float) -> Array:
    """M^(−1/2) of second moments M with so much noise on every entry; rows stay about as long.

    Noise on the symmetric part moves no eigenvalue by more than about ν = noise·√(2 columns): no
    direction counts as one of less than ν, which could not be told from nothing.

    >>> whitening(np.diag([0.9, 0.1]), 1e-4).round(2).tolist()
    [[0.75, 0.0], [0.0, 2.24]]
    """
    values, directions = np.linalg.eigh((moments + moments.T) / 2)
    values = np.maximum(values, blur(noise, len(moments)))
    factors = np.sqrt(values.mean() / values)
    return np.asarray((directions * factors) @ directions.T)
