"""Published bounds for mini-batch Langevin descent: Ye and Shokri 2022, Balle et al. 2019.

All are stated in one unit, the price of one unhidden impulse, ``unit`` = s^2/(2 nu^2)
= eta S_g^2/(4 sigma^2 b^2); ``c`` = 1 - eta lambda; the run has K whole ``epochs`` of B
``batches`` and the record sits in batch ``position``. Each function returns a coefficient kappa
with R_alpha <= kappa alpha for every order, or, where the bound is not linear in alpha, R_alpha.
The taut string is never above the linear ones; they are kept for comparison.
"""

from __future__ import annotations

import math

import numpy as np

from lastiterate.bounds.positions import UNIT
from lastiterate.errors import DescriptionError

# Fewer than 2^13 roundings of positive terms enter each closed form.
_UP = 1 + 2.0**13 * UNIT


def _check(c: float, batches: int, epochs: int, position: int, at_least: int = 1) -> None:
    if not 0 < c <= 1:
        raise DescriptionError(
            "c", c, "in (0, 1]", "these bounds need a convex loss and a step size below 2/beta"
        )
    if batches < at_least:
        raise DescriptionError(
            "batches",
            batches,
            f"at least {at_least}",
            "the theorem splits an epoch in two"
            if at_least > 1
            else "an epoch has at least one batch",
        )
    if epochs < 1:
        raise DescriptionError("epochs", epochs, "at least 1", "the bounds count whole epochs")
    if not 0 <= position < batches:
        raise DescriptionError(
            "position", position, f"between 0 and {batches - 1}", "the record sits in one batch"
        )


def _sum(c: float, count: int) -> float:
    """1 + c^2 + ... + c^(2(count-1))."""
    if c == 1:
        return float(count)
    return math.expm1(2 * count * math.log(c)) / math.expm1(2 * math.log(c))


def one_impulse(unit: float, c: float, steps: int) -> float:
    """e(j) of Ye & Shokri 2022, (99): an impulse with ``steps`` noisy steps to fade in, its own
    included.

    >>> round(one_impulse(1.0, 1.0, 4), 9)
    0.25
    """
    return _UP * unit * c ** (2 * (steps - 1)) / _sum(c, steps)


def convex(unit: float, batches: int, epochs: int, position: int = 0) -> float:
    """Ye & Shokri 2022, Theorem D.4: kappa = unit ((K-1)/B + 1/(B-j)).

    Convex, beta-smooth, eta < 2/beta, one fixed partition. Status: sound, and optimal (it is the
    taut string at c = 1).

    >>> round(convex(1.0, batches=10, epochs=5, position=9), 3)
    1.4
    """
    _check(1.0, batches, epochs, position)
    return _UP * unit * ((epochs - 1) / batches + 1 / (batches - position))


def strongly_convex_printed(
    unit: float, c: float, batches: int, epochs: int, position: int = 0
) -> float:
    """Ye & Shokri 2022, Theorem 3.3 as printed: kappa = e(floor(B/2)) (1 - r^(K-1))/(1 - r) +
    e(B-j).

    r = c^(2(B - floor(B/2))); strongly convex, smooth, eta < 2/(lambda+beta), B >= 2, one fixed
    partition. Status: sound; loses a factor r in the first term between (106) and (107), and the
    explanation (145)-(146) is false.

    >>> round(strongly_convex_printed(1.0, 0.98, 10, 2), 4)
    0.267
    """
    _check(c, batches, epochs, position, at_least=2)
    half = batches // 2
    earlier = one_impulse(unit, c, half) * _sum(c ** (batches - half), epochs - 1)
    return _UP * (earlier + one_impulse(unit, c, batches - position))


def strongly_convex_split(
    unit: float, c: float, batches: int, epochs: int, split: int, position: int = 0
) -> float:
    """Ye & Shokri 2022, Theorem 3.3 with the lost factor, and an epoch split after ``split`` steps.

    kappa = e(r) rho (1 - rho^(K-1))/(1 - rho) + e(B-j), rho = c^(2(B-r)). ``split`` = B/2 is the
    theorem with its factor restored, ``split`` = B composes whole epochs. Status: corrected.

    >>> round(strongly_convex_split(1.0, 0.98, 10, 2, split=5), 4)
    0.2333
    """
    _check(c, batches, epochs, position)
    if not 1 <= split <= batches:
        raise DescriptionError(
            "split", split, f"between 1 and {batches}", "it counts steps of one epoch"
        )
    fade = c ** (batches - split)
    earlier = one_impulse(unit, c, split) * fade**2 * _sum(fade, epochs - 1)
    return _UP * (earlier + one_impulse(unit, c, batches - position))


def strongly_convex(unit: float, c: float, batches: int, epochs: int, position: int = 0) -> float:
    """Ye & Shokri 2022, Theorem 3.3 corrected: the lost factor restored, at Ye & Shokri's own split
    floor(B/2).

    >>> round(strongly_convex(1.0, 0.9, 4, 10), 4)
    1.0118
    """
    _check(c, batches, epochs, position, at_least=2)
    return strongly_convex_split(unit, c, batches, epochs, batches // 2, position)


def strongly_convex_best_split(
    unit: float, c: float, batches: int, epochs: int, position: int = 0
) -> float:
    """Ye & Shokri 2022, Theorem 3.3 corrected, at the best split r in 1..B (r = B included).

    >>> round(strongly_convex_best_split(1.0, 0.98, 10, 2), 4)
    0.1656
    """
    return min(
        strongly_convex_split(unit, c, batches, epochs, split, position)
        for split in range(1, batches + 1)
    )


def shuffled_once(unit: float, c: float, batches: int, epochs: int, order: float) -> float:
    """Ye & Shokri 2022, Theorem 4.2: R_alpha for one hidden partition, reused in every epoch.

    R = alpha kappa_1 + log(avg_j exp((alpha-1) alpha e(B-j)))/(alpha-1), kappa_1 the first term
    of Theorem 3.3 with its lost factor. Status: sound (printed with eta < 2/(lambda+eta) for
    2/(lambda+beta)).

    >>> shuffled_once(1.0, 0.9, 4, 10, 4.0) < 4 * strongly_convex(1.0, 0.9, 4, 10, position=3)
    True
    """
    _check(c, batches, epochs, 0, at_least=2)
    _check_order(order)
    first = strongly_convex(unit, c, batches, epochs) - one_impulse(unit, c, batches)
    last = [one_impulse(unit, c, batches - j) for j in range(batches)]
    exponents = (order - 1) * order * np.array(last)
    top = float(exponents.max())
    # The largest exponent is taken out, so that neither a tiny nor a huge one loses digits.
    if top < 1:
        moment = math.log1p(math.fsum(np.expm1(exponents)) / batches)
    else:
        moment = top + math.log(math.fsum(np.exp(exponents - top)) / batches)
    return _UP * (order * first + moment / (order - 1))


def sampled_batches(unit: float, c: float, rate: float, steps: int, order: float) -> float:
    """Ye & Shokri 2022, Theorem 4.3: R_alpha when each step draws its batch afresh, the record with
    ``rate``.

    log S <- logaddexp(log q + (alpha-1) alpha unit + log S, log(1-q) + c^2 log S), R = log S
    /(alpha-1); in logarithms, since S itself overflows. Status: sound for independent batches
    only (never for shuffles), and as a recursion on bounds linear in alpha: (157) is false as an
    inequality between true divergences.

    >>> round(sampled_batches(1.0, 1.0, 1.0, steps=3, order=2.0), 6)
    6.0
    """
    _check(c, 1, 1, 0)
    _check_order(order)
    if not 0 < rate <= 1:
        raise DescriptionError("rate", rate, "in (0, 1]", "it is a sampling probability")
    log_in = math.log(rate) + (order - 1) * order * unit
    log_out = math.log1p(-rate) if rate < 1 else -math.inf
    log_S = 0.0
    for _ in range(steps):
        log_S = float(np.logaddexp(log_in + log_S, log_out + c**2 * log_S))
    # Each round is off by a few UNIT of log S plus the size of the logarithms added to it.
    off = 8 * (steps + 1) * UNIT * (1 + abs(log_S) + abs(log_in) + abs(math.log(rate)))
    return (log_S + off) / (order - 1) if steps else 0.0


def balle(
    unit: float,
    step_size: float,
    smoothness: float,
    strong_convexity: float,
    batches: int,
    epochs: int,
    position: int = 0,
) -> float:
    """Ye & Shokri 2022, Theorem D.5, after Balle et al. 2019, Theorem 5, composed over K epochs.

    Last epoch: kappa = unit at j = B-1, else unit/(B-j-1) (1 - 2 eta beta lambda/(beta+lambda))^
    ((B-j)/2). Every earlier impulse has B steps to fade: the same with j = 0 (for B = 1, unit).
    Strongly convex, smooth, eta <= 2/(beta+lambda). Status: sound, dominated.

    >>> round(balle(1.0, 0.1, 1.0, 1.0, batches=1, epochs=3), 9)
    3.0
    """
    _check(1.0, batches, epochs, position)
    if not 0 < step_size <= 2 / (smoothness + strong_convexity):
        allowed = "in (0, 2/(smoothness + strong_convexity)]"
        why = "beyond it the step map does not contract as the theorem assumes"
        raise DescriptionError("step_size", step_size, allowed, why)
    curvature = 2 * smoothness * strong_convexity / (smoothness + strong_convexity)
    fade = max(1 - step_size * curvature, 0.0) + 8 * UNIT

    def alone(j: int) -> float:
        left = batches - j
        return unit if left == 1 else unit / (left - 1) * fade ** (left / 2)

    return _UP * ((epochs - 1) * alone(0) + alone(position))


def _check_order(order: float) -> None:
    if not order > 1:
        raise DescriptionError("order", order, "greater than 1", "Renyi divergence needs it")
