"""Which whole number a Gaussian rounds to, decided without error, in Python's integers.

The Gaussian is a function of two uniform numbers of which any number of bits can be had. What
doubles cannot decide is decided here: numbers are kept between two integers over 2^p, and as long
as the two ends round differently, more bits of the *same* uniforms are drawn. Nothing is ever
drawn anew, which would prefer the values that are easy to decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache

RADIUS_BITS = 63  # of a radius word; its top bit is a sign
ANGLE_BITS = 64
MORE = 64  # bits that a uniform gets at a time
Interval = tuple[int, int]

_SPARE = 16  # bits beyond those that are known, for what the operations here round


def decided(
    scale: float, radius_word: int, angle_word: int, more: Callable[[], int]
) -> tuple[int, int]:
    """The two whole numbers that a pair of words stands for: round(scale·X), round(scale·Y).

    **Statement.** Let u be uniform on (0, 1), f on [−1, 1), and σ a sign, all independent. Then
    X = σ·√(−2 ln u)·cos(πf/2) and Y = σ·√(−2 ln u)·sin(πf/2) are independent standard Gaussians.
    A radius word is σ and the first 63 bits of u, an angle word the first 64 bits of (f + 1)/2
    (with the top bit inverted: a signed integer over 2^63); the others come from ``more``. Returned
    is what u, f and σ imply, whatever the bits: floor(scale·X + 1/2) and floor(scale·Y + 1/2).

    *Proof.* Box-Muller for the right half of the circle, and the sign for the left. u is between
    two fractions that differ by one in the last known bit, and so is f; `_between` are enclosures
    of monotone functions of them, rounded outwards; where the two ends of an enclosure round to
    the same number, so does what they enclose. The ends meet as bits are added, so that the loop
    ends with probability one (X and Y hit a half-integer over scale with probability zero). ∎

    Args:
        scale: a finite number at least 0, taken as the rational number that it is.
        radius_word, angle_word: 64 random bits each.
        more: 64 fresh random bits a call.

    >>> decided(1000.0, (1 << 63) | (1 << 62), 0, more=lambda: 1 << 63)  # −√(2 ln 2)·1000, 0
    (-1177, 0)
    """
    numerator, denominator = scale.as_integer_ratio()
    for p, ends in _enclosures(radius_word, angle_word, more):
        # The ends are integers over 2^(2p); floor(x + 1/2) with x = end·scale.
        half = denominator << (2 * p - 1)
        whole = [[(end * numerator + half) // (2 * half) for end in interval] for interval in ends]
        if all(low == high for low, high in whole):
            return whole[0][0], whole[1][0]
    raise AssertionError("bits do not end")


def decided_around(mean: Fraction, variance: Fraction, more: Callable[[], int]) -> int:
    """floor(mean + √variance·X + 1/2), X a standard Gaussian: the Gaussian of any centre, rounded.

    Decided as in `decided`: √variance is enclosed as well, more narrowly the more bits are known.

    >>> from itertools import cycle
    >>> words = cycle([1 << 62, 0])                  # X = √(2 ln 2), which is 1.177...
    >>> decided_around(Fraction(1, 3), Fraction(100), lambda: next(words))
    12
    """
    over, under = variance.as_integer_ratio()
    for p, (ends, _) in _enclosures(more(), more(), more):
        root = math.isqrt((over << (2 * p)) // under)
        low, high = _product((root, root + 1), (min(ends), max(ends)))  # over 2^(3p)
        unit = mean.denominator << (3 * p + 1)
        middle = (2 * mean.numerator + mean.denominator) << (3 * p)
        least, most = ((2 * mean.denominator * end + middle) // unit for end in (low, high))
        if least == most:
            return least
    raise AssertionError("bits do not end")


def _enclosures(
    radius_word: int, angle_word: int, more: Callable[[], int]
) -> Iterator[tuple[int, list[Interval]]]:
    """p, and the two ends of X and of Y over 2^(2p), for ever more bits of the same words.

    Whichever end is the smaller one: a sign turns them around.
    """
    sign = -1 if radius_word >> RADIUS_BITS else 1
    u, known = radius_word & ((1 << RADIUS_BITS) - 1), RADIUS_BITS
    f = angle_word - (1 << ANGLE_BITS) if angle_word >> (ANGLE_BITS - 1) else angle_word
    while True:
        u, f, known = (u << MORE) | more(), (f << MORE) | more(), known + MORE
        if not u:  # the outermost cell: anything may be farther out
            continue
        p = known + _SPARE
        radius = _radius(u, known, p)
        axes = _axes(f, known, p)
        products = [_product(radius, axis) for axis in axes]
        yield p, [(sign * low, sign * high) for low, high in products]


def _radius(u: int, known: int, p: int) -> Interval:
    """√(−2 ln v) over 2^p, for every v in [u, u + 1]·2^−known."""
    below, _ = _minus_log(u + 1, known, p)
    _, above = _minus_log(u, known, p)
    return math.isqrt(max(2 * below, 0) << p), math.isqrt((2 * above) << p) + 1


def _minus_log(a: int, known: int, p: int) -> Interval:
    """−ln(a/2^known) over 2^p, for 0 < a ≤ 2^known.

    a/2^known = m/2^k with 3/4 < m ≤ 3/2 and k ≥ 0; ln m = 2·artanh(s), s = (m − 1)/(m + 1).
    """
    top = a.bit_length()
    if 4 * a <= 3 << top:
        top -= 1
    k, one = known - top, 1 << top
    low, high = _artanh(a - one, a + one, p)
    two_low, two_high = log_2(p)
    return k * two_low - 2 * high, k * two_high - 2 * low


def _artanh(n: int, d: int, p: int) -> Interval:
    """artanh(n/d) over 2^p for |n/d| ≤ 1/3.

    Σ s^(2j+1)/(2j+1). Every power is a product of two truncated numbers and truncated itself: off
    by less than 2 units (the errors shrink by s² ≤ 1/9 from one to the next), and so is each of
    its quotients. What comes after the last of J terms is less than 1/8 of a unit plus that.
    """
    s = (abs(n) << p) // d
    square, power, total, j = (s * s) >> p, s, 0, 1
    while power:
        total += power // j
        power = (power * square) >> p
        j += 2
    off = 2 * j
    return (total - off, total + off) if n >= 0 else (-total - off, -total + off)


@lru_cache(maxsize=16)
def log_2(p: int) -> Interval:
    """ln 2 = 2·artanh(1/3)."""
    low, high = _artanh(1, 3, p)
    return 2 * low, 2 * high


@lru_cache(maxsize=16)
def quarter_pi(p: int) -> Interval:
    """π/4 over 2^p, by Machin: 4·arctan(1/5) − arctan(1/239)."""
    total, off = 0, 1
    for factor, x in ((4, 5), (-1, 239)):
        power, j, sign = (1 << p) // x, 1, 1
        while power:
            total += sign * factor * (power // j)
            power //= x * x
            j, sign, off = j + 2, -sign, off + 2 * abs(factor)
    return total - off, total + off


def _axes(f: int, known: int, p: int) -> tuple[Interval, Interval]:
    """cos 2a and sin 2a over 2^p for every a = (π/4)·v, v in [f, f + 1]·2^−known.

    The derivatives of both are at most 2, and a moves by less than 2^−known, 2^16 units.
    """
    a = (f * quarter_pi(p)[0]) >> known
    sine, cosine, off = _sine_and_cosine(a, p)
    # |a| < 1 and the true angle is within 2^16 + 2·(width of π/4) + 1 units of it.
    low, high = quarter_pi(p)
    off = 4 * off + 2 * ((1 << _SPARE) + (high - low) + 2) + 4
    across = (1 << p) - ((sine * sine) >> (p - 1))
    along = (sine * cosine) >> (p - 1)
    return (across - off, across + off), (along - off, along + off)


def _sine_and_cosine(a: int, p: int) -> tuple[int, int, int]:
    """sin and cos of a/2^p for |a/2^p| < 1, and how many units they are off at most.

    Taylor: each term is the one before times a/2^p over a small number, truncated once: off by
    less than 2 units each, the rest of the series by less than the last term, below a unit.
    """
    sine = cosine = 0
    term, j = 1 << p, 0
    while term:
        if j % 2:
            sine += term if j % 4 == 1 else -term
        else:
            cosine += term if j % 4 == 0 else -term
        j += 1
        term = abs(term * a) // (j << p)
    return (sine if a >= 0 else -sine), cosine, 2 * j + 2


def _product(radius: Interval, axis: Interval) -> Interval:
    """The ends of radius·axis over 2^(2p), for a radius that is not negative."""
    low, high = axis
    return (
        (radius[0] if low >= 0 else radius[1]) * low,
        (radius[1] if high >= 0 else radius[0]) * high,
    )
