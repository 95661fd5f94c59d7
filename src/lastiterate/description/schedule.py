"""One value per step, immutable.

A run's step sizes and noises may change from step to step. `Schedule` keeps such a list as a
read-only array that can be compared, hashed and printed, so that descriptions stay frozen values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import DescriptionError

Array = NDArray[np.float64]


class Schedule:
    """A read-only array of one finite, non-negative number per step.

    >>> Schedule("step_size", [0.1, 0.2, 0.3])
    Schedule of 3 values from 0.1 to 0.3
    """

    __slots__ = ("values",)
    values: Array

    def __init__(self, field: str, values: Iterable[float], *, positive: bool = False) -> None:
        array = _as_floats(field, values)
        bad = ~np.isfinite(array) | ((array <= 0) if positive else (array < 0))
        if bad.any():
            k = int(np.argmax(bad))
            allowed = "a positive finite number" if positive else "a finite number of at least 0"
            raise DescriptionError(
                f"{field}[{k}]", float(array[k]), allowed, "each step has its own value"
            )
        array.flags.writeable = False
        object.__setattr__(self, "values", array)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Schedule is immutable; make a new one")

    def __reduce__(self) -> tuple[Any, ...]:
        return Schedule, ("schedule", self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[float]:
        return iter(self.values.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __repr__(self) -> str:
        low, high = self.values.min(), self.values.max()
        return f"Schedule of {len(self)} values from {low:g} to {high:g}"

    def scaled(self, factor: float) -> Schedule:
        """The same shape, every value multiplied."""
        with np.errstate(over="ignore"):  # infinite values are refused
            values = self.values * factor
        return Schedule("schedule", values)


def equalising(batches: int) -> Array:
    """What the last epoch's steps are multiplied by to cost the same at every position.

    >>> equalising(4).round(4)
    array([1.    , 0.866 , 0.7071, 0.5   ])
    """
    return np.sqrt(np.arange(batches, 0, -1) / batches)


def _as_floats(field: str, values: Iterable[Any]) -> Array:
    source = values if isinstance(values, np.ndarray) else list(values)
    if isinstance(source, np.ndarray):
        numeric = source.dtype.kind in "iuf"
    else:  # a set of types: a million values have one or two
        kinds: set[type] = set(map(type, source))
        numeric = all(kind is not bool and issubclass(kind, Real) for kind in kinds)
    if not numeric:
        allowed = "a number or a flat list of numbers"
        why = "every step has one value"
        raise DescriptionError(field, "a list with something else in it", allowed, why)
    try:
        array = np.array(source, dtype=np.float64)
    except OverflowError:
        array = np.array([np.inf])
    if array.ndim != 1 or array.size == 0:
        allowed = "a number or a flat, non-empty list"
        why = "every step has one value"
        raise DescriptionError(field, f"an array of shape {array.shape}", allowed, why)
    return array + 0.0  # -0.0 equals 0.0, so it must hash like it
