"""Values that are one number for all steps, or one number per step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lastiterate.errors import DescriptionError

Array = npt.NDArray[np.float64]
PerStep = float | Sequence[float] | Array


def per_step(value: PerStep, steps: int) -> Array:
    """One number per step; a single number is not copied.

    >>> per_step(0.5, 3).tolist()
    [0.5, 0.5, 0.5]
    """
    array = np.asarray(value, dtype=float)
    if array.ndim and len(array) != steps:
        raise DescriptionError(
            "per-step values", len(array), f"{steps} numbers", "every step needs its own"
        )
    return np.broadcast_to(array, (steps,))


def part(value: PerStep, first: int, last: int | None = None) -> PerStep:
    """The values of the steps from ``first`` up to ``last``; a single number stays one.

    >>> part([1.0, 2.0, 3.0], 1), part(0.5, 1)
    (array([2., 3.]), 0.5)
    """
    return value if np.ndim(value) == 0 else np.asarray(value, dtype=float)[first:last]
