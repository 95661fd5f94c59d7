"""How good the released model is: excess risk of noisy gradient descent on strongly convex losses.

Chourasia, Ye & Shokri 2021, Lemma 6 with its correction.
"""

from __future__ import annotations

import math

from lastiterate.description import Loss, Training
from lastiterate.description.fields import integer
from lastiterate.errors import AssumptionError


def excess_risk(training: Training, loss: Loss, dimension: int) -> float:
    """An upper bound on E[empirical risk of the last iterate − its minimum].

    Statement (Chourasia, Ye & Shokri 2021, Lemma 6): λ-strongly convex, β-smooth, L-Lipschitz, η ≤
    λ/(2β²), noise variance 2ησ² per coordinate: excess ≤ (2βL²/λ²)·e^(−ληT) + 2βdσ²/λ.
    Assumptions: the minimiser lies in the relative interior of the (bounded) domain, so that its
    diameter is at most 2L/λ; full batch.
    Status: corrected (an unrolling line misses η; the result stands, its noise part is twice the
    true constant βdσ²/λ).

    >>> run = Training.langevin(records=1000, steps=5000, step_size=0.02, sigma=0.01,
    ...                         gradient_sensitivity=2.0, gradient_norm=1.0, diameter=20.0,
    ...                         adjacency="replace")
    >>> round(excess_risk(run, Loss(smoothness=1.0, strong_convexity=0.1), dimension=10), 4)
    0.0291
    """
    integer("dimension", dimension)
    curvature, smoothness = _strongly_convex(training, loss)
    eta, nu = float(training.step_sizes[0]), float(training.noises[0])
    if eta > curvature / (2 * smoothness**2) * (1 + 1e-12):
        raise AssumptionError(
            "excess_risk needs step_size <= lambda/(2 beta^2) = "
            f"{curvature / (2 * smoothness**2):g} (Chourasia, Ye & Shokri 2021, Lemma 6), "
            f"but it is {eta:g}. "
            "Take smaller steps."
        )
    lipschitz = training.needs_gradient_norm(
        "the excess risk of Chourasia, Ye & Shokri 2021, Lemma 6"
    )
    largest = 2 * lipschitz / curvature
    if not training.diameter <= largest * (1 + 1e-12):
        raise AssumptionError(
            f"excess_risk needs a bounded domain of diameter at most 2 L/lambda = {largest:g}, but "
            f"diameter is {training.diameter:g}: beyond it no strongly convex loss has gradients "
            f"of norm at most L. Set diameter={largest:g} or less."
        )
    bias = 2 * smoothness * (lipschitz / curvature) ** 2
    bias *= math.exp(-curvature * eta * training.steps)
    return bias + smoothness * dimension * nu**2 / (eta * curvature)


def _strongly_convex(training: Training, loss: Loss) -> tuple[float, float]:
    training.needs_plain_updates("excess_risk")
    lam = loss.strong_convexity + loss.regularization
    if not training.batches.full or not training.constant or training.momentum:
        raise AssumptionError(
            "excess_risk is stated for full batches, constant parameters and no momentum."
        )
    if not loss.convex or lam <= 0 or training.clipping == "gradient":
        raise AssumptionError(
            f"excess_risk needs a strongly convex loss without gradient clipping, but the loss is "
            f"{loss} and clipping is {training.clipping!r}. Add an L2 term (regularization > 0)."
        )
    return lam, (loss.smoothness or 0.0) + loss.regularization
