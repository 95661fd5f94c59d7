"""Batches drawn afresh at every step: Poisson with a record zeroed out, and without replacement.

(Poisson batches with a record replaced: `replaced_in_poisson`.) Both have a composition entry and
a hidden-state entry; the numerics live in `poisson` and `without_replacement`. The divisor of a
Poisson batch is nominal, so a crowded batch bends more than the loss and an empty one not at all:
only the data-free L2 term contracts.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from lastiterate.bounds import (
    dynamics,
    poisson,
    poisson_groups,
    refined_stretches,
    without_replacement,
)
from lastiterate.bounds.ledger import PRESENCE, Bound, Proof, Run, Theorem
from lastiterate.bounds.steps import Array, Steps
from lastiterate.curves.group_pair import GroupPair
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import OpposedPair, ReplacedPair, SampledPair
from lastiterate.curves.with_failure import WithFailure
from lastiterate.description import Poisson, WithoutReplacement

_FAILURE_SHARE = 1e-3  # of delta, spent on batches larger than any that was allowed for
_STEEPEST = 1e6  # an update that expands more forgets nothing, and its powers leave the doubles
MOST_COINS = 30  # of a person with several records
MOST_STEPS = 10**7  # per-step schedules beyond this are not accounted one by one


def hidden(run: Run) -> list[tuple[int, int]]:
    """The stretches of hidden steps that have any."""
    return [(first, last) for first, last in run.segments if last > first]


def menu(curve: LossDistribution) -> list[list[float]]:
    """The shifts that steps are charged as: part of a witness.

    Without the record and with it, or with none, with one, and what each further one adds.
    """
    sampled = [pair for pair in curve.counts if isinstance(pair, SampledPair)]
    grouped = [pair for pair in curve.counts if isinstance(pair, GroupPair)]
    return [[pair.low, pair.high] for pair in sampled] + [
        [pair.low, pair.high, pair.gap] for pair in grouped
    ]


def offers(curve: LossDistribution) -> list[list[float]]:
    """(record, payment) of the pairs that steps are charged as: part of a witness."""
    opposed = [pair for pair in curve.counts if isinstance(pair, OpposedPair)]
    replaced = [pair for pair in curve.counts if isinstance(pair, ReplacedPair)]
    return [[pair.back, pair.low] for pair in opposed] + [
        [pair.mu - pair.low if pair.low else pair.mu, pair.low] for pair in replaced
    ]


class PoissonComposition(Theorem):
    """All iterates published, Poisson batches."""

    key = "poisson-composition"
    name = "Poisson composition (Zhu, Dong & Wang 2022)"
    reference = "sampled Gaussian mechanism; Zhu, Dong & Wang 2022; privacy-loss distributions"
    statement = (
        "Each update is dominated by (1-q) N(0, 1) + q N(s/nu, 1) against N(0, 1), in both orders; "
        "the run by their composition. k records of a person have a coin each: sum over i of "
        "Bin(k, q)(i) N(i s/nu, 1) against N(0, 1)."
    )
    schemes = (Poisson,)
    assumptions = ("Poisson batches that stay secret", "zero-out adjacency")
    hidden_state = False
    momentum = True
    covers = PRESENCE | {"records"}

    def objection(self, run: Run) -> str | None:
        return poisson_objection(run, "zero-out")

    def prove(self, run: Run) -> Bound:
        rate = run.training.batches.share(run.training.records)
        curve = _published(run.steps, rate, run.unit.records)
        return Bound(self, curve, {"menu": menu(curve)})


def _published(steps: Steps, rate: float, records: int) -> LossDistribution:
    if not steps.count:
        return LossDistribution.nothing()
    return poisson_groups.plain_group_curve(steps, rate, records)


def poisson_objection(run: Run, adjacency: str) -> str | None:
    """What keeps a theorem about Poisson batches from saying anything about the run, or None."""
    if run.training.adjacency != adjacency:
        return f"it is stated for {adjacency} adjacency"
    if run.unit.records > MOST_COINS:
        return f"it follows the coins of at most {MOST_COINS} records of a person"
    if not run.steps.constant and run.steps.count > MOST_STEPS:
        return f"schedules of more than {MOST_STEPS:,} steps are not accounted one by one"
    return None


class PoissonDeferral(Theorem):
    """Theorem M2: Poisson batches with a hidden state, without splitting the noise."""

    key = "poisson-deferral"
    name = "Poisson deferral"
    reference = "this library, docs/theory/poisson.md"
    statement = (
        "For z_0 = 0, z_k >= 0, z_T = 0 and u_k = c_k z_k - z_{k+1} >= -s_k the run is dominated, "
        "in both orders, by the composition of (1-q) N(max(u_k, 0), nu_k^2) + q N(s_k + u_k, "
        "nu_k^2) against N(0, nu_k^2). c_k must hold for every realised batch: only the L2 term "
        "contracts, and batches larger than a cap are paid for in delta. k records of a person: "
        "sum over i of Bin(k, q)(i) N(max(i s_k + u_k, 0), nu_k^2) against N(0, nu_k^2)."
    )
    schemes = (Poisson,)
    assumptions = (
        "Poisson batches that stay secret",
        "zero-out adjacency",
        "updates are Lipschitz for every realised batch",
    )
    rounding = True
    covers = PRESENCE | {"records"}

    def objection(self, run: Run) -> str | None:
        reason = poisson_objection(run, "zero-out")
        if reason is None and not _smooth(run):
            return "it needs a smooth loss"
        return reason or nothing_forgotten(run)

    def prove(self, run: Run) -> Bound:
        return Bound.searched(self, lambda delta: self._at(run, delta))

    def _at(self, run: Run, delta: float) -> Proof:
        training = run.training
        rate = training.batches.share(training.records)
        contraction, cap, failure = poisson_contraction(run, delta)
        steps = run.having(c=contraction)
        window = _published(steps[run.hidden_steps :], rate, run.unit.records)
        parts = [steps[first:last] for first, last in hidden(run)]
        given = run.unit.records, delta, training.diameter
        found = poisson_groups.best_stretches(parts, rate, *given, window)
        stretches = list[dict[str, Any]]()
        for (first, last), bound in zip(hidden(run), found, strict=True):
            left = {} if bound.path is None else {"left": bound.path.left}
            stretches.append({"first": first, "last": last, **left})
        curve = window.compose(*(bound.curve for bound in found))
        witness = {"cap": cap, "stretches": stretches, "menu": menu(curve)}
        return Proof(WithFailure(curve, failure) if failure else curve, witness)


def nothing_forgotten(run: Run) -> str | None:
    """Why Poisson batches may forget nothing of what earlier steps left over, or None."""
    if run.loss.regularization or math.isfinite(run.training.diameter):
        return None
    return (
        "without an L2 term (regularization) and without a bounded domain an empty batch "
        "forgets nothing"
    )


def _smooth(run: Run) -> bool:
    """Whether every update has a usable Lipschitz constant, even if a batch holds all records."""
    if run.contraction is None:
        return False
    crowded = (run.loss.smoothness or 0.0) / run.training.batches.divisor(run.training.records)
    with np.errstate(over="ignore"):
        steepest = run.contraction + run.etas * crowded * run.training.records
    return bool(np.all(steepest <= _STEEPEST))


def poisson_contraction(run: Run, delta: float) -> tuple[Array, int, float]:
    """c of every step for all batches up to a cap, the cap, and what a larger batch may cost.

    The curvature a step sees lies between 0 and smoothness·cap/(rate·n). The cap is n if that
    costs nothing, else the size that all batches stay below except with a small share of delta.
    """
    training, loss = run.training, run.loss
    nominal = training.batches.divisor(training.records)

    def at(cap: int) -> Array:
        crowded = (loss.smoothness or 0.0) * cap / nominal * dynamics.ROUNDING
        seen = dataclasses.replace(loss, smoothness=crowded, strong_convexity=0.0)
        c = dynamics.contraction(run.etas, seen, training.clipping)
        assert c is not None
        return c

    certain = at(training.records)
    if np.all(certain <= np.abs(1 - run.etas * loss.regularization) * dynamics.ROUNDING):
        return certain, training.records, 0.0
    failure = delta * _FAILURE_SHARE
    rate = training.batches.share(training.records)
    cap = poisson.batch_cap(training.records, rate, training.steps, failure)
    return at(cap), cap, failure


def _replacement_objection(run: Run) -> str | None:
    training = run.training
    if training.steps > MOST_STEPS:
        return f"more than {MOST_STEPS:,} steps are not accounted one by one"
    return None


def batch_share(run: Run) -> float:
    """q = b/n, rounded up."""
    share = run.training.batches.share(run.training.records)
    return min(share * dynamics.ROUNDING, 1.0)


def pushes(run: Run) -> Array:
    """How far one record moves a batch drawn without replacement, against any other batch of it.

    A record that is replaced moves it by the sensitivity. One that is zeroed out still displaces
    another record, whose gradient is as long as its own: twice the sensitivity. Either way there
    are two sums, and each is rounded once.
    """
    training = run.training
    if training.adjacency == "replace":
        return run.impulses
    return dynamics.impulses(run.etas, training, 2 * training.sensitivity)


class WithoutReplacementComposition(Theorem):
    """All iterates published, batches without replacement."""

    key = "without-replacement-composition"
    name = "Without-replacement composition (Balle, Barthe & Gaboardi 2018)"
    reference = "advanced joint convexity, Balle, Barthe & Gaboardi 2018; attained at one step"
    statement = (
        "One step has the profile delta(eps) = q G_mu(log(1 + (e^eps - 1)/q)), mu = s/nu, q = b/n, "
        "in both orders; the run is the composition of its steps. A record that is zeroed out "
        "displaces another one, so that s is twice as long as its own impulse."
    )
    schemes = (WithoutReplacement,)
    assumptions = ("a fresh secret subset at every step",)
    hidden_state = False
    momentum = True

    def objection(self, run: Run) -> str | None:
        return _replacement_objection(run)

    def prove(self, run: Run) -> Bound:
        curve = without_replacement.plain(run.having(s=pushes(run)), batch_share(run))
        return Bound(self, curve, {"menu": offers(curve)})


def farthest(run: Run) -> Array:
    """How much one step can add to a distance at most: 2 eta K, if the L2 term does not overshoot.

    Every record may pull the two runs apart, and rounding may.
    """
    far = dynamics.reach(run.etas, run.training) + run.drifts
    return np.where(run.etas * run.loss.regularization <= 1, far * dynamics.ROUNDING, math.inf)


class CorrectedWithoutReplacement(Theorem):
    """The corrected hidden-state theorem for batches without replacement."""

    key = "chien-li-2025-3.12"
    name = "Chien & Li 2025, Theorem 3.12, corrected"
    reference = "corrects Chien & Li 2025, Theorem 3.12; docs/theory/without-replacement.md"
    status = "corrected"
    statement = (
        "For a horizon tau, z_tau >= min(D_tau, diameter), a_t >= 0 with z_{t+1} = c z_t - a_t >= "
        "0, z_T = 0: the run is dominated in both orders by the composition over t >= tau of the "
        "pairs with profile min over r <= g of (1-q) G_a(log r) + q G_{a+s}(log((g - (1-q) r)/q)) "
        "at g = e^eps >= 1, a and s in units of the noise. (G_mu: the profile of one Gaussian.)"
    )
    correction = (
        "The printed divergence has the wrong direction, prints beta for sqrt(beta), and its proof "
        "conditions in the wrong order. The noise of a step need not be split."
    )
    schemes = (WithoutReplacement,)
    assumptions = ("a fresh secret subset at every step", "updates are Lipschitz")
    rounding = True

    def objection(self, run: Run) -> str | None:
        reason = _replacement_objection(run)
        if reason is None and not run.regular:
            return "it needs a smooth loss"
        return reason

    def prove(self, run: Run) -> Bound:
        return Bound.searched(self, lambda delta: self._at(run, delta))

    def _at(self, run: Run, delta: float) -> Proof:
        training, rate = run.training, batch_share(run)
        steps = run.having(s=pushes(run), reach=farthest(run))
        window = without_replacement.plain(steps[run.hidden_steps :], rate)
        pair_of = without_replacement.pair_of(rate)
        parts = refined_stretches.stretches(
            pair_of, steps, hidden(run), delta, training.diameter, window
        )
        stretches = [{"first": x.first, "last": x.last, "pays": x.found.pays} for x in parts]
        curve = window.compose(*(part.found.curve for part in parts))
        return Proof(curve, {"menu": offers(curve), "stretches": stretches})
