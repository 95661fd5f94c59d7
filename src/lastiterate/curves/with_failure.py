"""A curve that holds except with a small probability, which is added to delta."""

from __future__ import annotations

import math

from lastiterate.curves.base import Curve


class WithFailure(Curve):
    """``curve`` holds unless an event of probability ``failure`` happens, alike in both worlds.

    delta(eps) ≤ curve.delta(eps) + failure by joint convexity. No Renyi divergence is known then.
    """

    def __init__(self, curve: Curve, failure: float) -> None:
        self.curve, self.failure = curve, failure

    def delta(self, epsilon: float) -> float:
        return min((self.curve.delta(epsilon) + self.failure) * (1 + 1e-15), 1.0)

    def epsilon(self, delta: float) -> float:
        left = math.nextafter(delta - self.failure, 0.0)
        return self.curve.epsilon(left) if left > 0 else math.inf

    def rdp(self, order: float) -> float:
        return math.inf
