"""One path for every position of a record in the epoch: full, cyclic and shuffled batches.

A record in batch j of B is used at the steps k = j mod B alone. Full batches are B = 1, a known
order takes the largest mu_j^2, and of one hidden partition the profiles are averaged: (c) of
Theorem U with pi = rho diagonal. Releases share the position, so mu_j^2 adds over the segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lastiterate.kernel.balls import (
    Ball,
    arb,
    infinity,
    largest,
    positive_part,
    ratio,
    require,
    upper,
)
from lastiterate.kernel.document import Table, fields, flags, well_formed, wholes
from lastiterate.kernel.gaussians import Gaussians
from lastiterate.kernel.paths import HiddenSteps, read_paths
from lastiterate.kernel.run import MOST_STEPS, Run

_FAMILY = ("first", "last", "moduli")


def check_full_batch(run: Run, witness: Table) -> Gaussians:
    """Theorem U without coins: mu^2 = sum (alpha_k / nu_k)^2 of the path of every segment."""
    fields(witness, "witness", ("families",))
    require(run.scheme == "full", "its batches are not full")
    return Gaussians.one(position_squares(run, witness)[0])


def check_worst_position(run: Run, witness: Table) -> Gaussians:
    """The largest mu_j^2."""
    fields(witness, "witness", ("families",), ("drift",))
    require(run.scheme == "cyclic", "its batches are not cyclic")
    return Gaussians.one(largest(position_squares(run, witness)))


def check_hidden_position(run: Run, witness: Table) -> Gaussians:
    """delta(epsilon) <= (1/B) sum_j delta_{mu_j}(epsilon)."""
    fields(witness, "witness", ("families",), ("drift",))
    require(run.scheme == "shuffled", "its batches are not shuffled once")
    return Gaussians.by_position_of(position_squares(run, witness))


def check_composition(run: Run, witness: Table) -> Gaussians:
    """All iterates published: mu^2 = sum (m_k s_k / nu_k)^2 over the uses of the m_k records."""
    fields(witness, "witness", ())
    require(run.correlation is None, "later steps take back some of its noise")
    require(run.scheme in ("full", "cyclic", "shuffled", "reshuffled"), "its batches are random")
    if run.scheme == "full":
        return Gaussians.one(published(run, 0, run.steps))
    if run.unit.records > 1:
        return Gaussians.one(published_group(run))
    if run.scheme == "reshuffled":
        return Gaussians.one(published_group(run))
    squares = published_positions(run, 0)
    hidden = run.scheme == "shuffled"
    return Gaussians.by_position_of(squares) if hidden else Gaussians.one(largest(squares))


def plain_descent(run: Run) -> None:
    """Raise unless the next parameters follow from the last ones alone, with noise of their own."""
    require(run.momentum == 0, f"it has momentum {run.momentum:g}")
    require(run.correlation is None, "later steps take back some of its noise")


def position_squares(run: Run, witness: Table) -> list[Ball]:
    """mu_j^2 of every position, each by the best of the families of paths.

    No position costs more than if all iterates were public.
    """
    plain_descent(run)
    squares, drift = published_positions(run, 0), drift_root(run, witness)
    well_formed(isinstance(witness["families"], list), "the families of paths are not a list")
    for family in witness["families"]:
        found = with_drift(path_squares(run, fields(family, "family", ("paths",), _FAMILY)), drift)
        squares = [a.min(b) for a, b in zip(found, squares, strict=True)]
    return squares


def path_squares(run: Run, family: Table) -> list[Ball]:
    """mu_j^2 of the paths; in a released window s is paid at every use.

    A path for several positions has s at the uses of all of them. If all steps are equal, a path of
    one position covers those that are last used earlier: the same payments, that much earlier.
    """
    batches = run.batches_per_epoch or 1
    paths = read_paths(family["paths"])
    moduli = flags(family.get("moduli", [False] * len(paths)), "moduli", len(paths))
    first = wholes(family.get("first", list(range(batches))), "first", batches - 1)
    last = wholes(family.get("last", list(range(batches))), "last", batches - 1)
    count = len(first)
    well_formed(len(last) == count, "first and last have different lengths")
    ordered = all(a <= b for a, b in zip(first, last, strict=True))
    ordered &= all(b < a for b, a in zip(last, first[1:], strict=False))
    well_formed(ordered, "the positions of the paths are not in order")
    require(len(paths) == count * len(run.segments), "a path of a segment is missing")
    sizes = [dict.fromkeys(range(i, j + 1), arb(1)) for i, j in zip(first, last, strict=True)]
    totals = [arb(0)] * count
    for index, (begin, end) in enumerate(run.segments):
        steps = HiddenSteps(run, begin, end, batches)
        part = slice(index * count, (index + 1) * count)
        costs = steps.costs(paths[part], sizes, moduli[part])
        totals = [a + b for a, b in zip(totals, costs, strict=True)]
    answer = [infinity()] * batches
    for i, j, total in zip(first, last, totals, strict=True):
        answer[i : j + 1] = [total] * (j + 1 - i)
    if run.alike and len(run.segments) == 1 and run.window == 1:
        latest = [(run.steps - 1 - distance) % batches for distance in range(batches)]
        for later, j in pairwise(latest):
            answer[j] = answer[j].min(answer[later])
    window = published_positions(run, run.end)
    return [a + b for a, b in zip(answer, window, strict=True)]


def published(run: Run, first: int, last: int) -> Ball:
    """sum (s/nu)^2 over steps that all use the record."""
    if last <= first:
        return arb(0)
    pairs = zip(run.s(first, last), run.nu(first, last), strict=True)
    total = sum((ratio(s, nu) ** 2 for s, nu in pairs), arb(0))
    return total * (last - first) if run.alike else total


def published_positions(run: Run, first: int) -> list[Ball]:
    """sum (s/nu)^2 over the uses of each position from a step on."""
    batches = run.batches_per_epoch or 1
    require(batches <= MOST_STEPS, f"more than {MOST_STEPS:,} positions")
    if run.alike:
        one, count = published(run, first, min(first + 1, run.steps)), run.steps - first
        times = [-((j - count) // batches) for j in range(batches)]  # j after the first step
        return [one * times[(j - first) % batches] for j in range(batches)]
    totals = [arb(0)] * batches
    pairs = zip(run.s(first, run.steps), run.nu(first, run.steps), strict=True)
    for k, (s, nu) in enumerate(pairs, first):
        totals[k % batches] += ratio(s, nu) ** 2
    return totals


def published_group(run: Run) -> Ball:
    """sum m_j^2 (s/nu)^2 for the worst placement of the unit's records, in every epoch anew."""
    batches, steps = run.batches_per_epoch or 1, run.steps
    records, most = run.unit.records, run.in_a_batch(run.unit)
    if run.alike:
        return published(run, 0, min(steps, 1)) * (records * most * -(-steps // batches))
    if run.scheme in ("cyclic", "shuffled"):
        rows = [published_positions(run, 0)]
    else:
        pairs = zip(run.s(0, steps), run.nu(0, steps), strict=True)
        costs = [ratio(s, nu) ** 2 for s, nu in pairs]
        rows = [costs[k : k + batches] for k in range(0, steps, batches)]
    placed = (pair for row in rows for pair in placement(row, records, most))
    return sum((held**2 * cost for held, cost in placed), arb(0))


def placement(values: Sequence[Ball], records: int, most: int) -> list[tuple[int, Ball]]:
    """The largest values, rounded up, with as many records each as one batch can hold."""
    full, rest = divmod(records, most)
    found = sorted(map(upper, values), reverse=True)
    placed = [(most, value) for value in found[:full]]
    return placed + [(rest, value) for value in found[full : full + 1] if rest]


def drift_root(run: Run, witness: Table) -> Ball:
    """mu of what rounding adds where the record is not used.

    It has a path y of its own: payments a_k + b_k bring z_k + y_k to 0, and by Minkowski the root
    of the sum of all ((a_k + b_k)/nu_k)^2 is at most mu plus this.
    """
    if not run.drifting or run.scheme == "full":
        return arb(0)
    pairs = zip(run.drift(0, run.steps), run.nu(0, run.steps), strict=True)
    total = sum((ratio(d, nu) ** 2 for d, nu in pairs), arb(0)) * (run.steps if run.alike else 1)
    if "drift" in witness:
        paths, own = read_paths(witness["drift"]), arb(0)
        require(len(paths) == len(run.segments), "a drift of a segment is missing")
        for (begin, end), path in zip(run.segments, paths, strict=True):
            own += HiddenSteps(run, begin, end, 1, drifts=True).costs([path], [{0: arb(1)}])[0]
        total = total.min(own)
    return upper(total).sqrt()


def with_drift(squares: Sequence[Ball], drift: Ball) -> list[Ball]:
    """(mu + drift)^2."""
    if drift == 0:
        return list(squares)
    roots = (upper(positive_part(square)).sqrt() + drift for square in squares)
    return [root**2 if root.is_finite() else infinity() for root in roots]
