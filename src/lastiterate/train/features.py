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

from lastiterate.description.fields import number
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.train.norms import lengths, norm_room, sparse_lengths
from lastiterate.train.summation import MOST_ROWS

Array = NDArray[Any]
Matrix = Any  # NDArray or scipy.sparse.csr_array

_CACHE = 1 << 22  # bytes of rows that a core's share of the last cache holds


def matrix(data: Any, records: int | None = None) -> Matrix:
    """The features as a dense or CSR matrix of float64 or float32, without a copy if possible."""
    X: Matrix = np.asarray(data) if not sparse(data) else sp.csr_array(data)
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        found = f"an array of shape {X.shape} and type {X.dtype}"
        allowed = "a table of numbers, one row per record"
        why = "a gradient bound rests on the norm of every row"
        raise DescriptionError("data", found, allowed, why)
    if records is not None and X.shape[0] != records:
        allowed = f"training.records = {records} rows"
        why = "what is certified must be what runs"
        raise DescriptionError("data", f"{X.shape[0]} rows", allowed, why)
    if sparse(X):
        _whole(X)
    if sparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()  # entries of one place that are kept apart would hide its size
    return X if X.dtype in (np.float64, np.float32) else X.astype(np.float64)


def _whole(X: Matrix) -> None:
    """Raise unless indices lie inside of the table: a norm would be read from elsewhere."""
    try:
        X.check_format(full_check=True)
    except (ValueError, TypeError) as wrong:
        found = f"a sparse matrix whose parts contradict each other ({wrong})"
        allowed = "one with every index inside of its shape and rows one after another"
        why = "norms and gradients would be made of other memory than the records"
        raise DescriptionError("data", found, allowed, why) from None


def sparse(data: Any) -> bool:
    """Whether the data is a sparse matrix."""
    return bool(sp.issparse(data))


def row_norms(X: Matrix) -> NDArray[np.float64]:
    """The Euclidean norm of every row, rounded up; raises if a row is not finite.

    Infinite for a finite row whose norm is beyond all doubles: a fit must not end because of it.
    """
    finite = True
    if sparse(X):
        norms = sparse_lengths(X)
        finite = bool(np.isfinite(X.data).all())
    else:
        norms = np.empty(X.shape[0])
        rows = block_length(X)
        for first in range(0, len(norms), rows):
            block = X[first : first + rows].astype(np.float64, copy=False)
            norms[first : first + rows] = lengths(block)
            odd = ~np.isfinite(norms[first : first + rows])
            finite = finite and bool(np.isfinite(block[odd]).all())
    if not finite:
        raise AssumptionError(
            "The data has rows that hold NaN or infinity: their gradients have no bound. Fill or "
            "drop such rows before training."
        )
    return norms


def block_length(X: Matrix) -> int:
    """How many rows are multiplied at once: they stay in the caches of all cores together.

    Between the bounds that `summation` counts on.
    """
    if sparse(X):
        return MOST_ROWS
    rows = _CACHE * (os.cpu_count() or 1) // max(1, int(X.shape[1]) * 8)
    return min(MOST_ROWS, max(64, rows))


def check_rows(norms: NDArray[np.float64], feature_bound: float, columns: int) -> None:
    """Raise if a row is longer than the bound that the constants rest on.

    Not how many: an exact count of records is a release that nobody accounted for.
    """
    if (norms > feature_bound * (1 + norm_room(columns))).any():
        raise AssumptionError(
            f"The data has rows with a norm above {feature_bound:g}, the bound that "
            "gradient_norm and smoothness rest on (an intercept counts as a feature): their "
            "gradients would be longer than the noise is made for. Shorten them with "
            "lastiterate.train.bound_rows(X, feature_bound), or declare a larger bound."
        )


def bound_rows(data: Any, feature_bound: float) -> Matrix:
    """A copy of the features in which no row is longer than the bound; shorter rows stay.

    >>> bound_rows([[3.0, 4.0], [0.1, 0.0]], 1.0).round(6).tolist()
    [[0.6, 0.8], [0.1, 0.0]]
    """
    R = number("feature_bound", feature_bound, above=0.0)
    X = matrix(data)
    norms = row_norms(X)
    return rescaled(X, norms, R, norms > hair_below(R, X.dtype))


def hair_below(bound: float, dtype: Any) -> float:
    """A target for norms, so that rounding rows to their type cannot cross the bound."""
    kind = np.finfo(dtype)
    smallest = float(kind.tiny) / float(kind.eps) ** 2
    if bound < smallest:
        why = f"numbers of type {np.dtype(dtype)} are too coarse there for a bound to be kept"
        raise DescriptionError("feature_bound", bound, f"at least {smallest:.3g}", why)
    return bound * (1 - 4 * float(kind.eps))


def rescaled(X: Matrix, norms: NDArray[np.float64], bound: float, which: Array) -> Matrix:
    """A copy in which the chosen rows have norm ``bound``, or a hair less; zero rows stay.

    Rows are first divided by a power of two, so that no factor overflows or loses bits.
    """
    target = hair_below(bound, X.dtype)
    chosen = np.flatnonzero(which & (norms > 0))
    mantissa, power = np.frexp(norms[chosen])
    huge = np.isinf(norms[chosen])
    if huge.any():  # the norm of 2^-64 times such a row is a double
        some = X[chosen[huge]].astype(np.float64)
        mantissa[huge], power[huge] = np.frexp(row_norms(some * 2.0**-64))
        power[huge] += 64
    factors = target / mantissa
    if sparse(X):
        each = np.diff(X.indptr)
        full, shift = np.ones(len(norms)), np.zeros(len(norms), dtype=np.int64)
        full[chosen], shift[chosen] = factors, power
        values = np.ldexp(X.data.astype(np.float64), -np.repeat(shift, each))
        values *= np.repeat(full, each)
        return sp.csr_array((values.astype(X.dtype), X.indices.copy(), X.indptr.copy()), X.shape)
    answer = X.copy()
    length = block_length(X)
    with np.errstate(under="ignore"):
        for first in range(0, len(chosen), length):
            some = slice(first, first + length)
            rows = X[chosen[some]].astype(np.float64, copy=False)
            if np.abs(power[some]).max() < 1000:  # a product with a power of two is quicker
                rows *= np.ldexp(1.0, -power[some])[:, None]
            else:
                rows = np.ldexp(rows, -power[some, None])
            rows *= factors[some, None]
            answer[chosen[some]] = rows
    return answer
