"""Several records of one person in secret places: the laws of what they cost, in balls.

`cycles` recomputes the cycle law on the cells and the circle that a certificate names; the numbers
of ways are whole, and the characteristic function is a ball at every frequency. `superposed` counts
placements in whole numbers, without any rounding. Nothing here is shared with the fast path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lastiterate.errors import CertificateError
from lastiterate.verifier.balls import Ball, above, acb, acb_poly, arb, arb_poly, fmpz_poly

Law = list[tuple[Ball, Ball]]  # (value, mass), both upper bounds
_MOST_WORK = 10**8  # coefficients of all products together


def cycles(
    batches: int, records: int, size: int, spread: bool, cells: int, circle: int, tilt: float
) -> Law:
    """The law of g: costs in units of 1/``cells``, on a circle of so many of them.

    What passes the circle comes back at its beginning, where it only adds mass; Chernoff's bound
    of it, at ``tilt`` per unit of cost, goes to the worst cost.
    """
    each = 1 if spread else size
    if not (1 <= records <= batches * each and cells >= 1 and circle >= 2 and 0 <= tilt < math.inf):
        raise CertificateError("the witness does not say how the law of the cost is cut")
    if records**2 * batches * circle // 4 > _MOST_WORK:
        raise CertificateError("the law of the cost is more than a verifier computes")
    shares = _shares(batches, records, each)
    places = [[-(-n * n * cells // m) for m in range(1, batches + 1)] for n in _counts(records)]
    roots = [(acb(2 * k) / circle).exp_pi_i() for k in range(circle)]
    values = []
    for w in range(circle // 2 + 1):
        turned = [
            [0] + [a * roots[-w * c % circle] for a, c in zip(row, at, strict=True)]
            for row, at in zip(shares, places, strict=True)
        ]
        values.append(_total(acb_poly, turned, batches))
    every = math.perm(batches * each, records)
    worst = arb(records * (1 if spread else min(size, records)))
    law: Law = []
    for i in range(circle):
        mass = values[0].real
        for w in range(1, (circle + 1) // 2):
            mass += 2 * (values[w] * roots[w * i % circle]).real
        if circle % 2 == 0:
            mass += values[-1].real * (-1) ** i
        cost = above(arb(i) / cells).min(worst)
        law.append((cost, above(mass / circle / every).max(arb(0))))
    grown = [
        [arb(0)] + [a * (arb(tilt) * c / cells).exp() for a, c in zip(row, at, strict=True)]
        for row, at in zip(shares, places, strict=True)
    ]
    moment = _total(arb_poly, grown, batches) / every
    beyond = above(moment * (-arb(tilt) * circle / cells).exp()).min(arb(1))
    law.append((worst, beyond))
    return law


def _counts(records: int) -> range:
    return range(1, records + 1)


def _shares(batches: int, records: int, each: int) -> list[list[Ball]]:
    """(slots)_N / l, N records in a cycle of l batches."""
    lengths = range(1, batches + 1)
    return [[arb(math.perm(m * each, n)) / m for m in lengths] for n in _counts(records)]


def _total(polynomial: type, rows: Sequence[Sequence[Ball]], batches: int) -> Ball:
    """The sum over the lengths, at most ``batches`` in all, of every way to take cycles."""
    signals = [polynomial(row) for row in rows]
    found = [polynomial([1])]
    for left in range(1, len(rows) + 1):
        total = polynomial([0])
        for count in range(1, left + 1):
            ways = math.comb(left - 1, count - 1)
            total = total + ways * signals[count - 1] * found[left - count]
        found.append(total.truncate(batches + 1))
    return sum(found[-1].coeffs(), arb(0) * 1)


def superposed(
    mus: Sequence[Ball], records: int, size: int, spread: bool, reach: float, cells: int
) -> Law:
    """The law of the sum of the mus of the places, in cells, rounded up.

    Placements are counted in whole numbers: the sums over k of all slots are the elementary
    symmetric polynomial e_k of the monomials x^cell, and with the sums p_i of their powers
    j e_j = p_1 e_(j-1) - p_2 e_(j-2) + ... (Newton). What passes the last cell goes to the worst
    sum.
    """
    each = 1 if spread else size
    slots = len(mus) * each
    if not (1 <= records <= slots and cells >= 1 and 0 < reach < math.inf):
        raise CertificateError("the witness does not say how the law of the cost is cut")
    if records * (records * cells + len(mus)) > _MOST_WORK:
        raise CertificateError("the law of the cost is more than a verifier computes")
    tops, width = [above(mu) for mu in mus], arb(reach) / cells
    if not all(mu.is_finite() for mu in tops):
        return [(arb.pos_inf(), arb(1))]
    at = [int(above(above(mu / width).ceil()).unique_fmpz()) for mu in tops]
    powers, ways = [fmpz_poly([0])], [fmpz_poly([1])]
    for count in _counts(records):
        found = [0] * (cells + 1)
        for cell in at:
            if count * cell <= cells:
                found[count * cell] += each
        powers.append(fmpz_poly(found))
        total = fmpz_poly([0])
        for i in range(1, count + 1):
            total += (-1) ** (i - 1) * powers[i].mul_low(ways[count - i], cells + 1)
        ways.append(total // count)
    every = math.comb(slots, records)
    found = [int(count) for count in ways[-1].coeffs()]
    law = [(above(width * i), above(arb(n) / every)) for i, n in enumerate(found) if n]
    most = sorted((mu for mu in tops for _ in range(min(each, records))), key=float)[-records:]
    law.append((above(sum(most, arb(0))), above(arb(every - sum(found)) / every)))
    return law
