"""What a check without coins proves: Gaussians, given a hidden label.

With labels w of the record (a position, an arrangement), (c) of Theorem U says

    delta(epsilon) <= sum pi(w, w') delta_mu(epsilon + log(rho(w, w') / pi(w, w')))

for any pi whose rows sum to the law of w and any rho whose columns sum to the law of w'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from lastiterate.kernel.balls import Ball, arb, gaussian_delta, mixture_delta, precision, upper


class Term(NamedTuple):
    """mu^2, pi and rho of a pair of labels."""

    square: Ball
    pi: Ball
    rho: Ball

    def delta(self, epsilon: Ball) -> Ball:
        """Its part of the sum: pi delta_mu(epsilon + log(rho/pi)).

        Where that is at -x < 0:  delta(-x) = 1 - e^-x + e^-x delta(x).
        """
        if not self.rho > 0 or not self.square.is_finite():
            return self.pi
        shifted = epsilon + (self.rho / self.pi).log()
        if shifted >= 0:
            return self.pi * gaussian_delta(self.square, shifted.lower())
        size = (-shifted).upper()
        shrink = (-size.max(arb(0))).exp()
        return self.pi * (1 - shrink + shrink * gaussian_delta(self.square, size)).min(arb(1))


@dataclass(frozen=True, eq=False)
class Gaussians:
    """A label with ``weights``, and mu^2 = ``squares`` given the label.

    ``by_position``: the labels are the positions of an epoch, in order, all equally likely.
    ``orders``: a second bound, for each order of the two runs; the smaller one counts.
    """

    squares: Sequence[Ball]
    weights: Sequence[Ball]
    by_position: bool = False
    orders: Sequence[Sequence[Term]] = ()

    @classmethod
    def one(cls, square: Ball) -> Self:
        """A single Gaussian."""
        return cls([square], [arb(1)])

    @classmethod
    def by_position_of(cls, squares: Sequence[Ball]) -> Self:
        """All positions of an epoch, hidden."""
        return cls(squares, [arb(1) / len(squares)] * len(squares), by_position=True)

    def exchanged(self, orders: Sequence[Sequence[Term]]) -> Self:
        """The same with pairs of different labels."""
        return replace(self, orders=orders)

    def delta(self, epsilon: Ball) -> Ball:
        """An upper bound on delta at this epsilon, as an exact number."""
        if not all(square.is_finite() for square in self.squares):
            return arb(1)
        return mixture_delta(self.squares, self.weights, epsilon)

    def exchanged_delta(self, epsilon: Ball) -> Ball:
        """The same from pairs of labels: the larger of both orders."""
        worst = arb(0)
        with precision():
            for order in self.orders:
                total = sum((term.delta(epsilon) for term in order), arb(0))
                worst = worst.max(upper(total)) if total.is_finite() else arb(1)
        return worst.min(arb(1)) if self.orders else arb(1)
