"""For people: a guarantee is rounded up, what is known from below is rounded down, and strangers'
words hide nothing.

Rounding to nearest would print a number below the computed one half of the time. Every printed
epsilon, delta and mu goes through one of these functions.
"""

from __future__ import annotations

import unicodedata
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def printed(value: float, digits: int = 4) -> str:
    """A few digits, rounded up: a printed guarantee is never below the computed one.

    >>> printed(1.33601), printed(float("inf")), printed(1e-5)
    ('1.337', 'inf', '1e-05')
    """
    exact = _rounded(value, digits, ROUND_CEILING)
    text = f"{float(exact):.{digits}g}"
    # The smallest doubles have fewer digits than are asked for, and go down again.
    below = exact.is_finite() and Decimal(text) < exact
    return str(exact).lower() if below else text


def printed_down(value: float, digits: int = 4) -> str:
    """A few digits, rounded down: a printed lower bound is never above the computed one.

    >>> printed_down(12.34999), printed_down(3951.76, 5)
    ('12.34', '3951.7')
    """
    exact = _rounded(value, digits, ROUND_FLOOR)
    text = f"{float(exact):.12g}"
    above = exact.is_finite() and Decimal(text) > exact
    return str(exact).lower() if above else text


def percent(rate: float) -> str:
    """Three digits, rounded up: a printed detection rate is never below the computed one.

    >>> percent(0.012341), percent(1.0), percent(0.001)
    ('1.24 %', '100 %', '0.1 %')
    """
    return f"{float(_rounded(rate, 3, ROUND_CEILING, scale=100)):g} %"


def _rounded(value: float, digits: int, direction: str, scale: int = 1) -> Decimal:
    exact = Decimal(repr(float(value))) * scale  # a NumPy number prints its type as well
    return Context(prec=digits, rounding=direction).create_decimal(exact)


# Control characters, marks of direction and other formats, halves of characters, line separators.
_SPELLED = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def escaped(text: str) -> str:
    r"""The text with its control characters spelled out: none of a file's can move the cursor,
    overwrite a line, hide a letter or turn the direction of reading. Line ends and tabs stay.

    >>> print(escaped("not verified \x1b[2K\r verified"))
    not verified \x1b[2K\r verified
    """
    return "".join(
        sign if sign in "\n\t" or unicodedata.category(sign) not in _SPELLED else _spelled(sign)
        for sign in text
    )


def _spelled(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
