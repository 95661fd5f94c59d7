"""Floats that are never below an exact value.

Constants of losses become guarantees, so they are rounded up, and stay exact where they can be.
"""

from __future__ import annotations

import math
from fractions import Fraction


def up(exact: Fraction) -> float:
    """The smallest float that is not below an exact number.

    >>> up(Fraction(1, 4)), up(Fraction(1, 10)) >= Fraction(1, 10)
    (0.25, True)
    """
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def root_up(square: Fraction) -> float:
    """A float that is not below the root of an exact number.

    >>> root_up(Fraction(9)), Fraction(root_up(Fraction(2))) ** 2 >= 2
    (3.0, True)
    """
    root = math.sqrt(up(square))
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root
