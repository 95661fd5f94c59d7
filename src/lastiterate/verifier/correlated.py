"""Correlated noise once more, in balls: the matrix mechanism, and the last iterate alone.

The statement and its proof are in `bounds.correlated`. The description sees to it that the
coefficients are of the class that the proof needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from lastiterate.description import Cyclic, FullBatch, Shuffled
from lastiterate.errors import CertificateError
from lastiterate.verifier.balls import Ball, arb, arb_poly, greatest, proved
from lastiterate.verifier.profile import Profile
from lastiterate.verifier.steps import Case
from lastiterate.verifier.strings import ratio

MOST_STEPS = 100_000
MOST_POSITIONS = 10**6
_BLOCK = 64  # coefficients of an inverse that are made one by one


def insiders(case: Case, witness: Mapping[str, Any]) -> Profile:
    """All iterates: the sum of the columns of C = 1/L at the uses of the record."""
    _covered(case)
    steps, batches = case.training.steps, case.training.batches_per_epoch or 1
    used = _inverse(_coefficients(case), steps)
    for k in range(batches, steps):
        used[k] += used[k - batches]
    costs = list(accumulate((each * each for each in used), initial=arb(0)))
    return _profile(case, [costs[steps - j] for j in range(min(batches, steps))])


def outsiders(case: Case, witness: Mapping[str, Any]) -> Profile:
    """The last iterate: every impulse spread over the steps that are left."""
    _covered(case)
    steps, batches = case.training.steps, case.training.batches_per_epoch or 1
    if case.window != 1 or case.segments != [(0, steps)]:
        raise CertificateError("more than the last iterate is released")
    factors = case.factors(0, steps)
    if factors is None or not all(proved(c <= 1) for c in factors):
        raise CertificateError("its updates may drive two runs apart")
    l = _coefficients(case)[:steps]  # noqa: E741
    sums = list(accumulate(l)) + [sum(l, arb(0))] * (steps - len(l))
    left = list(accumulate((b * b for b in sums), initial=arb(0)))
    squares = []
    for j in range(min(batches, steps)):
        heights = list(accumulate(1 / left[m] for m in range(steps - j, 0, -batches)))
        squares.append(2 * sum(heights, arb(0)) - heights[-1])
    return _profile(case, squares)


def _covered(case: Case) -> None:
    training = case.training
    if training.correlation is None:
        raise CertificateError("its noise is independent")
    if not isinstance(training.batches, FullBatch | Cyclic | Shuffled):
        raise CertificateError(f"its batches are {training.batches.name}")
    if case.rounds or not case.unit.default or training.momentum or not training.constant:
        raise CertificateError("its steps are not those of the theorem")
    if not 1 <= training.steps <= MOST_STEPS:
        raise CertificateError(f"it has no step, or more than {MOST_STEPS:,}")
    if (training.batches_per_epoch or 1) > MOST_POSITIONS:
        raise CertificateError(f"an epoch has more than {MOST_POSITIONS:,} batches")


def _coefficients(case: Case) -> list[Ball]:
    return [arb(each) for each in case.training.correlation or ()]


def _inverse(coefficients: list[Ball], length: int) -> list[Ball]:
    """The first coefficients of 1/L: Newton's 2C - L C^2, which doubles how many are right."""
    found = [arb(1)]
    for k in range(1, min(length, _BLOCK)):
        reach = range(1, min(k, len(coefficients) - 1) + 1)
        found.append(-sum((coefficients[d] * found[k - d] for d in reach), arb(0)))
    while len(found) < length:
        size = min(2 * len(found), length)
        C, L = arb_poly(found), arb_poly(coefficients[:size])
        better = (2 * C - _cut(L * _cut(C * C, size), size)).coeffs()
        found = better[:size] + [arb(0)] * (size - len(better))
    return found[:length]


def _cut(series: Any, size: int) -> Any:
    return arb_poly(series.coeffs()[:size])


def _profile(case: Case, squares: list[Ball]) -> Profile:
    training = case.training
    unit = ratio(case.impulses(0, training.steps)[0], case.noises(0, training.steps)[0]) ** 2
    found = [unit * square for square in squares]
    if not training.batches.hidden:
        return Profile.gaussian(greatest(found))
    unused = (training.batches_per_epoch or 1) - len(found)
    return Profile.average(found + [arb(0)] * unused)
