"""The exchange bound: labels of two different arrangements (page 6, section 2).

If the record in batch i changes places with one in batch j, the arrangement is still uniform, and
the runs differ at both: "replace" by s and s, "zero-out" by 2 s and s, or s and 2 s in the other
order. With mu_ij from a path through both uses, (c) of Theorem U takes any masses pi, whose rows
sum to the law of the positions, and rho, whose columns sum to no more.

Reshuffled batches exchange in the last epoch alone, given the cost of all earlier ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lastiterate.kernel.balls import Ball, arb, require, upper
from lastiterate.kernel.document import Table, fields, numbers, well_formed, wholes
from lastiterate.kernel.epochs import epoch_costs, law_of_sum, policy
from lastiterate.kernel.gaussians import Gaussians, Term
from lastiterate.kernel.paths import HiddenSteps, Sizes, read_paths
from lastiterate.kernel.positions import (
    drift_root,
    position_squares,
    published_positions,
    with_drift,
)
from lastiterate.kernel.run import Run, Unit

Order = tuple[Ball, Ball]  # how often s arrives at i, and at j
Law = Sequence[tuple[Ball, Ball]]  # (mu^2, probability)


def check_exchange(run: Run, witness: Table) -> Gaussians:
    """delta(epsilon) <= sum pi_ij delta_{mu_ij}(epsilon + log(rho_ij/pi_ij)), for both orders.

    The diagonal alone (pi = rho = 1/B) is the average over the positions, a bound of its own.
    """
    fields(witness, "witness", ("families",), ("drift", "exchange"))
    require(run.scheme == "shuffled", "its batches are not shuffled once")
    squares = position_squares(run, witness)
    average = Gaussians.by_position_of(squares)
    if "exchange" not in witness:
        return average
    nothing = [(arb(0), arb(1))]
    drift, segments = drift_root(run, witness), run.segments
    # `squares` have paid for their drift already.
    return average.exchanged(
        _orders(run, witness["exchange"], squares, nothing, (arb(0), drift), segments, run.end)
    )


def check_reshuffled_exchange(run: Run, witness: Table) -> Gaussians:
    """The same for the positions of the last epoch, after any cost x of all earlier epochs.

    With mu^2 = x + mu_ij^2; the law of x is moved up to the values of the witness.
    """
    fields(witness, "witness", ("levels", "cap_levels"), ("drift", "exchange"))
    average = policy(run, witness)
    if "exchange" not in witness:
        return average
    table = fields(witness["exchange"], "exchange", ("levels", "costs", "orders"))
    require(run.steps > 0, "there is no epoch")
    *earlier, own = epoch_costs(run, table["levels"])
    level = numbers(table["levels"], "levels")[-2]
    law = _gathered(law_of_sum(earlier), numbers(table["costs"], "costs"))
    drift, batches = drift_root(run, witness), run.batches_per_epoch or 1
    start = (run.steps - 1) // batches * batches
    segments = [(start, run.end)] if start < run.end else []
    public, drifts = max(start, run.end), (drift, drift)
    return average.exchanged(
        _orders(run, table["orders"], own, law, drifts, segments, public, level)
    )


def sizes_of_orders(run: Run) -> Sequence[Order]:
    """How often s arrives at i and at j, for each order of the two runs.

    At i the record meets another one, at j the other one meets the replacement, or nothing. Where
    the unit has gradients of its own bound K_i, the other record has not: K_i + K, not 2 K_i. (What
    rounding adds at every step is paid for by the drift, also where less than s arrives.)
    """
    one, own = arb(1), run.unit.gradient_norm
    declared = arb(run.sensitivity)
    known = own is not None and declared != 0
    if run.adjacency == "zero-out":
        size = (arb(own) / declared).min(one) if known else one
        return (1 + size, one), (one, 1 + size)
    size = ((arb(own) + arb(run.gradient_norm)) / declared).min(one) if known else one
    return ((size, size),)


def _orders(
    run: Run,
    witness: object,
    own: Sequence[Ball],
    law: Law,
    drifts: tuple[Ball, Ball],
    segments: Sequence[tuple[int, int]],
    public: int,
    level: float = 0.0,
) -> list[list[Term]]:
    """The terms of every order.

    Args:
        run: the run.
        witness: for each order the pairs with a path in each segment, and masses for each x.
        own: mu_jj^2.
        law: the costs x of earlier epochs.
        drifts: what rounding adds to mu_jj and to mu_ij.
        segments: hidden steps in which the exchanged records are used.
        public: the first of the released steps after them.
        level: the distance at the first of these steps.
    """
    sizes, other = sizes_of_orders(run), run.for_unit(Unit())
    good = isinstance(witness, list) and len(witness) == len(sizes)
    well_formed(good, "the witness does not have the orders of the two runs")
    found, batches = list[list[Term]](), len(own)
    window = published_positions(other, public)
    for order, size in zip(witness, sizes, strict=True):  # type: ignore[call-overload]
        table = fields(order, "order", ("row", "column", "paths", "masses"))
        row, column = (wholes(table[name], name, batches - 1) for name in ("row", "column"))
        well_formed(len(row) == len(column), "row and column have different lengths")
        paths, uses = read_paths(table["paths"]), list[Sizes]()
        for i, j in zip(row, column, strict=True):
            well_formed(i != j, "a position is exchanged with itself")
            uses.append({i: size[0], j: size[1]})
        well_formed(len(paths) == len(row) * len(segments), "a pair of positions has no path")
        squares = [sum((n**2 * window[j] for j, n in pair.items()), arb(0)) for pair in uses]
        for index, (begin, end) in enumerate(segments):
            part = paths[index * len(uses) : (index + 1) * len(uses)]
            costs = HiddenSteps(other, begin, end, batches).costs(part, uses, reached=level)
            squares = [a + b for a, b in zip(squares, costs, strict=True)]
        masses, terms = table["masses"], list[Term]()
        well_formed(isinstance(masses, list) and len(masses) == len(law), "a cost has no masses")
        for (cost, weight), each in zip(law, masses, strict=True):
            after = _masses(each, row, column, batches)
            mus = with_drift([cost + square for square in own], drifts[0])
            mus += with_drift([cost + squares[pair] for pair in after[0]], drifts[1])
            every = zip(mus, after[1], after[2], strict=True)
            now = [Term(square, weight * pi, weight * rho) for square, pi, rho in every]
            terms += _merged(now) if len(law) > 1 else now
        found.append(terms)
    return found


def _masses(
    value: object, row: Sequence[int], column: Sequence[int], batches: int
) -> tuple[list[int], list[Ball], list[Ball]]:
    """The pairs, and pi and rho: of every position with itself, then of the pairs.

    Rows of pi sum to at least 1/B, columns of rho to at most 1/B.
    """
    table = fields(value, "masses", ("pair", "own_pi", "own_rho", "pi", "rho"))
    pairs = wholes(table["pair"], "pair", len(row) - 1)
    share, both = arb(1) / batches, list[list[Ball]]()
    for name, place in (("pi", row), ("rho", column)):
        own = list(map(arb, numbers(table[f"own_{name}"], name, batches)))
        moved = list(map(arb, numbers(table[name], name, len(pairs))))
        totals = list(own)
        for pair, mass in zip(pairs, moved, strict=True):
            totals[place[pair]] += mass
        enough = all(t >= share if name == "pi" else t <= share for t in totals)
        require(enough, "rows of pi sum to less than 1/B, or columns of rho to more")
        both.append(own + moved)
    return pairs, both[0], both[1]


def _gathered(law: Law, values: Sequence[float]) -> Law:
    """Every cost of a law moved up to a value of the witness; the last one grows to the largest."""
    well_formed(values, "the witness has no cost of earlier epochs")
    costs = list(map(arb, values))
    weights, place = [arb(0)] * len(costs), 0
    for cost, mass in law:
        while place + 1 < len(costs) and not cost <= costs[place]:
            place += 1
        if not cost <= costs[place]:
            costs[place] = costs[place].max(upper(cost))
        weights[place] += mass
    return list(zip(costs, weights, strict=True))


def _merged(terms: Sequence[Term]) -> list[Term]:
    """Fewer terms of no smaller sum: similar ones with the largest mu and the smallest rho/pi."""
    alone, similar = list[Term](), dict[tuple[int, int], list[Term]]()
    for term in terms:
        square, pi, rho = (float(upper(value)) for value in term)
        if not (0 < square < math.inf and pi > 0 and rho > 0):
            alone.append(term)
            continue
        key = math.floor(1000 * math.log(square)), math.floor(800 * math.log(rho / pi))
        similar.setdefault(key, []).append(term)
    for group in similar.values():
        pi, square = sum((term.pi for term in group), arb(0)), upper(group[0].square)
        share = group[0].rho / group[0].pi
        for term in group[1:]:
            square, share = square.max(upper(term.square)), share.min(term.rho / term.pi)
        alone.append(Term(square, pi, pi * share))
    return alone
