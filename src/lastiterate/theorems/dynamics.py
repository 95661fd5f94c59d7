"""From the description to what a theorem needs: how far one step can drive two runs apart.

Step k maps two runs at distance z to distance at most g_k(z) + s_k before its noise ν_k. The
table, with η the step size, λ and β the strong convexity and smoothness the step sees (the
data-free L2 term included), K the gradient norm:

- convex, no clipping at work or the margin clipped:  g(z) = c z, c = max(|1 − ηλ|, |1 − ηβ|);
  a clipped margin keeps convexity and smoothness, but only the L2 term keeps its curvature;
- convex, gradients clipped:  clipping destroys non-expansiveness. For r the L2 coefficient and b
  the smoothness of the data part, c = (1 − ηr)·(1 − ηb/(4(1 − ηr)))^(−1/2) (docs/theory);
- smooth, not convex:  c = |1 − ηr| + ηb (clipping is harmless);
- Hoelder gradient (L, p):  g(z) = |1 − ηr| z + min(ηL z^p, 2ηK);
- unknown:  g(z) = |1 − ηr| z + 2ηK for z > 0.

All values are rounded up. Poisson batches have their own rule (see `poisson`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Loss, Training

Array = NDArray[np.float64]

_UP = 1 + 2**-50  # a few rounding errors of the expressions below


@dataclass(frozen=True)
class Modulus:
    """g(z) = slope·z + min(constant·z^exponent, cap) for z > 0 and g(0) = 0, one per step."""

    slope: Array
    constant: Array
    exponent: float
    cap: Array


def distinct(training: Training) -> Array:
    """The step sizes, once if all are equal: constant runs of 10^12 steps stay small."""
    return training.step_sizes[:1] if training.constant else training.step_sizes


def contraction(etas: Array, loss: Loss, clipping: str) -> Array | None:
    """The Lipschitz constant of each update, rounded up; None if no linear bound is known."""
    if loss.kind == "unknown" or (loss.kind == "holder" and loss.exponent != 1):
        return None
    smoothness, l2 = loss.smoothness or 0.0, loss.regularization
    shrink = np.abs(1 - etas * l2)
    # 0·inf: a step of size zero does not move, however rough the loss.
    bend = np.multiply(etas, smoothness, out=np.zeros(len(etas)), where=etas > 0)
    expanding = (shrink + bend) * _UP
    if not loss.convex:
        return expanding
    if clipping == "gradient":
        return np.minimum(expanding, _clipped_convex(1 - etas * l2, bend))
    curvature = l2 + (loss.strong_convexity if clipping == "none" else 0.0)
    fastest = np.abs(1 - etas * l2 - bend)
    return np.maximum(np.abs(1 - etas * curvature), fastest) * _UP


def _clipped_convex(shrink: Array, bend: Array) -> Array:
    """(1 − ηr)·(1 − ηb/(4(1 − ηr)))^(−1/2) where it is defined, else infinity."""
    inside = 1 - np.divide(bend, 4 * shrink, out=np.full(len(bend), np.inf), where=shrink > 0)
    root = np.sqrt(np.maximum(inside, 0.0))
    return np.divide(shrink * _UP, root, out=np.full(len(bend), np.inf), where=root > 0)


def modulus(etas: Array, training: Training, loss: Loss) -> Modulus:
    """The modulus of a step whose loss has a Hoelder gradient, or only bounded gradients."""
    slope = np.abs(1 - etas * loss.regularization) * _UP
    cap = 2 * etas * training.gradient_norm * _UP
    if loss.kind == "unknown":
        return Modulus(slope, cap, 0.0, cap)
    exponent = 1.0 if loss.exponent is None else loss.exponent
    return Modulus(slope, etas * (loss.smoothness or 0.0) * _UP, exponent, cap)


def impulses(etas: Array, training: Training) -> Array:
    """s: what the differing record adds at a step whose batch holds it, rounded up."""
    return etas * training.impulse * _UP


def reachable(etas: Array, loss: Loss, clipping: str) -> tuple[Array, Array]:
    """The multipliers c' ≥ 0 of linear updates x ↦ c'x + const that the declared class contains.

    Linear losses are in every class that allows curvature 0; quadratic ones fill the rest up to
    the smoothness. Rounded inwards, because lower references must stay inside the class.
    """
    floor = loss.strong_convexity if loss.convex and clipping == "none" else 0.0
    top = 1 - etas * (loss.regularization + floor)
    ceiling = 0.0 if loss.kind == "unknown" else (loss.smoothness or 0.0)
    if clipping != "none" or loss.kind == "holder":
        ceiling = floor = 0.0  # curvature would meet the clip or break the Hoelder bound
    bend = np.multiply(etas, ceiling, out=np.zeros(len(etas)), where=etas > 0)
    low = np.maximum(1 - etas * loss.regularization - bend, 0.0) * _UP
    high = np.maximum(top, 0.0) / _UP
    return np.minimum(low, high), high
