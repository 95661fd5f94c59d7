"""Poisson batches, one record replaced by another: composition and the hidden state.

The numerics live in `poisson_replace`. A pair needs the length of a gradient, not only how far two
of them can be apart: the third law of a step is a batch without the record.
"""

from __future__ import annotations

import math

import numpy as np

from lastiterate.bounds import (
    dynamics,
    poisson_replace,
    refined_stretches,
    without_replacement,
)
from lastiterate.bounds.ledger import Bound, Proof, Run, Theorem
from lastiterate.bounds.sampled_batches import (
    hidden,
    nothing_forgotten,
    offers,
    poisson_contraction,
    poisson_objection,
)
from lastiterate.bounds.steps import Array
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import ReplacedPair
from lastiterate.curves.with_failure import WithFailure
from lastiterate.description import Poisson


def lengths(run: Run) -> Array:
    """h: how far the record alone moves a batch that holds it, rounding included, rounded up."""
    return dynamics.impulses(run.etas, run.training, run.training.gradient_norm)


def closer(run: Run) -> bool:
    """Whether the two gradients are declared to be closer than opposite ones could be."""
    return run.training.sensitivity < 2 * run.training.gradient_norm


def _objection(run: Run) -> str | None:
    reason = poisson_objection(run, "replace")
    if reason is None and not math.isfinite(run.training.gradient_norm):
        return "it needs a bound on the length of a gradient (gradient_norm)"
    return reason


def published(run: Run, first: int, last: int, delta: float) -> LossDistribution:
    """Every step paid for: opposite gradients or, if these are declared closer, the better one.

    Gradients no longer than h and no farther apart than s also have, by advanced joint convexity,
    the profile of a batch without replacement with shift max(h, s), in both orders.
    """
    if last <= first or not np.any(run.impulses > 0.0):
        return LossDistribution.nothing()
    rate = run.training.batches.share(run.training.records)
    h = lengths(run)
    opposed = poisson_replace.plain(run.having(s=h)[first:last], rate)
    if not closer(run):
        return opposed
    longer = run.having(s=np.maximum(h, run.impulses))
    near = without_replacement.plain(longer[first:last], rate)
    return min(opposed, near, key=lambda curve: curve.epsilon(delta))


def _near(curve: LossDistribution) -> bool:
    """Whether steps are charged as gradients close together, not as opposite ones."""
    return any(isinstance(pair, ReplacedPair) for pair in curve.counts)


class PoissonReplaceComposition(Theorem):
    """All iterates published, Poisson batches, a record replaced."""

    key = "poisson-replace-composition"
    name = "Poisson replace composition"
    reference = "this library, docs/theory/poisson.md; double mixtures as in dp-accounting"
    statement = (
        "With gradients of length at most K, h = eta K/(rate n), each update is dominated by (1-q) "
        "N(0, 1) + q N(h/nu, 1) against (1-q) N(0, 1) + q N(-h/nu, 1), in any dimension and both "
        "orders; the run by their composition."
    )
    schemes = (Poisson,)
    assumptions = ("Poisson batches that stay secret", "replace adjacency")
    hidden_state = False
    momentum = True

    def objection(self, run: Run) -> str | None:
        return _objection(run)

    def prove(self, run: Run) -> Bound:
        def at(delta: float) -> Proof:
            curve = published(run, 0, run.training.steps, delta)
            return Proof(curve, {"menu": offers(curve), "near": _near(curve)})

        if closer(run):
            return Bound.searched(self, at)
        always = at(1e-5)
        return Bound(self, always.curve, always.witness)


class PoissonReplaceAbsorption(Theorem):
    """Poisson batches with a hidden state, a record replaced."""

    key = "poisson-replace-absorption"
    name = "Poisson replace absorption"
    reference = "this library, docs/theory/poisson.md"
    statement = (
        "For a horizon tau, z_tau >= min(D_tau, diameter) with D_{t+1} = c D_t + s, a_t >= 0 with "
        "z_{t+1} = c_t z_t - a_t >= 0, z_T = 0: the run is dominated, in both orders, by the "
        "composition over t >= tau of (1-q) N(a_t) + q N(h_t + a_t) against (1-q) N(0) + q "
        "N(-h_t), in units of the noise. c_t must hold for every realised batch: only the L2 term "
        "contracts, and batches larger than a cap are paid for in delta."
    )
    schemes = (Poisson,)
    assumptions = (
        "Poisson batches that stay secret",
        "replace adjacency",
        "updates are Lipschitz for every realised batch",
    )
    rounding = True

    def objection(self, run: Run) -> str | None:
        reason = _objection(run)
        if reason is None and run.contraction is None:
            return "it needs a smooth loss"
        return reason or nothing_forgotten(run)

    def prove(self, run: Run) -> Bound:
        return Bound.searched(self, lambda delta: self._at(run, delta))

    def _at(self, run: Run, delta: float) -> Proof:
        training = run.training
        contraction, cap, failure = poisson_contraction(run, delta)
        rate = training.batches.share(training.records)
        steps = run.having(c=contraction, s=lengths(run), gap=run.impulses)
        tail = published(run, run.hidden_steps, training.steps, delta)
        near = (lambda first, last: published(run, first, last, delta)) if closer(run) else None
        parts = refined_stretches.stretches(
            poisson_replace.pair_of(rate),
            steps,
            hidden(run),
            delta,
            training.diameter,
            tail,
            near,
        )
        stretches = [
            {"first": x.first, "last": x.last, "pays": x.found.pays, "near": _near(x.found.curve)}
            for x in parts
        ]
        curve = tail.compose(*(part.found.curve for part in parts))
        witness = {
            "cap": cap,
            "stretches": stretches,
            "menu": offers(curve),
            "near": _near(tail),
        }
        return Proof(WithFailure(curve, failure) if failure else curve, witness)
