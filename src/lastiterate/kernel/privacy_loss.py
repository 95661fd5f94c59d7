"""Privacy losses as exact integers: dominating pairs, cut into cells, and the sum of many.

A pair is a list of pieces: two Gaussian mixtures on an interval on which their likelihood ratio
never falls. A piece is cut where its loss crosses a grid. Masses are balls, rounded up to whole
multiples of 2^-F; from there on sums of losses are products of polynomials with whole coefficients,
which make no error, rounded up. What is cut off counts as infinite loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Protocol

from lastiterate.kernel.balls import (
    Ball,
    arb,
    divide_up,
    fmpq,
    fmpz_poly,
    largest,
    positive_part,
    precision,
    require,
    upper,
    whole_above,
)
from lastiterate.kernel.run import MOST_STEPS

GRID_SHARE = 1e-4  # how much of the variance of the total loss the narrowest cells may add
MOST_CELLS = 1 << 19
MOST_PAIRS = 1024  # different ones in one sum: each costs a tenth of a second or more
_WIDENING = 64  # a cell may be as wide as its distance from the mean loss, divided by this
_NARROWEST = 64  # no cell is narrower than 2^-64: all steps together then lose next to nothing
_TAIL_SHARE = 2.0**-14  # part of delta that all the cut tails together may take
_ROUNDS = 60  # of Newton's method, which places a cut
_NODES = [(k / 2, math.exp(-k * k / 8) / math.sqrt(8 * math.pi)) for k in range(-14, 15)]
Mixture = tuple[tuple[Fraction, Fraction], ...]  # (weight, mean): sum of weight N(mean, 1)
Terms = list[tuple[Ball, Ball, Ball]]  # the same in balls, and mean^2/2


@dataclass(frozen=True)
class Scale:
    """Cells of width 2^-cell, masses in units of 2^-bits, tails cut at ``reach`` deviations."""

    cell: int
    bits: int
    reach: float

    @property
    def precision(self) -> int:
        """Bits that leave a mass exact to a unit after its division by the width of a cell."""
        return self.bits + 64 + max(self.cell, 0)

    @property
    def width(self) -> Ball:
        """The width of a cell: exact."""
        return arb(2) ** -self.cell


@dataclass(frozen=True)
class Law:
    """``masses[i]`` units at loss (first + i) cells, and ``infinite`` units beyond."""

    first: int
    masses: Any
    infinite: int

    @classmethod
    def of(cls, masses: dict[int, Ball], infinite: Ball, scale: Scale) -> Law:
        """Masses by cell, rounded up."""
        first, unit = min(masses), arb(2) ** scale.bits
        units = [0] * (max(masses) - first + 1)
        for index, mass in masses.items():
            units[index - first] = whole_above(positive_part(mass) * unit)
        return cls(first, fmpz_poly(units), whole_above(positive_part(infinite) * unit))

    @cached_property
    def coefficients(self) -> list[Any]:
        """The masses one by one."""
        return list(self.masses.coeffs())

    def total(self) -> int:
        """All units, at least 2^bits."""
        return int(self.masses(1)) + self.infinite

    def times(self, other: Law, bits: int) -> Law:
        """The law of the sum of two independent losses, rounded up."""
        both = self.infinite * other.total() + int(self.masses(1)) * other.infinite
        masses = divide_up(self.masses * other.masses, bits)
        return Law(self.first + other.first, masses, -(-both // (1 << bits)))

    def trimmed(self, budget: int) -> Law:
        """Without its thin ends: the top becomes infinite, the bottom is raised."""
        masses, low, high = self.masses, 0, len(self.masses)
        left = budget
        while high > 1 and masses[high - 1] <= left:
            high -= 1
            left -= masses[high]
        lost, left = budget - int(left), budget
        while low < high - 1 and masses[low] <= left:
            left -= masses[low]
            low += 1
        kept = masses.truncate(high).right_shift(low) + (budget - left if high else 0)
        return Law(self.first + low, kept, self.infinite + lost)

    def delta(self, epsilon: Ball, scale: Scale) -> Ball:
        """sum of masses (1 - e^(epsilon - loss))_+, rounded up."""
        with precision(scale.precision):
            ends = (self.first + k for k in (0, len(self.coefficients)))
            low, high = (end * scale.width for end in ends)
            near = (epsilon.max(low).min(high) / scale.width).lower().floor().lower()
            begin = max(int(near.unique_fmpz()) - self.first, 0)
            decay = (-scale.width).exp()
            now = (epsilon - (self.first + begin) * scale.width).exp()
            total, masses, k = arb(self.infinite), self.coefficients[begin:], 0
            while k < len(masses) and not now <= 1:
                total += arb(masses[k]) * positive_part(1 - now)
                now *= decay
                k += 1
            if k < len(masses):  # all at once
                beyond = fmpz_poly(masses[k:])
                total += arb(beyond(1)) - now * beyond(decay)
            return upper(total / arb(2) ** scale.bits).min(arb(1))


class Pair(Protocol):
    """A dominating pair, cut into cells on demand."""

    @property
    def variance(self) -> float:
        """Roughly the variance of its loss (chooses the grid, proves nothing)."""

    def laws(self, scale: Scale) -> tuple[Law, Law]:
        """Its loss distribution in both orders; one object twice where they are the same."""


class _Cells:
    """Masses at multiples of the width of a cell, and at infinity."""

    def __init__(self) -> None:
        self.masses: dict[int, Ball] = {}
        self.infinite = arb(0)

    def add(self, index: int, mass: Ball) -> None:
        self.masses[index] = self.masses.get(index, arb(0)) + mass

    def spread(self, low: int, high: int, p: Ball, r: Ball, scale: Scale) -> None:
        """A cell of losses from ``low`` to ``high`` with masses p, r of the first and second law.

        Two atoms p1 + p2 = p with p1 e^-low + p2 e^-high = r: their hockey-stick curve is the
        chord of the cell's convex curve, hence above it. More p or less r is never below it.
        """
        share = 1 - (-(high - low) * scale.width).exp()
        right = positive_part((p - r * (low * scale.width).exp()) / share).min(p)
        self.add(high, right)
        self.add(low, p - right)


@dataclass(frozen=True)
class Piece:
    """``above`` against ``below`` from ``start`` to ``stop`` (None: infinite).

    No mean of ``above`` is smaller than one of ``below``, so that the likelihood ratio never falls:
    the derivative of its logarithm is a mean of the ones less a mean of the others.
    """

    above: Mixture
    below: Mixture
    start: Fraction | None = None
    stop: Fraction | None = None

    def balls(self) -> list[Terms]:
        """(weight, mean, mean^2/2) of both laws."""
        return [
            [(_exact(w), _exact(m), _exact(m * m / 2)) for w, m in mixture]
            for mixture in (self.above, self.below)
        ]

    @cached_property
    def nodes(self) -> list[list[tuple[float, float, bool]]]:
        """(loss, weight, whether inside) of a few points under each law, roughly."""
        low = -math.inf if self.start is None else float(self.start)
        high = math.inf if self.stop is None else float(self.stop)
        with precision(128):
            terms = self.balls()
            return [
                [
                    (float(_loss(terms, arb(x))[0].mid()), float(w) * share, low <= x <= high)
                    for w, mean in mixture
                    for x, share in ((float(mean) + z, share) for z, share in _NODES)
                ]
                for mixture in (self.above, self.below)
            ]

    def _ends(self, scale: Scale, first: int, last: int) -> list[int]:
        """Where cells end: narrow around the mean losses of both laws, wider far away.

        A width proportional to the distance adds the same small share to the variance everywhere.
        """
        width, ends = 2.0**-scale.cell, [first]
        sums = [(sum(x * w for x, w, _ in row), sum(w for _, w, _ in row)) for row in self.nodes]
        means = [total / weight / width for total, weight in sums]
        while ends[-1] < last:
            away = min(min(abs(ends[-1] - mean), abs(ends[-1] + 1 - mean)) for mean in means)
            ends.append(min(ends[-1] + max(int(away / _WIDENING), 1), last))
        return ends

    def cut(self, scale: Scale, ahead: _Cells, back: _Cells) -> None:
        """Add the masses of the cells in both orders.

        A cut misses its multiple of the width by a little. Losses that are below their cell are
        raised: the second law shrinks. For those above it the first law shrinks, and what it loses
        counts as infinite loss: mass(P) (1 - e^-miss) at most.
        """
        terms, means = self.balls(), [m for _, m in self.above + self.below]
        start = _exact(min(means) - int(scale.reach + 1) if self.start is None else self.start)
        stop = _exact(max(means) + int(scale.reach + 1) if self.stop is None else self.stop)
        stop = largest([start, stop])
        reached = [_loss(terms, x)[0] for x in (start, stop)]
        near = arb(2) ** -90
        first, past = ((x / scale.width).mid() for x in reached)
        low = int((first + near).floor().mid().unique_fmpz())
        high = int((past - near).ceil().mid().unique_fmpz())
        require(high - low <= MOST_CELLS, "the privacy loss of one step is too wide")
        ends = self._ends(scale, low, max(high, low + 1))
        points, losses = [start], [reached[0]]
        for end in ends[1:-1]:
            x, value = _crossing(terms, end * scale.width, points[-1], stop, scale)
            good = points[-1] < x and x < stop
            points.append(x if good else points[-1])  # else an empty cell
            losses.append(value if good else losses[-1])
        points.append(stop)
        losses.append(reached[1])
        over, under = ([_tail(law, x) for x in points] for law in terms)
        goals = [end * scale.width for end in ends]
        for k in range(len(ends) - 1):
            p, r = over[k] - over[k + 1], under[k] - under[k + 1]
            lower = (-positive_part(goals[k] - losses[k])).exp()
            higher = (-positive_part(losses[k + 1] - goals[k + 1])).exp()
            ahead.spread(ends[k], ends[k + 1], p, r * lower, scale)
            ahead.infinite += p * (1 - higher)
            back.spread(-ends[k + 1], -ends[k], r, p * higher, scale)
            back.infinite += r * (1 - lower)
        if self.start is None:
            every = [sum((w for w, *_ in law), arb(0)) for law in terms]
            ahead.add(ends[1], every[0] - over[0])
            back.infinite += every[1] - under[0]
        if self.stop is None:
            ahead.infinite += over[-1]
            back.add(-ends[-2], under[-1])


def _exact(value: Fraction) -> Ball:
    return arb(fmpq(value.numerator, value.denominator))


def _loss(laws: Sequence[Terms], x: Ball) -> tuple[Ball, Ball]:
    """log of the likelihood ratio at x and its derivative."""
    values = []
    for terms in laws:
        each = [(w * (m * x - half).exp(), m) for w, m, half in terms]
        density = sum((d for d, _ in each), arb(0))
        values += [density, sum((d * m for d, m in each), arb(0)) / density]
    return (values[0] / values[2]).log(), values[1] - values[3]


def _tail(terms: Terms, x: Ball) -> Ball:
    """The mass above x."""
    root = arb(2).sqrt()
    return sum((w * ((x - m) / root).erfc() / 2 for w, m, _ in terms), arb(0))


def _crossing(
    laws: Sequence[Terms], goal: Ball, low: Ball, high: Ball, scale: Scale
) -> tuple[Ball, Ball]:
    """A point where the loss is close to the goal, and the loss there: Newton's method."""
    x, near = low, arb(2) ** (30 - scale.precision)
    for _ in range(_ROUNDS):
        value, slope = _loss(laws, x)
        gap = goal - value
        if abs(gap) < near:
            break
        low, high = (x, high) if gap > 0 else (low, x)
        middle = ((low + high) / 2).mid()
        x = (x + gap / slope).mid() if slope > 0 else middle
        x = x if low < x and x < high else middle
    return x, value


@dataclass(frozen=True)
class GaussianPair:
    """The sum of its pieces, which both laws may be told; ``mirrored``: and of their mirror images.

    Under x -> -x a piece becomes its own second order, so a mirrored pair is the same in both.
    """

    pieces: tuple[Piece, ...]
    mirrored: bool = False

    @cached_property
    def variance(self) -> float:
        """Roughly the variance of its loss."""
        rows = []
        for piece in self.pieces:
            over, under = piece.nodes
            rows += [(x, w) for x, w, inside in over if inside]
            rows += [(-x, w) for x, w, inside in under if inside and self.mirrored]
        mean = math.fsum(x * w for x, w in rows)
        return max(math.fsum(w * (x - mean) ** 2 for x, w in rows), 0.0)

    @lru_cache(maxsize=64)  # noqa: B019 - frozen values, and both orders are asked for
    def laws(self, scale: Scale) -> tuple[Law, Law]:
        """Its loss distribution in both orders."""
        with precision(scale.precision):
            ahead, back = _Cells(), _Cells()
            for piece in self.pieces:
                piece.cut(scale, ahead, ahead if self.mirrored else back)
            law = Law.of(ahead.masses, ahead.infinite, scale)
            return law, law if self.mirrored else Law.of(back.masses, back.infinite, scale)


def _mixture(*terms: tuple[Fraction, float | Fraction]) -> Mixture:
    return tuple((weight, Fraction(mean)) for weight, mean in terms if weight)


def gaussian(mu: float) -> GaussianPair:
    """N(mu, 1) against N(0, 1)."""
    return labelled([(mu, 1.0)])


def labelled(levels: Iterable[tuple[float, float]]) -> GaussianPair:
    """N(mu_j, 1) against N(0, 1) with a label j of this weight, which is revealed."""
    one = [(_mixture((Fraction(w), mu)), _mixture((Fraction(w), 0)), mu) for mu, w in levels if w]
    return GaussianPair(tuple(Piece(a, b, Fraction(mu) / 2) for a, b, mu in one), mirrored=True)


def sampled(rate: float, shifts: Sequence[float | Fraction]) -> GaussianPair:
    """sum over i of Bin(k, rate)(i) N(shift_i, 1) against N(0, 1), shifts >= 0 that never fall."""
    q, k = Fraction(rate), len(shifts) - 1
    terms = [(math.comb(k, i) * q**i * (1 - q) ** (k - i), shift) for i, shift in enumerate(shifts)]
    return GaussianPair((Piece(_mixture(*terms), _mixture((Fraction(1), 0))),))


def opposed(rate: float, low: float, high: float, back: float) -> GaussianPair:
    """(1 - q) N(low, 1) + q N(high, 1) against (1 - q) N(0, 1) + q N(-back, 1)."""
    q = Fraction(rate)
    above, below = _mixture((1 - q, low), (q, high)), _mixture((1 - q, 0), (q, -back))
    return GaussianPair((Piece(above, below),))


def replaced(rate: float, low: float, high: float) -> GaussianPair:
    """The pair with the profile of a coin whose sides are ``low`` and ``high`` apart.

    At gamma >= 1 it is the least over t <= gamma of (1-q) delta_low(log t) + q delta_high(log(
    (gamma - (1-q) t)/q)), in both orders. Beyond the loss low high / 2 that is the mixture against
    N(0, 1) on x > (low + high)/2; smaller losses are those of either side alone, the coin revealed.
    """
    q, half = Fraction(rate), (Fraction(low) + Fraction(high)) / 2
    beyond = Piece(_mixture((1 - q, low), (q, high)), _mixture((Fraction(1), 0)), half)
    sides = [
        Piece(_mixture((w, mean)), _mixture((w, 0)), Fraction(mean) / 2, stop)
        for w, mean, stop in ((1 - q, low, half), (q, high, half))
        if w
    ]
    return GaussianPair((beyond, *sides), mirrored=True)


def check_pairs(count: int) -> None:
    """Raise where different pairs would take hours."""
    require(
        count <= MOST_PAIRS,
        f"its steps are charged as {count:,} different pairs, and the losses of at most "
        f"{MOST_PAIRS:,} are added; release fewer checkpoints, or let steps and noise take fewer "
        "values",
    )


class Total:
    """The sum of the losses of many pairs, in both orders, for questions near one delta."""

    def __init__(self, pairs: Sequence[tuple[Pair, int]], delta: float) -> None:
        count = sum(n for _, n in pairs)
        require(count <= MOST_STEPS, f"more than {MOST_STEPS:,} sampled steps cannot be convolved")
        check_pairs(len({pair for pair, _ in pairs}))
        self.scale = _scale(pairs, delta)
        budget = int(delta * _TAIL_SHARE * 2.0**self.scale.bits) // (64 * (len(pairs) + 1))
        laws = [(pair.laws(self.scale), n) for pair, n in pairs]
        orders = 1 if all(a is b for (a, b), _ in laws) else 2
        self.laws = [
            sum_of([(both[order], n) for both, n in laws], self.scale.bits, budget)
            for order in range(orders)
        ]

    def delta(self, epsilon: Ball) -> Ball:
        """Return an upper bound on the delta of the sum at this epsilon, as an exact number."""
        return largest(law.delta(epsilon, self.scale) for law in self.laws)


def sum_of(laws: Sequence[tuple[Law, int]], bits: int, budget: int) -> Law:
    """The law of a sum in which each loss x_i occurs n_i times.

    With n_1 >= n_2 >= ... it is the sum of (n_k - n_(k+1)) (x_1 + ... + x_k): alike counts cost one
    product each. These are added from the highest binary digit of the factors to the lowest, so
    that all of them share the doublings.
    """

    def plus(first: Law | None, second: Law) -> Law:
        return second if first is None else first.times(second, bits).trimmed(budget)

    ordered = sorted(laws, key=lambda pair: -pair[1])
    together: Law | None = None
    blocks: list[tuple[Law, int]] = []
    for (law, count), after in zip(ordered, [*(n for _, n in ordered[1:]), 0], strict=True):
        together = plus(together, law)
        if count > after:
            blocks.append((together, count - after))
    answer: Law | None = None
    for digit in reversed(range(max(factor for _, factor in blocks).bit_length())):
        answer = None if answer is None else plus(answer, answer)
        for block, factor in blocks:
            if factor >> digit & 1:
                answer = plus(answer, block)
    assert answer is not None
    return answer


def _scale(pairs: Sequence[tuple[Pair, int]], delta: float) -> Scale:
    count = sum(n for _, n in pairs)
    variance = math.fsum(n * pair.variance for pair, n in pairs)
    require(variance < math.inf, "a loss is too wide for the cells of the checker")
    narrow = math.sqrt(6.0 * GRID_SHARE * variance / count)
    wide = max(narrow, 2.0 * math.sqrt(variance) * 40 / MOST_CELLS, 2.0**-_NARROWEST)
    return Scale(
        cell=max(math.floor(-math.log2(wide)), -8),
        # Every product adds at most a unit to each of 2^20 cells: 2^-28 of delta in all of them.
        bits=48 + math.ceil(math.log2(count)) + math.ceil(-math.log2(delta)),
        reach=math.sqrt(2.0 * math.log(count / (delta * _TAIL_SHARE))) + 0.5,
    )
