"""Chourasia, Ye & Shokri 2021: privacy dynamics of Langevin diffusion, full batches.

In the canonical units s = ηS_g/n and ν² = 2ησ² the paper's S_g²/(σ²n²) is 2s²/(ην²). Every bound
here is a line through the origin: R_α ≤ coefficient·α for all orders.
"""

from __future__ import annotations

import math
from functools import partial

from scipy.optimize import minimize_scalar

from lastiterate.curves.renyi import linear
from lastiterate.description import FullBatch
from lastiterate.published.setting import UP, convex, first_reason, strongly_convex, unit
from lastiterate.theory.registry import ADJACENCIES, ANY_UPDATE, Proof, Theorem
from lastiterate.theory.run import Run


def dissipation(unit: float, rate: float, steps: float, gamma: float) -> float:
    """unit·(1 − e^(−(1−γ)·rate·steps))/(γ(1−γ)·rate), rate = ηλ."""
    return unit * -math.expm1(-(1 - gamma) * rate * steps) / (gamma * (1 - gamma) * rate)


def theorem_1(run: Run) -> Proof:
    """R_α ≤ α S_g² ηT/(4σ²n²)."""
    return Proof(linear(unit(run) * run.training.steps * UP))


def theorem_2(run: Run) -> Proof:
    """Theorem 2 with the free parameter γ optimised; any γ is valid, so a rough optimum is."""
    rate, steps = float(run.etas[0]) * run.curvature, run.training.steps
    shape = partial(dissipation, 1.0, rate, steps)
    best = minimize_scalar(shape, bounds=(1e-9, 1 - 1e-9), method="bounded")
    value = unit(run) * min(float(best.fun), shape(0.5), float(steps))  # gamma -> 1: composition
    return Proof(linear(value * UP), {"gamma": float(best.x)})


def corollary_1(run: Run) -> Proof:
    """Theorem 2 at γ = 1/2."""
    rate = float(run.etas[0]) * run.curvature
    return Proof(linear(dissipation(unit(run), rate, run.training.steps, 0.5) * UP))


def corollary_2(run: Run) -> Proof:
    """Squared losses, with h = ηλ: unit·4(1 − e^(−(2−h)hT/2))/(h(2−h))."""
    h = float(run.etas[0]) * run.curvature
    growth = -math.expm1(-(2 - h) * h * run.training.steps / 2)
    return Proof(linear(unit(run) * 4 * growth / (h * (2 - h)) * UP))


def _slow(run: Run) -> str | None:
    if run.etas[0] * run.smoothness >= 1:
        return "it needs step_size < 1/(smoothness + regularization)"
    return None


def _squared(run: Run) -> str | None:
    if run.curvature != run.smoothness:
        return "it needs smoothness equal to strong_convexity (a squared loss)"
    if run.etas[0] * run.curvature >= 2:
        return "it needs step_size < 2/(strong_convexity + regularization)"
    return None


_DYNAMICS = first_reason(convex, strongly_convex, _slow)
_ASSUMED = ("full batch", "strongly convex, smooth, no gradient clipping", "eta < 1/beta")

ROWS: tuple[Theorem, ...] = (
    Theorem(
        key="chourasia-ye-shokri-2021-1",
        name="Chourasia, Ye & Shokri 2021, Theorem 1",
        reference="Chourasia, Ye & Shokri 2021, Theorem 1",
        statement="R_alpha <= alpha S_g^2 eta T/(4 sigma^2 n^2): composition in continuous time.",
        schemes=(FullBatch,),
        bound=theorem_1,
        supports=ANY_UPDATE - {"schedules", "grid"} | {"momentum", "releases"},
        assumptions=("full batch, constant step size and noise",),
        hidden_state=False,
        dominated_by=("taut-string",),
    ),
    Theorem(
        key="chourasia-ye-shokri-2021-2",
        name="Chourasia, Ye & Shokri 2021, Theorem 2",
        reference="Chourasia, Ye & Shokri 2021, Theorem 2 and Lemma 5, any gamma in (0, 1]",
        status="corrected",
        statement=(
            "lambda-strongly convex, beta-smooth, eta < 1/beta: for every gamma in (0, 1], R_alpha "
            "<= alpha (s^2/2nu^2) (1 - exp(-(1-gamma) lambda eta T))/(gamma (1-gamma) eta lambda)."
        ),
        correction=(
            "Printed for gamma = 1/2 only. Step (60) contracts at a fixed order, which is false "
            "for true divergences; it holds for bounds that are linear in the order, which these "
            "are."
        ),
        schemes=(FullBatch,),
        bound=theorem_2,
        limits=_DYNAMICS,
        supports=ADJACENCIES,
        assumptions=_ASSUMED,
        dominated_by=("taut-string",),
    ),
    Theorem(
        key="chourasia-ye-shokri-2021-corollary-1",
        name="Chourasia, Ye & Shokri 2021, Corollary 1",
        reference="Chourasia, Ye & Shokri 2021, Corollary 1",
        status="corrected",
        statement=(
            "lambda-strongly convex, beta-smooth, eta < 1/beta: R_alpha <= alpha S_g^2/(lambda "
            "sigma^2 n^2) (1 - exp(-lambda eta T/2))."
        ),
        correction="The bound stands; its proof is repaired as for Theorem 2.",
        schemes=(FullBatch,),
        bound=corollary_1,
        limits=_DYNAMICS,
        supports=ADJACENCIES,
        assumptions=_ASSUMED,
        dominated_by=("taut-string",),
    ),
    Theorem(
        key="chourasia-ye-shokri-2021-corollary-2",
        name="Chourasia, Ye & Shokri 2021, Corollary 2",
        reference="Chourasia, Ye & Shokri 2021, Corollary 2",
        status="corrected",
        statement=(
            "Every record's loss is (lambda/2)||theta - x||^2 up to a linear term, 0 < eta lambda "
            "< 2; with h = eta lambda: R_alpha <= alpha (s^2/2nu^2) 4 (1 - exp(-(2-h) h "
            "T/2))/(h (2-h))."
        ),
        correction="The condition 0 < eta < 2 is not printed.",
        schemes=(FullBatch,),
        bound=corollary_2,
        limits=first_reason(convex, strongly_convex, _squared),
        supports=ADJACENCIES,
        assumptions=("full batch", "smoothness = strong convexity", "0 < eta lambda < 2"),
        dominated_by=("taut-string",),
    ),
)
