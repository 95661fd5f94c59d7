"""Noise that later steps take back in part: the coefficients of DP-FTRL's noise.

Step k adds noise·(ξ_k + l_1 ξ_{k−1} + l_2 ξ_{k−2} + …) with independent standard Gaussians ξ. What
is described is (1, l_1, l_2, …), the first column of a lower triangular Toeplitz matrix L. Allowed
are l_d ≤ 0 that add up to at least −1: noise is taken back and never more than there was. Then
L⁻¹ has no negative entry, which the theorems use (`bounds.correlated`).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from lastiterate.description.validation import number, whole
from lastiterate.errors import DescriptionError

_WHY = "guarantees for correlated noise are proved for noise that is taken back and no other"


def read_correlation(value: Any) -> tuple[float, ...] | None:
    """The coefficients, checked; trailing zeros are left out, and (1,) is independent noise: None.

    >>> read_correlation([1.0, -0.5, -0.125, 0.0])
    (1.0, -0.5, -0.125)
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise DescriptionError("correlation", value, "a list of coefficients, 1 first", _WHY)
    found = [number("correlation", each, _WHY) for each in value]
    if not found or found[0] != 1:
        shown = found[0] if found else "empty"
        raise DescriptionError("correlation", shown, "a list that begins with 1", _WHY)
    if any(each > 0 for each in found[1:]) or sum(map(Fraction, found)) < 0:
        shown = f"of sum {sum(found):g} with a largest later coefficient of {max(found[1:]):g}"
        allowed = "1, then numbers of at most 0, with a sum of at least 0"
        raise DescriptionError("correlation", shown, allowed, _WHY)
    while found[-1] == 0:
        found.pop()
    return tuple(found) if len(found) > 1 else None


def fractional(power: float, length: int) -> tuple[float, ...]:
    """The first coefficients of (1 − x)^power: 0 independent noise, ½ DP-FTRL, 1 output noise.

    With power ½ and as many coefficients as steps the noise of all prefix sums is nearly the least
    that a given privacy against insiders allows; fewer coefficients (a band) need less memory.

    >>> fractional(0.5, 4)
    (1.0, -0.5, -0.125, -0.0625)
    """
    why = "it is how much of the noise is taken back"
    theta = number("power", power, why, at_least=0.0, at_most=1.0)
    values = [1.0]
    for d in range(1, whole("length", length, "a step takes back the noise of so many before it")):
        values.append(values[-1] * (d - 1 - theta) / d + 0.0)
    return tuple(values)
