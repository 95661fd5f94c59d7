"""Sums of per-record gradients, each no longer than the description says.

The place where arrays are multiplied: everything else in this package is about the run. A linear
model never materialises a gradient per record: the norm of x ⊗ slope is ‖x‖·‖slope‖. Another
backend provides the same two methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.description import Loss, Training
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import LinearLoss
from lastiterate.losses.data import feature_bound_of, targets_of
from lastiterate.train.batches import Rows
from lastiterate.train.features import (
    Array,
    Matrix,
    block_length,
    check_rows,
    matrix,
    row_norms,
    sparse,
)
from lastiterate.train.result import Parameters

GradientFunction = Callable[[Parameters, NDArray[np.int64]], ArrayLike]

_OVER = 1 + 1e-9  # rounding of a gradient that somebody else computed


class Gradients(Protocol):
    """What the loop asks of a backend."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the parameters; None: whatever the start has."""

    @property
    def loss(self) -> Loss | None:
        """What is proved about the loss; None if nobody said."""

    def total(self, parameters: Parameters, rows: Rows) -> Parameters:
        """The sum of the (clipped) gradients of the records in ``rows``."""


class LinearGradients:
    """Gradients of a loss on a linear model; data dense or CSR, float64 or float32."""

    def __init__(
        self,
        objective: LinearLoss,
        data: Any,
        labels: ArrayLike | None,
        training: Training,
        regularization: float,
        feature_bound: float | None,
    ) -> None:
        self._objective = objective
        self._X = matrix(data, training.records)
        self._y = targets_of(objective, labels, training.records, self._X.dtype)
        norms = row_norms(self._X)
        R = feature_bound_of(objective, training, feature_bound)
        if R is not None:
            check_rows(norms, R)
        self._margin = self._norms = None
        if training.clipping == "margin":
            assert R is not None
            self._margin = objective.margin_limit(training.gradient_norm, R)
        elif training.clipping == "gradient":
            self._norms = norms
        self._longest = training.gradient_norm
        outputs = objective.outputs()
        self.shape = (self._X.shape[1],) if outputs == 1 else (self._X.shape[1], outputs)
        unknown = Loss.unknown(regularization=regularization, provenance="proved")
        self.loss = unknown if R is None else objective.regularity(R, regularization)

    def total(self, parameters: Parameters, rows: Rows) -> Parameters:
        """The sum of the (clipped) gradients of the records in ``rows``."""
        theta = parameters.astype(self._X.dtype, copy=False)
        if sparse(self._X):
            return self._block(theta, self._X if _everyone(rows, self._X) else self._X[rows], rows)
        # A block of rows is read from memory once and multiplied twice; sums of blocks are added
        # in double precision, so that rounding stays far below one record's share.
        total = np.zeros(self.shape)
        length = block_length(self._X)
        first, last = (rows.start, rows.stop) if isinstance(rows, slice) else (0, len(rows))
        for low in range(first, last, length):
            high = min(low + length, last)
            block = slice(low, high) if isinstance(rows, slice) else rows[low:high]
            total += self._block(theta, self._X[block], block)
        return total

    def _block(self, theta: Array, X: Matrix, rows: Rows) -> Array:
        slope = self._objective.slope(X @ theta, self._y[rows])
        if self._margin is not None:
            np.clip(slope, -self._margin, self._margin, out=slope)
        elif self._norms is not None:
            slope *= self._shortening(slope, self._norms[rows])
        return np.asarray(X.T @ slope)

    def _shortening(self, slope: Array, norms: NDArray[np.float64]) -> Array:
        """min(1, K/‖gradient‖) per record."""
        sizes = np.abs(slope) if slope.ndim == 1 else np.sqrt(np.einsum("ij,ij->i", slope, slope))
        factors = _shorten(sizes * norms, self._longest).astype(slope.dtype)
        return factors if slope.ndim == 1 else factors[:, None]


class CallableGradients:
    """Gradients that somebody else computes: (parameters, indices) -> one row per record."""

    shape = None
    loss = None

    def __init__(self, gradient: GradientFunction, training: Training) -> None:
        if training.clipping == "margin":
            raise UnsupportedError(
                "clipping='margin' needs a loss whose margin is known: pass a loss of "
                "lastiterate.losses, or use clipping='gradient'."
            )
        training.needs_gradient_norm("training")
        self._gradient = gradient
        self._training = training
        self._everyone = np.arange(training.records)

    def total(self, parameters: Parameters, rows: Rows) -> Parameters:
        """The sum of the (clipped) gradients of the records in ``rows``."""
        indices = self._everyone[rows]
        if not len(indices):  # a Poisson batch may be empty, and functions may not expect that
            return np.zeros_like(parameters)
        given = np.asarray(self._gradient(parameters.copy(), indices), dtype=np.float64)
        if given.shape != (len(indices), *parameters.shape):
            raise DescriptionError(
                "objective",
                f"a function that returned shape {given.shape}",
                f"one gradient per record, shape {(len(indices), *parameters.shape)}",
                "only per-record gradients can be kept short",
            )
        each = given.reshape(len(indices), parameters.size)
        norms = np.sqrt(np.einsum("ij,ij->i", each, each))
        K = self._training.gradient_norm
        if not np.isfinite(norms).all():
            raise AssumptionError("A per-record gradient is not finite: it has no bound.")
        if self._training.clipping == "gradient":
            each = each * _shorten(norms, K)[:, None]
        elif (norms > K * _OVER).any():
            raise AssumptionError(
                f"{np.count_nonzero(norms > K * _OVER)} per-record gradients are longer than "
                f"gradient_norm = {K:g}, which clipping='none' promises. Nothing was released. "
                "Use clipping='gradient' or a larger gradient_norm."
            )
        total: Parameters = each.sum(axis=0).reshape(parameters.shape)
        return total


def _everyone(rows: Rows, X: Matrix) -> bool:
    return isinstance(rows, slice) and rows == slice(0, X.shape[0])


def _shorten(norms: NDArray[Any], longest: float) -> NDArray[np.float64]:
    """min(1, K/norm), 1 for a vector of length 0."""
    factors = np.ones(len(norms))
    np.divide(longest, norms, out=factors, where=norms > longest)
    return factors
