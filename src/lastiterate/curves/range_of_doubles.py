"""What to do where numbers leave the range of doubles.

Descriptions accept every positive double, and ratios of two of them, or their squares, may not be
doubles any more. An upper bound that overflows is infinite; what has no value at all (inf - inf,
0 / 0, a power beyond all doubles) proves nothing, and must neither crash nor look like a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeVar

import numpy as np

Answer = TypeVar("Answer")
Fallback = TypeVar("Fallback")

OUT_OF_RANGE = (
    "its numbers leave the range of doubles; describe the run in another unit of the parameters, "
    "or with less extreme numbers"
)


def within_doubles(
    compute: Callable[[], Answer],
    otherwise: Fallback,
    *,
    overflow: Literal["ignore", "raise"] = "ignore",
) -> Answer | Fallback:
    """The computed value, or ``otherwise`` where its arithmetic has none.

    Args:
        compute: called once; numpy raises in it instead of making NaN.
        otherwise: what is true without the computation, such as an epsilon of infinity.
        overflow: "ignore" lets numpy overflow to infinity, which is safe for an upper bound;
            "raise" is for lower bounds.

    >>> within_doubles(lambda: 1e200**2, math.inf), within_doubles(lambda: math.inf - math.inf, 1.0)
    (inf, 1.0)
    """
    try:
        with np.errstate(over=overflow, divide="raise", invalid="raise"):
            answer = compute()
    except ArithmeticError:
        return otherwise
    missing = isinstance(answer, float) and math.isnan(answer)  # Python makes NaN silently
    return otherwise if missing else answer
