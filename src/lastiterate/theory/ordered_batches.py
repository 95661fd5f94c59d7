"""Batches that pass over the data in the same order: the position of the record.

Known order: the worst position of the record counts. One hidden partition: the profiles of all
positions are averaged, by joint convexity. The numerics live in `positions`. Where the modulus of
an update is concave, a path is searched and not pooled (`modulus`), so not every position of a long
run gets a search of its own. Two facts keep the answers sound and in order however large the run
is: among equal steps a record that comes later costs more, and a record costs no more than all its
neighbours together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lastiterate.curves.base import Curve
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import Cyclic, Shuffled
from lastiterate.theory import dynamics, full_batch, path_witness
from lastiterate.theory.composition import position_totals
from lastiterate.theory.dynamics import Array, Steps
from lastiterate.theory.full_batch import modulus_limits
from lastiterate.theory.modulus import best_path
from lastiterate.theory.path_witness import (
    DistancePath,
    LazyWitness,
    paths_table,
    string_path,
    walked_modulus,
)
from lastiterate.theory.positions import (
    constant_position_mus,
    released_mus,
    restarted_position_mus,
)
from lastiterate.theory.registry import ANY_UPDATE, PRESENCE, Proof, Theorem
from lastiterate.theory.replay import root_sum_squares_up
from lastiterate.theory.run import Run
from lastiterate.theory.taut_string import TautString, constant, taut_string

MOST_STEPS = 50_000_000  # per-step arrays beyond this do not fit an ordinary machine
SEARCHED_STEPS = 12_000  # of all positions together: seconds
_COARSE = (16, 4, 2)  # ratios of the distances that are looked at, before every bit counts


def ordered_limits(run: Run, *, modulus: bool = True) -> str | None:
    """Why positions are not accounted one by one, or None.

    Args:
        run: the run.
        modulus: whether updates may have a concave modulus instead of a Lipschitz constant.
    """
    if run.training.steps > MOST_STEPS and not (modulus and _closed_form(run)):
        return f"more than {MOST_STEPS:,} mini-batch steps are not accounted one by one"
    if run.batches > MOST_STEPS:
        return f"more than {MOST_STEPS:,} batches in an epoch are not accounted one by one"
    if run.regular:
        return None
    reason = modulus_limits(run)
    if reason is None and not run.last_only:
        return "without smoothness only the last iterate is accounted here"
    return reason


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
    return positions_of(run)[0]


def positions_of(run: Run, *, worst_only: bool = False) -> tuple[Array, LazyWitness]:
    """mu_j of every position, and a witness: paths of the positions, and one of the drifts."""
    batches = run.batches
    mus = np.sqrt(position_totals(run, batches)) * (1 + 1e-12)
    drifted = drifted_mu(run)
    if run.regular:
        strings = lipschitz_mus(run, batches)
        mus = np.minimum(mus, strings + drifted) if drifted else strings
    paths = position_paths(run, worst_only=worst_only) if _paths_pay(run) else []
    if paths:
        mus = np.minimum(mus, path_mus(run, paths) + drifted)
    return mus, LazyWitness(lambda: position_witness(run, paths, worst_only=worst_only))


def position_witness(
    run: Run, searched: Sequence[PositionPath] = (), *, worst_only: bool = False
) -> dict[str, Any]:
    """Distances on the taut string of every position, on searched paths, and of the drifts.

    Where all steps are equal the latest position stands for all earlier ones.
    """
    witness: dict[str, Any] = {"families": []}
    if run.regular:
        latest = [(run.training.steps - 1) % run.batches]
        single = worst_only and run.steps.constant and run.last_only
        positions = latest if single else list(range(run.batches))
        parts = [
            path_witness.position_paths(
                run.steps[first:last], first, run.batches, run.training.diameter, positions
            )
            for first, last in run.hidden_segments
        ]
        family = {"paths": paths_table([path for part in parts for path in part])}
        places = {"first": positions, "last": positions} if single else {}
        witness["families"].append({**family, **places})
    if searched:
        ordered = sorted(searched, key=lambda path: path.first)
        witness["families"].append(
            {
                "first": [path.first for path in ordered],
                "last": [path.last for path in ordered],
                "moduli": [True] * len(ordered),
                "paths": paths_table([path.distances(run) for path in ordered]),
            }
        )
    return witness | drift_witness(run)


def drift_witness(run: Run) -> dict[str, Any]:
    """The taut strings of what rounding adds, where it adds something."""
    if not (run.regular and dynamics.at_once(run.steps.rounding_drift, run.steps.nu)):
        return {}
    drifts = run.steps.replace(s=run.steps.rounding_drift)
    return {"drift": paths_table([string_path(drifts[a:b], a) for a, b in run.hidden_segments])}


def drifted_mu(run: Run) -> float:
    """What mu grows by at most where computed sums are off at steps without the record too.

    *Statement.* Let shifts a_k bring z_{k+1} = c_k z_k + s_k - a_k to 0, and b_k the drifts alone:
    y_{k+1} = c_k y_k + d_k - b_k. Then a_k + b_k bring z_k + y_k to 0 where every step drifts by
    d_k more. By Minkowski the root of the sum of all ((a_k + b_k)/nu_k)^2 is at most mu plus that
    of (b_k/nu_k)^2; releases, and starting z from the diameter, change nothing in that. The drifts
    may be paid at once (b_k = d_k, y_k = 0, whatever the updates are) or by their own string; those
    of a released window are paid at once, so that releasing more never costs less.
    """
    once = dynamics.at_once(run.steps.rounding_drift, run.steps.nu)
    if not (once and run.regular):
        return once
    rounding_drifts = run.steps.replace(s=run.steps.rounding_drift)
    strings = [_string(rounding_drifts[first:last]) for first, last in run.segments if last > first]
    window = rounding_drifts[run.segments[-1][1] :]
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


def worst_position_bound(run: Run) -> Proof:
    """The Gaussian of the worst position; releases add over the segments between them."""
    mus, witness = positions_of(run, worst_only=True)
    latest = np.roll(np.arange(len(mus)), -run.training.steps)[::-1]  # the last step's first
    worst = int(latest[np.argmax(mus[latest])])
    note = f"The worst position is {worst + 1} of {len(mus)}."
    return Proof(Gaussian(float(mus[worst])), witness, note=note)


def hidden_position_bound(run: Run) -> Proof:
    """The average of the profiles of all positions, never of their mu."""
    mus, witness = positions_of(run)
    alike = mus.max() <= mus.min() * (1 + 1e-9)
    curve: Curve = Gaussian(float(mus.max())) if alike else Mixture(mus)
    return Proof(curve, witness)


# --- concave moduli -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PositionPath:
    """Shifts for a record in any of the batches ``first`` to ``last``.

    No shift was looked for in the ``skipped`` steps at the beginning.
    """

    first: int
    last: int
    skipped: int
    path: TautString

    def distances(self, run: Run) -> DistancePath:
        """The distances at every step."""
        batch = np.arange(self.skipped, run.training.steps) % run.batches
        steps = run.steps[self.skipped :]
        arrived = np.where((self.first <= batch) & (batch <= self.last), steps.s, 0.0)
        etas = run.etas if run.constant else run.etas[self.skipped :]
        modulus = dynamics.modulus(etas, run.training, run.curving)
        assert modulus is not None
        return walked_modulus(modulus, arrived, steps.nu, self.path, self.skipped)


def position_paths(run: Run, *, worst_only: bool = False) -> list[PositionPath]:
    """The cheapest shifts found, so that every position is covered (see `path_mus`).

    Equal steps: searches for some positions; of a known order the worst one is enough. Other
    steps: neighbours share a search in which each of them comes at its step.
    """
    training = run.training
    batches = run.batches
    skipped = max(training.steps - full_batch.SEARCHED, 0)
    looked_at = training.steps - skipped
    most = max(SEARCHED_STEPS // max(looked_at, 1), 1)
    if run.steps.constant:
        distances = [0] if worst_only else distances_looked_at(looked_at, most)
        ends = [(training.steps - 1 - d) % batches for d in distances if d < batches]
        groups = [(j, j) for j in ends]
    else:
        cuts = np.linspace(0, batches, min(most, batches) + 1).round().astype(int).tolist()
        groups = [(i, j - 1) for i, j in itertools.pairwise(cuts)]
    return [PositionPath(i, j, skipped, _path(run, i, j, skipped)) for i, j in groups]


def _path(run: Run, first: int, last: int, skipped: int) -> TautString:
    """The best path found when every batch ``first`` to ``last`` holds the record."""
    training = run.training
    batches = run.batches
    batch = np.arange(skipped, training.steps) % batches
    held = (first <= batch) & (batch <= last)
    steps = run.steps[skipped:]
    arrived = np.where(held, steps.s, 0.0)
    etas = run.etas if run.constant else run.etas[skipped:]
    shapes = list(dynamics.implied_moduli(etas, training, run.curving))
    if run.regular and not run.capped:
        shapes = shapes[:1]  # linear on the whole domain: no weaker one finds a better path
    diameter, common_start = training.diameter, skipped == 0
    return best_path(shapes, arrived, steps.nu, diameter, common_start=common_start)


def distances_looked_at(steps: int, most: int) -> list[int]:
    """Some distances below ``steps`` from the last use of a record to the end, 0 among them.

    At most ``most`` of them, the finest of a nested sequence of grids: 0 and the powers of 16, of
    4, of 2, then all numbers of 2, 3, ... binary digits. How many batches an epoch has plays no
    part, so that with more records no position gets a coarser answer.

    >>> distances_looked_at(100, 9), distances_looked_at(7, 7)
    ([0, 1, 2, 4, 8, 16, 32, 64], [0, 1, 2, 3, 4, 5, 6])
    """
    found = [0]
    for ratio in _COARSE:
        finer = [0, *_powers(ratio, steps)]
        if len(finer) > most:
            return found
        found = finer
    digits = 2
    while len(found) < steps:
        finer = [d for d in range(steps) if d == 0 or d % 2 ** max(d.bit_length() - digits, 0) == 0]
        if len(finer) > most:
            break
        found, digits = finer, digits + 1
    return found


def _powers(ratio: int, below: int) -> list[int]:
    powers, power = [], 1
    while power < below:
        powers.append(power)
        power *= ratio
    return powers


def path_mus(run: Run, paths: Sequence[PositionPath]) -> Array:
    """mu of every position under the paths; infinite where none covers it.

    *A path covers the batches it was searched for*: with all of them at once every impulse is
    there that one of them has, and z never falls by an impulse.

    *Later is worse.* Let all steps be alike, with modulus g, noise nu and impulse s. If shifts a
    prove mu for a record last used d steps before the end, then the same shifts, m steps earlier,
    and 0 at the last m steps, prove mu for one last used d + m < B steps before the end. Proof.
    The impulses move by m too, and the last m steps have none: z = 0 there stays 0. What was at
    step m is now at the beginning. If the path restarted at or after step m, it does so m steps
    earlier, where no distance exceeds the diameter either. If not, it now begins with z = 0 <= z_m,
    and a smaller z stays smaller, for g never falls. QED.
    """
    training = run.training
    batches = run.batches
    distance = (training.steps - 1 - np.arange(batches)) % batches
    mus = np.full(batches, np.inf)
    for each in paths:
        if run.steps.constant:
            covered = distance >= distance[each.first]
            mus[covered] = np.minimum(mus[covered], each.path.mu)
        else:
            place = slice(each.first, each.last + 1)
            mus[place] = np.minimum(mus[place], each.path.mu)
    return mus


WORST_POSITION = Theorem(
    key="worst-position",
    name="Worst position",
    reference=(
        "shifted interpolation with impulses once per epoch; c = 1: Ye & Shokri 2022, Theorem D.4"
    ),
    statement=(
        "A record at position j of B has sensitivities s_k at the steps k = j mod B only. The last "
        "iterate is mu_j-GDP with mu_j the taut string of those sensitivities; the worst j counts. "
        "Releases: mu_j^2 adds over the segments between them."
    ),
    schemes=(Cyclic,),
    bound=worst_position_bound,
    limits=ordered_limits,
    supports=ANY_UPDATE | PRESENCE | {"releases"},
    assumptions=("fixed batches in a fixed order", "updates have a known modulus of continuity"),
)

HIDDEN_POSITION = Theorem(
    key="hidden-position",
    name="Hidden position",
    reference="joint convexity over the positions; verified against exact Gaussian mixtures",
    statement=(
        "The record's position is uniform on B and secret: delta(eps) is the average over j of the "
        "Gaussian profiles of mu_j, the taut strings of the positions. Never average mu or eps. "
        "Releases share the position: their mu_j^2 are summed before averaging."
    ),
    schemes=(Shuffled,),
    bound=hidden_position_bound,
    limits=ordered_limits,
    supports=ANY_UPDATE | PRESENCE | {"releases"},
    assumptions=(
        "one uniformly random partition that stays secret",
        "updates have a known modulus of continuity",
    ),
    dominated_by=("exchange",),
)
