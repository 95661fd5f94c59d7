"""Superposition: several records of one person, secretly placed, under any schedule.

The shifts that pay for each record alone, added up, pay for all of them: mu of a sum of impulses is
at most the sum of the mus (Minkowski). So given where the records are, M = sum of m_t mu_t, mu_t
the string of one record in batch t. Hidden placement: the profiles of M are averaged.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lastiterate.bounds.cost_law import CostLaw
from lastiterate.bounds.ledger import PRESENCE, Bound, Proof, Run, Theorem
from lastiterate.bounds.ordered_batches import MOST_STEPS, drifted_mu, lipschitz_mus
from lastiterate.bounds.positions import UNIT, Floats
from lastiterate.curves.mixture import Mixture
from lastiterate.description import Shuffled

_COARSE, _FINE = 400, 12_000  # cells of a first look, and of the answer at the most
_CHECKED = 10**9  # cells times the cube of the records: what a verifier counts in seconds
_UNRESOLVED = 1e-3  # of delta: so much mass may go to the worst case
_UNDERFLOWN = 1e-290  # more than all mass that doubles lose
MOST_RECORDS = 100
MOST_WORK = 4e7  # batches times the square of the records: a second or two


def hidden_places(run: Run) -> str | None:
    """Why the law of where the person's records are is not known, or None."""
    if run.unit.per_batch not in (None, 1):
        return (
            "how records fall into batches is known where the loader does not care "
            "(per_batch=None) or keeps all of them apart (per_batch=1), not in between"
        )
    training = run.training
    slots = (training.batches_per_epoch or 1) * training.batches.largest(training.records)
    if run.unit.records > slots:
        return f"an epoch uses {slots:,} records, and the person may have more"
    return None


class SuperposedGroups(Theorem):
    """G4: a person's records in one hidden partition, whatever the steps are.

    *Statement.* M = sum over the person's records of mu_j, j the batch of the record and mu_j the
    taut string of one record there: delta(eps) <= E delta_M(eps) over the secret placement.

    *Proof.* Given the placement, mu(s + s') <= mu(s) + mu(s'): sums of feasible shifts are feasible
    (a distance that starts from the diameter starts from no less), then Minkowski, also over
    releases. Joint convexity averages the profiles. Somebody with fewer records has less.
    """

    key = "superposed-groups"
    name = "Superposition over hidden places"
    reference = "this library, docs/theory/privacy-units.md"
    statement = (
        "k records of one person, secretly placed: every choice of k slots, or with per_batch=1 of "
        "k different batches, is equally likely. With M the sum of the single strings of their "
        "batches, delta(eps) = E delta_M(eps)."
    )
    schemes = (Shuffled,)
    assumptions = (
        "one uniformly random partition that stays secret; records that are kept apart are in "
        "every choice of batches equally often",
        "updates are Lipschitz",
    )
    rounding = True
    covers = PRESENCE | {"records", "per_batch"}
    several = True

    def objection(self, run: Run) -> str | None:
        batches, records = run.training.batches_per_epoch or 1, run.unit.records
        if not run.regular:
            return "it needs a smooth loss"
        if run.training.steps > MOST_STEPS:
            return f"more than {MOST_STEPS:,} mini-batch steps are not accounted one by one"
        if records > MOST_RECORDS or batches * records**2 > MOST_WORK:
            return "so many records in so many batches are not counted one by one"
        return hidden_places(run)

    def prove(self, run: Run) -> Bound:
        alone = dataclasses.replace(run.unit, records=1, per_batch=None)
        one = run.exposed(alone)
        mus, drifted = lipschitz_mus(one, run.training.batches_per_epoch or 1), drifted_mu(one)
        size, records = run.training.batches.largest(run.training.records), run.unit.records
        spread = run.unit.per_batch == 1

        def at(delta: float) -> Proof:
            law = superposed_law(mus, size, records, delta, spread=spread)
            # What rounding adds at every step is paid on top, once (`drifted_mu`).
            curve = Mixture((law.costs + drifted) * (1 + 4 * UNIT), law.weights)
            return Proof(curve, {"reach": law.reach, "cells": _cells(records)})

        return Bound.searched(self, at)


@dataclass(frozen=True)
class SumLaw(CostLaw):
    """A law of sums that was resolved up to ``reach``."""

    reach: float


def superposed_law(mus: Floats, size: int, records: int, delta: float, *, spread: bool) -> SumLaw:
    """The law of M = sum of m_t mu_t, rounded up: ``costs`` are values of M.

    *Statement.* k records fall into batches t = 1, ..., B of ``size`` slots each, every choice of
    slots equally likely, or, ``spread``, every choice of k different batches. M is at most
    ``costs[i]`` on an event of mass at most ``weights[i]``.

    *Computed as.* mu_t is rounded up to cells; batches with equal cells are one. Batches are added
    one by one, C(slots, m) ways for m records. Nothing is negative, so sums are right to within a
    few roundings. What passes the last cell goes to the worst case.

    >>> law = superposed_law(np.array([1.0, 2.0]), size=1, records=1, delta=1e-5, spread=True)
    >>> bool(1.5 <= law.costs @ law.weights < 1.501)
    True
    """
    each = 1 if spread else size
    worst = worst_sum(mus, each, records)
    if worst < _UNDERFLOWN or not math.isfinite(worst):
        return SumLaw(np.array([worst]), np.array([1.0]), 1.0)
    key = tuple(mus.tolist()), each, records, worst
    look = _law(*key, worst, _COARSE)
    behind = np.cumsum(look.weights[::-1])[::-1]
    far = np.flatnonzero(behind > delta * _UNRESOLVED)
    reach = float(look.costs[min(far[-1] + 1, len(look.costs) - 1)]) if len(far) else worst
    return _law(*key, min(reach, worst), _cells(records))


def _cells(records: int) -> int:
    return min(_FINE, _CHECKED // records**3)


def worst_sum(mus: Floats, each: int, records: int) -> float:
    """The largest M of all: the largest mus first, ``each`` times, rounded up."""
    most = np.repeat(np.sort(mus)[::-1][: -(-records // each)], min(each, records))
    return math.fsum(most[:records]) * (1 + 4 * UNIT)


@lru_cache(maxsize=16)
def _law(
    mus: tuple[float, ...], each: int, records: int, worst: float, reach: float, cells: int
) -> SumLaw:
    width = reach / cells
    index = np.ceil(np.array(mus) / width * (1 + 4 * UNIT)).astype(np.int64)
    kinds, counts = np.unique(index, return_counts=True)
    slots = len(mus) * each
    damping = records / slots  # keeps the numbers of ways near one
    rows = np.zeros((records + 1, cells + 2))  # the last column: beyond the last cell
    rows[0, 0] = 1.0
    for cell, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        _add(rows, cell, count * each, damping)
    ways = math.prod((slots - i) * damping / (i + 1) for i in range(records))
    # A mass is a sum of products: k ways and their rounding, one addition per kind and m.
    off = (8 * records + (len(kinds) + 8) * (records + 2) + cells) * UNIT
    weights = rows[-1] / ways * (1 + 2 * off)
    weights[-1] += _UNDERFLOWN
    costs = np.minimum(np.append(np.arange(cells + 1) * width, worst) * (1 + 4 * UNIT), worst)
    kept = weights > 0
    return SumLaw(costs[kept], weights[kept], reach)


def _add(rows: Floats, cell: int, slots: int, damping: float) -> None:
    """One more kind of batches, all at the same cell, which may hold any of the records.

    A sum of positive terms along the cells is pairwise: within `cells` roundings at the most.
    """
    records, last = len(rows) - 1, rows.shape[1] - 2
    before, ways = rows.copy(), 1.0
    for m in range(1, min(records, slots) + 1):
        ways *= (slots + 1 - m) * damping / m
        fewer, stays = before[:-m], max(last + 1 - m * cell, 0)
        if stays:
            rows[m:, m * cell : last + 1] += ways * fewer[:, :stays]
        rows[m:, -1] += ways * (fewer[:, stays:-1].sum(axis=1) + fewer[:, -1])
