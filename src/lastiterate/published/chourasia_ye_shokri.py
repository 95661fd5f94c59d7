"""Chourasia, Ye & Shokri 2021: privacy dynamics of Langevin diffusion, full batches.

In the canonical units s = ηS_g/n and ν² = 2ησ² the paper's S_g²/(σ²n²) is 2s²/(ην²). Every bound
here is a line through the origin, R_α ≤ coefficient·α for all orders, in units of what one
published update costs: ``unit`` = ηS_g²/(4σ²n²) = s²/(2ν²), `price`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from lastiterate._internal.formatting import printed
from lastiterate.curves.renyi import linear
from lastiterate.description import FullBatch
from lastiterate.description.fields import number
from lastiterate.errors import AssumptionError
from lastiterate.published.setting import (
    UP,
    Floats,
    Mixture,
    convex,
    first_reason,
    renyi_moments,
    strongly_convex,
    theorem,
    unit,
)
from lastiterate.theory.registry import ADJACENCIES, ANY_UPDATE, Proof, Theorem
from lastiterate.theory.run import Run

Ball = tuple[Sequence[float], float]  # centre, radius


# --- log-Sobolev inequalities -------------------------------------------------------------------


def lemma_2(
    order: float, gap: float, sigma: float, first: Mixture, second: Mixture, gamma: float = 0.5
) -> float:
    """Lemma 2: dR_α/dt ≤ αS_v²/(4γσ²) - (1-γ)σ²α I_α/E_α, S_v = ``gap`` of the drifts.

    >>> law = [1.0], [0.0], [1.0]
    >>> lemma_2(2.0, 1.0, 1.0, law, law, gamma=1.0)
    0.5
    """
    found = renyi_moments(order, first, second)
    lost = (1 - gamma) * sigma**2 * order * found.information / found.moment
    return order * gap**2 / (4 * gamma * sigma**2) - lost


def lemma_3(order: float, c: float, first: Mixture, second: Mixture) -> tuple[float, float]:
    """Lemma 3: both sides of R_α + α(α-1) dR_α/dα ≤ α²/(2c) I_α/E_α if ``second`` is c-LSI.

    >>> left, right = lemma_3(2.0, 1.0, ([1.0], [1.0], [1.0]), ([1.0], [0.0], [1.0]))
    >>> round(left, 6), round(right, 6)  # attained by Gaussians of one variance
    (2.0, 2.0)
    """
    found = renyi_moments(order, first, second)
    left = found.divergence + order * (order - 1) * found.slope
    return left, order**2 / (2 * c) * found.information / found.moment


def lemma_5(strong_convexity: float, sigma: float) -> float:
    """Lemma 5: λ/(2σ²), the LSI constant of the tracing diffusion, η < 1/β, any start."""
    return strong_convexity / (2 * sigma**2)


def lemma_8(c: float, lipschitz: float) -> float:
    """Lemma 8: the LSI constant c/L² after an L-Lipschitz map."""
    return c / lipschitz**2


def lemma_9(c: float, time: float) -> float:
    """Lemma 9: the LSI constant (1/c + 2t)^-1 after adding N(0, 2t); c = inf is a point mass.

    >>> lemma_9(math.inf, 0.5)
    1.0
    """
    return 1 / (1 / c + 2 * time)


# --- bounds -------------------------------------------------------------------------------------


def price(sensitivity: float, sigma: float, records: int, step_size: float) -> float:
    """ηS_g²/(4σ²n²): the Renyi coefficient of one published update."""
    return step_size * (sensitivity / (sigma * records)) ** 2 / 4


def theorem_1(unit: float, steps: float) -> float:
    """Theorem 1, and the baseline of Figures 1 and 2: κ = unit·K, composition."""
    return unit * steps


def theorem_2(unit: float, rate: float, steps: float, gamma: float = 0.5) -> float:
    """Theorem 2, any LSI constant c: κ = unit·(1 - e^(-(1-γ)·rate·K))/(γ(1-γ)·rate), rate = 2σ²cη.

    Printed for γ = 1/2. Corollary 1 has rate = ηλ (Lemma 5), Corollary 2 rate = η(2-η).

    >>> eta = 0.02
    >>> upper = theorem_2(price(4.0, 0.02, 5000, eta), eta * (2 - eta), 1000)
    >>> round(upper / theorem_3(price(4.0, 0.02, 5000, eta), eta, 1000), 2)  # "two times"
    2.02
    """
    return unit * -math.expm1(-(1 - gamma) * rate * steps) / (gamma * (1 - gamma) * rate)


def first_better_steps(order: float, step_size: float) -> int:
    """Figure 2: the first K at which Corollary 2 is below composition.

    Appendix E says that it falls as the order grows. REFUTED: both are linear in the order.

    >>> [first_better_steps(order, 0.02) for order in (1.5, 10.0, 30.0, 200.0)]
    [81, 81, 81, 81]
    """
    steps, rate = 1, step_size * (2 - step_size)
    while order * theorem_2(1.0, rate, steps) >= order * theorem_1(1.0, steps):
        steps += 1
    return steps


def theorem_3(unit: float, step_size: float, steps: int) -> float:
    """Theorem 3, (68): R_α ≥ α·unit/η·(1 - e^(-ηK)) for ½‖θ - x‖², η < 1; Figure 2's dashes.

    >>> f"{theorem_3(price(4.0, 0.02, 5000, 0.02), 0.02, 1000):.2e}"
    '4.00e-04'
    """
    number("step_size", step_size, "the theorem is stated below it", above=0, below=1)
    return unit / step_size * -math.expm1(-step_size * steps)


def theorem_3_exact(unit: float, step_size: float, steps: int) -> float:
    """The exact divergence in the proof of Theorem 3, which (68) bounds from below.

    unit/η·(2-η)(1-(1-η)^K)/(1+(1-η)^K); the taut string is equal to it.

    >>> f"{theorem_3_exact(price(4.0, 0.02, 5000, 0.02), 0.02, 1000):.2e}"
    '7.92e-04'
    """
    number("step_size", step_size, "the theorem is stated below it", above=0, below=1)
    left = (1 - step_size) ** steps
    return unit / step_size * (2 - step_size) * (1 - left) / (1 + left)


class Tuning(NamedTuple):
    """What Theorem 4 sets: η, σ², K*, and the excess empirical risk by Lemma 6."""

    step_size: float
    variance: float
    steps: int
    risk: float


def lemma_6(problem: Sequence[float], variance: float, step_size: float, steps: int) -> float:
    """Lemma 6: excess risk ≤ (2βL²/λ²)e^(-ληK) + 2βdσ²/λ, η ≤ λ/(2β²), σ² = ``variance``.

    ``problem`` is (L, λ, β, n, d).
    """
    lipschitz, lam, beta, _, dimension = problem
    bias = 2 * beta * (lipschitz / lam) ** 2 * math.exp(-lam * step_size * steps)
    return bias + 2 * beta * dimension * variance / lam


def theorem_4(problem: Sequence[float], order: float, epsilon: float) -> Tuning:
    """Theorem 4: η = λ/(2β²), σ² = 4αL²/(λε'n²) are (α, ε')-RDP after any number of steps.

    K* = (2β²/λ²) log(n²ε'/(αd)), rounded up, makes the excess risk at most 10αβdL²/(λ²ε'n²).
    ``problem`` is (L, λ, β, n, d). Status: sound; half the variance is enough.

    >>> theorem_4((1.0, 0.1, 1.0, 10_000, 10), order=8.0, epsilon=0.5).steps
    2670
    """
    number("order", order, "Renyi divergence needs it", above=1)
    number("epsilon", epsilon, "it is a target", above=0)
    lipschitz, lam, beta, n, dimension = problem
    variance, eta = 4 * order * (lipschitz / n) ** 2 / (lam * epsilon), lam / (2 * beta**2)
    gain = max(n**2 * epsilon / (order * dimension), 1.0)
    steps = max(1, math.ceil(math.log(gain) / (lam * eta)))
    return Tuning(eta, variance, steps, lemma_6(problem, variance, eta, steps))


def theorem_4_dp(problem: Sequence[float], epsilon: float, delta: float) -> Tuning:
    """Theorem 4 for (ε, δ)-DP, ε ≤ 2 log 1/δ: its RDP form at α = 1 + 2 log(1/δ)/ε, ε' = ε/2.

    σ² = 8L²(ε + 2 log 1/δ)/(λε²n²); the printed K* = (2β²/λ²) log(n²ε²/(4 log(1/δ) d)) is an upper
    bound on this one's.
    """
    log = math.log(1 / delta)
    if not 0 < epsilon <= 2 * log:
        raise AssumptionError(
            f"Theorem 4 needs 0 < epsilon <= 2 log(1/delta) = {2 * log:g}, but epsilon is "
            f"{printed(epsilon)}. Take a smaller epsilon or the RDP form."
        )
    return theorem_4(problem, 1 + 2 * log / epsilon, epsilon / 2)


# --- Algorithm 1 and its tracing diffusion ------------------------------------------------------


def algorithm_1(
    data: ArrayLike, ball: Ball, step_size: float, sigma: float, steps: int, seed: int = 0
) -> Floats:
    """Algorithm 1 as printed, for the loss (69): θ_0..θ_K on a fixed ball C = (centre, radius).

    θ_0 = Π_C N(0, 2σ²I/λ), λ = 1, θ_(k+1) = Π_C(θ_k - η∇L_D(θ_k) + N(0, 2ησ²I)): C is where it is,
    whatever the start. For study: the noise of a seeded generator protects nobody.

    >>> path = algorithm_1([[3.0, 0.0]], ([1.0, 0.0], 0.5), 0.1, 0.2, 100)
    >>> path.shape, bool(np.all(np.hypot(*(path - [1.0, 0.0]).T) <= 0.5 + 1e-12))
    ((101, 2), True)
    """
    noise = np.random.default_rng(seed).normal(size=(steps + 1, len(ball[0])))
    path = [_project(math.sqrt(2) * sigma * noise[0], ball)]
    for z in noise[1:]:
        path.append(tracing_diffusion(path[-1], (data, data), ball, step_size, sigma, step_size, z))
    return np.array(path)


def tracing_diffusion(
    theta: ArrayLike,
    pair: tuple[ArrayLike, ArrayLike],
    ball: Ball,
    step_size: float,
    sigma: float,
    time: float,
    noise: ArrayLike = 0.0,
) -> Floats:
    """(67) for the loss (69): the tracing diffusion a time s in (0, η] after θ; ``noise`` is Z.

    ``pair`` is (D, D'). θ - η(∇L_D + ∇L_D')/2 - s(∇L_D - ∇L_D')/2 + sqrt(2sσ²)Z, and Π_C of it at
    s = η, where it is the step of Algorithm 1 on D.

    >>> tracing_diffusion([0.0], ([[1.0]], [[-1.0]]), ([0.0], 9.0), 0.1, 0.2, time=0.1)
    array([0.1])
    """
    number("time", time, "a step of the diffusion lasts step_size", above=0, at_most=step_size)
    point = np.asarray(theta, dtype=float)
    ours, theirs = (point - np.mean(np.asarray(rows), axis=0) for rows in pair)
    drift = step_size * (ours + theirs) / 2 + time * (ours - theirs) / 2
    moved = point - drift + math.sqrt(2 * time) * sigma * np.asarray(noise)
    return _project(moved, ball) if time == step_size else moved


def _project(theta: Floats, ball: Ball) -> Floats:
    """Π_C: the nearest point of a ball."""
    away = theta - np.asarray(ball[0], dtype=float)
    return np.asarray(
        theta - away * (1 - min(1.0, ball[1] / max(float(np.linalg.norm(away)), 1e-300)))
    )


# --- of a run -----------------------------------------------------------------------------------


def _theorem_1(run: Run) -> Proof:
    """R_α ≤ α S_g² ηT/(4σ²n²)."""
    return Proof(linear(unit(run) * run.training.steps * UP))


def _theorem_2(run: Run) -> Proof:
    """Theorem 2 with the free parameter γ optimised; any γ is valid, so a rough optimum is."""
    rate, steps = float(run.etas[0]) * run.curvature, run.training.steps
    shape = partial(theorem_2, 1.0, rate, steps)
    best = minimize_scalar(shape, bounds=(1e-9, 1 - 1e-9), method="bounded")
    value = unit(run) * min(float(best.fun), shape(0.5), float(steps))  # gamma -> 1: composition
    return Proof(linear(value * UP), {"gamma": float(best.x)})


def _corollary_1(run: Run) -> Proof:
    """Theorem 2 at γ = 1/2."""
    rate = float(run.etas[0]) * run.curvature
    return Proof(linear(theorem_2(unit(run), rate, run.training.steps) * UP))


def _corollary_2(run: Run) -> Proof:
    """Squared losses, with h = ηλ: unit·4(1 − e^(−(2−h)hT/2))/(h(2−h))."""
    h = float(run.etas[0]) * run.curvature
    return Proof(linear(theorem_2(unit(run), h * (2 - h), run.training.steps) * UP))


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

ROWS: tuple[Theorem, ...] = (
    theorem(
        "chourasia-ye-shokri-2021-1",
        schemes=(FullBatch,),
        bound=_theorem_1,
        supports=ANY_UPDATE - {"schedules", "grid"} | {"momentum", "releases"},
    ),
    theorem(
        "chourasia-ye-shokri-2021-2",
        schemes=(FullBatch,),
        bound=_theorem_2,
        limits=_DYNAMICS,
        supports=ADJACENCIES,
    ),
    theorem(
        "chourasia-ye-shokri-2021-corollary-1",
        schemes=(FullBatch,),
        bound=_corollary_1,
        limits=_DYNAMICS,
        supports=ADJACENCIES,
    ),
    theorem(
        "chourasia-ye-shokri-2021-corollary-2",
        schemes=(FullBatch,),
        bound=_corollary_2,
        limits=first_reason(convex, strongly_convex, _squared),
        supports=ADJACENCIES,
    ),
)
