"""L: convergent privacy without convexity or smoothness, full batches (Theorems 3.1 and 3.7).

Both theorems are the taut-string program with the extra demand that every step pays at least its
own impulse. They are kept with their exact optimum, to be compared; shifted interpolation is
never worse and is stronger as a Gaussian guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from lastiterate.bounds import dynamics
from lastiterate.bounds.langevin_diffusion import unit
from lastiterate.bounds.ledger import Bound, Run, Theorem
from lastiterate.bounds.shifted_interpolation import modulus_path
from lastiterate.bounds.steps import Array
from lastiterate.curves.renyi import linear
from lastiterate.description import FullBatch

_UP = 1 + 1e-12
_SMALLEST = 1e-290  # lifts what underflowed back above the truth
_FORGETS = 1e-100  # a factor whose powers leave the range of doubles
_HORIZONS = 100_000  # more remaining steps are not tried: any subset of horizons is a valid bound
_EACH = 2_000  # horizons tried one by one; beyond them coarsely, then closely around the best


def _objection(run: Run) -> str | None:
    if not run.steps.constant:
        return "it is stated for constant step size and noise"
    if not run.last_only:
        return "more than the last iterate is released"
    return None


class ShiftedDivergence(Theorem):
    """Chien & Li 2025, Theorem 3.1, exact optimum over tau and beta."""

    key = "chien-li-2025-3.1"
    name = "Chien & Li 2025, Theorem 3.1"
    reference = "Chien & Li 2025, Theorem 3.1"
    status = "corrected"
    statement = (
        "With d_tau = min(s sum_{t<tau} c^t, 2 eta K tau, D): R_alpha <= (alpha/2 nu^2) min over "
        "tau and beta of sum_{t>=tau} s^2/beta_t + d_tau^2 / sum_{t>=tau} (1-beta_t) "
        "c^(-2(t-tau+1)). The optimum has beta_t = s/(s+a_t), s + a_t = max(s, kappa "
        "c^(-(t-tau+1))), kappa from one root."
    )
    correction = (
        "The proof conditions in an order that tilts the other run; conditioning one step at a "
        "time repairs it. For convex losses the clip must be inactive, or the constant of clipped "
        "updates be used."
    )
    dominated_by = ("taut-string",)
    schemes = (FullBatch,)
    assumptions = ("full batch, constant parameters", "updates are c-Lipschitz")

    def objection(self, run: Run) -> str | None:
        if not run.regular:
            return "it needs a smooth loss"
        return _objection(run)

    def prove(self, run: Run) -> Bound:
        training = run.training
        c, s, nu = run.steps.one
        cap = float(dynamics.reach(run.etas[:1], training)[0] + run.drifts[0])
        best = unit(run) * training.steps
        if nu > 0 and s > 0:

            def costs(left: Array) -> Array:
                start = _distance(c, s, cap, training.diameter, training.steps - left)
                with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                    cost = remaining_cost(c, s / nu, start / nu, left)  # in units of the noise
                return np.where(np.isnan(cost), math.inf, np.maximum(cost, _SMALLEST))

            best = min(best, _cheapest(costs, min(training.steps - 1, _HORIZONS)) / 2)
        return Bound(self, linear(best * _UP))


def _cheapest(costs: Callable[[Array], Array], most: int) -> float:
    """The least cost over 1..most remaining steps."""
    left = np.arange(1, min(most, _EACH) + 1, dtype=float)
    if most > _EACH:
        left = np.append(left, np.unique(np.geomspace(_EACH + 1, most, 400).round()))
    found = costs(left)
    if most > _EACH:
        i = int(np.argmin(found))
        low, high = left[max(i - 1, 0)], left[min(i + 1, len(left) - 1)]
        found = np.append(found, costs(np.arange(low, high + 1)))
    return float(found.min(initial=math.inf))


def _distance(c: float, s: float, cap: float, diameter: float, steps: Array) -> Array:
    """d_tau: how far apart two runs can be after so many steps."""
    if c == 1:
        tracked = s * steps
    else:
        with np.errstate(over="ignore"):
            tracked = s * np.expm1(steps * math.log(c)) / (c - 1) if c > 0 else s + 0 * steps
    return np.minimum(np.minimum(tracked, cap * steps), diameter)


def remaining_cost(c: float, s: float, start: Array, left: Array) -> Array:
    """min Σ(s + a_i)² over a_i ≥ 0 with Σ c^(−i) a_i = start, i = 1..left (every step pays s).

    s + a_i = max(s, κ c^(−i)): the active steps are the last ones for c < 1 and the first ones
    for c > 1; their number is found by bisection, κ then in closed form.
    """
    if c < _FORGETS:
        return left * s * s + (c * start) ** 2 + 2 * c * start * s  # the next step pays for it
    towards = c if c < 1 else 1 / c
    if towards < _FORGETS:
        return np.full(left.shape, math.inf)  # the distance leaves the range of doubles
    # In units where the most active step has weight 1: the demand and the weights towards^r.
    with np.errstate(under="ignore"):
        demand = start * (np.exp(left * math.log(c)) if c < 1 else c)

    def kappa(active: Array) -> Array:
        return (demand + s * _geometric(towards, active)) / _geometric(towards**2, active)

    low, high = np.ones_like(left), left.copy()
    while np.any(low < high):  # largest count whose least active step still pays at least s
        middle = np.ceil((low + high) / 2)
        fits = kappa(middle) * towards ** (middle - 1) >= s
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return kappa(low) ** 2 * _geometric(towards**2, low) + (left - low) * s * s


def _geometric(q: float, terms: Array) -> Array:
    """Σ_{r < terms} q^r."""
    return terms.copy() if q == 1 else np.expm1(terms * math.log(q)) / (q - 1)


class HolderShiftedDivergence(Theorem):
    """Chien & Li 2025, Theorem 3.7: gradients that are only Hoelder continuous."""

    key = "chien-li-2025-3.7"
    name = "Chien & Li 2025, Theorem 3.7"
    reference = "Chien & Li 2025, Theorem 3.7"
    status = "corrected"
    statement = (
        "As Theorem 3.1 with z_{t+1} = g(z_t) - a_t, g(z) = z + min(eta L z^p, 2 eta K). For "
        "constant parameters its optimum over tau, beta and the shifts is that of shifted "
        "interpolation, as Renyi divergence."
    )
    correction = "The proof is repaired as for Theorem 3.1."
    dominated_by = ("taut-string",)
    schemes = (FullBatch,)
    assumptions = ("full batch, constant parameters", "Hoelder gradients, bounded domain")

    def objection(self, run: Run) -> str | None:
        if run.loss.kind not in ("holder", "unknown"):
            return "it is meant for losses whose gradient is only Hoelder continuous"
        if run.loss.regularization:
            return "it is stated without an L2 term"
        if not math.isfinite(run.training.diameter):
            return "the domain is unbounded (diameter = inf)"
        return dynamics.no_modulus(run.training, run.loss) or _objection(run)

    def prove(self, run: Run) -> Bound:
        mu = modulus_path(run, 0, run.training.steps)[0].mu
        return Bound(self, linear(mu * mu / 2 * _UP))
