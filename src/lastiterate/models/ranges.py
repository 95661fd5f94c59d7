"""Declared ranges of columns: every value is clipped to that of its column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from lastiterate.errors import DescriptionError

Array = NDArray[Any]
_TRUTHS = {"bool": (0.0, 1.0), "boolean": (0.0, 1.0)}  # the second: where holes are possible
_INTEGERS = {
    kind: (float(np.iinfo(kind).min), float(np.iinfo(kind).max))
    for kind in ("uint8", "int8", "uint16", "int16")
}
_UNEVEN = 20.0  # ranges so different that the narrow ones are lost
_SHORTENED = 4.0  # how many times too long the longest possible row may be


def middle_and_half(low: Any, high: Any, columns: int, why: str) -> tuple[Array, Array]:
    """The middle and half the width of every column's range; raises unless low < high.

    >>> middle_and_half(0.0, [2.0, 4.0], 2, "values are clipped")
    (array([1., 2.]), array([1., 2.]))
    """
    try:
        lows = np.broadcast_to(np.asarray(low, np.float64), columns)
        highs = np.broadcast_to(np.asarray(high, np.float64), columns)
    except (TypeError, ValueError):
        allowed = f"numbers, or one number for each of {columns} columns"
        reason = "every column is clipped to its own range"
        raise DescriptionError("low, high", (low, high), allowed, reason) from None
    with np.errstate(over="ignore", invalid="ignore"):
        middle, half = (lows + highs) / 2, (highs - lows) / 2
    if not (np.isfinite(middle) & np.isfinite(half) & (half > 0)).all():
        allowed = "finite, low < high, and so is their difference"
        raise DescriptionError("low, high", (low, high), allowed, why)
    return middle, half


def public_ends(feature_range: Any, X: Any, columns: int) -> tuple[Array, Array]:
    """Low and high ends of the columns, as declared or by the type; infinite where unknown.

    Readers of tables downcast a column whose values all fit into a narrow type, so that one record
    decides: integers have the range of their type only if ``feature_range="dtype"`` says that the
    types are public.

    >>> low, high = public_ends((0.0, [1.0, np.inf]), np.zeros((2, 2), bool), 2)
    >>> low.tolist(), high.tolist()
    ([0.0, 0.0], [1.0, 1.0])
    >>> [end.tolist() for end in public_ends("dtype", np.zeros((2, 1), np.uint8), 1)]
    [[0.0], [255.0]]
    >>> [end.tolist() for end in public_ends(None, np.zeros((2, 1), np.uint8), 1)]
    [[-inf], [inf]]
    """
    kinds = getattr(X, "dtypes", None)  # a data frame has one per column
    if kinds is None or len(kinds) != columns:
        kinds = [getattr(X, "dtype", None)] * columns
    unknown = (-np.inf, np.inf)
    by_type = isinstance(feature_range, str) and feature_range == "dtype"
    known_types = _TRUTHS | _INTEGERS if by_type else _TRUTHS
    low, high = np.array([known_types.get(str(kind).lower(), unknown) for kind in kinds]).T.copy()
    if feature_range is None or by_type:
        return low, high
    why = "values are clipped to it, and what is declared must not be measured on them"
    try:
        first, last = feature_range
        told = [np.broadcast_to(np.asarray(end, np.float64), columns) for end in (first, last)]
    except (TypeError, ValueError):
        allowed = f"'dtype', or (low, high), each a number or one for each of {columns} columns"
        raise DescriptionError("feature_range", feature_range, allowed, why) from None
    known = np.isfinite(told[0]) & np.isfinite(told[1])
    middle_and_half(told[0][known], told[1][known], int(known.sum()), why)
    if not (known | ((told[0] == -np.inf) | (told[1] == np.inf))).all():
        allowed = "finite, or infinite where the range is not known"
        raise DescriptionError("feature_range", feature_range, allowed, why)
    return np.where(known, told[0], low), np.where(known, told[1], high)


def ill_placed(low: Array, high: Array, feature_bound: float | None) -> str:
    """What columns of these ranges lose if they are taken as they are; "" where nobody can say.

    >>> ill_placed(np.array([0.0, 0.0]), np.array([1.0, 1000.0]), None)
    'the widest column is 1,000 times as wide as another, which then counts for nothing'
    """
    if not np.isfinite(low).all():
        return ""
    reach = np.maximum(abs(low), abs(high))
    if feature_bound is None:
        times = float((high - low).max() / (high - low).min())
        said = f"the widest column is {times:,.4g} times as wide as another, which then counts for "
        return said + "nothing" if times > _UNEVEN else ""
    longest = float(np.linalg.norm(reach / reach.max()) * reach.max())
    said = f"a row can be {longest:,.4g} long, and is shortened to feature_bound"
    return said if longest > _SHORTENED * feature_bound else ""


@dataclass(frozen=True, eq=False)
class DeclaredRanges:
    """Columns mapped to [-1, 1] by their declared ranges: nothing is learnt, nothing is paid.

    A sparse table keeps its zeros: it is divided by the larger end.

    >>> DeclaredRanges(np.array([0.0]), np.array([4.0])).transform([[3.0], [9.0]]).tolist()
    [[0.5], [1.0]]
    """

    low: Array
    high: Array

    def transform(self, X: Any) -> Any:
        """Clip to the ranges, and map."""
        if sp.issparse(X):
            factors: Array = 1 / np.maximum(abs(self.low), abs(self.high))
            return sp.csr_array(sp.csr_array(X).multiply(factors))  # type: ignore[call-overload]
        middle, half = middle_and_half(self.low, self.high, len(self.low), "values are clipped")
        return unit(np.asarray(X), middle, half)


def unit(X: Array, middle: Array, half: Array) -> Array:
    """Values clipped to their ranges, as numbers in [-1, 1]."""
    inside = np.clip(X, middle - half, middle + half)  # a warning of overflow would tell
    return np.asarray(np.clip((inside - middle) / half, -1.0, 1.0))
