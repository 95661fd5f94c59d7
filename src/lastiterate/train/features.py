"""Reading features: dense or sparse, finite, and no row longer than it may be.

The proved constants of a linear model's loss rest on a bound on the norm of every row. It is
checked before training, strictly, in double precision; `bound_rows` makes rows that pass.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from lastiterate.description.validation import number
from lastiterate.errors import AssumptionError, DescriptionError

Array = NDArray[Any]
Matrix = Any  # NDArray or scipy.sparse.csr_array

_ULPS = 8 * np.finfo(np.float64).eps  # rounding of the norms themselves
_CACHE = 1 << 22  # bytes of rows that a core's share of the last cache holds


def matrix(data: Any, records: int | None = None) -> Matrix:
    """The features as a dense or CSR matrix of float64 or float32, without a copy if possible."""
    X: Matrix = np.asarray(data) if not sparse(data) else sp.csr_array(data)
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise DescriptionError(
            "data",
            f"an array of shape {X.shape} and type {X.dtype}",
            "a table of numbers, one row per record",
            "a gradient bound rests on the norm of every row",
        )
    if records is not None and X.shape[0] != records:
        raise DescriptionError(
            "data",
            f"{X.shape[0]} rows",
            f"training.records = {records} rows",
            "what is certified must be what runs",
        )
    if sparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()  # entries of one place that are kept apart would hide its size
    return X if X.dtype in (np.float64, np.float32) else X.astype(np.float64)


def sparse(data: Any) -> bool:
    """Whether the data is a sparse matrix."""
    return bool(sp.issparse(data))


def row_norms(X: Matrix) -> NDArray[np.float64]:
    """The Euclidean norm of every row, in double precision; raises if a value is not finite."""
    norms: NDArray[np.float64]
    with np.errstate(over="ignore", invalid="ignore"):
        if sparse(X):
            squares = sp.csr_array((X.data.astype(np.float64) ** 2, X.indices, X.indptr), X.shape)
            norms = np.sqrt(squares @ np.ones(X.shape[1]))
        else:
            norms = np.empty(X.shape[0])
            rows = block_length(X)
            for first in range(0, len(norms), rows):
                block = X[first : first + rows].astype(np.float64, copy=False)
                norms[first : first + rows] = np.sqrt(np.einsum("ij,ij->i", block, block))
    wrong = np.count_nonzero(~np.isfinite(norms))
    if wrong:
        raise AssumptionError(
            f"{wrong} of {len(norms)} rows of the data hold NaN, infinity or values too large to "
            "square: their gradients have no bound. Fill or drop such rows before training."
        )
    return norms


def block_length(X: Matrix) -> int:
    """How many rows of a dense matrix stay in the caches of all cores together."""
    row = max(1, int(X.shape[1]) * int(X.dtype.itemsize))
    return max(64, _CACHE * (os.cpu_count() or 1) // row)


def check_rows(norms: NDArray[np.float64], feature_bound: float) -> None:
    """Raise if a row is longer than the bound that the constants rest on."""
    longer = np.count_nonzero(norms > feature_bound * (1 + _ULPS))
    if longer:
        raise AssumptionError(
            f"{longer} of {len(norms)} rows have a norm above {feature_bound:g}, the bound that "
            "gradient_norm and smoothness rest on (an intercept counts as a feature): their "
            "gradients would be longer than the noise is made for. Shorten them with "
            "lastiterate.train.bound_rows(X, feature_bound), or declare a larger bound."
        )


def bound_rows(data: Any, feature_bound: float) -> Matrix:
    """A copy of the features in which no row is longer than the bound; shorter rows stay.

    >>> bound_rows([[3.0, 4.0], [0.1, 0.0]], 1.0).round(6).tolist()
    [[0.6, 0.8], [0.1, 0.0]]
    """
    R = number("feature_bound", feature_bound, "no row may be longer", above=0.0)
    X = matrix(data)
    norms = row_norms(X)
    # A hair below the bound, so that rounding to the type of X cannot cross it.
    target = R * (1 - 4 * np.finfo(X.dtype).eps)
    factors = np.where(norms > target, target / np.maximum(norms, target), 1.0)
    if sparse(X):
        return sp.csr_array(sp.diags_array(factors.astype(X.dtype)) @ X)
    return X * factors.astype(X.dtype)[:, None]
