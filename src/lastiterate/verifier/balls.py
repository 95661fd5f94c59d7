"""Ball arithmetic: numbers that know how wrong they may be.

The verifier computes with python-flint's ``arb``: an interval that certainly holds the exact
value. A comparison that comes out true is a proof. Nothing here is shared with the fast path.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any

from lastiterate.errors import CertificateError

try:
    import flint
except ImportError:  # only where the extra is not installed; `need_balls` says so
    flint = None  # type: ignore[assignment]

arb: Any = getattr(flint, "arb", None)
fmpz_poly: Any = getattr(flint, "fmpz_poly", None)
arb_poly: Any = getattr(flint, "arb_poly", None)
fmpz: Any = getattr(flint, "fmpz", None)
nmod_poly: Any = getattr(flint, "nmod_poly", None)
Ball = Any
BITS = 128  # working precision of sums and replays
_ENOUGH = 40  # bits of relative accuracy that a profile needs
_ONE_TAIL = 1e8  # beyond this mu the second term is 10^-8 of the first, and is left out
_PRECISIONS = (128, 256, 512, 1024, 4096, 16384)


def need_balls() -> None:
    """Say what to install where ball arithmetic is missing."""
    if arb is None:
        raise CertificateError(
            "Certificates are sealed and checked in ball arithmetic, which needs python-flint: "
            "pip install 'lastiterate[verify]'."
        )


def precision(bits: int = BITS) -> Any:
    """A context in which every ball keeps this many bits."""
    need_balls()
    return flint.ctx.workprec(bits)


def above(ball: Ball) -> Ball:
    """The upper end, as an exact number."""
    return ball.upper()


def greatest(balls: Sequence[Ball]) -> Ball:
    """One that is no smaller than any of them."""
    return reduce(lambda one, other: one.max(other), balls)


def proved(condition: Any) -> bool:
    """Whether a comparison of balls holds for certain."""
    return bool(condition)


def units_up(masses: Any, bits: int) -> Any:
    """Every coefficient of a polynomial, none negative, divided by 2^bits and rounded up.

    python-flint divides polynomials: of a coefficient below the divisor it makes 0, whatever its
    sign. So what makes it round up is added first.
    """
    return (masses + _just_below(bits, 1 << len(masses).bit_length())) // (1 << bits)


@lru_cache(maxsize=8)
def _just_below(bits: int, length: int) -> Any:
    return fmpz_poly([(1 << bits) - 1] * length)


def gaussian_delta(square: Ball, epsilon: Ball) -> Ball:
    """An upper bound on delta(epsilon) of mu-GDP with mu^2 = ``square``, as an exact number.

    Phi(-a) - e^epsilon Phi(-b), a = epsilon/mu - mu/2, b = epsilon/mu + mu/2, with as many bits
    as the subtraction eats. Increasing in mu, so the upper end of ``square`` is enough.
    """
    top = above(square)
    if top == 0:
        return arb(0)
    if not top.is_finite():
        return arb(1)
    value = tail = arb(1)
    for bits in _PRECISIONS:
        with precision(bits):
            mu = above(top.sqrt())
            ratio, half = epsilon / mu, mu / 2
            root = arb(2).sqrt()
            tail = ((ratio - half) / root).erfc() / 2
            if mu > _ONE_TAIL:
                break
            value = tail - epsilon.exp() * (((ratio + half) / root).erfc() / 2)
            if value.rel_accuracy_bits() >= _ENOUGH:
                break
    answer = above(tail).min(arb(1)) if tail.is_finite() else arb(1)
    return answer.min(above(value)) if value.is_finite() else answer


def mixture_delta(squares: Sequence[Ball], weights: Sequence[Ball], epsilon: Ball) -> Ball:
    """The weighted sum of Gaussian profiles, rounded up."""
    total = arb(0)
    with precision():
        for square, weight in zip(squares, weights, strict=True):
            total += weight * gaussian_delta(square, epsilon)
        return above(total).min(arb(1))
