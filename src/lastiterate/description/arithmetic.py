"""What the processor does instead of real numbers: part of what is accounted.

Theorems speak of real numbers, machines add floats. A trainer states here how far its sums can be
from the exact ones and on which grid its parameters live; both enter the step sensitivity, so that
the noise covers them (docs/theory/arithmetic.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lastiterate.description.fields import at_least, check_fields, check_rules, field_, integer
from lastiterate.description.serialization import Serializable
from lastiterate.errors import DescriptionError

_COARSEST = 2.0**200  # a coarser grid hides nothing that a double could count
_ROUNDINGS = 4  # of a step on the grid: its map, its noise, its projection, and what these compute


@dataclass(frozen=True)
class Arithmetic(Serializable):
    """How far the computed run can be from the one in real numbers.

    Rounding to the grid g brings two runs closer or farther apart by up to g in every coordinate,
    at every step. Mean gradients (per unit of step size) are off by ``error`` at most: two runs
    that differ in one record differ by up to twice that much more, and are charged for it.

    >>> Arithmetic(error=1.5e-9).charge
    3e-09
    >>> Arithmetic(grid=2.0**-20, coordinates=16).grid_rounding == 16 * 2.0**-20
    True
    """

    table_name = "arithmetic"

    grid: float = field_(
        at_least(0, at_most=_COARSEST),
        "Spacing of released numbers, a power of two; 0: doubles.",
        default=0.0,
        always=True,
    )
    error: float = field_(
        at_least(0), "Bound on the error of a mean gradient.", default=0.0, always=True
    )
    coordinates: int = field_(integer, "Number of parameters that are rounded.", default=1)

    def __post_init__(self) -> None:
        check_fields(self, "arithmetic.")
        power_of_two = not self.grid or math.frexp(self.grid)[0] == 0.5
        check_rules(self, [(not power_of_two, "grid", "0 or a power of two")], "arithmetic.")

    @property
    def charge(self) -> float:
        """What rounding adds to the step sensitivity per unit of step size: twice the error."""
        return 2 * self.error

    @property
    def grid_rounding(self) -> float:
        """What the grid adds to the sensitivity of *every* step, whatever its size: 4 g √d.

        Rounded up. Steps that do not use the record are charged too: rounding is not Lipschitz, and
        two runs that are apart may be rounded to different sides.

        >>> Arithmetic(error=1.0).grid_rounding
        0.0
        """
        if not self.grid:
            return 0.0
        root = math.sqrt(self.coordinates)
        exact = math.isqrt(self.coordinates) ** 2 == self.coordinates
        rounding = _ROUNDINGS * self.grid * (root if exact else math.nextafter(root, math.inf))
        return math.nextafter(rounding, math.inf) if rounding < 2.0**-1000 else rounding


Exactness = Literal["exact"] | Arithmetic


def read_arithmetic(field: str, value: Any) -> Exactness:
    """Return an arithmetic, also from a table such as ``{"error": 1e-9}``, or "exact".

    >>> read_arithmetic("arithmetic", {"error": 1e-9})
    Arithmetic(grid=0.0, error=1e-09, coordinates=1)
    """
    if type(value) is Arithmetic:  # a subclass may count differently
        return value
    if isinstance(value, Mapping):
        return Arithmetic.from_dict(value)
    if not isinstance(value, str) or value != "exact":
        raise DescriptionError(field, value, "'exact' or Arithmetic(grid=, error=, coordinates=)")
    return "exact"
