"""Several records of one person: group privacy in ordered batches (G1 to G4).

A person with k records, at most r of them in a batch, causes m_t times the sensitivity of one
record at a step whose batch holds m_t of them. Known or arbitrary places: the worst placement
counts. Places that a secret shuffle draws: the profiles of all placements are averaged, by
superposition of single strings under any schedule, or by the cycle law where steps are equal.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.curves.searched import Searched
from lastiterate.description import Cyclic, Reshuffled, Shuffled
from lastiterate.theory import dynamics, taut_string
from lastiterate.theory.composition import group_total
from lastiterate.theory.cost_law import CostLaw
from lastiterate.theory.cycle_law import Placement, circle_size, cycle_law, fineness
from lastiterate.theory.dynamics import Array
from lastiterate.theory.ordered_batches import drifted_mu, lipschitz_mus, ordered_limits
from lastiterate.theory.positions import UNIT, Floats
from lastiterate.theory.registry import LIPSCHITZ, UNIT_FIELDS, Proof, Theorem
from lastiterate.theory.replay import root_sum_squares_up
from lastiterate.theory.run import Run
from lastiterate.theory.taut_string import constant, constant_restart

MOST_RECORDS = 100
MOST_WORK = 4e7  # batches times the square of the records: a second or two
_UP = 1 + 1e-12
_COARSE, _FINE = 400, 12_000  # cells of a first look, and of the answer at the most
_CHECKED = 10**9  # cells times the cube of the records: what a verifier counts in seconds
_CHECKED_GAP = 0.3  # of the cycle law, whose cells have to be wide there
_UNRESOLVED = 1e-3  # of delta: so much mass may go to the worst case
_UNDERFLOWN = 1e-290  # more than all mass that doubles lose
_RESOLVED = (1e-6, 1e-10, 1e-20, 1e-40, 1e-80, 1e-160, 1e-320)  # a law serves more than one delta


# --- any placement ------------------------------------------------------------------------------


def known_groups_limits(run: Run) -> str | None:
    """What is special about it: sizes up to which steps are accounted one by one."""
    return ordered_limits(run, modulus=False)


def known_groups_bound(run: Run) -> Proof:
    """G1, G2: the worst placement of a person's records.

    *Superposition.* Sums of feasible shifts are feasible (a distance that starts from the diameter
    starts from no less), so by Minkowski mu(s + s') <= mu(s) + mu(s'): the strings mu_j of single
    records add up, and the r k/r largest bound every placement. Attained if all records may share
    the worst batch, on unbounded domains.

    *Every step.* No step holds more than r records, and a string never falls if a sensitivity
    rises: r times the sensitivity at every step bounds every placement, also one that changes
    every epoch.

    *Closed bound (G2).* c <= 1, equal steps, E whole epochs of B batches in one order: with c = 1,
    which is no less, the string through m_1, ..., m_B, m_1, ... is that of one epoch cut open where
    its slope reaches k/B, with (E-1)B steps of slope k/B between. One epoch's faces, of length l
    and rise N <= r l, cost sum N^2/l <= r k. So mu^2 <= (s/nu)^2 ((E-1) k^2/B + r k).
    """
    one = run.one_record
    k, r = run.unit.records, run.unit.most_in_a_batch(run.training)
    hidden = [_every_step(one, r), _closed(_always(run).one_record, k, r)]
    if run.training.batches.repeated:
        hidden.append(_superposed(lipschitz_mus(one, run.batches), k, r))
    # What rounding adds at every step is paid on top, once (`drifted_mu`).
    public = math.sqrt(group_total(run)) * _UP
    return Proof(Gaussian(min((min(hidden) + drifted_mu(one)) * _UP, public)))


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
        steps = one.having(s=np.atleast_1d(one.step_sensitivities * most * dynamics.ROUNDING))
    parts = []
    for first, last in one.segments:
        segment = steps[first:last]
        if segment.count == 0:
            continue
        if segment.constant:
            restarted = constant_restart(*segment.one, segment.count, one.training.diameter)
            parts.append(min(constant(*segment.one, segment.count), restarted))
        else:
            parts.append(taut_string.taut_string(segment.c, segment.s, segment.nu).mu)
    window = steps[one.hidden_steps :]
    parts.append(dynamics.at_once(window.s, window.nu) if window.count else 0.0)
    return root_sum_squares_up(np.array(parts)) * _UP


def _closed(one: Run, records: int, most: int) -> float:
    """The closed bound G2; infinite where it says nothing."""
    batches = one.batches
    epochs, left_over = divmod(one.training.steps, batches)
    same = one.training.batches.repeated and one.steps.constant and one.last_only
    if not same or left_over or epochs == 0 or one.steps.one[0] > 1:
        return math.inf
    unit = float(dynamics.squared_ratio(one.steps.s[:1], one.steps.nu[:1])[0])
    if unit == 0:
        return 0.0
    return math.sqrt(unit * ((epochs - 1) / batches * records * records + most * records)) * _UP


def _always(run: Run) -> Run:
    """The run for a unit that is present from the first step to the last, and costs no less."""
    if not run.unit.timed:
        return run
    return run.exposed(dataclasses.replace(run.unit, first_step=0, last_step=None))


KNOWN_GROUPS = Theorem(
    key="known-groups",
    name="Worst placement of a person's records",
    reference="this library, docs/how-to/people.md: superposition of strings; closed bound",
    statement=(
        "k records of one person, at most r in a batch: the last iterate is mu-GDP for all of them "
        "together with mu the least of: the sum of the k largest single strings (each batch r "
        "times), the string with r sensitivities at every step, and, for c <= 1, equal steps and E "
        "whole epochs of B batches, (s/nu) sqrt((E-1) k^2/B + r k)."
    ),
    schemes=(Cyclic, Shuffled, Reshuffled),
    bound=known_groups_bound,
    limits=known_groups_limits,
    supports=LIPSCHITZ | UNIT_FIELDS | {"releases"},
    needs=frozenset({"records"}),
    assumptions=("nobody has more records than declared", "updates are Lipschitz"),
)


# --- hidden places, any schedule ----------------------------------------------------------------


def hidden_places(run: Run) -> str | None:
    """Why the law of where the person's records are is not known, or None."""
    if run.unit.per_batch not in (None, 1):
        return (
            "how records fall into batches is known where the loader does not care "
            "(per_batch=None) or keeps all of them apart (per_batch=1), not in between"
        )
    training = run.training
    slots = run.batches * training.batches.largest(training.records)
    if run.unit.records > slots:
        return f"an epoch uses {slots:,} records, and the person may have more"
    return None


def superposed_groups_limits(run: Run) -> str | None:
    """What is special about it: how many records are counted, and where they may be."""
    records = run.unit.records
    if records > MOST_RECORDS or run.batches * records**2 > MOST_WORK:
        return "so many records in so many batches are not counted one by one"
    return ordered_limits(run, modulus=False) or hidden_places(run)


def superposed_groups_bound(run: Run) -> Proof:
    """G4: a person's records in one hidden partition, whatever the steps are.

    *Statement.* M = sum over the person's records of mu_j, j the batch of the record and mu_j the
    taut string of one record there: delta(eps) <= E delta_M(eps) over the secret placement.

    *Proof.* Given the placement, mu(s + s') <= mu(s) + mu(s'): sums of feasible shifts are feasible
    (a distance that starts from the diameter starts from no less), then Minkowski, also over
    releases. Joint convexity averages the profiles. Somebody with fewer records has less.
    """
    one = run.one_record
    mus, drift = lipschitz_mus(one, run.batches), drifted_mu(one)
    size, records = run.training.batches.largest(run.training.records), run.unit.records
    spread = run.unit.per_batch == 1

    def at(delta: float) -> Proof:
        law = superposed_law(mus, size, records, delta, spread=spread)
        # What rounding adds at every step is paid on top, once (`drifted_mu`).
        curve = Mixture((law.costs + drift) * (1 + 4 * UNIT), law.weights)
        return Proof(curve, {"reach": law.reach, "cells": _cells(records)})

    return Proof.searched(at)


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


SUPERPOSED_GROUPS = Theorem(
    key="superposed-groups",
    name="Superposition over hidden places",
    reference="this library, docs/theory/privacy-units.md",
    statement=(
        "k records of one person, secretly placed: every choice of k slots, or with per_batch=1 of "
        "k different batches, is equally likely. With M the sum of the single strings of their "
        "batches, delta(eps) = E delta_M(eps)."
    ),
    schemes=(Shuffled,),
    bound=superposed_groups_bound,
    limits=superposed_groups_limits,
    supports=LIPSCHITZ | UNIT_FIELDS | {"releases"},
    needs=frozenset({"records"}),
    assumptions=(
        "one uniformly random partition that stays secret; records that are kept apart are in "
        "every choice of batches equally often",
        "updates are Lipschitz",
    ),
)


# --- hidden places, equal steps -----------------------------------------------------------------


def cycle_law_limits(run: Run) -> str | None:
    """What is special about it: equal steps and whole epochs, few enough to be counted."""
    run = _always(run)
    if not run.steps.constant:
        return "it needs equal steps"
    if run.training.steps % run.batches:
        return "it needs whole epochs"
    if run.expands:
        return "it needs non-expansive updates (convex, no gradient clipping, small steps)"
    if not run.steps.one[2] > 0:
        return "it needs noise at every step"
    reason = hidden_places(run)
    if reason is None and fineness(_placement(run), _RESOLVED[0], _drawn(run)) == 0:
        return "so many records in so many batches have more cycles than are counted here"
    return reason


def cycle_law_bound(run: Run) -> Proof:
    """G3: a person's records in one hidden partition, all steps alike.

    *Statement.* c <= 1, E whole epochs of B batches: with g the cost of one epoch, whose law is
    that of `cycle_law`, delta(eps) <= E delta_mu(eps), mu^2 = (s/nu)^2 ((E-1) k^2/B + g).

    A new partition every epoch: each epoch pays for itself, mu^2 = (s/nu)^2 (g_1 + ... + g_E),
    independent.

    *Proof.* Given the placement that is the closed bound G2 with equality for c = 1, or the one of
    single epochs, between which no distance is left; placements are in exchangeable order, and
    joint convexity averages the profiles. Somebody with fewer records, or who is there for a part
    of the run, has less. What rounding adds at every step is paid on top (`drifted_mu`).
    """
    run = _always(run)
    placement, drift = _placement(run), drifted_mu(run)
    epochs, drawn = run.training.steps // placement.batches, _drawn(run)
    base = (epochs - drawn) * placement.records**2 / placement.batches
    unit = float(dynamics.squared_ratio(run.steps.s[:1], run.steps.nu[:1])[0])

    def at(delta: float) -> Mixture:
        law = cycle_law(placement, _resolved(delta), None, drawn)
        mus = (np.sqrt(unit * (base + law.costs)) + drift) * (1 + 1e-12)
        return Mixture(mus, law.weights)

    @lru_cache(maxsize=16)
    def checked(delta: float) -> Proof:
        resolved = _resolved(delta)
        cells = fineness(placement, resolved, drawn, checked=True)
        circle, chernoff = circle_size(placement, cells, resolved / drawn)
        tilt = float(chernoff.tilts[np.argmin(chernoff.logs - chernoff.tilts * circle)]) * cells
        witness = {"cells": cells, "circle": circle, "tilt": tilt}
        return Proof(at(delta), witness, _CHECKED_GAP)

    return Proof(Searched(at), search=checked)


def _resolved(delta: float) -> float:
    return next((level for level in _RESOLVED if level <= delta), delta)


def _drawn(run: Run) -> int:
    """How many partitions are drawn: one, or one every epoch."""
    return 1 if run.training.batches.repeated else max(run.training.steps // run.batches, 1)


def _placement(run: Run) -> Placement:
    size, unit = run.training.batches.largest(run.training.records), run.unit
    return Placement(run.batches, unit.records, size, spread=unit.per_batch == 1)


CYCLE_LAW = Theorem(
    key="cycle-law",
    name="Cycle law of hidden places",
    reference="this library, docs/theory/privacy-units.md",
    statement=(
        "k records of one person, secretly placed (every choice of k slots, or with per_batch=1 of "
        "k different batches, is equally likely); c <= 1, equal steps, E whole epochs of B "
        "batches. delta(eps) = E delta_mu(eps), mu^2 = (s/nu)^2 ((E-1) k^2/B + g), g the sum over "
        "the cycles of a uniformly random permutation of the batches of (records in it)^2/length. "
        "Reshuffled: mu^2 = (s/nu)^2 times the sum of E independent g."
    ),
    schemes=(Shuffled, Reshuffled),
    bound=cycle_law_bound,
    limits=cycle_law_limits,
    supports=LIPSCHITZ | UNIT_FIELDS,
    needs=frozenset({"records"}),
    assumptions=(
        "uniformly random partitions that stay secret; records that are kept apart are in "
        "every choice of batches equally often",
        "updates do not expand, and all are alike",
    ),
)
