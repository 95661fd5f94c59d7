"""Several records of one person in ordered batches, wherever they are (G1 and G2).

A person with k records, at most r of them in a batch, causes m_t times the impulse of one record at
a step whose batch holds m_t of them. The placement is the adversary's: the worst one counts. That
also covers placements that are hidden, or drawn anew every epoch.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from lastiterate.bounds import dynamics, taut_string
from lastiterate.bounds.composition import group_total
from lastiterate.bounds.constant_steps import constant, constant_restart
from lastiterate.bounds.ledger import PRESENCE, Bound, Run, Theorem
from lastiterate.bounds.ordered_batches import MOST_STEPS, drifted_mu, lipschitz_mus
from lastiterate.bounds.replay import root_sum_squares_up
from lastiterate.bounds.steps import Array
from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import Cyclic, Reshuffled, Shuffled

_UP = 1 + 1e-12


class KnownGroups(Theorem):
    """The worst placement of a person's records.

    *Superposition.* Sums of feasible shifts are feasible (a distance that starts from the diameter
    starts from no less), so by Minkowski mu(s + s') <= mu(s) + mu(s'): the strings mu_j of single
    records add up, and the r k/r largest bound every placement. Attained if all records may share
    the worst batch, on unbounded domains.

    *Every step.* No step holds more than r records, and a string never falls if an impulse rises:
    r times the impulse at every step bounds every placement, also one that changes every epoch.

    *Closed bound (G2).* c <= 1, equal steps, E whole epochs of B batches in one order: with c = 1,
    which is no less, the string through m_1, ..., m_B, m_1, ... is that of one epoch cut open where
    its slope reaches k/B, with (E-1)B steps of slope k/B between. One epoch's faces, of length l
    and rise N <= r l, cost sum N^2/l <= r k. So mu^2 <= (s/nu)^2 ((E-1) k^2/B + r k).
    """

    key = "known-groups"
    name = "Worst placement of a person's records"
    reference = "this library, docs/how-to/people.md: superposition of strings; closed bound"
    statement = (
        "k records of one person, at most r in a batch: the last iterate is mu-GDP for all of them "
        "together with mu the least of: the sum of the k largest single strings (each batch r "
        "times), the string with r impulses at every step, and, for c <= 1, equal steps and E "
        "whole epochs of B batches, (s/nu) sqrt((E-1) k^2/B + r k)."
    )
    schemes = (Cyclic, Shuffled, Reshuffled)
    assumptions = ("nobody has more records than declared", "updates are Lipschitz")
    rounding = True
    covers = PRESENCE | {"records", "per_batch"}
    several = True

    def objection(self, run: Run) -> str | None:
        if not run.regular:
            return "it needs a smooth loss"
        if run.training.steps > MOST_STEPS or (run.training.batches_per_epoch or 1) > MOST_STEPS:
            return f"more than {MOST_STEPS:,} mini-batch steps are not accounted one by one"
        return None

    def prove(self, run: Run) -> Bound:
        alone = dataclasses.replace(run.unit, records=1, per_batch=None)
        one = run.exposed(alone)
        k, r = run.unit.records, run.unit.most_in_a_batch(run.training)
        # Somebody who is there all the time pays no less, and has the closed bound.
        always = dataclasses.replace(alone, first_step=0, last_step=None)
        closed = _closed(run.exposed(always), k, r)
        hidden = [_every_step(one, r), closed]
        if run.training.batches.repeated:
            mus = lipschitz_mus(one, run.training.batches_per_epoch or 1)
            hidden.append(_superposed(mus, k, r))
        # What rounding adds at every step is paid on top, once (`drifted_mu`).
        public = math.sqrt(group_total(run)) * _UP
        return Bound(self, Gaussian(min((min(hidden) + drifted_mu(one)) * _UP, public)))


def _superposed(mus: Array, records: int, most: int) -> float:
    """The sum of the largest mus, each ``most`` times, for so many records in all.

    >>> round(_superposed(np.array([1.0, 3.0, 2.0]), records=3, most=2), 9)
    8.0
    """
    full, rest = divmod(records, most)
    largest = np.sort(mus)[::-1]
    parts = [most * mu for mu in largest[:full].tolist()]
    parts += [rest * mu for mu in largest[full : full + 1].tolist()] if rest else []
    return math.fsum(parts) * _UP


def _every_step(one: Run, most: int) -> float:
    """mu if every batch held ``most`` records of the person."""
    steps = one.steps.replace(s=one.steps.s * most * dynamics.ROUNDING)
    if one.steps.constant:
        steps = one.having(s=np.atleast_1d(one.impulses * most * dynamics.ROUNDING))
    parts = []
    for first, last in one.segments:
        stretch = steps[first:last]
        if stretch.count == 0:
            continue
        if stretch.constant:
            restarted = constant_restart(*stretch.one, stretch.count, one.training.diameter)
            parts.append(min(constant(*stretch.one, stretch.count), restarted))
        else:
            parts.append(taut_string.taut_string(stretch.c, stretch.s, stretch.nu).mu)
    window = steps[one.hidden_steps :]
    parts.append(dynamics.at_once(window.s, window.nu) if window.count else 0.0)
    return root_sum_squares_up(np.array(parts)) * _UP


def _closed(one: Run, records: int, most: int) -> float:
    """The closed bound G2; infinite where it says nothing."""
    batches = one.training.batches_per_epoch or 1
    epochs, left_over = divmod(one.training.steps, batches)
    same = one.training.batches.repeated and one.steps.constant and one.last_only
    if not same or left_over or epochs == 0 or one.steps.one[0] > 1:
        return math.inf
    unit = float(dynamics.squared_ratio(one.steps.s[:1], one.steps.nu[:1])[0])
    if unit == 0:
        return 0.0
    return math.sqrt(unit * ((epochs - 1) / batches * records * records + most * records)) * _UP
