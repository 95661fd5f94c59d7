"""Random allocation: every record picks one of the batches of an epoch. The numerics: `allocation`.

As with Poisson batches the divisor is nominal, so that a crowded batch has more curvature than the
loss and an empty one none: what holds for every realised batch counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lastiterate.bounds import allocation, dynamics
from lastiterate.bounds.allocation import Accountant, Epoch
from lastiterate.bounds.ledger import Bound, Proof, Run, Theorem
from lastiterate.bounds.sampled_batches import poisson_contraction
from lastiterate.curves.base import Curve
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.with_failure import WithFailure
from lastiterate.description import RandomAllocation

MOST_BATCHES = 100_000  # in an epoch
MOST_EPOCHS = 10**6
_EVERY = 2**53  # records that a batch may have: no cap
_SLACK = 1 + 2**-48  # a few rounding errors of a ratio


def _objection(run: Run) -> str | None:
    if run.training.adjacency != "zero-out":
        return (
            "it is stated for zero-out adjacency; for two records that replace each other it is "
            "not derived here: take adjacency='zero-out', or Poisson batches"
        )
    if run.unit.timed:
        return "it speaks of a record that every epoch holds"
    if run.steps.count and not np.all(run.steps.nu[:1] > 0):
        return None
    if (run.training.batches_per_epoch or 1) > MOST_BATCHES:
        return f"more than {MOST_BATCHES:,} batches in an epoch are not accounted"
    if run.training.epochs > MOST_EPOCHS:
        return f"more than {MOST_EPOCHS:,} epochs are not accounted"
    return None


def _epochs(run: Run) -> tuple[int, int, int]:
    """Batches, epochs (the last may be cut short), and steps of the last one."""
    batches = run.training.batches_per_epoch or 1
    epochs = -(-run.training.steps // batches)
    return batches, epochs, run.training.steps - batches * (epochs - 1)


def _unprotected(run: Run) -> Curve | None:
    """The curve where nothing is used, or some noise is missing; None in between."""
    used = run.impulses > 0
    if not run.training.steps or not np.any(used):
        return LossDistribution({})
    nu = run.training.noises if len(run.impulses) > 1 else run.training.noises[:1]
    return Gaussian(math.inf) if np.any(nu[used] <= 0) else None


def _same(run: Run) -> bool:
    batches = run.training.batches
    assert isinstance(batches, RandomAllocation)
    return batches.same_every_epoch


def public_epochs(run: Run, ratio: float) -> list[Epoch]:
    """The terms of all epochs, all iterates public."""
    batches, epochs, labels = _epochs(run)
    if not _same(run):
        rows = [allocation.public_epoch(batches, ratio, epochs - 1)] if epochs > 1 else []
        return [*rows, allocation.public_epoch(batches, ratio, 1, batches - labels)]
    square = ratio * ratio * (1 + 2**-48)
    terms = [(labels, epochs), (batches - labels, epochs - 1)]
    groups = tuple(
        allocation.Group(1, square * uses * (1 + 2**-50), count)
        for count, uses in terms
        if count and uses
    )
    idle = batches - labels if epochs == 1 else 0
    return [Epoch(groups, None, idle, 1)]


def _written(accountant: Accountant, epochs: list[Epoch], plan: Any) -> dict[str, Any]:
    """What the check needs: the payments, and how far likelihood ratios are told apart."""
    tops = [accountant.tops(epoch) for epoch in epochs]
    found: dict[str, Any] = {"tops": [list(pair) for pair in tops]}
    if plan is not None:
        found["blocks"] = [[list(sizes), count] for sizes, count in plan.blocks]
        found |= {"tail": plan.steps, "kappa": plan.kappa}
    return found


def _or_gaussian(
    at: Callable[[float], Proof], ratio: float, epochs: int, charged: float | None = None
) -> Callable[[float], Proof]:
    """The dearest label in every epoch, r sqrt(E)-GDP, where it is cheaper or all there is."""
    charged = ratio if charged is None else charged
    alone = Proof(Gaussian(ratio * math.sqrt(epochs) * _SLACK), {"gaussian": True, "cap": _EVERY})

    def chosen(delta: float) -> Proof:
        if charged > allocation.MOST:
            return alone
        return min(at(delta), alone, key=lambda proof: proof.curve.epsilon(delta))

    return chosen


class AllocationComposition(Theorem):
    """All iterates published, random allocation."""

    key = "allocation-composition"
    name = "Random allocation"
    reference = "this library, docs/theory/allocation.md; balls in bins: Chua et al. 2024"
    statement = (
        "An epoch is dominated, in both orders, by (1/B) sum_j N(r e_j, I) against N(0, I), r the "
        "largest s/nu: the likelihood ratio is the mean of B independent lognormals. Epochs in "
        "which records pick anew compose; picks for the whole run have r sqrt(E)."
    )
    schemes = (RandomAllocation,)
    assumptions = ("independent uniform picks that stay secret", "zero-out adjacency")
    hidden_state = False
    momentum = True
    covers = frozenset({"gradient_norm"})

    def objection(self, run: Run) -> str | None:
        return _objection(run)

    def prove(self, run: Run) -> Bound:
        known = _unprotected(run)
        if known is not None:
            return Bound(self, known, {"tops": [], "cap": run.training.records})
        squares = dynamics.squared_ratio(run.impulses, run.training.noises[: len(run.impulses)])
        ratio = math.sqrt(float(squares.max())) * _SLACK
        epochs = public_epochs(run, max(ratio, allocation.LEAST))

        def at(delta: float) -> Proof:
            accountant = Accountant(_epochs(run)[0], delta, sum(e.copies for e in epochs) > 1)
            curve = accountant.curve(epochs, allocation.POINTS)
            return Proof(curve, _written(accountant, epochs, None))

        return Bound.searched(self, _or_gaussian(at, ratio, _epochs(run)[1]))


class AllocationDeferral(Theorem):
    """Random allocation with a hidden state."""

    key = "allocation-deferral"
    name = "Random allocation, deferred"
    reference = "this library, docs/theory/allocation.md"
    statement = (
        "For each label w let z^w >= 0 be a path that is 0 at the start and the end, and a^w_k = "
        "(c_k z^w_k + s^w_k - z^w_{k+1})_+ / nu_k. The run is dominated, in both orders, by "
        "sum_w p_w N(a^w, I) against N(0, I). Labels are deferred in blocks and in a tail of the "
        "last steps. c_k <= 1 must hold for every realised batch; batches larger than a cap are "
        "paid for in delta."
    )
    schemes = (RandomAllocation,)
    assumptions = (
        "independent uniform picks that stay secret",
        "zero-out adjacency",
        "updates are not expansive for any realised batch",
    )
    rounding = True
    covers = frozenset({"gradient_norm"})

    def objection(self, run: Run) -> str | None:
        reason = _objection(run)
        if reason is not None:
            return reason
        if run.training.proximal is not None:
            return "it is not stated for updates that a proximal step follows"
        if not run.last_only:
            return "it is stated for the last iterate alone"
        if _same(run) and _epochs(run)[1] > 1:
            return "of picks that are the same in every epoch it covers one epoch"
        if run.contraction is None:
            return "it needs a smooth loss"
        if not self._contracts(run, _USUAL_DELTA):
            return (
                "its updates may expand: it needs a convex loss, gradients that are not clipped "
                "one by one, and step_size * smoothness of the largest batch, which is random, "
                "at most 2"
            )
        return None

    @staticmethod
    def _contracts(run: Run, delta: float) -> bool:
        return bool(np.all(poisson_contraction(run, delta)[0] <= 1.0))

    def prove(self, run: Run) -> Bound:
        known = _unprotected(run)
        if known is not None:
            return Bound(self, known, {"tops": [], "cap": run.training.records})
        noise = float(np.min(run.training.noises))
        ratio = float(np.max(run.impulses)) / noise * _SLACK
        drift = float(np.max(run.drifts)) / noise * _SLACK
        batches, epochs, labels = _epochs(run)
        steps = run.training.steps
        # Every label pays the drift at every step, and r in every epoch: <a^v + d, a^w + d>.
        rounded = math.sqrt(drift * (2 * epochs * ratio + steps * drift)) * _SLACK

        def at(delta: float) -> Proof:
            contraction, cap, failure = poisson_contraction(run, delta)
            if not np.all(contraction <= 1.0):
                return Proof(Gaussian(math.inf))
            own = max(ratio, allocation.LEAST)
            found = allocation.best(batches, own, epochs, delta - failure, labels, rounded)
            witness = {"cap": cap, **_written(found.accountant, found.epochs, found.plan)}
            curve: Curve = found.curve
            return Proof(WithFailure(curve, failure) if failure else curve, witness)

        squares = dynamics.squared_ratio(run.impulses, run.training.noises[: len(run.impulses)])
        public = math.sqrt(float(squares.max())) * _SLACK
        return Bound.searched(self, _or_gaussian(at, public, epochs, ratio))


_USUAL_DELTA = 1e-6  # at which it is looked whether updates can be used at all
