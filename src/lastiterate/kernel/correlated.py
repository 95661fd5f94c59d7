"""Correlated noise: step k adds nu sum_d l_d z_{k-d}, with l_0 = 1, l_d <= 0 and sum l_d >= 0.

The record of position j is used at j, j + B, j + 2B, ...; each use moves an iterate by at most s.
All iterates are public:  mu_j^2 = (s/nu)^2 |sum of the columns of C at its uses|^2,  C = 1/L.
The last iterate alone, updates with c <= 1: a use with m steps left is spread over all of them,
with b_i = l_0 + ... + l_i at the height h = 1/(b_0^2 + ... + b_{m-1}^2). With H_i = h_1 + ... + h_i
over the uses, the first one first:  mu_j^2 = (s/nu)^2 (2 (H_1 + ... + H_n) - H_n).
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from lastiterate.kernel.balls import Ball, arb, arb_poly, largest, ratio, require
from lastiterate.kernel.document import Table, fields
from lastiterate.kernel.run import REPEATED, Run, Unit

MOST_CORRELATED = 100_000  # steps
MOST_POSITIONS = 10**6
_BLOCK = 64  # coefficients of an inverse that are made one by one


def check_correlated(run: Run, witness: Table, hidden: bool) -> list[Ball]:
    """mu^2 of every position of an epoch; of the dearest one alone where the order is known."""
    fields(witness, "witness", ())
    require(run.correlation is not None, "its noise is independent")
    require(run.scheme in REPEATED, f"its batches are {run.scheme}")
    plain = run.constant and run.momentum == 0 and run.unit == Unit() and not run.drifting
    require(plain, "its steps are not those of the theorem")
    steps, batches = run.steps, run.batches_per_epoch or 1
    require(1 <= steps <= MOST_CORRELATED, f"it has no step, or more than {MOST_CORRELATED:,}")
    require(batches <= MOST_POSITIONS, f"an epoch has more than {MOST_POSITIONS:,} batches")
    coefficients = [arb(each) for each in run.correlation or ()]
    if hidden:
        require(run.segments == [(0, steps)], "more than the last iterate is released")
        c = run.c(0, steps)
        require(c is not None and all(x <= 1 for x in c), "its updates may drive two runs apart")
        squares = _spread(coefficients[:steps], steps, batches)
    else:
        squares = _columns(coefficients, steps, batches)
    unit = ratio(run.s(0, steps)[0], run.nu(0, steps)[0]) ** 2
    found = [unit * square for square in squares]
    if run.scheme != "shuffled":
        return [largest(found)]
    return found + [arb(0)] * (batches - len(found))


def _columns(coefficients: list[Ball], steps: int, batches: int) -> list[Ball]:
    used = inverse(coefficients, steps)
    for k in range(batches, steps):
        used[k] += used[k - batches]
    costs = list(accumulate((each * each for each in used), initial=arb(0)))
    return [costs[steps - j] for j in range(min(batches, steps))]


def _spread(coefficients: list[Ball], steps: int, batches: int) -> list[Ball]:
    sums = list(accumulate(coefficients))
    sums += [sums[-1]] * (steps - len(sums))
    left = list(accumulate((b * b for b in sums), initial=arb(0)))
    squares = []
    for j in range(min(batches, steps)):
        heights = list(accumulate(1 / left[m] for m in range(steps - j, 0, -batches)))
        squares.append(2 * sum(heights, arb(0)) - heights[-1])
    return squares


def inverse(coefficients: list[Ball], length: int) -> list[Ball]:
    """The first coefficients of 1/L: Newton's 2C - L C^2, which doubles how many are right."""
    found = [arb(1)]
    for k in range(1, min(length, _BLOCK)):
        reach = range(1, min(k, len(coefficients) - 1) + 1)
        found.append(-sum((coefficients[d] * found[k - d] for d in reach), arb(0)))
    while len(found) < length:
        size = min(2 * len(found), length)
        series, known = arb_poly(coefficients[:size]), arb_poly(found)
        better = (2 * known - _cut(series * _cut(known * known, size), size)).coeffs()
        found = better[:size] + [arb(0)] * (size - len(better))
    return found[:length]


def _cut(series: Any, size: int) -> Any:
    return arb_poly(series.coeffs()[:size])
