"""Lower references: what some loss of the declared class really suffers.

Never guarantees; they show how much of a bound is needed. Unbounded full-batch runs: the linear
update x ↦ c'x ± s with multipliers the class can reach has an exact Gaussian law. Bounded
domains: linear losses give a projected Gaussian walk on an interval, whose law is computed on a
grid. The other batch schemes bring theirs from their own rooms.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from lastiterate.bounds import dynamics
from lastiterate.bounds.ledger import Run
from lastiterate.bounds.lower_minibatch import lower_cyclic, lower_reshuffled, lower_shuffled
from lastiterate.bounds.poisson_lower import linear_lower
from lastiterate.bounds.steps import Array, Steps
from lastiterate.curves import gaussian
from lastiterate.description import (
    RandomAllocation,
    Training,
)

_DOWN = 1 - 1e-9
_HUGE_MU = 1e6
_MOST_STEPS = 1_000_000
_CELLS = 400  # of the grid on a bounded domain
_SETTLING = 1_500  # steps after which a walk that has not settled is raised to a power instead


def lower_reference(run: Run) -> Callable[[float], float]:
    """delta -> an epsilon that the declared class cannot go below (0 if nothing is known)."""
    training = run.training
    plain = training.proximal is None and training.correlation is None
    unknown = training.momentum or not plain or not run.unit.default
    if training.steps == 0 or unknown or not run.last_only:
        return lambda delta: 0.0
    # What rounding might add is charged to a guarantee, but nobody has seen a run suffer it.
    training = training.replace(arithmetic="exact")
    run = dataclasses.replace(run, training=training)
    if training.adjacency == "zero-out" and run.loss.strong_convexity:
        # Without its gradient the record's curvature is gone too: the two updates are no longer
        # the same linear map, and no exact law is at hand.
        return lambda delta: 0.0
    if training.batches.full:
        if math.isfinite(training.diameter):
            return _projected_walk(run)
        return lambda delta: gaussian_epsilon_down(linear_map_mu(run), delta)
    if math.isfinite(training.diameter) or training.steps > _MOST_STEPS:
        return lambda delta: 0.0
    if isinstance(training.batches, RandomAllocation):
        return lambda delta: 0.0
    if training.batches.ordered:
        return _ordered_batches(run)
    return _without_replacement(run) if training.batches.fixed_size else _poisson(run)


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


def _poisson(run: Run) -> Callable[[float], float]:
    """Linear losses under Poisson batches: only the L2 term shrinks, in every batch alike."""
    training = run.training
    if not run.steps.constant or run.loss.strong_convexity:  # then no loss of the class is linear
        return lambda delta: 0.0
    c = max(1 - float(run.etas[0]) * run.loss.regularization, 0.0)
    s, nu = float(run.impulses[0]) / dynamics.ROUNDING**2, float(training.noises[0])
    rate, steps = training.batches.share(training.records), training.steps
    if training.adjacency == "replace":  # two opposite gradients, as far apart as is declared
        return lambda delta: linear_lower(Steps(c, s / 2, nu, steps), rate, delta, opposite=True)
    return lambda delta: linear_lower(Steps(c, s, nu, steps), rate, delta)


def _without_replacement(run: Run) -> Callable[[float], float]:
    """Linear updates on subsets: all other records pull like the second of the two (or not at all).

    A batch then holds the record by a coin of its own, and the other run is one Gaussian. Every
    batch has its nominal size, so that quadratic losses shrink it too; with a record that is
    zeroed out, whose curvature would go as well, only the L2 term does.
    """
    training = run.training
    if not run.steps.constant:
        return lambda delta: 0.0
    low, high = dynamics.reachable(run.etas, run.loss, training.clipping)
    ends = {float(high[0])} if training.adjacency == "zero-out" else {float(low[0]), float(high[0])}
    s, nu = float(run.impulses[0]) / dynamics.ROUNDING**2, float(training.noises[0])
    rate = training.batches.divisor(training.records) / training.records / dynamics.ROUNDING
    maps = [Steps(min(c, 1.0), s, nu, training.steps) for c in ends]
    return lambda delta: max(linear_lower(steps, rate, delta) for steps in maps)


def _ordered_batches(run: Run) -> Callable[[float], float]:
    """The linear references of cyclic, shuffled and reshuffled batches."""
    training = run.training
    batches = training.batches_per_epoch
    if batches is None or batches > _MOST_STEPS:
        return lambda delta: 0.0
    low, high = dynamics.reachable(run.etas, run.loss, training.clipping)
    s, nu = run.impulses / dynamics.ROUNDING**2, training.noises
    if not training.batches.hidden:
        return lambda delta: gaussian_epsilon_down(lower_cyclic(low, high, s, nu, batches), delta)
    reference = lower_shuffled if training.batches.repeated else lower_reshuffled
    return lambda delta: reference(low, high, s, nu, batches, delta, training.adjacency)


def linear_map_mu(run: Run) -> float:
    """mu of the best linear update found within the multipliers the class can reach."""
    training = run.training
    low, high = dynamics.reachable(run.etas, run.loss, training.clipping)
    high = np.minimum(high, 1.0)  # expanding maps do not reveal more than non-expanding ones
    low = np.minimum(low, high)
    impulses = run.impulses / dynamics.ROUNDING**2
    if run.steps.constant:
        return _constant_linear(float(high[0]), float(impulses[0]), training) * _DOWN
    return _DOWN * max(_linear_mu(least, high, impulses, training.noises) for least in (high, low))


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
    for lo, hi, impulse, noise in zip(
        low.tolist(), high.tolist(), s.tolist(), nu.tolist(), strict=True
    ):
        share = noise / deviation if deviation > 0 else math.inf
        ideal = gap / impulse * share * share if gap > 0 and impulse > 0 else math.inf
        c = min(max(ideal, lo), hi) if ideal >= 0 else hi
        gap, deviation = c * gap + impulse, math.hypot(c * deviation, noise)
    if deviation == 0:
        return math.inf if gap > 0 else 0.0
    return gap / deviation


def _projected_walk(run: Run) -> Callable[[float], float]:
    """Linear losses on an interval, constant parameters, on a grid; 0 if the grid is too coarse."""
    training = run.training
    if not run.steps.constant or training.noises[0] <= 4 * training.diameter / _CELLS:
        return lambda delta: 0.0
    _, high = dynamics.reachable(run.etas, run.loss, training.clipping)
    s = float(run.impulses[0])
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
