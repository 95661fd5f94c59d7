"""Several records of one person in secret places: the laws of what they cost, in whole numbers.

`cycles` counts, on the cells and the circle that a certificate names, how many permutations and
placements lead to each cost; `superposed` counts placements by the sum of their mus. Neither makes
any error but the rounding of costs. Nothing here is shared with the fast path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from lastiterate.errors import CertificateError
from lastiterate.verifier.balls import (
    Ball,
    above,
    arb,
    arb_poly,
    fmpz,
    fmpz_poly,
    nmod_poly,
    units_up,
)

Law = list[tuple[Ball, Ball]]  # (value, mass), both upper bounds
Cells = list[tuple[int, Ball]]  # (cell, mass): values in whole cells
_MOST_WORK = 4 * 10**7  # coefficients of all products together: a minute
_PRIMES_ABOVE = 1 << 50  # where multiplication is fastest
_MOST_BATCHES = 100_000
_MOST_CELLS = 500_000  # of sums
_UNITS = 160  # masses of sums are whole multiples of 2^-160
_FEW = 500  # points of a law of sums that are kept
_SPLIT = 4  # a cost between two cells is shared between them, in multiples of 2^-4


def cycles(
    batches: int, records: int, size: int, spread: bool, cells: int, circle: int, tilt: float
) -> Cells:
    """A law of g that is balanced: costs in units of 1/``cells``, on a circle of so many of them.

    The cost of a cycle is moved to the two cells around it, their mean being no less, so that no
    convex increasing function has a smaller mean under the law. What passes the circle comes back
    at its beginning, where it only adds mass; Chernoff's bound of it, at ``tilt`` per unit of cost,
    goes to the largest sum. The cost itself is less than one cell per record above its own.
    """
    each = 1 if spread else size
    slots, worst = batches * each, records * min(each, records)
    if not (1 <= records <= slots and cells >= 1 and circle >= 2 and 0 <= tilt < math.inf):
        raise CertificateError("the witness does not say how the law of the cost is cut")
    digits = records * (slots.bit_length() + _SPLIT)  # of all ways; known before they are counted
    if circle * records**2 * batches * digits // 200 > _MOST_WORK or batches > _MOST_BATCHES:
        raise CertificateError("the law of the cost is more than a verifier computes")
    every = math.perm(slots, records) << _SPLIT * records
    # N given records fall into a cycle of m batches in (m each)_N ways; over m: whole all the same.
    ways = [
        [each * math.perm(m * each - 1, n) << _SPLIT * n for m in range(1, batches + 1)]
        for n in range(records)
    ]
    places = [[_shared(n * n * cells, m) for m in range(1, batches + 1)] for n in _counts(records)]
    found = _ways_by_cell(ways, places, circle, every)
    law = [(i, above(arb(n) / every)) for i, n in enumerate(found) if n]
    if circle > worst * cells + records:  # each of at most k cycles is rounded up by less than one
        return law
    # A sum reaches the circle's end if and only if it does with all terms cut down to that.
    rise = [(arb(tilt) * min(i, circle) / cells).exp() for i in range(circle + 2)]
    grown = []
    for row, at in zip(ways, places, strict=True):
        terms = []
        for a, (cell, more) in zip(row, at, strict=True):
            cell = min(cell, circle)
            terms.append(a * ((2**_SPLIT - more) * rise[cell] + more * rise[cell + 1]))
        grown.append(arb_poly([0, *terms]))
    moment = sum(_total(grown, arb_poly([1]), batches).coeffs(), arb(0)) / every
    beyond = above(moment * (-arb(tilt) * circle / cells).exp()).min(arb(1))
    return [*law, (worst * cells + records, beyond)]


def summed(law: Cells, times: int) -> tuple[Cells, int]:
    """The law of the sum of so many independent costs, balanced as they are; by how much it moved.

    Masses are whole multiples of 2^-160, rounded up. The far end goes to the last cell; mass
    between two of the few cells that are kept goes to both, its mean being no less.
    """
    last = max(cell for cell, _ in law)
    if times * last > _MOST_CELLS:
        raise CertificateError("the law of the cost is more than a verifier computes")
    masses = [0] * (last + 1)
    for cell, mass in law:
        masses[cell] += int(above(above(mass * arb(2) ** _UNITS).ceil()).unique_fmpz())
    one, total = fmpz_poly(masses), fmpz_poly([1 << _UNITS])
    for digit in f"{times:b}":
        total = units_up(total * total, _UNITS)
        total = units_up(total * one, _UNITS) if digit == "1" else total
    found = [int(mass) for mass in total.coeffs()]
    end, far = len(found), 0
    while end > 1 and far + found[end - 1] <= 1 << _UNITS // 4:
        end -= 1
        far += found[end]
    step = -(-end // _FEW)
    kept = [0] * (-(-end // step) + 1)
    for cell, mass in enumerate(found[:end]):
        place, rest = divmod(cell, step)
        right = -(-mass * rest // step)
        kept[place] += mass - right
        kept[place + 1] += right
    unit = arb(2) ** -_UNITS
    cells = [(place * step, arb(mass) * unit) for place, mass in enumerate(kept) if mass]
    return [*cells, (max(times * last, cells[-1][0]), arb(far) * unit)], step


def _counts(records: int) -> range:
    return range(1, records + 1)


def _shared(cost: int, length: int) -> tuple[int, int]:
    """The cell below cost/length, and how many parts of 2^4 go to the next one, rounded up."""
    cell, rest = divmod(cost, length)
    return cell, -(-(rest << _SPLIT) // length)


def _total(signals: Sequence[Ball], one: Ball, batches: int) -> Ball:
    """Every way to take cycles for all records, by their length in all, at most ``batches``.

    F_kappa = sum of C(kappa - 1, N - 1) a_N F_(kappa - N): the first of kappa records shares its
    cycle with N - 1 others. The rest of the permutation has weight 1.
    """
    found = [one]
    for left in _counts(len(signals)):
        total = 0 * one
        for count in _counts(left):
            ways = math.comb(left - 1, count - 1)
            total = total + ways * (signals[count - 1] * found[left - count])
        found.append(total.truncate(batches + 1))
    return found[-1]


def _ways_by_cell(
    ways: Sequence[Sequence[int]],
    places: Sequence[Sequence[tuple[int, int]]],
    circle: int,
    every: int,
) -> list[int]:
    """How many of ``every`` ways lead to each cell: exact, from remainders by enough primes.

    The sum over all ways of x^cell is found for every x with x^circle = 1, modulo a prime that has
    all of them, and transformed back there.
    """
    found, modulus, batches = [0] * circle, 1, len(ways[0])
    for prime, root in _primes(circle):
        if modulus > every:
            break
        powers = [1]
        for _ in range(circle - 1):
            powers.append(powers[-1] * root % prime)
        rows = [[a % prime for a in row] for row in ways]
        values = []
        for w in range(circle):
            parts = range(2**_SPLIT + 1)
            shared = [(2**_SPLIT - more + more * powers[w]) % prime for more in parts]
            signals = []
            for row, at in zip(rows, places, strict=True):
                turned = (powers[w * cell % circle] * shared[more] for cell, more in at)
                terms = [a * x % prime for a, x in zip(row, turned, strict=True)]
                signals.append(nmod_poly([0, *terms], prime))
            values.append(int(_total(signals, nmod_poly([1], prime), batches)(1)))
        back, share = nmod_poly(values, prime), pow(circle, -1, prime)
        lift = pow(modulus, -1, prime)
        for i, known in enumerate(found):
            left = int(back(powers[-i % circle])) * share % prime
            found[i] = known + modulus * ((left - known) * lift % prime)
        modulus *= prime
    if sum(found) != every:
        raise CertificateError("the ways to place the records do not add up")
    return found


def _primes(circle: int) -> Iterator[tuple[int, int]]:
    """Primes that are 1 modulo the circle, each with a root of unity of exactly that order."""
    factors = [q for q in range(2, circle + 1) if circle % q == 0 and fmpz(q).is_prime()]
    prime = _PRIMES_ABOVE // circle * circle + 1
    while True:
        prime += circle
        if fmpz(prime).is_prime():
            roots = (pow(x, (prime - 1) // circle, prime) for x in range(2, prime))
            good = (r for r in roots if all(pow(r, circle // q, prime) != 1 for q in factors))
            yield prime, next(good)


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
    if records**3 * cells > 100 * _MOST_WORK or max(cells, records * len(mus)) > _MOST_WORK:
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
