"""Norms that are never too small, and factors that never leave a vector too long.

A square underflows below 1e-162 and overflows above 1e154, and a norm of 0 looks short enough for
everything. So rows outside of the safe range are divided by a power of two near their largest
entry first, which is exact; then the norm is rounded up by more than its d additions can lose, and
factors min(1, K/norm) are rounded down.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

UNIT = 2.0**-53
LOW, HIGH = 1e-200, 1e200  # sums of squares in between lost nothing to speak of
SMALLEST = 2.0**-900  # factors below would lose their last bits


def norm_room(columns: int) -> float:
    """How much longer than its bound a row may look: its norm was rounded up, and then some."""
    return 4 * (columns + 8) * UNIT


def lengths(rows: Floats) -> Floats:
    """The norm of every row (or a little more); not finite where a row is not, or its norm.

    >>> small, none = lengths(np.array([[3e-170, 4e-170], [0.0, 0.0]])).tolist()
    >>> 5e-170 <= small < 5.000001e-170, none
    (True, 0.0)
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
        norms = np.sqrt(squares)
        odd = ~((squares > LOW) & (squares < HIGH))
        if odd.any():
            norms[odd] = _scaled(np.ascontiguousarray(rows[odd]))
    return _up(norms, rows.shape[1])


def sparse_lengths(X: Any) -> Floats:
    """The norm of every row of a CSR matrix, likewise."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        squares = _squares(X, X.data.astype(np.float64))
        norms = np.sqrt(squares)
        odd = np.flatnonzero(~((squares > LOW) & (squares < HIGH)) & (np.diff(X.indptr) > 0))
        if len(odd):
            some = sp.csr_array(X[odd]).astype(np.float64)
            each = np.diff(some.indptr)
            top = np.maximum.reduceat(np.abs(some.data), some.indptr[:-1])  # no row is empty here
            power = np.frexp(top)[1]
            scaled = _squares(some, np.ldexp(some.data, -np.repeat(power, each)))
            norms[odd] = np.ldexp(np.sqrt(scaled), power)
    return _up(norms, X.shape[1])


def shortening(norms: Floats, longest: float) -> Floats:
    """min(1, longest/norm), rounded down; 0 where the quotient has no bits to spare.

    A vector multiplied by it, each entry rounded, is not longer than ``longest``.
    """
    factors = np.ones(len(norms))
    with np.errstate(over="ignore", under="ignore"):
        np.divide(longest, norms, out=factors, where=norms > longest)
        factors[norms > longest] *= 1 - 8 * UNIT
    factors[factors < SMALLEST] = 0.0
    return factors


def _up(norms: Floats, columns: int) -> Floats:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        raised = norms * (1 + (columns + 8) * UNIT)
        tiny = (norms > 0) & (norms < 2.0**-960)
        if tiny.any():  # a product of so small numbers can round down
            raised[tiny] = np.nextafter(raised[tiny], np.inf)
    return raised


def _scaled(rows: Floats) -> Floats:
    power = np.frexp(np.abs(rows).max(axis=1, initial=0.0))[1]
    near = np.ldexp(rows, -power[:, None])
    norms: Floats = np.ldexp(np.sqrt(np.einsum("ij,ij->i", near, near)), power)
    return norms


def _squares(X: Any, values: Floats) -> Floats:
    table = sp.csr_array((values * values, X.indices, X.indptr), X.shape)
    return np.asarray(table @ np.ones(X.shape[1]))
