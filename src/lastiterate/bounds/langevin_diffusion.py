"""C: privacy dynamics of Langevin diffusion, for full-batch noisy gradient descent.

In the canonical units s = ηS_g/n and ν² = 2ησ² the paper's S_g²/(σ²n²) is 2s²/(ην²). Every bound
here is a line through the origin: R_α ≤ coefficient·α for all orders.
"""

from __future__ import annotations

import math

from scipy.optimize import minimize_scalar

from lastiterate.bounds.dynamics import squared_ratio
from lastiterate.bounds.ledger import Bound, Run, Theorem
from lastiterate.curves.renyi import linear
from lastiterate.description import FullBatch

_UP = 1 + 1e-12
_SLOWEST = 1e-200  # eta lambda: below, quotients leave the range of doubles


def unit(run: Run) -> float:
    """s²/(2ν²): the RDP coefficient of one published update."""
    return float(squared_ratio(run.impulses[:1], run.training.noises[:1])[0]) / 2


def strongly_convex_objection(run: Run) -> str | None:
    """What stands in the way of the strongly convex full-batch theorems of 2021 and 2022."""
    training = run.training
    if not run.steps.constant:
        return "it is stated for constant step size and noise"
    if not run.last_only:
        return "more than the last iterate is released"
    if not run.loss.convex or training.clipping == "gradient":
        return "it needs a convex loss whose gradients are not clipped"
    if run.curvature <= 0:
        return "it needs strong convexity (strong_convexity or regularization above 0)"
    if run.etas[0] * run.curvature < _SLOWEST:
        return "it needs a step size above 0: it divides by what one step forgets"
    return None


class LangevinComposition(Theorem):
    """Chourasia, Ye & Shokri 2021, Theorem 1."""

    key = "chourasia-ye-shokri-2021-1"
    name = "Chourasia, Ye & Shokri 2021, Theorem 1"
    reference = "Chourasia, Ye & Shokri 2021, Theorem 1"
    statement = "R_alpha <= alpha S_g^2 eta T/(4 sigma^2 n^2): composition in continuous time."
    dominated_by = ("taut-string",)
    schemes = (FullBatch,)
    assumptions = ("full batch, constant step size and noise",)
    hidden_state = False
    momentum = True

    def objection(self, run: Run) -> str | None:
        if not run.steps.constant:
            return "it is stated for constant step size and noise"
        if run.training.slip:
            return "continuous time has no grid to round to"
        return None if run.training.steps else "there is no step"

    def prove(self, run: Run) -> Bound:
        return Bound(self, linear(unit(run) * run.training.steps * _UP))


class LangevinDynamics(Theorem):
    """Chourasia, Ye & Shokri 2021, Theorem 2 with the free parameter gamma optimised."""

    key = "chourasia-ye-shokri-2021-2"
    name = "Chourasia, Ye & Shokri 2021, Theorem 2"
    reference = "Chourasia, Ye & Shokri 2021, Theorem 2 and Lemma 5, any gamma in (0, 1]"
    status = "corrected"
    statement = (
        "lambda-strongly convex, beta-smooth, eta < 1/beta: for every gamma in (0, 1], R_alpha <= "
        "alpha (s^2/2nu^2) (1 - exp(-(1-gamma) lambda eta T))/(gamma (1-gamma) eta lambda)."
    )
    correction = (
        "Printed for gamma = 1/2 only. Step (60) contracts at a fixed order, which is false for "
        "true divergences; it holds for bounds that are linear in the order, which these are."
    )
    dominated_by = ("taut-string",)
    schemes = (FullBatch,)
    assumptions = ("full batch", "strongly convex, smooth, no gradient clipping", "eta < 1/beta")

    def objection(self, run: Run) -> str | None:
        reason = strongly_convex_objection(run)
        if reason is None and run.etas[0] * run.roughness >= 1:
            return "it needs step_size < 1/(smoothness + regularization)"
        return reason

    def prove(self, run: Run) -> Bound:
        rate = float(run.etas[0]) * run.curvature

        def shape(gamma: float) -> float:
            return dissipation(1.0, rate, run.training.steps, gamma)

        # Any gamma is valid, so a rough optimum is sound; gamma -> 1 is composition.
        best = minimize_scalar(shape, bounds=(1e-9, 1 - 1e-9), method="bounded")
        value = unit(run) * min(float(best.fun), shape(0.5), float(run.training.steps))
        return Bound(self, linear(value * _UP), {"gamma": float(best.x)})


def dissipation(unit: float, rate: float, steps: float, gamma: float) -> float:
    """unit·(1 − e^(−(1−γ)·rate·steps))/(γ(1−γ)·rate), rate = ηλ."""
    return unit * -math.expm1(-(1 - gamma) * rate * steps) / (gamma * (1 - gamma) * rate)


class LangevinStronglyConvex(LangevinDynamics):
    """Chourasia, Ye & Shokri 2021, Corollary 1: Theorem 2 at gamma = 1/2."""

    key = "chourasia-ye-shokri-2021-corollary-1"
    name = "Chourasia, Ye & Shokri 2021, Corollary 1"
    reference = "Chourasia, Ye & Shokri 2021, Corollary 1"
    statement = (
        "lambda-strongly convex, beta-smooth, eta < 1/beta: R_alpha <= alpha S_g^2/(lambda sigma^2 "
        "n^2) (1 - exp(-lambda eta T/2))."
    )
    correction = "The bound stands; its proof is repaired as for Theorem 2."

    def prove(self, run: Run) -> Bound:
        rate = float(run.etas[0]) * run.curvature
        return Bound(self, linear(dissipation(unit(run), rate, run.training.steps, 0.5) * _UP))


class LangevinSquaredLoss(Theorem):
    """Chourasia, Ye & Shokri 2021, Corollary 2."""

    key = "chourasia-ye-shokri-2021-corollary-2"
    name = "Chourasia, Ye & Shokri 2021, Corollary 2"
    reference = "Chourasia, Ye & Shokri 2021, Corollary 2"
    status = "corrected"
    statement = (
        "Every record's loss is (lambda/2)||theta - x||^2 up to a linear term, 0 < eta lambda < 2; "
        "with h = eta lambda: R_alpha <= alpha (s^2/2nu^2) 4 (1 - exp(-(2-h) h T/2))/(h (2-h))."
    )
    correction = "The condition 0 < eta < 2 is not printed."
    dominated_by = ("taut-string",)
    schemes = (FullBatch,)
    assumptions = ("full batch", "smoothness = strong convexity", "0 < eta lambda < 2")

    def objection(self, run: Run) -> str | None:
        reason = strongly_convex_objection(run)
        if reason is None and run.curvature != run.roughness:
            return "it needs smoothness equal to strong_convexity (a squared loss)"
        if reason is None and run.etas[0] * run.curvature >= 2:
            return "it needs step_size < 2/(strong_convexity + regularization)"
        return reason

    def prove(self, run: Run) -> Bound:
        h = float(run.etas[0]) * run.curvature
        growth = -math.expm1(-(2 - h) * h * run.training.steps / 2)
        return Bound(self, linear(unit(run) * 4 * growth / (h * (2 - h)) * _UP))
