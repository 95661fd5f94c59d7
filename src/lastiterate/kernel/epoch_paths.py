"""Reshuffled batches under concave moduli: a path of distances for every epoch and position.

As in `epochs` the distances at the ends of epochs are levels that the positions do not choose. In
an epoch every position has a path of its own from one level to the next, or all share one; any
distances of at least 0 are a proof. A step that ends at the diameter or above costs nothing: a path
may begin there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from lastiterate.kernel.balls import Ball, arb, infinity, ratio, repeat, require, upper
from lastiterate.kernel.document import Table, fields, numbers, well_formed, whole
from lastiterate.kernel.epochs import Costs, law_of_sum
from lastiterate.kernel.gaussians import Gaussians
from lastiterate.kernel.positions import plain_descent
from lastiterate.kernel.run import MOST_STEPS, Run

MOST_DISTANCES = 2_000_000  # of all paths together


def check_epoch_paths(run: Run, witness: Table) -> Gaussians:
    """delta(epsilon) <= E delta_mu(epsilon), mu^2 = sum_e X_e(J_e) along the paths of the witness.

    The first path begins at 0 at the first step of the run, or at the diameter; every other one
    where those of the epoch before end; the last one ends at 0.
    """
    fields(witness, "witness", ("first_epoch", "paths"))
    require(run.scheme == "reshuffled", "its batches are not reshuffled")
    require(run.releases == () and run.window == 1, "more than the last iterate is released")
    require(run.steps <= MOST_STEPS, f"more than {MOST_STEPS:,} steps")
    plain_descent(run)
    batches = run.batches_per_epoch or 1
    epochs = -(-run.steps // batches)
    first = whole(witness["first_epoch"], "first_epoch", 0, max(epochs - 1, 0))
    rows = witness["paths"]
    well_formed(isinstance(rows, list) and len(rows) == epochs - first, "paths of the witness")
    every, level, total = list[Costs](), None, 0
    for epoch, row in enumerate(rows, first):
        begin = epoch * batches
        end = min(begin + batches, run.steps)
        paths = _read(row, end - begin, batches)
        total += len(paths) * (end - begin + 1)
        require(total <= MOST_DISTANCES, f"more than {MOST_DISTANCES:,} distances")
        start = paths[0][0]
        if level is None:
            common = start == 0 and begin == 0
            require(common or start >= run.diameter, "a path starts below the distance of the runs")
        else:
            require(start == level, "the paths of an epoch begin where those before it end")
        level = paths[0][-1]
        every.append(tuple(_costs(run, begin, end, paths, batches)))
    require(level == 0 or not rows, "something is left over at the end of the run")
    law = law_of_sum(every)
    return Gaussians([square for square, _ in law], [weight for _, weight in law])


def _read(row: Any, steps: int, batches: int) -> Sequence[Sequence[float]]:
    """The paths of an epoch: one for every position, or one for all."""
    values = numbers(row, "paths")
    alone = len(values) == steps + 1
    well_formed(alone or len(values) == batches * (steps + 1), "a path has another length")
    count = 1 if alone else batches
    paths = [values[i * (steps + 1) : (i + 1) * (steps + 1)] for i in range(count)]
    ends = {(path[0], path[-1]) for path in paths}
    require(len(ends) == 1, "the paths of an epoch do not share their ends")
    return paths


def _costs(
    run: Run, begin: int, end: int, paths: Sequence[Sequence[float]], batches: int
) -> list[Ball]:
    """Sum of (a/nu)^2 for every position of the record."""
    steps = end - begin
    lists: tuple[Sequence[Any], ...] = (
        *(run.g(begin, end), run.s(begin, end)),
        *(run.drift(begin, end), run.nu(begin, end)),
    )
    columns = [list(repeat(column, steps)) for column in lists]
    moduli: Sequence[Callable[[Ball], Ball]]
    moduli, used, unused, noises = columns

    def paid(path: Sequence[float], k: int, arriving: Ball) -> Ball:
        if path[k + 1] >= run.diameter:
            return arb(0)
        move = upper(moduli[k](arb(path[k])) + arriving - path[k + 1])
        cost = ratio(move, noises[k]) ** 2 if move > 0 else arb(0)
        return cost if cost.is_finite() else infinity()

    found = list[Ball]()
    for path in paths:
        plain = [paid(path, k, unused[k]) for k in range(steps)]
        before = list(accumulate(plain, initial=arb(0)))
        after = list(accumulate(reversed(plain), initial=arb(0)))[::-1]
        for j in range(batches) if len(paths) == 1 else [len(found)]:
            used_here = j < steps
            own = before[j] + paid(path, j, used[j]) + after[j + 1] if used_here else before[-1]
            found.append(own)
    return found
