"""What the processor does instead of real numbers: part of what is accounted.

Theorems speak of real numbers, machines add floats. A trainer knows how far its sums can be from
the exact ones and says so here; the number enters the impulse, so that the noise pays for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lastiterate.description.portable import known_fields
from lastiterate.description.validation import number
from lastiterate.errors import DescriptionError


@dataclass(frozen=True)
class Arithmetic:
    """How far the computed run can be from the one in real numbers.

    Args:
        grid: the spacing of the numbers that are released; 0 where they are plain doubles. Other
            values are refused until the accountant charges for them.
        error: the computed mean gradient (the sum of a batch over the nominal divisor, per unit of
            step size) is never farther from the exact one. Two runs that differ in one record
            differ by up to twice that much more, and are charged for it.

    >>> Arithmetic(error=1.5e-9).charge
    3e-09
    """

    grid: float = 0.0
    error: float = 0.0

    def __post_init__(self) -> None:
        why = "the spacing of released numbers is not charged yet, so that it must be none"
        object.__setattr__(self, "grid", number("arithmetic.grid", self.grid, why, at_least=0.0))
        if self.grid:
            raise DescriptionError("arithmetic.grid", self.grid, "0", why)
        why = "what sums round moves two runs apart, and the noise must cover it"
        error = number("arithmetic.error", self.error, why, at_least=0.0)
        object.__setattr__(self, "error", error)

    @property
    def charge(self) -> float:
        """What rounding adds to the impulse per unit of step size: twice the error."""
        return 2 * self.error

    def to_dict(self) -> dict[str, float]:
        """As plain values."""
        return {"grid": self.grid, "error": self.error}


Exactness = Literal["exact"] | Arithmetic


def read_arithmetic(value: Any) -> Exactness:
    """An arithmetic from its plain form: "exact", or a table such as ``{"error": 1e-9}``.

    >>> read_arithmetic({"error": 1e-9})
    Arithmetic(grid=0.0, error=1e-09)
    """
    if isinstance(value, Arithmetic):
        return value
    if isinstance(value, Mapping):
        return Arithmetic(**known_fields("arithmetic", value, {"grid", "error"}))
    if not isinstance(value, str) or value != "exact":
        raise DescriptionError(
            "arithmetic",
            value,
            "'exact' or an Arithmetic(grid=, error=)",
            "a guarantee says whether it covers what floats round",
        )
    return "exact"


def impulse_up(sensitivity: float, divisor: float, arithmetic: Exactness) -> float:
    """sensitivity/divisor + 2·error, rounded up: the one place where arithmetic is charged."""
    impulse = sensitivity / divisor
    if arithmetic == "exact" or not arithmetic.error:
        if sensitivity > 0 and impulse < 2.0**-1000:  # a quotient without its last bits
            return math.nextafter(impulse, math.inf)
        return impulse  # whoever multiplies it with a step size rounds up
    return math.nextafter((impulse + arithmetic.charge) * (1 + 2**-50), math.inf)
