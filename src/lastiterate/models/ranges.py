"""Declared ranges of columns: every value is clipped to that of its column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import DescriptionError

Array = NDArray[Any]


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
