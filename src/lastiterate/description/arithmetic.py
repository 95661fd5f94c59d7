"""What the processor does instead of real numbers: part of what is accounted.

Theorems speak of real numbers, machines add floats. A trainer knows how far its sums can be from
the exact ones and on which grid its parameters live, and says so here; both enter the impulse, so
that the noise pays for them (docs/theory/arithmetic.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lastiterate.description.validation import known_fields, number, whole
from lastiterate.errors import DescriptionError

_COARSEST = 2.0**200  # a coarser one hides nothing that a double could count
_ROUNDINGS = 4  # of a step on the grid: its map, its noise, its projection, and what these compute


@dataclass(frozen=True)
class Arithmetic:
    """How far the computed run can be from the one in real numbers.

    Args:
        grid: g, the spacing of the numbers that are released, a power of two; 0 where they are
            plain doubles. Rounding brings two runs closer or farther apart by up to g in every
            coordinate, at every step.
        error: the computed mean gradient (the sum of a batch over the nominal divisor, per unit of
            step size) is never farther from the exact one. Two runs that differ in one record
            differ by up to twice that much more, and are charged for it.
        coordinates: d, how many numbers are rounded to the grid: those of the parameters.

    >>> Arithmetic(error=1.5e-9).charge
    3e-09
    >>> Arithmetic(grid=2.0**-20, coordinates=16).slip == 16 * 2.0**-20
    True
    """

    grid: float = 0.0
    error: float = 0.0
    coordinates: int = 1

    def __post_init__(self) -> None:
        put = object.__setattr__
        why = "noise that is rounded to another grid could be told from the value it hides"
        grid = number("arithmetic.grid", self.grid, why, at_least=0.0, at_most=_COARSEST)
        if grid and math.frexp(grid)[0] != 0.5:
            raise DescriptionError("arithmetic.grid", grid, "0 or a power of two", why)
        put(self, "grid", grid)
        why = "what sums round moves two runs apart, and the noise must cover it"
        put(self, "error", number("arithmetic.error", self.error, why, at_least=0.0))
        why = "each of them is rounded to the grid"
        put(self, "coordinates", whole("arithmetic.coordinates", self.coordinates, why))

    @property
    def charge(self) -> float:
        """What rounding adds to the impulse per unit of step size: twice the error."""
        return 2 * self.error

    @property
    def slip(self) -> float:
        """What the grid adds to the impulse of *every* step, whatever its size: 4 g √d.

        Rounded up. Steps that do not use the record pay it too: rounding is not Lipschitz, and two
        runs that are apart may be rounded to different sides.

        >>> Arithmetic(error=1.0).slip
        0.0
        """
        if not self.grid:
            return 0.0
        root = math.sqrt(self.coordinates)
        exact = math.isqrt(self.coordinates) ** 2 == self.coordinates
        slip = _ROUNDINGS * self.grid * (root if exact else math.nextafter(root, math.inf))
        return math.nextafter(slip, math.inf) if slip < 2.0**-1000 else slip

    def to_dict(self) -> dict[str, float | int]:
        """As plain values; one coordinate is not mentioned."""
        table: dict[str, float | int] = {"grid": self.grid, "error": self.error}
        return table | {"coordinates": self.coordinates} if self.coordinates != 1 else table


Exactness = Literal["exact"] | Arithmetic


def read_arithmetic(value: Any) -> Exactness:
    """An arithmetic from its plain form: "exact", or a table such as ``{"error": 1e-9}``.

    >>> read_arithmetic({"error": 1e-9})
    Arithmetic(grid=0.0, error=1e-09, coordinates=1)
    """
    if type(value) is Arithmetic:  # a child may count in its own way
        return value
    if isinstance(value, Mapping):
        return Arithmetic(**known_fields("arithmetic", value, {"grid", "error", "coordinates"}))
    if not isinstance(value, str) or value != "exact":
        allowed = "'exact' or an Arithmetic(grid=, error=, coordinates=)"
        why = "a guarantee says whether it covers what floats round"
        raise DescriptionError("arithmetic", value, allowed, why)
    return "exact"
