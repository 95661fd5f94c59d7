"""An average of Gaussian profiles over a law of mu^2 that is known up to balanced rounding.

**Lemma.** Let no convex increasing function of q = mu^2 have a smaller mean under the law than in
truth (mass may have been moved to both sides if its mean stayed). Then delta(epsilon) is at most
the mean of h*(q): h* = h, the Gaussian profile, up to q* = 2 (sqrt(1 + epsilon^2) - 1), and beyond
it the line with the slope h'(q*).
*Proof.* h' = phi(a)/(2 mu) rises as long as epsilon^2/q - q/4 >= 1, that is up to q*, and falls
after it (the lemma of `thinned`). So h* is convex, it rises, and it is nowhere below h. QED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastiterate.verifier.balls import Ball, above, arb, gaussian_delta, precision, proved


@dataclass(frozen=True, eq=False)
class Balanced:
    """Points of mu^2, and their masses, all upper bounds."""

    squares: Sequence[Ball]
    weights: Sequence[Ball]

    def delta(self, epsilon: float, sufficient: float = 0.0) -> Ball:
        """An upper bound on delta(epsilon), as an exact number; in one go, whatever will do."""
        with precision():
            point = arb(epsilon)
            bend = 2 * ((1 + point * point).sqrt() - 1)
            if not proved(bend > 0):
                return arb(1)
            # Any point before the bend will do with a slope that is nowhere exceeded.
            mu, start = bend.sqrt(), bend.lower()
            far = point / mu - mu / 2
            slope = (-far * far / 2).exp() / (2 * arb.pi()).sqrt() / (2 * mu)
            before, total = gaussian_delta(start, point), arb(0)
            for square, weight in zip(self.squares, self.weights, strict=True):
                top = above(square)
                if proved(top <= start):
                    total += weight * gaussian_delta(top, point)
                else:
                    total += weight * (before + slope * (top - start))
            return above(total).min(arb(1))
