"""Renyi differential privacy, and its conversion to (epsilon, delta).

The curve is a function order -> bound on the Renyi divergence. Any order gives a valid guarantee,
so the search for the best one may be approximate: what is returned is the conversion evaluated at
one order, rounded up. A Gaussian curve should never be sent through here: it would lose 5 to 15 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lastiterate.curves.base import Curve
from lastiterate.curves.gaussian import (
    ULP,
    check_nonnegative,
    check_order,
    check_probability,
    exp_up,
)
from lastiterate.errors import DescriptionError

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Linear:
    """The bound ``coefficient * order``, for every order above 1.

    >>> Linear(0.5)(8.0) >= 4.0
    True
    """

    coefficient: float

    def __post_init__(self) -> None:
        check_nonnegative("coefficient", self.coefficient)

    def __call__(self, order: float) -> float:
        """The bound at ``order``, rounded up."""
        if self.coefficient == 0:
            return 0.0
        return math.nextafter(self.coefficient * order, math.inf)


@dataclass(frozen=True)
class Renyi(Curve):
    """A curve given by ``bound``: order -> an upper bound on the Renyi divergence.

    ``orders`` says where the bound holds: above its first number (or from it on, if that is
    above 1) up to and including its second.

    >>> curve = Renyi(lambda order: 0.0608 * order, orders=(1, 64))
    >>> round(curve.epsilon(1e-5), 3)
    1.456
    """

    bound: Callable[[float], float]
    orders: tuple[float, float] = (1.0, math.inf)

    def __post_init__(self) -> None:
        low, high = self.orders
        if not (1 <= low <= high and high > 1):
            raise DescriptionError(
                "orders", self.orders, "a range above 1", "no other order gives a guarantee"
            )

    def rdp(self, order: float) -> float:
        """The Renyi divergence of ``order`` > 1; inf above ``orders``, where nothing is known.

        The divergence does not decrease with its order, so below ``orders`` the lowest one holds.
        """
        check_order(order)
        low, high = self.orders
        if order > high:
            return math.inf
        value = float(self.bound(max(float(order), low)))
        if not value >= 0:
            raise DescriptionError(
                f"bound({order!r})", value, "at least 0", "it is a bound on a divergence"
            )
        return value

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 over all real orders a, with r = rdp(a):

        epsilon = r + log((a - 1)/a) - (log delta + log a)/(a - 1)
        (Canonne, Kamath, Steinke 2020, Prop. 12; Balle et al. 2020). The statement behind it holds
        for every real epsilon and delta falls in epsilon, so a negative value proves epsilon = 0.
        """
        check_probability("delta", delta)
        if delta >= 1 or self.vanishes():
            return 0.0
        if delta == 0:
            return math.inf
        log = math.log(delta)

        def convert(order: float) -> float:
            divergence = self.rdp(order)
            terms = (divergence, math.log1p(-1 / order), -(log + math.log(order)) / (order - 1))
            size = divergence - terms[1] + (abs(log) + math.log(order)) / (order - 1)
            return sum(terms) + 8 * ULP * size

        return max(0.0, _least(convert, self.orders))

    def delta(self, epsilon: float) -> float:
        """The smallest delta over all real orders a, with r = rdp(a), at most 1:

        delta = exp((a - 1)(r - epsilon)) / a * (1 - 1/a)^(a - 1), the same conversion solved.
        """
        check_nonnegative("epsilon", epsilon)
        if epsilon == math.inf or self.vanishes():
            return 0.0

        def convert(order: float) -> float:
            divergence = self.rdp(order)
            shrink = (order - 1) * math.log1p(-1 / order)
            logarithm = (order - 1) * (divergence - epsilon) - math.log(order) + shrink
            size = (order - 1) * (divergence + epsilon) + math.log(order) - shrink
            return logarithm + 8 * ULP * size

        return float(exp_up(min(0.0, _least(convert, self.orders))))

    def vanishes(self) -> bool:
        """A divergence of 0 at an order above 1 means that both distributions are the same."""
        return self.rdp(min(2.0, self.orders[1])) == 0


def _least(convert: Callable[[float], float], orders: tuple[float, float]) -> float:
    """The least value of ``convert`` found: a grid in log(order - 1), then golden section."""
    low, high = max(orders[0], 1 + 1e-12), min(orders[1], 1e18)

    def at(place: float) -> float:
        value = convert(min(max(1 + math.exp(place), low), high))
        return math.inf if math.isnan(value) else value  # inf - inf: this order says nothing

    first, last, cells = math.log(low - 1), math.log(high - 1), 140
    grid = [first + (last - first) * k / cells for k in range(cells + 1)]
    values = [at(place) for place in grid]
    best = values.index(min(values))
    left, right = grid[max(best - 1, 0)], grid[min(best + 1, cells)]
    inner, outer = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
    at_inner, at_outer = at(inner), at(outer)
    while right - left > 1e-8:
        if at_inner < at_outer:
            right, outer, at_outer = outer, inner, at_inner
            inner = right - _GOLDEN * (right - left)
            at_inner = at(inner)
        else:
            left, inner, at_inner = inner, outer, at_outer
            outer = left + _GOLDEN * (right - left)
            at_outer = at(outer)
    return min(values[best], at_inner, at_outer)


def linear(coefficient: float) -> Renyi:
    """The curve with divergence at most ``coefficient * order`` for every order above 1.

    >>> round(linear(0.066659).epsilon(1e-5), 3)
    1.531
    """
    return Renyi(Linear(coefficient))
