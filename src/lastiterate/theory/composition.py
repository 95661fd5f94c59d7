"""Plain composition: the price when every iterate is published.

It assumes nothing about the loss, so it is what remains when nothing is known. For each batch
scheme it charges what that scheme really releases.

"""

from __future__ import annotations

import math

import numpy as np

from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import Cyclic, FullBatch, Reshuffled, Shuffled
from lastiterate.theory.dynamics import Array, Steps, squared_ratio
from lastiterate.theory.registry import PUBLIC, UNIT_FIELDS, Proof, Theorem
from lastiterate.theory.run import Run

_UP = 1 + 1e-12  # sums of up to 10^9 terms, pairwise


def composition_bound(run: Run) -> Proof:
    """mu^2 = the sum of (s_k/nu_k)^2 over the updates that use the record."""
    batches = run.training.batches
    if run.unit.records > 1 and not batches.full:
        return Proof(Gaussian(_root(group_total(run))))
    if not batches.repeated:
        return Proof(Gaussian(_root(_worst_of_each_epoch(run))))
    totals, shares = _shared_totals(run)
    if not batches.hidden or np.all(totals == totals[0]):
        return Proof(Gaussian(_root(totals.max())))
    return Proof(Mixture(np.sqrt(totals) * _UP, shares))


def position_totals(run: Run, batches: int) -> Array:
    """Σ(s/ν)² over the steps k with k mod batches = j, for every position j."""
    steps = run.steps
    if steps.constant:
        visits = steps.count // batches + (np.arange(batches) < steps.count % batches)
        one = _one(steps)
        return np.asarray(np.multiply(visits, one, out=np.zeros(batches), where=visits > 0))
    costs = np.zeros(-(-steps.count // batches) * batches)
    costs[: steps.count] = squared_ratio(steps.s, steps.nu)
    totals: Array = costs.reshape(-1, batches).sum(axis=0)
    return totals


def _shared_totals(run: Run) -> tuple[Array, Array]:
    """Values of `position_totals` and the shares of the positions that have them.

    Positions that are alike, or never reached, are not listed one by one: an epoch may have more
    batches than a machine has memory.
    """
    batches, steps = run.training.batches_per_epoch or 1, run.training.steps
    if run.steps.constant:
        one = _one(run.steps)
        visits, more = divmod(steps, batches)
        totals = np.array([times * one if times else 0.0 for times in (visits, visits + 1)])
        shares = np.array([(batches - more) / batches, more / batches])
    else:
        used = min(batches, steps)
        totals = np.append(position_totals(run, max(used, 1)), 0.0)
        shares = np.append(np.full(max(used, 1), 1 / batches), (batches - used) / batches)
    return totals[shares > 0], shares[shares > 0]


def _one(steps: Steps) -> float:
    """(s/ν)² of each of these equal steps; 0 if there are none."""
    return float(squared_ratio(steps.s[:1], steps.nu[:1]).sum())


def _worst_of_each_epoch(run: Run) -> float:
    """No sequence of positions costs more than the dearest step of every epoch."""
    steps, batches = run.steps, run.training.batches_per_epoch or 1
    if steps.count == 0:
        return 0.0
    if steps.constant:
        return float(position_totals(run, 1)[0]) / steps.count * -(-steps.count // batches)
    costs = squared_ratio(steps.s, steps.nu)
    return float(np.maximum.reduceat(costs, np.arange(0, len(costs), batches)).sum())


def packed(costs: Array, records: int, most: int) -> float:
    """The largest sum of m_j^2 costs_j with 0 <= m_j <= most and sum m_j <= records.

    It is convex in m: an extreme point is best, the dearest places full and one with the rest.

    >>> packed(np.array([1.0, 3.0, 2.0]), records=3, most=2)
    14.0
    """
    full, rest = divmod(records, most)
    dearest = np.sort(costs)[::-1]
    total = float(most * most * dearest[:full].sum())
    return total + (rest * rest * float(dearest[full]) if rest and full < len(dearest) else 0.0)


def group_total(run: Run) -> float:
    """Several records of one person, wherever they are: mu^2 if all iterates are public.

    Of batches that are drawn anew every epoch, the dearest placement in each. Equal steps: sum of
    m_j^2 is at most the records times the most in a batch, in every epoch.
    """
    records, most = run.unit.records, run.unit.most_in_a_batch(run.training)
    steps, batches = run.steps, run.training.batches_per_epoch or 1
    if steps.count == 0:
        return 0.0
    if steps.constant:
        return records * most * _one(steps) * -(-steps.count // batches)
    if run.training.batches.repeated:
        return packed(position_totals(run, min(batches, steps.count)), records, most)
    costs = squared_ratio(steps.s, steps.nu)
    rows = (costs[k : k + batches] for k in range(0, steps.count, batches))
    return sum(packed(row, records, most) for row in rows)


def _root(square: float) -> float:
    return math.sqrt(square) * _UP


COMPOSITION = Theorem(
    key="gaussian-composition",
    name="Composition (Dong, Roth & Su 2022)",
    reference="Dong, Roth & Su 2022 (Gaussian composition); per position for cyclic batches",
    statement=(
        "If the updates that use the record move by s_k and have noise nu_k, publishing all "
        "iterates is mu-GDP with mu^2 = sum (s_k/nu_k)^2 over those updates: all of them (full "
        "batch), the worst position (cyclic), the average of the profiles over positions "
        "(shuffled once), the worst position of each epoch (reshuffled). Several records of one "
        "person, m_j of them in batch j: sum m_j^2 (s_k/nu_k)^2 for the dearest placement."
    ),
    schemes=(FullBatch, Cyclic, Shuffled, Reshuffled),
    bound=composition_bound,
    supports=PUBLIC | UNIT_FIELDS,
    assumptions=("per-record gradients are bounded",),
    hidden_state=False,
    dominated_by=("taut-string", "worst-position", "hidden-position", "known-groups"),
)
