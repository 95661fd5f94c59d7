"""Reshuffled batches: a new hidden position in every epoch.

A path whose distances at the ends of epochs are fixed levels z_e, whatever the positions were: an
epoch in which the record is at position j then costs X_e(j), and these costs are independent. So
delta(epsilon) is at most the mean of delta_mu(epsilon), mu^2 = sum of X_e(J_e). The law of the sum
is computed in whole numbers, costs and masses rounded up.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from lastiterate.kernel.balls import (
    Ball,
    arb,
    divide_up,
    fmpz_poly,
    infinity,
    largest,
    ratio,
    require,
    upper,
    whole_above,
)
from lastiterate.kernel.document import Table, fields, numbers
from lastiterate.kernel.gaussians import Gaussians
from lastiterate.kernel.paths import HiddenSteps, Window, window_cost
from lastiterate.kernel.positions import drift_root, plain_descent, with_drift
from lastiterate.kernel.run import MOST_STEPS, Run

_BITS = 160  # masses are whole multiples of 2^-160
Costs = tuple[Ball, ...]  # X_e(j) at every position


def check_boundary_policy(run: Run, witness: Table) -> Gaussians:
    """delta(epsilon) <= E delta_mu(epsilon), mu^2 = sum_e X_e(J_e) under the levels of the witness.

    A second set of levels caps the sum: given the positions, any path bounds it.
    """
    fields(witness, "witness", ("levels", "cap_levels"), ("drift",))
    return policy(run, witness)


def policy(run: Run, witness: Table) -> Gaussians:
    """What the levels of a witness prove."""
    require(run.scheme == "reshuffled", "its batches are not reshuffled")
    law = law_of_sum(epoch_costs(run, witness["levels"]), epoch_costs(run, witness["cap_levels"]))
    squares = with_drift([square for square, _ in law], drift_root(run, witness))
    return Gaussians(squares, [weight for _, weight in law])


def epoch_costs(run: Run, witness: object) -> list[Costs]:
    """X_e(j) for every epoch, one object for equal epochs, from z_e to z_{e+1}.

    z = 0 at releases, which lie between epochs. An epoch that ends at the diameter costs nothing.
    """
    plain_descent(run)
    batches, end = run.batches_per_epoch or 1, run.end
    require(run.steps <= MOST_STEPS, f"more than {MOST_STEPS:,} steps")
    levels = numbers(witness, "levels", -(-run.steps // batches) + 1)
    released = {last for _, last in run.segments}
    aligned = all(last % batches == 0 for last in released - {end})
    require(aligned, "a checkpoint inside an epoch shares its hidden position")
    steps, seen, found = HiddenSteps(run, 0, end, batches), dict[Any, Costs](), list[Costs]()
    for epoch, (x, y) in enumerate(itertools.pairwise(levels)):
        start = epoch * batches
        stop = min(start + batches, end)
        hidden = stop > start
        require(y == 0 or (hidden and stop not in released), "a level at a release is not 0")
        key = (x, y) if run.alike and stop == start + batches else epoch
        if key not in seen:
            row = [arb(0)] * batches
            if hidden and not y >= run.diameter:
                row = [position_cost(steps, start, j, stop, x, y) for j in range(batches)]
            paid = zip(row, _published(run, max(start, end), start, batches), strict=True)
            seen[key] = tuple(_known(a + b) for a, b in paid)
        found.append(seen[key])
    return found


def position_cost(
    steps: HiddenSteps, start: int, position: int, stop: int, x: float, y: float
) -> Ball:
    """The cost of an epoch from x to y, if the record is at a position.

    The distance at its use may be any; it is taken where both parts pay at one rate, or 0.
    """
    use, one = start + position, arb(1)
    if use >= stop:
        return window_cost(steps.window(start, stop, arb(0)), x, y)
    late = steps.window(use, stop, one)
    if use == start:
        return window_cost(late, x, y)
    early = steps.window(start, use, arb(0))
    middle = _at_one_rate(early, late, x, y)
    return window_cost(early, x, middle) + window_cost(late, middle, y)


def _at_one_rate(early: Window, late: Window, x: float, y: float) -> float:
    top = float(early.c) * x
    c, v = float(late.c), float(early.v)
    noise = c * c * v + float(late.v)
    rest = c * top + float(late.s) - y
    middle = top - rest * c * v / noise if noise > 0 and rest > 0 else top
    return middle if 0 < middle < 1e300 else 0.0


def _published(run: Run, first: int, start: int, batches: int) -> list[Ball]:
    """(s/nu)^2 of the uses of an epoch inside the released window."""
    last, found = min(start + batches, run.steps), [arb(0)] * batches
    for k in range(first, last):
        found[k - start] = ratio(run.s(k, k + 1)[0], run.nu(k, k + 1)[0]) ** 2
    return found


def _known(cost: Ball) -> Ball:
    return cost if cost.is_finite() else infinity()


def worst_sequence(every: Sequence[Costs]) -> Ball:
    """No sequence of positions costs more."""
    counts = Counter(map(id, every))
    distinct = {id(costs): costs for costs in every}
    return sum((upper(largest(distinct[i])) * n for i, n in counts.items()), arb(0))


def law_of_sum(every: Sequence[Costs], cap: Sequence[Costs] = ()) -> list[tuple[Ball, Ball]]:
    """The law of sum X_e(J_e): pairs (mu^2, mass), both rounded up."""
    worst = upper(worst_sequence(every))
    top = worst.min(upper(worst_sequence(cap))) if cap else worst
    require(worst.is_finite(), "an epoch of the witness has no noise to pay with")
    if worst == 0:
        return [(arb(0), arb(1))]
    grid = worst / (1 << min(max(17, 11 + len(every).bit_length()), 20))
    tie = itertools.count()
    laws: list[tuple[int, int, Any]] = []  # shortest first: a balanced tree of products
    counts, distinct = Counter(map(id, every)), {id(costs): costs for costs in every}
    for index, count in counts.items():
        power = _histogram(distinct[index], grid)
        while count:
            if count & 1:
                heapq.heappush(laws, (len(power), next(tie), power))
            count >>= 1
            power = divide_up(power * power, _BITS) if count else power
    while len(laws) > 1:
        a, b = heapq.heappop(laws)[2], heapq.heappop(laws)[2]
        product = divide_up(a * b, _BITS)
        heapq.heappush(laws, (len(product), next(tie), product))
    masses, unit = [int(mass) for mass in laws[0][2].coeffs()], arb(2) ** _BITS
    return [(upper((grid * i).min(top)), upper(arb(n) / unit)) for i, n in _gathered(masses)]


def _histogram(costs: Costs, grid: Ball) -> Any:
    share = -(-(1 << _BITS) // len(costs))
    places = Counter(whole_above(cost / grid) for cost in costs)
    masses = [0] * (max(places) + 1)
    for place, count in places.items():
        masses[place] = count * share
    return fmpz_poly(masses)


def _gathered(masses: Sequence[int]) -> list[tuple[int, int]]:
    """Few points with all the mass, each moved up: by at most 1/5000, or while it is tiny."""
    tiny, held, last, found = sum(masses) >> 60, 0, 0, list[tuple[int, int]]()
    for index, mass in enumerate(masses):
        held += mass
        if held > tiny and (index + 1 > 1.0002 * last or index == len(masses) - 1):
            found.append((index, held))
            held, last = 0, index
    return [*found, (len(masses) - 1, held)] if held else found
