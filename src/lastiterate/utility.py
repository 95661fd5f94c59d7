"""How good the released model is: excess risk of noisy gradient descent on strongly convex losses.

C Theorem 4 and Lemma 6 with their corrections, and the noise and number of steps they prescribe;
shifted interpolation needs half of that noise variance for the same guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lastiterate.description import FullBatch, Loss, Training
from lastiterate.description.validation import number, whole
from lastiterate.errors import AssumptionError


def excess_risk(training: Training, loss: Loss, dimension: int) -> float:
    """An upper bound on E[empirical risk of the last iterate − its minimum].

    Statement (C Lemma 6): λ-strongly convex, β-smooth, L-Lipschitz, η ≤ λ/(2β²), noise variance
    2ησ² per coordinate: excess ≤ (2βL²/λ²)·e^(−ληT) + 2βdσ²/λ.
    Assumptions: the minimiser lies in the relative interior of the (bounded) domain, so that its
    diameter is at most 2L/λ; full batch.
    Status: corrected (an unrolling line misses η; the result stands, its noise part is twice the
    true constant βdσ²/λ).

    >>> run = Training.langevin(records=1000, steps=5000, step_size=0.02, sigma=0.01,
    ...                         gradient_sensitivity=2.0, gradient_norm=1.0)
    >>> round(excess_risk(run, Loss(smoothness=1.0, strong_convexity=0.1), dimension=10), 4)
    0.0291
    """
    whole("dimension", dimension, "every coordinate receives noise")
    curvature, smoothness = _strongly_convex(training, loss)
    eta, nu = float(training.step_sizes[0]), float(training.noises[0])
    if eta > curvature / (2 * smoothness**2) * (1 + 1e-12):
        raise AssumptionError(
            "excess_risk needs step_size <= lambda/(2 beta^2) = "
            f"{curvature / (2 * smoothness**2):g} (C Lemma 6), but it is {eta:g}. "
            "Take smaller steps."
        )
    lipschitz = training.needs_gradient_norm("the excess risk of C Lemma 6")
    bias = 2 * smoothness * (lipschitz / curvature) ** 2
    bias *= math.exp(-curvature * eta * training.steps)
    return bias + smoothness * dimension * nu**2 / (eta * curvature)


@dataclass(frozen=True)
class Prescription:
    """What C Theorem 4 tells us to run, and the noise that suffices with shifted interpolation."""

    step_size: float
    steps: int
    sigma: float
    sigma_shifted_interpolation: float
    excess_risk: float


def prescribe(
    records: int,
    dimension: int,
    epsilon: float,
    delta: float,
    loss: Loss,
    lipschitz: float,
) -> Prescription:
    """Step size, number of steps and noise of C Theorem 4 for an (epsilon, delta) target.

    Statement: with η = λ/(2β²), σ² = 8L²(ε + 2 log(1/δ))/(λε²n²) noisy gradient descent is
    (ε, δ)-DP for every number of steps, ε ≤ 2 log(1/δ); T* = (2β²/λ²) log(n²ε²/(4 log(1/δ) d)),
    rounded up, balances bias and noise (only a choice for utility). Shifted interpolation gives
    the same Renyi guarantee with σ² smaller by the factor (1 − ηλ/2)/2.
    """
    whole("records", records, "more records hide each one better")
    whole("dimension", dimension, "every coordinate receives noise")
    delta = number("delta", delta, "it is a probability", above=0, at_most=1)
    log_delta = math.log(1 / delta)
    epsilon = number(
        "epsilon",
        epsilon,
        "Theorem 4 covers 0 < epsilon <= 2 log(1/delta)",
        above=0,
        at_most=2 * log_delta,
    )
    lam, beta = loss.strong_convexity + loss.regularization, (loss.smoothness or 0.0)
    beta += loss.regularization
    if not loss.convex or lam <= 0:
        raise AssumptionError(
            f"prescribe needs a strongly convex loss, but it is {loss}. Add an L2 term "
            "(regularization > 0)."
        )
    eta = lam / (2 * beta**2)
    variance = 8 * lipschitz**2 * (epsilon + 2 * log_delta) / (lam * (epsilon * records) ** 2)
    balance = (records * epsilon) ** 2 / (4 * log_delta * dimension)
    steps = max(1, math.ceil(math.log(balance) / (lam * eta))) if balance > 1 else 1
    bias = 2 * beta * (lipschitz / lam) ** 2 * math.exp(-lam * eta * steps)
    return Prescription(
        step_size=eta,
        steps=steps,
        sigma=math.sqrt(variance),
        sigma_shifted_interpolation=math.sqrt(variance * (1 - eta * lam / 2) / 2),
        excess_risk=bias + 2 * beta * dimension * variance / lam,
    )


def _strongly_convex(training: Training, loss: Loss) -> tuple[float, float]:
    lam = loss.strong_convexity + loss.regularization
    if not isinstance(training.batches, FullBatch) or not training.constant or training.momentum:
        raise AssumptionError(
            "excess_risk is stated for full batches, constant parameters and no momentum."
        )
    if not loss.convex or lam <= 0 or training.clipping == "gradient":
        raise AssumptionError(
            f"excess_risk needs a strongly convex loss without gradient clipping, but the loss is "
            f"{loss} and clipping is {training.clipping!r}. Add an L2 term (regularization > 0)."
        )
    return lam, (loss.smoothness or 0.0) + loss.regularization
