"""Ordered batches whose updates have a concave modulus: paths for the positions of a record.

A path is searched, not pooled (`modulus`), so not every position of a long run gets a search of its
own. Two facts keep the answers sound and in order however large the run is: among equal steps a
record that comes later costs more, and a record costs no more than all its neighbours together.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lastiterate.bounds import dynamics, shifted_interpolation
from lastiterate.bounds.ledger import Run
from lastiterate.bounds.modulus import best_path
from lastiterate.bounds.steps import Array
from lastiterate.bounds.taut_string import TautString

SEARCHED_STEPS = 12_000  # of all positions together: seconds
_COARSE = (16, 4, 2)  # ratios of the distances that are looked at, before every bit counts


@dataclass(frozen=True, eq=False)
class PositionPath:
    """Shifts for a record in any of the batches ``first`` to ``last``; no shift was looked for in
    the ``skipped`` steps at the beginning.
    """

    first: int
    last: int
    skipped: int
    path: TautString

    @property
    def witness(self) -> dict[str, Any]:
        """What lets somebody else replay it."""
        place = {"first": self.first, "last": self.last, "skipped": self.skipped}
        return {**place, "restart": self.path.restart, "shifts": self.path.shifts}


def position_paths(run: Run, *, worst_only: bool = False) -> list[PositionPath]:
    """The cheapest shifts found, so that every position is covered (see `path_mus`).

    Equal steps: searches for some positions; of a known order the worst one is enough. Other
    steps: neighbours share a search in which each of them comes at its step.
    """
    training = run.training
    batches = training.batches_per_epoch or 1
    skipped = max(training.steps - shifted_interpolation.SEARCHED, 0)
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
    batches = training.batches_per_epoch or 1
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
    batches = training.batches_per_epoch or 1
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
