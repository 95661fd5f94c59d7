"""Numbers for people: a guarantee is rounded up, what is known from below is rounded down.

Rounding to nearest would print a number below the computed one half of the time. Every printed
epsilon, delta and mu goes through one of these two functions.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def printed(value: float, digits: int = 4) -> str:
    """A few digits, rounded up: a printed guarantee is never below the computed one.

    >>> printed(1.33601), printed(float("inf")), printed(1e-5)
    ('1.337', 'inf', '1e-05')
    """
    return f"{_rounded(value, digits, ROUND_CEILING):.{digits}g}"


def printed_down(value: float, digits: int = 4) -> str:
    """A few digits, rounded down: a printed lower bound is never above the computed one.

    >>> printed_down(12.34999), printed_down(3951.76, 5)
    ('12.34', '3951.7')
    """
    return f"{_rounded(value, digits, ROUND_FLOOR):.12g}"


def _rounded(value: float, digits: int, direction: str) -> float:
    exact = repr(float(value))  # a NumPy number prints its type as well
    return float(Context(prec=digits, rounding=direction).create_decimal(exact))
