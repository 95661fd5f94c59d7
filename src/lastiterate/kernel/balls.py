"""Ball arithmetic: every number is an interval that certainly holds the exact value.

A comparison of balls that comes out true is a proof. Doubles of a certificate are exact numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any

try:
    import flint
except ImportError:  # where the extra is not installed; `need_flint` raises
    flint = None  # type: ignore[assignment]

arb: Any = getattr(flint, "arb", None)
arb_poly: Any = getattr(flint, "arb_poly", None)
fmpq: Any = getattr(flint, "fmpq", None)
fmpz: Any = getattr(flint, "fmpz", None)
fmpz_poly: Any = getattr(flint, "fmpz_poly", None)
nmod_poly: Any = getattr(flint, "nmod_poly", None)
Ball = Any
BITS = 128  # working precision
_ENOUGH = 40  # bits of relative accuracy of a Gaussian delta
_PRECISIONS = (128, 256, 512, 1024, 4096, 16384)


class KernelError(Exception):
    """A claim is not proved."""


class MalformedError(KernelError):
    """The content cannot be a certificate."""


def require(condition: Any, message: str) -> None:
    """Raise a `KernelError` unless the condition certainly holds."""
    if not condition:
        raise KernelError(message)


def need_flint() -> None:
    """Raise a `KernelError` where python-flint is not installed."""
    require(
        flint is not None,
        "Certificates are made and checked in ball arithmetic, which needs python-flint: "
        "pip install 'lastiterate[verify]'.",
    )


def precision(bits: int = BITS) -> Any:
    """A context in which every ball has this many bits."""
    need_flint()
    return flint.ctx.workprec(bits)


def upper(ball: Ball) -> Ball:
    """The upper end, as an exact number."""
    return ball.upper()


def upper_float(ball: Ball) -> float:
    """A double that is no smaller."""
    return math.nextafter(float(upper(ball)), math.inf)


def largest(balls: Iterable[Ball]) -> Ball:
    """A ball that is no smaller than any of them."""
    return reduce(lambda a, b: a.max(b), balls)


def positive_part(ball: Ball) -> Ball:
    """max(x, 0)."""
    return ball.max(arb(0))


def infinity() -> Ball:
    """Infinite: no privacy."""
    return arb.pos_inf()


def ratio(top: Ball, bottom: Ball) -> Ball:
    """top / bottom for non-negative numbers, with 0/0 = 0 and x/0 = infinity."""
    if bottom == 0:
        return arb(0) if top == 0 else infinity()
    return top / bottom


def repeat(values: Sequence[Ball], count: int) -> Iterable[Ball]:
    """One value per step, also where one entry stands for all."""
    return values if len(values) == count else (values[0] for _ in range(count))


def geometric(base: Ball, count: int) -> Ball:
    """1 + base + ... + base^(count - 1)."""
    if count <= 0:
        return arb(0)
    if base == 1:
        return arb(count)
    gap = 1 - base
    if not gap > 0 and not gap < 0:  # within rounding of 1: increasing in the base
        return geometric(upper(base), count)
    return (1 - base**count) / gap


def divide_up(masses: Any, bits: int) -> Any:
    """Every non-negative coefficient of a polynomial, divided by 2^bits and rounded up."""
    return (masses + _just_below(bits, 1 << len(masses).bit_length())) // (1 << bits)


@lru_cache(maxsize=8)
def _just_below(bits: int, length: int) -> Any:
    return fmpz_poly([(1 << bits) - 1] * length)


def whole_above(ball: Ball) -> int:
    """A whole number that is no smaller."""
    return int(upper(upper(ball).ceil()).unique_fmpz())


def gaussian_delta(square: Ball, epsilon: Ball) -> Ball:
    """An upper bound on delta(epsilon) of mu-GDP with mu^2 = ``square``, as an exact number.

    Phi(-a) - e^epsilon Phi(-b), a = epsilon/mu - mu/2, b = epsilon/mu + mu/2, with as many bits
    as the subtraction cancels. Increasing in mu, so the upper end of ``square`` is enough.
    """
    top = upper(square)
    if top == 0:
        return arb(0)
    if not top.is_finite():
        return arb(1)
    value = tail = arb(1)
    for bits in _PRECISIONS:
        with precision(bits):
            mu = upper(top.sqrt())
            shift, half, root = epsilon / mu, mu / 2, arb(2).sqrt()
            tail = ((shift - half) / root).erfc() / 2
            if mu > 1e8:  # the second term is below 10^-8 of the first
                break
            value = tail - epsilon.exp() * (((shift + half) / root).erfc() / 2)
            if value.rel_accuracy_bits() >= _ENOUGH:
                break
    answer = upper(tail).min(arb(1)) if tail.is_finite() else arb(1)
    return answer.min(upper(value)) if value.is_finite() else answer


def mixture_delta(squares: Sequence[Ball], weights: Sequence[Ball], epsilon: Ball) -> Ball:
    """sum of weight * delta_mu(epsilon), rounded up."""
    with precision():
        terms = (w * gaussian_delta(q, epsilon) for q, w in zip(squares, weights, strict=True))
        return upper(sum(terms, arb(0))).min(arb(1))
