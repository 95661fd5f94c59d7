"""Lower references of full batches.

Unbounded runs: the linear update x ↦ c'x ± s with multipliers the class can reach has an exact
Gaussian law. Bounded domains: linear losses give a projected Gaussian walk on an interval, whose
law is computed on a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from lastiterate.curves import gaussian
from lastiterate.description import Training
from lastiterate.theory import dynamics
from lastiterate.theory.dynamics import Array
from lastiterate.theory.run import Run

_DOWN = 1 - 1e-9
_HUGE_MU = 1e6
_CELLS = 400  # of the grid on a bounded domain
_SETTLING = 1_500  # steps after which a walk that has not settled is raised to a power instead


def unknown(_delta: float) -> float:
    """0: nothing is known of what some loss suffers."""
    return 0.0


def gaussian_epsilon_down(mu: float, delta: float) -> float:
    """The epsilon of mu-GDP, rounded down.

    `gaussian.epsilon` may be far above it for a huge mu. There, delta(mu²/2 - 10 mu) is nearly
    Phi(10), above 0.999.

    >>> gaussian_epsilon_down(4.4e19, 1e-5) <= 4.4e19**2 / 2 + 5 * 4.4e19
    True
    """
    if mu <= _HUGE_MU:
        return gaussian.epsilon(mu, delta) * _DOWN
    return mu * (mu / 2 - 10) * _DOWN if delta <= 0.999 else 0.0


def linear_map_mu(run: Run) -> float:
    """mu of the best linear update found within the multipliers the class can reach."""
    training = run.training
    low, high = dynamics.reachable(run.etas, run.loss, training.clipping)
    high = np.minimum(high, 1.0)  # expanding maps do not reveal more than non-expanding ones
    low = np.minimum(low, high)
    sensitivities = run.step_sensitivities / dynamics.ROUNDING**2
    if run.steps.constant:
        return _constant_linear(float(high[0]), float(sensitivities[0]), training) * _DOWN
    return _DOWN * max(
        _linear_mu(least, high, sensitivities, training.noises) for least in (high, low)
    )


def _constant_linear(c: float, s: float, training: Training) -> float:
    nu, steps = float(training.noises[0]), training.steps
    if nu == 0:
        return math.inf if s > 0 else 0.0
    if c == 1:
        return s / nu * math.sqrt(steps)
    shrunk = steps * math.log(c) if c > 0 else -math.inf
    return s / nu * math.sqrt(math.tanh(-shrunk / 2) * (1 + c) / (1 - c))


def _linear_mu(low: Array, high: Array, s: Array, nu: Array) -> float:
    """Mean gap over standard deviation at the end, each multiplier the best for the next step.

    With A the gap and V the variance so far, c' = Aν²/(Vs) maximises (c'A+s)²/(c'²V+ν²).
    """
    gap, deviation = 0.0, 0.0
    for lo, hi, sensitivity, noise in zip(
        low.tolist(), high.tolist(), s.tolist(), nu.tolist(), strict=True
    ):
        share = noise / deviation if deviation > 0 else math.inf
        ideal = gap / sensitivity * share * share if gap > 0 and sensitivity > 0 else math.inf
        c = min(max(ideal, lo), hi) if ideal >= 0 else hi
        gap, deviation = c * gap + sensitivity, math.hypot(c * deviation, noise)
    if deviation == 0:
        return math.inf if gap > 0 else 0.0
    return gap / deviation


def projected_walk(run: Run) -> Callable[[float], float]:
    """Linear losses on an interval, constant parameters, on a grid; 0 if the grid is too coarse."""
    training = run.training
    if not run.steps.constant or training.noises[0] <= 4 * training.diameter / _CELLS:
        return unknown
    _, high = dynamics.reachable(run.etas, run.loss, training.clipping)
    s = float(run.step_sensitivities[0])
    drifts = (s / 2, -s / 2) if training.adjacency == "replace" else (s, 0.0)

    @cache
    def laws() -> list[Array]:
        return [_walk(float(min(high[0], 1.0)), drift, run) for drift in drifts]

    def epsilon(delta: float) -> float:
        p, q = laws()
        # The grid's own error is far below one part in a thousand.
        return max(_hockey_stick_root(p, q, delta), _hockey_stick_root(q, p, delta)) * 0.999

    return epsilon


def _walk(c: float, drift: float, run: Run) -> Array:
    """The law of x ← clip(c x + drift + noise) on [−D/2, D/2]: atoms at the ends, cells between."""
    half, nu = run.training.diameter / 2, float(run.training.noises[0])
    edges = np.linspace(-half, half, _CELLS + 1)
    points = np.concatenate([[-half], (edges[1:] + edges[:-1]) / 2, [half]])
    below = ndtr((edges - (c * points + drift)[:, None]) / nu)
    step = np.diff(below, axis=1, prepend=0.0, append=1.0)
    start = np.zeros(_CELLS + 2)
    start[(_CELLS + 2) // 2] = 1.0
    law: Array = start
    for _ in range(min(run.training.steps, _SETTLING)):
        before, law = law, law @ step
        if np.all(np.abs(law - before) <= 1e-13 * before):
            return law
    if run.training.steps > _SETTLING:
        law = start @ np.linalg.matrix_power(step, run.training.steps)
    return law


def _hockey_stick_root(p: Array, q: Array, delta: float) -> float:
    def excess(epsilon: float) -> float:
        return float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) - delta

    if excess(0.0) <= 0:
        return 0.0
    top = 1.0
    while excess(top) > 0:
        top *= 2
        if top > 500:
            return 0.0  # beyond what the grid resolves
    return float(brentq(excess, 0.0, top))
