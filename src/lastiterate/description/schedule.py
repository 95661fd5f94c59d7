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

from lastiterate.description.fields import number
from lastiterate.errors import DescriptionError

Array = NDArray[np.float64]


class Schedule:
    """A read-only array of one finite, non-negative number per step.

    >>> Schedule("step_size", [0.1, 0.2, 0.3])
    Schedule of 3 values from 0.1 to 0.3
    """

    __slots__ = ("values",)
    values: Array

    def __init__(self, field: str, values: Iterable[float]) -> None:
        array = _as_floats(field, values)
        bad = ~np.isfinite(array) | (array < 0)
        if bad.any():
            k = int(np.argmax(bad))
            raise DescriptionError(f"{field}[{k}]", float(array[k]), "a finite number >= 0")
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
        """Return the schedule with every value multiplied."""
        with np.errstate(over="ignore"):  # infinite values raise
            values = self.values * factor
        return Schedule("schedule", values)


def per_step(field: str, value: Any) -> float | Schedule:
    """Return a number, or a schedule from one number per step (read once: maybe a generator)."""
    if isinstance(value, Schedule):
        return value
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return Schedule(field, value)
    return number(field, value, at_least=0)


def equalising(batches: int) -> Array:
    """Return the factors of the last epoch's steps with which every position costs the same.

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
        value, allowed = "a list with other values", "a number or a flat list of numbers"
        raise DescriptionError(field, value, allowed)
    try:
        array = np.array(source, dtype=np.float64)
    except OverflowError:
        array = np.array([np.inf])
    if array.ndim != 1 or array.size == 0:
        value, allowed = f"an array of shape {array.shape}", "a number or a flat, non-empty list"
        raise DescriptionError(field, value, allowed)
    return array + 0.0  # -0.0 equals 0.0, so it must hash like it
