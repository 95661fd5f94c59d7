"""Random allocation in ball arithmetic: the law of the likelihood ratio of an epoch, in integers.

A certificate lists payments: blocks whose labels pay in the next block, and a tail of the last
steps (docs/theory/allocation.md). They prove that an epoch is dominated by N(a^w, I), mixed over
the labels w, against N(0, I), whose likelihood ratio is a sum of independent terms. Its law is
computed on a grid in whole multiples of 2^-F: masses go to both neighbours, the mean never raised,
so that E(kappa - L)_+ never shrinks. Powers are products of polynomials. The tail, in which sums
and products alternate, has a geometric grid of doubles: all terms are non-negative, and what
doubles round is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import RandomAllocation
from lastiterate.errors import CertificateError
from lastiterate.kernel.balls import upper_float as float_above
from lastiterate.kernel.privacy_loss import Law, Pair, Scale, gaussian
from lastiterate.verifier.balls import (
    Ball,
    above,
    arb,
    fmpz_poly,
    greatest,
    precision,
    proved,
    units_up,
)
from lastiterate.verifier.steps import Case, factors
from lastiterate.verifier.strings import ratio

Floats = NDArray[np.float64]
Counted = list[tuple[Pair, int]]
Groups = tuple[tuple[int, float, int], ...]
Rows = tuple[tuple[int, float, float], ...]
POINTS = 1 << 13  # of the grid of likelihood ratios
MOST_BATCHES = 100_000
MOST_BLOCKS = 200_000
MOST_TOP = 61.0
LEAST = 1e-4 * (1 + 1e-12)  # s/nu below which it is raised
_BITS = 128  # masses are whole multiples of 2^-128
_ROUND = 2.0**-52
_NARROW = 1e-9  # of a cell of the tail's grid: what doubles may be off
_FAR = 12.5  # a standard normal is farther out with probability 4e-36
_WIDEST = 6000  # cells of the tail's grid


@dataclass(frozen=True)
class Allocated:
    """One epoch: (labels, square, count) of independent terms labels/B * Lambda(square).

    Args:
        batches: labels in all.
        groups: the independent terms.
        tail: (labels, private square, common square) of the labels with 1, 2, ... steps left.
        idle: labels that are not used.
        top: log of the largest likelihood ratio that does not count as infinite.
        usual: log of the largest one that the other order tells apart.
    """

    batches: int
    groups: tuple[tuple[int, float, int], ...]
    tail: tuple[tuple[int, float, float], ...]
    idle: int
    top: float
    usual: float

    @property
    def variance(self) -> float:
        """Roughly: that of log L where L is near its mean."""
        spread = sum(n * m * m * math.expm1(min(v, 50.0)) for m, v, n in self.groups)
        common = 0.0
        for labels, private, shared in reversed(self.tail):
            common += shared
            spread += labels * math.expm1(min(private + common, 50.0)) * labels
        return max(math.log1p(spread / self.batches**2), 1e-12)

    @lru_cache(maxsize=16)  # noqa: B019 - frozen values, and the verifier asks for both orders
    def laws(self, scale: Scale) -> tuple[Law, Law]:
        with precision(_BITS + 64):
            law = _law(self, self.top)
            low = law if self.usual >= self.top else _law(self, self.usual)
        with precision(max(scale.precision, _BITS + 64)):
            return _ahead(self, *law, scale), _back(self, *low, scale)


def _places(pair: Allocated, values: Sequence[Ball], masses: Sequence[int]) -> list[Any]:
    return [(x / pair.batches, m) for x, m in zip(values, masses, strict=True) if m]


def _ahead(pair: Allocated, values: Sequence[Ball], masses: Sequence[int], scale: Scale) -> Law:
    """The loss log L with the record: masses of the other world times L; the rest is infinite."""
    unit = arb(2) ** _BITS
    found, total, mean = dict[int, Ball](), arb(0), arb(0)
    for x, units in _places(pair, values, masses):
        mass = arb(units) / unit
        total += mass
        if proved(x > 0):
            mean += mass * x
            _join(found, x.log(), mass * x, scale)
    largest = (values[-1] / pair.batches).max(arb(pair.top).exp())
    lost = (1 - mean).max(arb(0)) + largest * (total - 1).max(arb(0))
    return Law.of(found, lost, scale)


def _back(pair: Allocated, values: Sequence[Ball], masses: Sequence[int], scale: Scale) -> Law:
    """The loss -log L without the record; larger likelihood ratios than the grid's at its end."""
    unit = arb(2) ** _BITS
    found, total, zero = dict[int, Ball](), arb(0), arb(0)
    for x, units in _places(pair, values, masses):
        mass = arb(units) / unit
        total += mass
        if proved(x > 0):
            _join(found, -x.log(), mass, scale)
        else:
            zero += mass
    _join(found, -arb(min(pair.top, pair.usual)), (1 - total).max(arb(0)), scale)
    return Law.of(found, zero, scale)


def _join(found: dict[int, Ball], loss: Ball, mass: Ball, scale: Scale) -> None:
    """Mass of the first law at both ends of its cell, the masses of both laws kept."""
    width = scale.width
    index = math.floor(float((loss / width).lower()))
    gap = loss - index * width
    while not proved(gap >= 0):
        index -= 1
        gap = loss - index * width
    right = above(mass * ((1 - (-gap).exp()) / (1 - (-width).exp())).min(arb(1)))
    found[index + 1] = found.get(index + 1, arb(0)) + right
    found[index] = found.get(index, arb(0)) + (mass - right).max(arb(0))


def _up(mass: Ball) -> int:
    return int(above(mass * arb(2) ** _BITS).max(arb(0)).ceil().unique_fmpz())


def _down(mass: Ball) -> int:
    return int((mass * arb(2) ** _BITS).lower().max(arb(0)).floor().unique_fmpz())


def _law(pair: Allocated, top: float) -> tuple[list[Ball], list[int]]:
    """Values of B L up to B exp(top), and their masses in units, without the record."""
    largest = arb(top).exp() * pair.batches
    few = sum(count for _, _, count in pair.groups) <= 4
    tree = _tree(pair, few)
    if few:
        assert tree is not None
        return _values(tree, largest)
    step = arb(math.nextafter(float(above(largest)) / POINTS, math.inf))
    law = fmpz_poly([1 << _BITS]) if tree is None else _on_line(tree, step)
    for labels, square, count in pair.groups:
        one = fmpz_poly(_lognormal(labels, square, step))
        law = _times(law, _power(one, count))
    if pair.idle:
        law = _times(law, fmpz_poly(_constant(pair.idle, step)))
    masses = [int(mass) for mass in law.coeffs()]
    return [step * k for k in range(len(masses))], masses


def _times(one: Any, two: Any) -> Any:
    return units_up((one * two).truncate(POINTS + 1), _BITS)


def _power(one: Any, count: int) -> Any:
    answer = None
    for digit in bin(count)[2:]:
        if answer is not None:
            answer = _times(answer, answer)
        if digit == "1":
            answer = one if answer is None else _times(answer, one)
    return answer


def _constant(labels: int, step: Ball) -> list[int]:
    place = arb(labels) / step
    index = max(math.floor(float(place.lower())), 0)
    right = min(_down((place - index).max(arb(0))), 1 << _BITS)
    return [0] * index + [(1 << _BITS) - right, right]


def _below(x: Ball) -> Ball:
    """P(N(0, 1) < x)."""
    return (-x / arb(2).sqrt()).erfc() / 2


def _lognormal(labels: int, square: float, step: Ball) -> list[int]:
    """labels * Lambda(square) on multiples of ``step``: masses and moments between them."""
    v = arb(square)
    sigma, middle = v.sqrt(), arb(labels).log() - v / 2
    edges = [((step * k).log() - middle) / sigma for k in range(1, POINTS + 2)]
    mass, moment = arb(0), arb(0)
    units = [0] * (POINTS + 3)
    for k, edge in enumerate(edges):
        below, weighted = _below(edge), _below(edge - sigma) * labels
        here, inside = below - mass, (weighted - moment) / step
        right = _down(inside - k * here)
        left = _up(here) - right
        units[k + 1] += right
        units[k] += max(left, 0)
        mass, moment = below, weighted
    return units[: POINTS + 1]


# The tail


@dataclass(frozen=True, eq=False)
class _Grid:
    """masses[i] at exp(width (first + i)); ``zero`` at 0."""

    width: float
    first: int
    masses: Floats
    zero: float

    def values(self) -> Floats:
        return np.asarray(np.exp(self.width * (self.first + np.arange(len(self.masses)))))


def _tree(pair: Allocated, few: bool) -> _Grid | None:
    """The tail, and single terms where there are few, on a geometric grid."""
    singles = [(labels, square) for labels, square, n in pair.groups for _ in range(n) if few]
    largest = max([square for _, square in singles] + [p + c for _, p, c in pair.tail], default=0.0)
    # common squares add up along the tail
    largest = max(largest, sum(common for _, _, common in pair.tail))
    width = max(min(0.02, math.sqrt(largest) / 20), 16 * _FAR * math.sqrt(largest) / _WIDEST)
    width = max(width, 1e-4)
    total: _Grid | None = None
    for labels, private, common in pair.tail:
        own = _single(labels, private, width)
        total = own if total is None else _sum(own, total)
        if common > 0:
            factor = _single(1, common, width)
            masses = np.convolve(total.masses, factor.masses)
            masses *= 1 + (len(total.masses) + 8) * _ROUND
            zero = total.zero + factor.zero
            total = _shortened(_Grid(width, total.first + factor.first, masses, zero))
    for labels, square in singles:
        own = _single(labels, square, width)
        total = own if total is None else _sum(own, total)
    if few and pair.idle:
        own = _single(pair.idle, 0.0, width)
        total = own if total is None else _sum(own, total)
    return total


def _single(labels: int, square: float, width: float) -> _Grid:
    """labels * Lambda(square), rounded to doubles from balls."""
    w = arb(width)
    if square <= 0:
        place = arb(labels).log() / w
        first = math.floor(float(place.lower())) - 1
        gap = ((place - first) * w).expm1() / w.expm1()
        # between exp(w first) and exp(w (first + 2)): the upper end alone may lie one cell higher
        share = float((gap / (w.exp() + 1)).lower())
        share = min(max(share - _NARROW, 0.0), 1.0)
        return _Grid(width, first, np.array([1 - share, 0.0, share]) * (1 + 4 * _ROUND), 0.0)
    v = arb(max(square, (width / 24) ** 2))
    sigma, middle = v.sqrt(), arb(labels).log() - v / 2
    low, high = float(middle - _FAR * sigma), float(middle + _FAR * sigma)
    first, last = math.floor(low / width), math.ceil(high / width)
    ends = [w * k for k in range(first, last + 1)]
    edges = [(end - middle) / sigma for end in ends]
    cells = [(_below(a), _below(a - sigma) * labels) for a in edges]
    masses = np.zeros(len(ends))
    grow = w.expm1()
    for k, ((m0, x0), (m1, x1)) in enumerate(pairwise(cells)):
        here = (m1 - m0).max(arb(0))
        inside = ((x1 - x0) * (-ends[k]).exp() - here) / grow
        right = max(float(inside.lower()), 0.0)
        masses[k + 1] += right
        masses[k] += max(float_above(here) - right, 0.0)
    zero = 2 * float_above(_below(arb(-_FAR) + arb(0.1)))
    return _Grid(width, first, masses * (1 + 16 * _ROUND), zero)


def _sum(one: _Grid, two: _Grid) -> _Grid:
    """The sum of independent laws; every pair goes to both its neighbours, the mean not raised."""
    width = one.width
    x, y = one.values(), two.values()
    first = min(one.first, two.first)
    last = max(one.first + len(x), two.first + len(y)) + math.ceil(1 / width) + 2
    total = np.zeros(last - first + 1)
    ends = np.exp(width * np.arange(first, last + 1))
    for value, mass in zip(x.tolist(), one.masses.tolist(), strict=True):
        if mass == 0:
            continue
        sums, weights = value + y, mass * two.masses
        index = np.floor(np.log(sums) / width - _NARROW).astype(int) - first
        share = (sums - ends[index]) / (ends[index + 1] - ends[index]) - _NARROW
        share = np.clip(share, 0.0, 1.0)
        total += np.bincount(index, weights * (1 - share), len(total))
        total += np.bincount(index + 1, weights * share, len(total))
    total *= 1 + (2 * (len(x) + len(y)) + 16) * _ROUND
    return _shortened(_Grid(width, first, total, one.zero + two.zero))


def _shortened(law: _Grid) -> _Grid:
    """Without ends of mass below 1e-30: moved down to the last place that stays, or to 0."""
    masses = law.masses
    heavy = np.flatnonzero(masses > 1e-30)
    begin, end = int(heavy[0]), int(heavy[-1]) + 1
    kept = masses[begin:end].copy()
    kept[-1] += float(masses[end:].sum()) * (1 + 1e-9)
    zero = law.zero + float(masses[:begin].sum()) * (1 + 1e-9)
    return _Grid(law.width, law.first + begin, kept, zero)


def _values(law: _Grid, largest: Ball) -> tuple[list[Ball], list[int]]:
    values, masses = [arb(0)], [_up(arb(law.zero))]
    for k, mass in enumerate(law.masses.tolist()):
        x = (arb(law.width) * (law.first + k)).exp()
        if not proved(x <= largest):
            break
        values.append(x)
        masses.append(_up(arb(mass)))
    return values, masses


def _on_line(law: _Grid, step: Ball) -> Any:
    units = [0] * (POINTS + 3)
    units[0] = _up(arb(law.zero))
    for k, mass in enumerate(law.masses.tolist()):
        place = (arb(law.width) * (law.first + k)).exp() / step
        if not proved(place < POINTS + 1):
            break
        index = max(math.floor(float(place.lower())), 0)
        right = _down(arb(mass) * (place - index).max(arb(0)).min(arb(1)))
        units[index + 1] += right
        units[index] += max(_up(arb(mass)) - right, 0)
    return fmpz_poly(units[: POINTS + 1])


# Payments


def public(case: Case, witness: Mapping[str, Any]) -> Counted:
    """All iterates published: the mean of independent lognormals in every epoch."""
    batches, epochs, labels = _shape(case)
    square = _square(case)
    if not square > 0:
        return []
    if witness.get("gaussian") is True:  # the dearest label in every epoch
        return [(gaussian(float_above(arb(_product(square, epochs)).sqrt())), 1)]
    square, tops = max(square, LEAST * LEAST), _tops(witness)
    if _scheme(case).same_every_epoch:
        terms = [(labels, epochs), (batches - labels, epochs - 1)]
        groups = tuple((1, _product(square, uses), n) for n, uses in terms if n and uses)
        idle = batches - labels if epochs == 1 else 0
        return [(_step(batches, groups, (), idle, _top(tops, 0)), 1)]
    rows: Counted = []
    if epochs > 1:
        whole = ((1, square, batches),)
        rows.append((_step(batches, whole, (), 0, _top(tops, 0)), epochs - 1))
    top = _top(tops, len(rows))
    rows.append((_step(batches, ((1, square, labels),), (), batches - labels, top), 1))
    return rows


def _step(batches: int, groups: Groups, tail: Rows, idle: int, top: tuple[float, float]) -> Pair:
    """An epoch; a single label that is sure to be picked makes one Gaussian."""
    if not tail and len(groups) == 1 and groups[0][2] == 1 and not idle:
        return gaussian(float_above(arb(groups[0][1]).sqrt()))
    return Allocated(batches, groups, tail, idle, *top)


def deferred(case: Case, witness: Mapping[str, Any]) -> Counted:
    """The payments of a witness, and one Gaussian for what rounding adds."""
    if witness.get("gaussian") is True:
        return public(case, witness)
    batches, epochs, labels = _shape(case)
    if _scheme(case).same_every_epoch and epochs > 1:
        raise CertificateError("records pick once, and labels of several epochs are not deferred")
    if not (case.releases in ((), (case.training.steps,)) and case.window == 1):
        raise CertificateError("more than the last iterate is released")
    if case.training.proximal is not None:
        raise CertificateError("a proximal step follows its updates")
    if not all(proved(c <= 1) for c in _factors(case, int(witness["cap"]))):
        raise CertificateError("its updates may expand")
    if "blocks" not in witness:
        return public(case, witness)
    noise = min(case.noises(0, case.training.steps), key=float)
    steps = case.training.steps
    unit, drift = (
        above(greatest([ratio(x, noise) if x != 0 else arb(0) for x in values]))
        for values in (case.impulses(0, steps), case.slips(0, steps))
    )
    if unit == 0:
        return []
    unit = unit.max(arb(LEAST))
    if not unit.is_finite():
        raise CertificateError("a step without noise uses the record")
    terms = _terms(_blocks(witness, batches, epochs, labels), witness, unit)
    tops, rows = _tops(witness), list[Any]()
    for place, (groups, tail, count) in enumerate(terms):
        idle = batches - labels if tail else 0
        rows.append((_step(batches, groups, tail, idle, _top(tops, place)), count))
    if drift > 0:
        extra = drift * (2 * epochs * unit + steps * drift)
        rows.append((gaussian(float_above(extra.sqrt())), 1))
    return rows


def _factors(case: Case, cap: int) -> list[Ball]:
    """Lipschitz constants of updates whose batches have at most ``cap`` records."""
    if cap < 0:
        raise CertificateError("the cap of the witness is not a number of records")
    crowding = arb(min(cap, case.training.records)) / case.divisor
    every = case.etas(0, case.training.steps)
    found = factors(every, case.loss, case.training.clipping, crowding)
    if found is None:
        raise CertificateError("the loss has no smoothness that deferred labels could use")
    return found


def _scheme(case: Case) -> RandomAllocation:
    batches = case.training.batches
    if not isinstance(batches, RandomAllocation):
        raise CertificateError(f"its batches are {batches.name}")
    return batches


def _shape(case: Case) -> tuple[int, int, int]:
    """Batches, epochs, labels of the last epoch."""
    if case.training.adjacency != "zero-out":
        raise CertificateError("its adjacency is not zero-out")
    if case.unit.differs - {"gradient_norm"}:
        raise CertificateError("its unit is not one record of every step")
    batches = case.training.batches_per_epoch or 1
    if batches > MOST_BATCHES:
        raise CertificateError(f"more than {MOST_BATCHES:,} batches in an epoch")
    epochs = -(-case.training.steps // batches)
    return batches, epochs, case.training.steps - batches * (epochs - 1)


def _square(case: Case) -> float:
    """The largest (s/nu)^2."""
    impulses, noises = (values(0, case.training.steps) for values in (case.impulses, case.noises))
    if case.training.steps == 0 or all(s == 0 for s in impulses):
        return 0.0
    many = max(len(impulses), len(noises))
    impulses, noises = (x * many if len(x) == 1 else x for x in (impulses, noises))
    largest = 0.0
    for s, nu in zip(impulses, noises, strict=True):
        if s != 0:
            largest = max(largest, float_above(ratio(s, nu) ** 2))
    if not math.isfinite(largest):
        raise CertificateError("a step without noise uses the record")
    return largest


def _product(square: float, uses: int) -> float:
    return float_above(arb(square) * uses)


def _tops(witness: Mapping[str, Any]) -> list[tuple[float, float]]:
    tops = [(float(top), float(usual)) for top, usual in witness["tops"]]
    if not all(0 <= x <= MOST_TOP for pair in tops for x in pair):
        raise CertificateError("a largest likelihood ratio of the witness is out of range")
    return tops


def _top(tops: Sequence[tuple[float, float]], place: int) -> tuple[float, float]:
    if place >= len(tops):
        raise CertificateError("the witness has too few largest likelihood ratios")
    return tops[place]


Blocks = list[tuple[tuple[int, ...], int]]


def _blocks(witness: Mapping[str, Any], batches: int, epochs: int, labels: int) -> Blocks:
    """Sizes of blocks, for so many epochs in a row; they fill every epoch but for the tail."""
    rows = [(tuple(int(m) for m in sizes), int(count)) for sizes, count in witness["blocks"]]
    steps = int(witness["tail"])
    if sum(len(sizes) for sizes, _ in rows) > MOST_BLOCKS:
        raise CertificateError(f"more than {MOST_BLOCKS:,} blocks")
    good = rows and all(count >= 1 and all(m >= 1 for m in sizes) for sizes, count in rows)
    if not (good and sum(count for _, count in rows) == epochs and 1 <= steps <= labels):
        raise CertificateError("the blocks of the witness do not fit the epochs")
    last, count = rows[-1]
    if count != 1 or sum(last) + steps != labels or (epochs > 1 and not last):
        raise CertificateError("the blocks of the witness do not fill the last epoch")
    if any(sum(sizes) != batches for sizes, _ in rows[:-1]):
        raise CertificateError("the blocks of the witness do not fill an epoch")
    return rows


def _terms(rows: Blocks, witness: Mapping[str, Any], unit: Ball) -> list[Any]:
    """(groups, tail, count) of all epochs: who pays where, by (labels, steps)."""
    every: list[tuple[tuple[int, ...], int]] = []
    for sizes, count in rows:
        every += (
            [(sizes, 1)] * count if count <= 2 else [(sizes, 1), (sizes, count - 2), (sizes, 1)]
        )
    answer, carried = list[Any](), False
    for place, (sizes, count) in enumerate(every):
        paid: dict[tuple[int, int], int] = {}
        owed = 0
        for k, size in enumerate(sizes):
            if k == 0 and carried:
                owed = size  # the block's steps are those of the epoch before
                continue
            paid[owed + 1, size] = paid.get((owed + 1, size), 0) + 1
            owed = size - 1
        tail: tuple[tuple[int, float, float], ...] = ()
        if place == len(every) - 1:
            tail = _tail(int(witness["tail"]), float(witness["kappa"]), owed, unit)
        else:
            carried = owed > 0
            if carried:
                following = sizes if count > 1 else every[place + 1][0]
                paid[owed, following[0]] = paid.get((owed, following[0]), 0) + 1
        groups = tuple(
            (labels, float_above(unit * unit / steps), n)
            for (labels, steps), n in sorted(paid.items())
        )
        answer.append((groups, tail, count))
    return answer


def _tail(steps: int, kappa: float, owed: int, unit: Ball) -> tuple[tuple[int, float, float], ...]:
    """The label with u steps left pays r/min(u + kappa, steps) later, the rest at its step."""
    if not kappa >= 0:
        raise CertificateError("kappa of the witness is negative")
    pays = [
        unit / (arb(steps) if u + kappa >= steps else arb(u) + arb(kappa))
        for u in range(1, steps + 1)
    ]
    rows = []
    for u, pay in enumerate(pays, 1):
        own = unit - (u - 1) * pay
        flat = u + kappa >= steps and u == steps
        square = own * own + (u - 1) * pay * pay - pay * unit
        private = 0.0 if flat or kappa == 0 else float_above(square.max(arb(0)))
        shared = pay * unit if u == steps else (pay - pays[u]) * unit
        level = u < steps and u + kappa >= steps
        common = 0.0 if level else float_above(shared.max(arb(0)))
        rows.append((1 + (owed if u == steps else 0), private, common))
    return tuple(rows)


def overcrowded(case: Case, cap: int) -> Ball:
    """An upper bound on the probability that some batch has more than ``cap`` records."""
    records, batches = case.training.records, case.training.batches_per_epoch or 1
    if cap >= records:
        return arb(0)
    share = arb(1) / batches
    tail = share.beta_lower(arb(cap + 1), arb(records - cap), regularized=True)
    return above(case.training.steps * tail).min(arb(1)) if tail.is_finite() else arb(1)
