"""Batches drawn afresh at every step: Poisson (zero-out) and without replacement (replace).

Both have a composition entry and a hidden-state entry; the numerics live in `poisson` and
`without_replacement`. The divisor of a Poisson batch is nominal, so a crowded batch bends more
than the loss and an empty one not at all: only the data-free L2 term contracts.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from lastiterate.curves.base import Curve
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.searched import Searched
from lastiterate.curves.with_failure import WithFailure
from lastiterate.description import Poisson, WithoutReplacement
from lastiterate.theorems import dynamics, poisson, without_replacement
from lastiterate.theorems.dynamics import Array
from lastiterate.theorems.ledger import Bound, Run, Theorem

_FAILURE_SHARE = 1e-3  # of delta, spent on batches larger than any that was allowed for
_STEEPEST = 1e6  # an update that expands more forgets nothing, and its powers leave the doubles
_MOST_STEPS = 10**7  # per-step schedules beyond this are not accounted one by one


def _scalar_or_steps(run: Run, values: Array) -> float | Array:
    """One number for constant runs: the kernels then have closed forms."""
    return float(values[0]) if run.training.constant else run.over_steps(values)


def _noise(run: Run) -> float | Array:
    return float(run.training.noises[0]) if run.training.constant else run.training.noises


def _part(values: float | Array, first: int, last: int) -> float | Array:
    return values if isinstance(values, float) else values[first:last]


class PoissonComposition(Theorem):
    """All iterates published, Poisson batches."""

    name = "Poisson composition"
    reference = "sampled Gaussian mechanism; Zhu, Dong, Wang 2022; privacy-loss distributions"
    statement = (
        "Each update is dominated by (1-q) N(0, 1) + q N(s/nu, 1) against N(0, 1), in both orders; "
        "the run by their composition."
    )
    assumptions = ("Poisson batches that stay secret", "zero-out adjacency")
    hidden_state = False
    momentum = True
    dominated_by = ("Poisson deferral",)

    def objection(self, run: Run) -> str | None:
        return _poisson_objection(run)

    def prove(self, run: Run) -> Bound:
        assert isinstance(run.training.batches, Poisson)
        s, nu = _scalar_or_steps(run, run.impulses), _noise(run) if run.training.steps else 1.0
        return Bound(self, _published(s, nu, run.training.batches.rate, run.training.steps))


def _published(s: float | Array, nu: float | Array, rate: float, steps: int) -> LossDistribution:
    return poisson.plain_curve(s, nu, rate, steps) if steps else LossDistribution.nothing()


def _poisson_objection(run: Run) -> str | None:
    training = run.training
    if not isinstance(training.batches, Poisson):
        return "it is stated for Poisson batches"
    if training.adjacency != "zero-out":
        return "it is stated for zero-out adjacency"
    if not training.constant and training.steps > _MOST_STEPS:
        return f"schedules of more than {_MOST_STEPS:,} steps are not accounted one by one"
    return None


class PoissonDeferral(Theorem):
    """Theorem M2: Poisson batches with a hidden state, without splitting the noise."""

    name = "Poisson deferral"
    reference = "this library, docs/theory/poisson.md"
    statement = (
        "For z_0 = 0, z_k >= 0, z_T = 0 and u_k = c_k z_k - z_{k+1} >= -s_k the run is dominated, "
        "in both orders, by the composition of (1-q) N(max(u_k, 0), nu_k^2) + q N(s_k + u_k, "
        "nu_k^2) against N(0, nu_k^2). c_k must hold for every realised batch: only the L2 term "
        "contracts, and batches larger than a cap are paid for in delta."
    )
    assumptions = (
        "Poisson batches that stay secret",
        "zero-out adjacency",
        "updates are Lipschitz for every realised batch",
    )

    def objection(self, run: Run) -> str | None:
        reason = _poisson_objection(run)
        if reason is None and not _smooth(run):
            return "it needs a smooth loss"
        if reason is None and math.isinf(run.training.diameter) and not run.loss.regularization:
            return (
                "without an L2 term (regularization) and without a bounded domain an empty batch "
                "forgets nothing"
            )
        return reason

    def prove(self, run: Run) -> Bound:
        return Bound(self, Searched(lambda delta: self._at(run, delta)))

    def _at(self, run: Run, delta: float) -> Curve:
        training = run.training
        assert isinstance(training.batches, Poisson)
        rate = training.batches.rate
        contraction, failure = poisson_contraction(run, delta)
        c, s = _scalar_or_steps(run, contraction), _scalar_or_steps(run, run.impulses)
        nu = _noise(run)
        parts = [
            poisson.best(
                _part(c, first, last),
                _part(s, first, last),
                _part(nu, first, last),
                rate,
                last - first,
                delta,
                training.diameter,
            ).curve
            for first, last in run.segments
        ]
        window, steps = training.steps - run.window + 1, training.steps
        tail = _published(_part(s, window, steps), _part(nu, window, steps), rate, steps - window)
        curve = tail.compose(*parts)
        return WithFailure(curve, failure) if failure else curve


def _smooth(run: Run) -> bool:
    """Whether every update has a usable Lipschitz constant, even if a batch holds all records."""
    if run.contraction is None:
        return False
    crowded = (run.loss.smoothness or 0.0) / run.training.batches.divisor(run.training.records)
    with np.errstate(over="ignore"):
        steepest = run.contraction + run.etas * crowded * run.training.records
    return bool(np.all(steepest <= _STEEPEST))


def poisson_contraction(run: Run, delta: float) -> tuple[Array, float]:
    """c of every step for all batches up to a cap, and the probability of a larger batch.

    The curvature a step sees lies between 0 and smoothness·cap/(rate·n). The cap is n if that
    costs nothing, else the size that all batches stay below except with a small share of delta.
    """
    training, loss = run.training, run.loss
    nominal = training.batches.divisor(training.records)
    assert isinstance(training.batches, Poisson)

    def at(cap: int) -> Array:
        crowded = (loss.smoothness or 0.0) * cap / nominal * dynamics.ROUNDING
        seen = dataclasses.replace(loss, smoothness=crowded, strong_convexity=0.0)
        c = dynamics.contraction(run.etas, seen, training.clipping)
        assert c is not None
        return c

    certain = at(training.records)
    if np.all(certain <= np.abs(1 - run.etas * loss.regularization) * dynamics.ROUNDING):
        return certain, 0.0
    failure = delta * _FAILURE_SHARE
    cap = poisson.batch_cap(training.records, training.batches.rate, training.steps, failure)
    return at(cap), failure


def _replacement_objection(run: Run) -> str | None:
    training = run.training
    if not isinstance(training.batches, WithoutReplacement):
        return "it is stated for batches drawn without replacement"
    if training.adjacency != "replace":
        return "it is stated for replace adjacency"
    if training.steps > _MOST_STEPS:
        return f"more than {_MOST_STEPS:,} steps are not accounted one by one"
    return None


def _share(run: Run) -> float:
    """q = b/n, rounded up."""
    share = run.training.batches.divisor(run.training.records) / run.training.records
    return min(share * dynamics.ROUNDING, 1.0)


class WithoutReplacementComposition(Theorem):
    """All iterates published, batches without replacement."""

    name = "Without-replacement composition"
    reference = "advanced joint convexity, Balle, Barthe, Gaboardi 2018; attained at one step"
    statement = (
        "One step has the profile delta(eps) = q G_mu(log(1 + (e^eps - 1)/q)), mu = s/nu, q = b/n, "
        "in both orders; the run is the composition of its steps."
    )
    assumptions = ("a fresh secret subset at every step", "replace adjacency")
    hidden_state = False
    momentum = True
    dominated_by = ("Corrected L Theorem 3.12",)

    def objection(self, run: Run) -> str | None:
        return _replacement_objection(run)

    def prove(self, run: Run) -> Bound:
        steps = run.training.steps
        if steps == 0:
            return Bound(self, LossDistribution.nothing())
        s, nu = _scalar_or_steps(run, run.impulses), _noise(run)
        curve = without_replacement.curve(1.0, s, nu, _share(run), steps, steps, 1.0)
        return Bound(self, curve)


class CorrectedWithoutReplacement(Theorem):
    """The corrected hidden-state theorem for batches without replacement."""

    name = "Corrected L Theorem 3.12"
    reference = "corrects Chien, Li 2025, Theorem 3.12; docs/theory/without-replacement.md"
    status = "corrected"
    statement = (
        "For a horizon tau, shares beta_t of the noise, z_tau >= min(D_tau, diameter), z_{t+1} = "
        "g(z_t) - a_{t+1} >= 0, z_T = 0: the run is dominated in both orders by the composition of "
        "C_q(G(s/(sqrt(beta_t) nu))) over t >= tau and one Gaussian of mu^2 = sum a_{t+1}^2/"
        "((1-beta_t) nu^2)."
    )
    correction = (
        "The printed divergence has the wrong direction, prints beta for sqrt(beta), and its proof "
        "conditions in the wrong order."
    )
    assumptions = (
        "a fresh secret subset at every step",
        "replace adjacency",
        "updates are Lipschitz",
    )

    def objection(self, run: Run) -> str | None:
        reason = _replacement_objection(run)
        if reason is None and not (
            run.contraction is not None and bool(np.all(np.isfinite(run.contraction)))
        ):
            return "it needs a smooth loss"
        return reason

    def prove(self, run: Run) -> Bound:
        return Bound(self, Searched(lambda delta: self._at(run, delta)))

    def _at(self, run: Run, delta: float) -> Curve:
        training = run.training
        assert run.contraction is not None
        c, s = _scalar_or_steps(run, run.contraction), _scalar_or_steps(run, run.impulses)
        # One step adds at most 2 eta K to the distance, if the L2 term does not overshoot.
        far = dynamics.reach(run.etas, training)
        far = np.where(run.etas * run.loss.regularization <= 1, far, math.inf)
        nu, reach, rate = _noise(run), _scalar_or_steps(run, far), _share(run)
        parts = [
            without_replacement.best(
                _part(c, first, last),
                _part(s, first, last),
                _part(nu, first, last),
                rate,
                last - first,
                delta,
                _part(reach, first, last),
                training.diameter,
            ).curve
            for first, last in run.segments
        ]
        window, steps = training.steps - run.window + 1, training.steps
        if window < steps:
            tail = [_part(values, window, steps) for values in (s, nu)]
            left = steps - window
            parts.append(without_replacement.curve(1.0, tail[0], tail[1], rate, left, left, 1.0))
        return parts[0].compose(*parts[1:])
