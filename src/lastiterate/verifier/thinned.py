"""A mixture of thousands of Gaussian profiles, bounded by one of a few hundred.

**Lemma.** For q = mu^2 <= q*, where (epsilon^2/q) - q/4 >= 1, delta_mu(epsilon) is convex in q. So
mass that lies between two points may be moved to them if its mean stays: the mixture only grows.
*Proof.* With a, b = epsilon/mu -+ mu/2, d delta/d mu = phi(a), because e^epsilon phi(b) = phi(a).
Hence d delta/dq = phi(a)/(2 mu), whose logarithm has the derivative (ab - 1)/(2q) in q, and
ab = epsilon^2/q - q/4 falls with q. QED.

What is not convex stays as it is. A bound that is small enough settles a question; otherwise the
whole mixture is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lastiterate.verifier.balls import Ball, above, arb, gaussian_delta, precision, proved

FEWEST = 256  # points that are worth thinning
_TOGETHER = 24  # points of which only the ends remain


@dataclass(frozen=True, eq=False)
class Thinned:
    """``tops`` never falls; ``moved``: a few neighbours, whose mass is moved to their ends."""

    tops: Sequence[Ball]
    weights: Sequence[Ball]
    moved: Sequence[tuple[int, int, Ball, Ball]]  # first, last, mass at each of the two

    @classmethod
    def of(cls, squares: Sequence[Ball], weights: Sequence[Ball]) -> Thinned | None:
        """None where there are few points, or they are not in order."""
        if len(squares) < FEWEST:
            return None
        with precision():
            tops = [above(square) for square in squares]
            if not all(proved(a <= b) for a, b in pairwise(tops)):
                return None
            moved = []
            for first in range(0, len(tops), _TOGETHER):
                last = min(first + _TOGETHER, len(tops)) - 1
                mass = sum(weights[first : last + 1], arb(0))
                excess = sum(
                    (weights[i] * (tops[i] - tops[first]) for i in range(first, last + 1)), arb(0)
                )
                apart = proved(tops[first] < tops[last])
                right = excess / (tops[last] - tops[first]) if apart else arb(0)
                moved.append((first, last, mass - right, right))
        return cls(tops, weights, moved)

    def delta(self, epsilon: Ball) -> Ball:
        """An upper bound on the mixture's delta, as an exact number."""
        total = arb(0)
        with precision():
            for first, last, left, right in self.moved:
                top = self.tops[last]
                if proved(epsilon * epsilon / top - top / 4 >= 1):
                    points = [(first, left), (last, right)]
                else:
                    points = [(i, self.weights[i]) for i in range(first, last + 1)]
                for i, weight in points:
                    total += weight * gaussian_delta(self.tops[i], epsilon)
            return above(total).min(arb(1))
