"""Noise that later steps take back in part: the coefficients of DP-FTRL's noise.

Step k adds noise·(ξ_k + l_1 ξ_{k−1} + l_2 ξ_{k−2} + …) with independent standard Gaussians ξ. What
is described is (1, l_1, l_2, …), the first column of a lower triangular Toeplitz matrix L. Allowed
are l_d ≤ 0 that add up to at least −1: noise is taken back and never more than there was. Then
L⁻¹ has no negative entry, which the theorems use (`theory.correlated`).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from lastiterate.description.fields import integer, number
from lastiterate.errors import DescriptionError


def read_correlation(field: str, value: Any) -> tuple[float, ...] | None:
    """Return the checked coefficients without trailing zeros; None for independent noise, (1,).

    >>> read_correlation("correlation", [1.0, -0.5, -0.125, 0.0])
    (1.0, -0.5, -0.125)
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise DescriptionError(field, value, "a list of coefficients, 1 first")
    found = [number(field, each) for each in value]
    if not found or found[0] != 1:
        raise DescriptionError(field, found[:1], "a list that begins with 1")
    if any(each > 0 for each in found[1:]) or sum(map(Fraction, found)) < 0:
        value = f"a list of sum {sum(found):g} and largest later value {max(found[1:]):g}"
        raise DescriptionError(field, value, "1, then numbers <= 0, with a sum >= 0")
    while found[-1] == 0:
        found.pop()
    return tuple(found) if len(found) > 1 else None


def fractional(power: float, length: int) -> tuple[float, ...]:
    """Return coefficients of (1 − x)^power: 0 independent noise, ½ DP-FTRL, 1 output noise.

    With power ½ and as many coefficients as steps the noise of all prefix sums is nearly the least
    that a given privacy against insiders allows; fewer coefficients (a band) need less memory.

    >>> fractional(0.5, 4)
    (1.0, -0.5, -0.125, -0.0625)
    """
    theta = number("power", power, at_least=0.0, at_most=1.0)
    values = [1.0]
    for d in range(1, integer("length", length)):
        values.append(values[-1] * (d - 1 - theta) / d + 0.0)
    return tuple(values)
