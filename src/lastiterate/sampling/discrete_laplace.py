"""Laplace noise on a grid, exactly, from the operating system's random source.

Floating-point Laplace noise leaks through its gaps (Mironov 2012). On the integers the law
P(k) proportional to e^(-rate |k|) is sampled without any rounding, with rational arithmetic
(Canonne, Kamath, Steinke 2020); a real query is rounded to a grid first, which is counted in its
sensitivity.
"""

from __future__ import annotations

import math
import secrets
from fractions import Fraction
from typing import Protocol

from lastiterate.noise.decision import decided_around


class NoiseSource(Protocol):
    """Where a mechanism gets its randomness from."""

    def laplace(self, rate: Fraction) -> int:
        """A whole number k with probability proportional to e^(-rate |k|)."""

    def gaussian(self, mean: Fraction, variance: Fraction) -> int:
        """A Gaussian of this mean and variance, rounded to a whole number."""


class SecureNoise:
    """Randomness from the operating system.

    >>> 0 <= abs(SecureNoise().laplace(Fraction(50))) < 3
    True
    """

    def laplace(self, rate: Fraction) -> int:
        return discrete_laplace(rate)

    def gaussian(self, mean: Fraction, variance: Fraction) -> int:
        return decided_around(mean, variance, lambda: secrets.randbits(64))


def discrete_laplace(rate: Fraction) -> int:
    """One draw of P(k) = (1-q)/(1+q) q^|k|, q = e^(-rate), by rejection, without rounding."""
    over, under = rate.numerator, rate.denominator
    while True:
        fraction = secrets.randbelow(under)
        if not _coin(Fraction(fraction, under)):
            continue
        whole = 0
        while _coin(Fraction(1)):
            whole += 1
        size = (fraction + under * whole) // over
        negative = bool(secrets.randbits(1))
        if not (negative and size == 0):
            return -size if negative else size


def _coin(exponent: Fraction) -> bool:
    """True with probability e^(-exponent), 0 <= exponent <= 1 (von Neumann's series)."""
    k = 1
    while secrets.randbelow(exponent.denominator * k) < exponent.numerator:
        k += 1
    return k % 2 == 1


def grid_for(sensitivity: float, cells: int = 1 << 20) -> float:
    """A power of two between sensitivity/cells and twice that: rounding to it is exact."""
    return math.ldexp(1.0, math.ceil(math.log2(sensitivity / cells)))
