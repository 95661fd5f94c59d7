"""Shifted interpolation for batches that pass over the data in order.

The record's batch comes once per epoch. Known order: the worst position of the record counts.
One hidden partition: the profiles of all positions are averaged, by joint convexity. A new hidden
partition every epoch: independent costs per epoch under a boundary policy. The numerics live in
`positions`, `equalised` and `reshuffled`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from lastiterate.bounds import dynamics
from lastiterate.bounds.composition import position_totals
from lastiterate.bounds.constant_steps import constant
from lastiterate.bounds.equalised import equalised_mu
from lastiterate.bounds.exchange import Segments, coupled_labels, exchanged_sizes
from lastiterate.bounds.ledger import PRESENCE, Bound, Proof, Run, Theorem
from lastiterate.bounds.position_paths import path_mus, position_paths
from lastiterate.bounds.positions import (
    constant_position_mus,
    released_mus,
    restarted_position_mus,
)
from lastiterate.bounds.replay import root_sum_squares_up
from lastiterate.bounds.reshuffled import reshuffled
from lastiterate.bounds.reshuffled_exchange import LastEpoch
from lastiterate.bounds.shifted_interpolation import modulus_objection
from lastiterate.bounds.steps import Array, Steps
from lastiterate.bounds.taut_string import taut_string
from lastiterate.curves.base import Curve
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import Cyclic, FullBatch, Reshuffled, Shuffled
from lastiterate.description.unit import ONE_RECORD

MOST_STEPS = 50_000_000  # per-step arrays beyond this do not fit an ordinary machine


def _objection(run: Run, *, modulus: bool) -> str | None:
    training = run.training
    if training.steps > MOST_STEPS and not (modulus and _closed_form(run)):
        return f"more than {MOST_STEPS:,} mini-batch steps are not accounted one by one"
    if (training.batches_per_epoch or 1) > MOST_STEPS:
        return f"more than {MOST_STEPS:,} batches in an epoch are not accounted one by one"
    if run.regular:
        return None
    if not modulus:
        return "without smoothness the boundary policy has no modulus to work with"
    reason = modulus_objection(run)
    if reason is not None:
        return reason
    if not run.last_only:
        return "without smoothness only the last iterate is accounted here"
    return None


def _paths_pay(run: Run) -> bool:
    """Whether a search over concave moduli can beat the strings of the Lipschitz constants.

    Those are exact for c <= 1 where bounded gradients say nothing more.
    """
    if run.regular and not (run.capped or _restart_pays(run)):
        return False
    if math.isinf(run.training.diameter) or not run.last_only:
        return False
    return dynamics.modulus(run.etas, run.training, run.curving) is not None


def _closed_form(run: Run) -> bool:
    return run.regular and run.steps.constant and run.last_only


def _restart_pays(run: Run) -> bool:
    """Expanding steps on a bounded domain: the closed form tries no restart, the pooling does."""
    bounded = math.isfinite(run.training.diameter)
    return bounded and run.contraction is not None and bool(np.any(run.contraction > 1))


def position_mus(run: Run) -> Array:
    """mu_j of a record at each position j of the epoch, for what the run releases."""
    return _positions(run)[0]


def _positions(run: Run, *, worst_only: bool = False) -> tuple[Array, dict[str, Any]]:
    """mu_j of every position, and a witness: others pool by themselves, but search no paths."""
    batches = run.training.batches_per_epoch or 1
    mus = np.sqrt(position_totals(run, batches)) * (1 + 1e-12)
    drifted = drifted_mu(run)
    if run.regular:
        strings = lipschitz_mus(run, batches)
        mus = np.minimum(mus, strings + drifted) if drifted else strings
    if not _paths_pay(run):
        return mus, {}
    paths = position_paths(run, worst_only=worst_only)
    found = [path.witness for path in paths]
    return np.minimum(mus, path_mus(run, paths) + drifted), {"paths": found}


def drifted_mu(run: Run) -> float:
    """What mu grows by at most where computed sums are off at steps without the record too.

    *Statement.* Let shifts a_k bring z_{k+1} = c_k z_k + s_k - a_k to 0, and b_k the drifts alone:
    y_{k+1} = c_k y_k + d_k - b_k. Then a_k + b_k bring z_k + y_k to 0 where every step drifts by
    d_k more. By Minkowski the root of the sum of all ((a_k + b_k)/nu_k)^2 is at most mu plus that
    of (b_k/nu_k)^2; releases, and starting z from the diameter, change nothing in that. The drifts
    may be paid at once (b_k = d_k, y_k = 0, whatever the updates are) or by their own string; those
    of a released window are paid at once, so that releasing more never costs less.
    """
    once = dynamics.at_once(run.steps.drift, run.steps.nu)
    if not (once and run.regular):
        return once
    drifts = run.steps.replace(s=run.steps.drift)
    strings = [_string(drifts[first:last]) for first, last in run.segments if last > first]
    window = drifts[run.segments[-1][1] :]
    strings.append(dynamics.at_once(window.s, window.nu))
    return min(once, root_sum_squares_up(np.array(strings)) * (1 + 1e-12))


def _string(steps: Steps) -> float:
    """mu of the taut string of a stretch, from a common start."""
    if steps.constant:
        return constant(*steps.one, steps.count)
    return taut_string(steps.c, steps.s, steps.nu).mu


def lipschitz_mus(run: Run, batches: int) -> Array:
    """The strings of updates with Lipschitz constants."""
    steps, diameter = run.steps, run.training.diameter
    if _closed_form(run):
        alike = *steps.one, steps.count, batches, diameter
        mus = constant_position_mus(*alike)
        return np.minimum(mus, restarted_position_mus(*alike)) if _restart_pays(run) else mus
    return released_mus(steps.c, steps.s, steps.nu, batches, run.releases, run.window, diameter)


class WorstPosition(Theorem):
    """Cyclic batches whose order the adversary knows."""

    key = "worst-position"
    name = "Worst position"
    reference = (
        "shifted interpolation with impulses once per epoch; c = 1: Ye & Shokri 2022, Theorem D.4"
    )
    statement = (
        "A record at position j of B has impulses s_k at the steps k = j mod B only. The last "
        "iterate is mu_j-GDP with mu_j the taut string of those impulses; the worst j counts. "
        "Releases: mu_j^2 adds over the stretches between them."
    )
    schemes = (Cyclic,)
    assumptions = ("fixed batches in a fixed order", "updates have a known modulus of continuity")
    rounding = True
    covers = PRESENCE

    def objection(self, run: Run) -> str | None:
        return _objection(run, modulus=True)

    def prove(self, run: Run) -> Bound:
        mus, witness = _positions(run, worst_only=True)
        latest = np.roll(np.arange(len(mus)), -run.training.steps)[::-1]  # the last step's first
        worst = int(latest[np.argmax(mus[latest])])
        note = f"The worst position is {worst + 1} of {len(mus)}."
        return Bound(self, Gaussian(float(mus[worst])), witness, note)


class HiddenPosition(Theorem):
    """One hidden partition, then cyclic order."""

    key = "hidden-position"
    name = "Hidden position"
    reference = "joint convexity over the positions; verified against exact Gaussian mixtures"
    statement = (
        "The record's position is uniform on B and secret: delta(eps) is the average over j of the "
        "Gaussian profiles of mu_j, the taut strings of the positions. Never average mu or eps. "
        "Releases share the position: their mu_j^2 are summed before averaging."
    )
    schemes = (Shuffled,)
    assumptions = (
        "one uniformly random partition that stays secret",
        "updates have a known modulus of continuity",
    )
    dominated_by = ("exchange",)
    rounding = True
    covers = PRESENCE

    def objection(self, run: Run) -> str | None:
        return _objection(run, modulus=True)

    def prove(self, run: Run) -> Bound:
        mus, witness = _positions(run)
        alike = mus.max() <= mus.min() * (1 + 1e-9)
        curve: Curve = Gaussian(float(mus.max())) if alike else Mixture(mus)
        return Bound(self, curve, witness)


class Exchange(Theorem):
    """One hidden partition: the record changes places with another one."""

    key = "exchange"
    name = "Exchange of positions"
    reference = "this library, docs/theory/exchange.md; level family of masses"
    statement = (
        "Exchanging the record of batch i with a record of batch j keeps a hidden partition "
        "uniform. With mu_ij the taut string of both batches' sensitivities, delta(eps) <= "
        "sum_ij p_ij delta_{mu_ij}(eps + log(q_ij/p_ij)) for any masses whose rows p sum to 1/B "
        "and whose columns q sum to at most 1/B; never more than the average over positions."
    )
    schemes = (Shuffled,)
    assumptions = (
        "one uniformly random partition that stays secret",
        "updates are Lipschitz",
        "the sensitivity bounds any two records (replace) or every record (zero-out)",
    )
    rounding = True
    covers = PRESENCE

    def objection(self, run: Run) -> str | None:
        reason = _objection(run, modulus=False)
        if reason is not None:
            return reason
        if not _strings(run).supported:
            return "the strings of two positions are not evaluated for a schedule as long as this"
        return None

    def prove(self, run: Run) -> Bound:
        mus, witness = _positions(run)
        if mus.max() <= mus.min() * (1 + 1e-9):
            return Bound(self, Gaussian(float(mus.max())), witness)
        strings, drift = _strings(run), drifted_mu(run)
        orders = exchanged_sizes(run.training, run.unit)

        def at(delta: float) -> Proof:
            found = coupled_labels(strings, mus, orders, delta, drift)
            return Proof(found.curve, {**witness, "exchange": found.witness})

        return Bound.searched(self, at)


def _strings(run: Run) -> Segments:
    """What the strings of two positions need.

    Any record may be the other one, and a unit that is absent at times has gradients 0 there.
    """
    steps = run.exposed(ONE_RECORD).steps
    batches = run.training.batches_per_epoch or 1
    hidden = tuple(segment for segment in run.segments if segment[1] > segment[0])
    return Segments(steps, batches, hidden, run.training.diameter)


class BoundaryPolicy(Theorem):
    """A new hidden partition every epoch."""

    key = "boundary-policy"
    name = "Boundary policy"
    reference = "this library: independent epoch costs under fixed boundary levels"
    statement = (
        "Fix levels zeta_0 = 0, ..., zeta_E = 0. In epoch e a record at the random position J_e "
        "pays X_e(J_e) to go from zeta_e to zeta_{e+1}. The costs are independent; delta(eps) = "
        "E delta_{sqrt(sum X)}(eps). Any levels are valid; good ones are searched for each delta. "
        "The sum is capped by the worst sequence of positions."
    )
    schemes = (Reshuffled,)
    assumptions = (
        "a new uniformly random partition every epoch, all of them secret",
        "updates are Lipschitz",
    )
    dominated_by = ("reshuffled-exchange",)
    rounding = True
    covers = PRESENCE

    def objection(self, run: Run) -> str | None:
        batches = run.training.batches_per_epoch or 1
        if any(step % batches for step in run.releases[:-1]):
            return "released checkpoints must lie on epoch boundaries, where partitions renew"
        return _objection(run, modulus=False)

    def prove(self, run: Run) -> Bound:
        training, steps = run.training, run.steps
        drifted = drifted_mu(run)

        def at(delta: float) -> Proof:
            policy = reshuffled(
                steps.c,
                steps.s,
                steps.nu,
                training.batches_per_epoch or 1,
                delta=delta,
                diameter=training.diameter,
                releases=run.releases[:-1],
                window=run.window,
            )
            witness = {
                "levels": policy.levels,
                "pays": policy.pays.astype(float),
                "cap_levels": policy.cap.zeta,
                "cap_pays": policy.cap.pays.astype(float),
            }
            mus = (policy.mus + drifted) * (1 + 2.0**-50) if drifted else policy.mus
            return Proof(Mixture(mus, policy.weights), witness)

        return Bound.searched(self, at)


class ReshuffledExchange(Theorem):
    """A new hidden partition every epoch: in the last one the record changes places."""

    key = "reshuffled-exchange"
    name = "Exchange in the last epoch"
    reference = "this library, docs/theory/exchange.md; levels and level family of masses"
    statement = (
        "Fix levels at the ends of epochs, and reveal the positions of all epochs but the last, "
        "which cost x. With mu_ij the string of two positions of the last epoch from its level, "
        "delta(eps) <= E_x sum_ij p_ij delta_{sqrt(x + mu_ij^2)}(eps + log(q_ij/p_ij)) for any "
        "masses whose rows p sum to 1/B and whose columns q sum to at most 1/B; never more than "
        "the boundary policy."
    )
    schemes = (Reshuffled,)
    assumptions = (
        "a new uniformly random partition every epoch, all of them secret and independent",
        "updates are Lipschitz",
        "the sensitivity bounds any two records (replace) or every record (zero-out)",
    )
    rounding = True
    covers = PRESENCE

    def objection(self, run: Run) -> str | None:
        return BoundaryPolicy().objection(run)

    def prove(self, run: Run) -> Bound:
        policy = BoundaryPolicy().prove(run)
        batches = run.training.batches_per_epoch or 1
        if batches == 1:
            return dataclasses.replace(policy, theorem=self)
        last = LastEpoch(
            run.steps,
            run.having(s=dynamics.impulses(run.etas, run.training)),
            batches,
            run.releases[:-1],
            run.window,
            run.training.diameter,
            exchanged_sizes(run.training, run.unit),
            drifted_mu(run),
        )

        def at(delta: float) -> Proof:
            proof = policy.at(delta)
            assert isinstance(proof.curve, Mixture)
            found = last.bound(proof.curve, delta)
            if found is None:
                return proof
            return Proof(found.curve, {**proof.witness, "exchange": found.witness})

        return Bound.searched(self, at)


class EqualisedLastEpoch(Theorem):
    """The one-line theorem of the equalising last epoch."""

    key = "equalised-last-epoch"
    name = "Equalised last epoch"
    reference = "this library: sqrt((B-j)/B) on the last epoch's steps"
    statement = (
        "Convex (c <= 1), B batches in one order, E epochs, constant noise, schedule 'equalised': "
        "mu^2 = (s/nu)^2 E/B at every position, known or hidden."
    )
    schemes = (FullBatch, Cyclic, Shuffled)
    assumptions = ("updates are non-expansive", "schedule = 'equalised', constant noise")
    dominated_by = ("taut-string", "worst-position", "hidden-position")

    def objection(self, run: Run) -> str | None:
        training = run.training
        if training.schedule != "equalised" or not isinstance(training.noise, float):
            return "it needs schedule='equalised' and a constant noise"
        if training.final_noise < 1:
            return "the last step has less noise than the others"
        if run.contraction is None or np.any(run.contraction > 1):
            return "it needs non-expansive updates (convex, no gradient clipping, small steps)"
        if not run.last_only:
            return "more than the last iterate is released"
        return None

    def prove(self, run: Run) -> Bound:
        training = run.training
        batches = training.batches_per_epoch or 1
        # The largest impulse is that of a full step; the last epoch only shrinks it.
        s, nu = run.impulses[:1], training.noises[:1]
        ratio = math.sqrt(float(dynamics.squared_ratio(s, nu)[0])) * (1 + 1e-15)
        return Bound(self, Gaussian(equalised_mu(ratio, batches, training.steps // batches)))
