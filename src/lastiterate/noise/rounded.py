"""Gaussians rounded to whole numbers, with exactly the law of round(scale·Z).

Doubles decide nearly all draws, and know which ones they cannot decide: those go to `decision`.
What is proved about the doubles rests on IEEE 754 alone (+, −, ×, ÷ and √ correctly rounded), not
on anybody's logarithm or sine. The proof is in docs/theory/arithmetic.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import DescriptionError
from lastiterate.noise.decision import RADIUS_BITS, decided, log_2, quarter_pi

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

LARGEST_SCALE = 2.0**42  # beyond it a double has too few bits left to say where a draw rounds
OFF = 2.0**-48  # doubles are within OFF·(radius + NEAR) of the ideal pair, by proof 20/32 of it
NEAR = 2.0**-6
TAIL = 1 << 49  # radius words this near to either end are decided by integers

_P = 128
_QUARTER_PI = Fraction(quarter_pi(_P)[0], 1 << _P)
_LOG_2 = float(Fraction(log_2(_P)[0], 1 << _P))
_LOG = [float(Fraction(2, 2 * j + 1)) for j in range(11)]
_SINE = [
    float((-1) ** j * _QUARTER_PI ** (2 * j + 1) / math.factorial(2 * j + 1)) for j in range(9)
]
_COSINE = [float((-1) ** j * _QUARTER_PI ** (2 * j) / math.factorial(2 * j)) for j in range(9)]
_ROOT_HALF = int(np.array(math.sqrt(0.5)).view(np.int64))
_BELOW_SIGN = np.uint64((1 << RADIUS_BITS) - 1)
_SIGN = np.uint64(1 << RADIUS_BITS)


def checked_scale(scale: float) -> float:
    """A scale that can be drawn at, or an error that says why not."""
    why = "noise of another size than was accounted for protects nobody"
    allowed = f"a number from 0 to 2^{round(math.log2(LARGEST_SCALE))}, in units of the grid"
    try:
        known = float(scale)
    except (TypeError, ValueError, OverflowError):
        raise DescriptionError("scale", scale, allowed, why) from None
    if isinstance(scale, bool) or not 0.0 <= known <= LARGEST_SCALE:
        raise DescriptionError("scale", scale, allowed, why)
    return known


def rounded_pairs(
    scale: float, radius_words: Words, angle_words: Words, more: Callable[[], int]
) -> Floats:
    """Two rows of whole numbers: round(scale·X) and round(scale·Y) for every pair of words.

    >>> words = np.array([1 << 62], np.uint64)
    >>> rounded_pairs(1000.0, words, words, more=lambda: 0)  # √(2 ln 2)·1000·(cos, sin)(π/4)
    array([[833.],
           [833.]])
    """
    out, undecided = nearly(scale, radius_words, angle_words)
    for pair in undecided:
        out[:, pair] = decided(scale, int(radius_words[pair]), int(angle_words[pair]), more)
    return out


def nearly(
    scale: float, radius_words: Words, angle_words: Words
) -> tuple[Floats, NDArray[np.intp]]:
    """Rounded pairs by doubles, and which of them doubles cannot decide."""
    # Words at the ends have no logarithm and tiny scales underflow: the one is decided by
    # integers, the other rounds to zero either way.
    with np.errstate(all="ignore"):
        fractions = radius_words & _BELOW_SIGN
        doubtful = (fractions - np.uint64(TAIL)) > np.uint64((1 << RADIUS_BITS) - 1 - 2 * TAIL)
        radius = radii(fractions)
        room = radius + NEAR
        room *= -OFF * scale
        room += 0.5 - 2.0**-53  # farther than this from a whole number is too near to a half
        radius *= scale
        signs = radius.view(np.uint64)
        signs |= radius_words & _SIGN
        out = directions(angle_words)
        out *= radius
        rounded = np.rint(out)
        out -= rounded
        rounded += 0.0  # the sign of a zero would tell more than the whole number does
        np.abs(out, out=out)
        for row in out:
            doubtful |= row > room
    return rounded, np.flatnonzero(doubtful)


def radii(fractions: Words) -> Floats:
    """√(−2 ln u), u = fractions/2^63, where neither u nor 1 − u is below 2^−14.

    u = m·2^−K with √½ ≤ m < √2, and ln m = 2·artanh((m − 1)/(m + 1)) by its series.
    """
    down = fractions.astype(np.float64)
    bits = down.view(np.int64)
    exponent = bits - _ROOT_HALF
    exponent >>= 52
    bits -= exponent << 52  # from here on ``down`` is m
    exponent -= RADIUS_BITS
    powers = exponent.astype(np.float64)
    s = down - 1.0
    up = (fractions ^ _BELOW_SIGN).astype(np.float64)  # 1 − u has bits that m − 1 lost
    up *= -(2.0**-RADIUS_BITS)
    np.copyto(s, up, where=exponent == 0)
    down += 1.0
    s /= down
    z = s * s
    total = z * _LOG[10]
    for coefficient in _LOG[9:0:-1]:
        total += coefficient
        total *= z
    total += _LOG[0]
    total *= s
    powers *= _LOG_2
    total += powers
    total *= -2.0
    return np.sqrt(total, out=total)


def directions(angle_words: Words) -> Floats:
    """cos(πf/2) and sin(πf/2), f = the signed word over 2^63.

    The Taylor series at half the angle; then cos 2a = 1 − 2 sin² a and sin 2a = 2 sin a·cos a.
    """
    f = angle_words.view(np.int64).astype(np.float64)
    f *= 2.0**-63
    square = f * f
    sine = square * _SINE[8]
    cosine = square * _COSINE[8]
    for j in range(7, 0, -1):
        sine += _SINE[j]
        sine *= square
        cosine += _COSINE[j]
        cosine *= square
    sine += _SINE[0]
    sine *= f
    cosine += 1.0
    out = np.empty((2, len(f)))
    twice = sine + sine
    np.multiply(twice, cosine, out=out[1])
    twice *= sine
    np.subtract(1.0, twice, out=out[0])
    return out
