"""Sums of per-record gradients, each no longer than the description says.

The place where arrays are multiplied: everything else in this package is about the run. A linear
model never materialises a gradient per record: the norm of x ⊗ slope is ‖x‖·‖slope‖.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from lastiterate.description import Arithmetic, Loss, Training
from lastiterate.description.batches import Rows
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import LinearLoss
from lastiterate.losses.data import feature_bound_of, targets_of, weights_of
from lastiterate.train.features import (
    Array,
    Matrix,
    block_length,
    check_rows,
    matrix,
    row_norms,
    sparse,
)
from lastiterate.train.grid import Parameters
from lastiterate.train.norms import SMALLEST, UNIT, lengths, shortening
from lastiterate.train.record_places import chunk_size, placed
from lastiterate.train.row_scores import row_scores
from lastiterate.train.summation import (
    CALLABLE_OVERSHOOT,
    gradient_arithmetic,
    least_rows,
    linear_arithmetic,
    score_error,
)

_VAST = 1e200  # scores of such rows may be infinity less infinity
GradientFunction = Callable[[Parameters, NDArray[np.int64]], ArrayLike]


class LinearGradients:
    """Gradients of a loss on a linear model; data dense or CSR, float64 or float32."""

    objection = ""  # their sums have a proved error

    def __init__(
        self,
        objective: LinearLoss,
        data: Any,
        labels: ArrayLike | None,
        training: Training,
        regularization: float,
        feature_bound: float | None,
        weights: ArrayLike | None = None,
    ) -> None:
        self._objective = objective
        self._X = matrix(data, training.records)
        if sparse(self._X):
            self._X = self._X.astype(np.float64, copy=False)
        self._length = block_length(self._X)  # counting cores takes as long as a small step
        columns = int(self._X.shape[1])
        self._y = targets_of(objective, labels, training.records, np.float64)
        self._weights = None if weights is None else weights_of(weights, training.records)
        norms = row_norms(self._X)
        R = feature_bound_of(objective, training, feature_bound)
        if R is not None:
            check_rows(norms, R, columns)
        self._margin = self._norms = None
        if training.clipping == "margin":
            assert R is not None
            self._margin = objective.margin_limit(training.gradient_norm, R)
        elif training.clipping == "gradient":
            self._norms = norms
        self._vast = bool((norms > _VAST).any())
        self._longest = training.gradient_norm
        outputs = objective.outputs()
        self.shape = (columns,) if outputs == 1 else (columns, outputs)
        self._arithmetic = linear_arithmetic(training, objective, columns, feature_bound=R)
        self.per_length = score_error(training, objective, columns, R)
        self.placeless = (
            not self.per_length and training.batches.moves_other_records and not sparse(self._X)
        )
        unknown = Loss.unknown(regularization=regularization, provenance="proved")
        self.loss = unknown if R is None else objective.regularity(R, regularization)

    def arithmetic(self, size: int) -> Arithmetic | None:
        """How far its sums can be off."""
        return self._arithmetic

    def total(self, parameters: Parameters, rows: Rows) -> Parameters:
        """The sum of the (clipped) gradients of the records in ``rows``."""
        # A block of rows is read from memory once and multiplied twice, in double precision
        # whatever the features are: only such sums have a proved error (`summation`).
        total = np.zeros(self.shape)
        length = self._length
        first, last = (rows.start, rows.stop) if isinstance(rows, slice) else (0, len(rows))
        for low in range(first, last, length):
            high = min(low + length, last)
            block = slice(low, high) if isinstance(rows, slice) else rows[low:high]
            total += self._block(parameters, self._rows(block), block)
        return total

    def content(self) -> Iterable[NDArray[Any]]:
        """Labels, weights and records in their order."""
        yield self._y
        if self._weights is not None:
            yield self._weights
        if sparse(self._X):
            yield from (self._X.indptr, self._X.indices, self._X.data)
            return
        length = self._length
        for first in range(0, self._X.shape[0], length):
            yield self._X[first : first + length]

    def _rows(self, block: Rows) -> Matrix:
        """Some rows in double precision; a range of sparse rows is not copied."""
        X = self._X
        if not sparse(X):
            return X[block].astype(np.float64, copy=False)
        if not isinstance(block, slice):
            return X[block]
        start, stop = X.indptr[block.start], X.indptr[block.stop]
        pointers = X.indptr[block.start : block.stop + 1] - start
        parts = (X.data[start:stop], X.indices[start:stop], pointers)
        return sp.csr_array(parts, (block.stop - block.start, X.shape[1]))

    def _block(self, theta: Array, X: Matrix, rows: Rows) -> Array:
        scores = row_scores(X, theta) if self.placeless else X @ theta
        slope = self._objective.slope(scores, self._y[rows])
        if self._vast:
            slope[np.isnan(slope)] = 0.0  # of a score of infinity less infinity
        if self._margin is not None:
            np.clip(slope, -self._margin, self._margin, out=slope)
        elif self._norms is not None:
            slope *= self._shortening(slope, self._norms[rows])
        if self._weights is not None:
            few = self._weights[rows]
            slope *= few if slope.ndim == 1 else few[:, None]
        return np.asarray(X.T @ slope)

    def _shortening(self, slope: Array, norms: NDArray[np.float64]) -> Array:
        """min(1, K/‖gradient‖) per record, rounded down."""
        sizes = np.abs(slope) if slope.ndim == 1 else lengths(slope)
        with np.errstate(under="ignore"):
            factors = shortening(sizes * norms * (1 + 4 * UNIT), self._longest)
        factors[norms * SMALLEST > self._longest] = 0.0  # K/‖x‖ would have no bits to spare
        return factors if slope.ndim == 1 else factors[:, None]


class CallableGradients:
    """Gradients that somebody else computes: (parameters, indices) -> one row per record."""

    shape = None
    loss = None
    objection = ""
    per_length = 0.0  # they are what the function computes

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
        # A record that joins a batch moves others; they keep their place in a chunk.
        self._places = training.batches.moves_other_records and chunk_size(
            training, training.records
        )

    def arithmetic(self, size: int) -> Arithmetic | None:
        """How far its sums of so many numbers can be off."""
        over = 0.0 if self._training.clipping == "gradient" else CALLABLE_OVERSHOOT
        return gradient_arithmetic(self._training, size, over)

    def content(self) -> Iterable[NDArray[Any]]:
        """The records as far as the function knows them (a method ``content``); else nothing."""
        told = getattr(self._gradient, "content", None)
        return told() if callable(told) else ()

    def total(self, parameters: Parameters, rows: Rows) -> Parameters:
        """The sum of the (clipped) gradients of the records in ``rows``."""
        indices = self._everyone[rows].copy()  # whoever writes there must not move later batches
        if not len(indices):  # a Poisson batch may be empty, and functions may not expect that
            return np.zeros_like(parameters)
        each = self._each(parameters, indices)
        norms = lengths(each)
        K = self._training.gradient_norm
        endless = ~np.isfinite(norms)
        if self._training.clipping == "gradient":
            # 0 is what clipping makes of it: a run that ended here would tell of the record.
            each = np.where(endless[:, None], 0.0, each) * shortening(norms, K)[:, None]
        elif not np.isfinite(each[endless]).all():
            raise AssumptionError("A per-record gradient is not finite: it has no bound.")
        elif (norms > K * (1 + CALLABLE_OVERSHOOT)).any():
            raise AssumptionError(
                f"A per-record gradient is longer than gradient_norm = {K:g}, which "
                "clipping='none' promises. Nothing was released. Use clipping='gradient' or a "
                "larger gradient_norm."
            )
        total = np.zeros(parameters.size)
        length = least_rows(parameters.size)
        for first in range(0, len(each), length):
            total += each[first : first + length].sum(axis=0)
        return total.reshape(parameters.shape)

    def _each(self, parameters: Parameters, indices: NDArray[np.int64]) -> Array:
        """One gradient per record, as rows; in random batches whoever else is in the batch.

        The function is then called for chunks of one size in which a record has one place
        (`record_places`): its products round alike in every batch.
        """
        alone = (slice(None), slice(None), indices)
        parts: Any = placed(indices, self._places) if self._places else [alone]
        each = np.empty((len(indices), parameters.size))
        for at, places, chunk in parts:
            given = np.asarray(self._gradient(parameters.copy(), chunk))
            if given.dtype.kind not in "biuf" or given.shape != (len(chunk), *parameters.shape):
                found = f"a function that returned {given.dtype}, shape {given.shape}"
                allowed = f"one gradient per record, real numbers of shape {parameters.shape}"
                raise DescriptionError("objective", found, allowed, "each is kept short by itself")
            each[at] = given.reshape(len(chunk), parameters.size)[places]
        return each
