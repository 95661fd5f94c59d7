"""Random allocation: the law of the likelihood ratio of one epoch.

*Statement* (docs/theory/allocation.md).  Let the record pick label w with probability p_w in one
world, and be absent from the other.  The updates are f_k + m_k^w + nu_k N(0, I) against
f_k + nu_k N(0, I), f_k c_k-Lipschitz, |m_k^w| <= s_k^w.  For every label take a path z^w >= 0 that
is 0 at the start and at releases, and a_k^w = (c_k z_k^w + s_k^w - z_{k+1}^w)_+ / nu_k.  Then

    ( sum_w p_w N(a^w, I), N(0, I) )

dominates the two runs in both orders.  Its likelihood ratio under N(0, I) is
L = sum_w p_w exp(<a^w, y> - |a^w|^2 / 2); an entrywise larger positive semidefinite matrix of inner
products is a bound too.

Labels are deferred in groups that use disjoint steps, so that L is a sum of independent terms: a
`Group` holds labels that pay in one direction, each with a shift of its own, so that with one
standard normal g its term is sum labels/B * exp(a g - a^2/2).  The labels of the last U steps
before a release form a `Tail`.  Labels of different epochs use disjoint steps: epochs compose.

*Computation.*  Moving the mass of L to its two neighbours on a grid, mean kept, increases
E phi(L) for every convex phi.  Lowering the mean increases put(kappa) = E(kappa - L)_+ further,
and put determines both orders: E(1 - gamma L)_+ = gamma put(1/gamma), and E(L - gamma)_+ =
1 - gamma + put(gamma).  All masses are sums of non-negative products, rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from lastiterate.curves.pairs import ROUNDING, Atoms
from lastiterate.theory.dynamics import Array

Integers = NDArray[np.int64]

POINTS = 1 << 13  # of the grid of likelihood ratios
_FAR = 12.0  # a standard normal is farther out with probability 4e-33
_USED = 8.0  # deviations from its mean within which a term is told apart
_STRAIGHT = 0.7  # cells times slopes of the logarithm of a density
_OUTER = 400_000  # pairs of masses that are added at once
_COARSE = 8.0  # what powers lose on a geometric grid, in cells
_NODES = np.polynomial.legendre.leggauss(5)
_LANES = 32  # in which the masses of a cell are added up
_SUMMED = 64 * ROUNDING  # of a sum of masses: what rounding may change
_LOWERED = 1e-10  # of a cell: the rounding of its edges moves the mean by less
_TINY = 1e-26  # mass that is moved down to shorten a law


class Part(NamedTuple):
    """So many labels with the shift a: labels/B * exp(a g - a^2/2)."""

    labels: float
    shift: float


class Group(NamedTuple):
    """So many independent terms, each the sum of parts that share one normal."""

    parts: tuple[Part, ...]
    copies: int


class Tail(NamedTuple):
    """The labels of the last steps: (labels, private square, common square) by steps left.

    With u = 1, 2, ... steps left, R_u = Lambda(common_u) (labels_u/B * Lambda(private_u) + R_{u-1})
    where Lambda(v) = exp(sqrt(v) N(0, 1) - v/2).
    """

    rows: tuple[tuple[int, float, float], ...]


class Law(NamedTuple):
    """Likelihood ratios, and their masses under the world without the record, rounded up.

    ``slack``: by how much a mass may be above its true value, relatively.
    """

    ratios: Array
    masses: Array
    slack: float

    @property
    def positive(self) -> tuple[Array, Array]:
        """Logs of the likelihood ratios that have mass and are not 0, and their masses."""
        inside = (self.ratios > 0) & (self.masses > 0)
        return np.log(self.ratios[inside]), self.masses[inside]


@dataclass(frozen=True)
class AllocationPair:
    """The dominating pair of an epoch, as atoms of its likelihood ratio.

    Args:
        batches: labels in all.
        groups: independent terms.
        tails: the labels of the last steps before releases.
        idle: labels whose batch is not used.
        top: log of the largest likelihood ratio that is not counted as infinite.
        usual: log of the largest one that the other order tells apart from larger ones.
        points: of the grid of likelihood ratios.
    """

    batches: int
    groups: tuple[Group, ...]
    tails: tuple[Tail, ...]
    idle: int
    top: float
    usual: float
    points: int = POINTS

    @cached_property
    def _law(self) -> Law:
        return _law(self, self.top)

    @cached_property
    def _low_law(self) -> Law:
        return self._law if self.usual >= self.top else _law(self, self.usual)

    @cached_property
    def missing(self) -> tuple[float, float]:
        """Mass above the largest likelihood ratio, with and without the record."""
        ratios, masses, _ = self._law
        return max(1.0 - _sum(masses * ratios), 0.0), max(1.0 - _sum(masses), 0.0)

    @property
    def reach(self) -> float:
        """No finite loss that is told apart lies farther from its mean."""
        return self.top + self.usual + 2 * math.sqrt(self.variance) * _FAR

    @cached_property
    def variance(self) -> float:
        """Variance of the finite losses, with the record."""
        losses, masses = self._law.positive
        weights = masses * np.exp(losses)
        if not weights.sum() > 0:
            return 1.0
        weights = weights / weights.sum()
        return float(weights @ (losses - weights @ losses) ** 2) + 1e-20

    def atoms(self, grid: float) -> tuple[Atoms, Atoms]:
        """The losses of both orders on multiples of ``grid``, rounded up."""
        mean = _sum(self._law.masses * self._law.ratios)
        # With masses m at r, E(L - gamma)_+ = 1 - gamma + E(gamma - L)_+ is at most
        # sum m (r - gamma)_+ + 1 - sum m r + gamma (sum m - 1): what is beyond the finite losses.
        # No mass is above its true value by more than the slack, either: neither is the mean of L.
        over = math.exp(self.top) * (max(_sum(self._law.masses) - 1, 0.0) + _SUMMED)
        beyond = self.missing[0] + min(mean * self._law.slack, over) + _SUMMED * (1 + mean)
        losses, weights = self._law.positive
        forward = joined(losses, weights * np.exp(losses), grid, beyond)
        ratios, masses, _ = self._low_law
        zero = float(masses[ratios <= 0].sum()) * (1 + 8 * ROUNDING)
        losses, weights = self._low_atoms()
        return forward, joined(-losses, weights, grid, zero)

    def _low_atoms(self) -> tuple[Array, Array]:
        """Losses and masses of the other order, the mass of larger ratios at ``usual``."""
        losses, weights = self._low_law.positive
        missing = max(1.0 - _sum(self._low_law.masses), 0.0) + _SUMMED
        return np.append(losses, min(self.usual, self.top)), np.append(weights, missing)

    def log_moments(self, tilt: float) -> tuple[float, float]:
        """Of the finite atoms; infinite losses are counted apart."""
        losses, masses = self._law.positive
        low, weights = self._low_atoms()
        ahead = _log_sum(np.log(masses) + (1 + tilt) * losses) if len(losses) else -1e3
        return ahead + 1e-9, _log_sum(np.log(weights) - tilt * low) + 1e-9

    def renyi_moments(self, tilt: float) -> tuple[float, float]:
        """Log of E exp(tilt * loss) in both orders, infinite losses included: L^p is convex."""
        squares = [(labels * n, a * a) for parts, n in self.groups for labels, a in parts]
        squares.append((self.idle, 0.0))
        for tail in self.tails:
            common = 0.0
            for labels, private, shared in reversed(tail.rows):
                common += shared
                squares.append((labels, private + common))
        logs = [
            math.log(labels / self.batches) + tilt * (tilt + 1) * square / 2
            for labels, square in squares
            if labels
        ]
        bound = _log_sum(np.array(logs)) * (1 + 1e-12) + 1e-12
        return bound, bound


def _sum(values: Array) -> float:
    """The sum of non-negative numbers, to 64 roundings."""
    return math.fsum(np.add.reduceat(values, np.arange(0, len(values), 64)).tolist())


def _log_sum(logs: Array) -> float:
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def joined(losses: Any, masses: Any, grid: float, infinity: float) -> Atoms:
    """Each atom moved to the two multiples of ``grid`` around it, the masses of both laws kept."""
    if not len(losses):
        return Atoms(0, np.zeros(1), infinity)
    place = np.floor(losses / grid)
    gap = np.maximum(losses - place * grid, 0.0) + 8 * ROUNDING * (1 + np.abs(losses))
    right = np.minimum(masses * (-np.expm1(-gap) / -math.expm1(-grid)), masses)
    first = int(place.min())
    index = (place - first).astype(int)
    length = int(index.max()) + 2
    weights = np.bincount(index + 1, right, length) + np.bincount(index, masses - right, length)
    return Atoms(first, np.asarray(weights * (1 + (len(masses) + 8) * ROUNDING)), infinity)


# The law of L


@dataclass(frozen=True)
class _Geometric:
    """``masses[i]`` at exp(width * (first + i)); ``zero`` at 0."""

    width: float
    first: int
    masses: Array
    zero: float
    slack: float

    def values(self) -> Array:
        """Where the masses are, rounded down."""
        return np.asarray(np.exp(self.width * (self.first + np.arange(len(self.masses)))) * _DOWN)

    def times(self, square: float, largest: float) -> _Geometric:
        """The product with an independent Lambda(square)."""
        if square <= 0:
            return self
        other = _geometric((Part(1.0, math.sqrt(square)),), self.width)
        masses = _convolved(self.masses, other.masses)
        first = self.first + other.first
        slack = self.slack + other.slack + 4 * (len(masses) + 8) * ROUNDING
        zero = self.zero + other.zero
        return _Geometric(self.width, first, masses, zero, slack)._short(largest)

    def plus(self, other: _Geometric, largest: float) -> _Geometric:
        """The sum with an independent law: where a pair goes depends on its distance alone."""
        width, low = self.width, min(self.first, other.first)
        one, two = self.masses, other.masses
        length = max(self.first + len(one), other.first + len(two)) - low
        length += math.ceil(math.log(2) / width) + 2
        begin, end = other.first - self.first - len(one) + 1, other.first - self.first + len(two)
        apart = np.arange(begin, end, dtype=np.float64)
        step = np.logaddexp(0.0, width * apart) / width
        step -= 64 * ROUNDING * (1 + np.abs(step))  # the mean may be lowered
        place = np.floor(step).astype(np.int64)
        share = np.maximum(np.expm1(width * (step - place)) / math.expm1(width) - _LOWERED, 0.0)
        if len(one) * len(two) <= _OUTER:
            total = self._outer(other, place, share, length, low)
        else:
            total = self._by_distance(other, place, share, length, low)
        total += other.zero * np.pad(one, (self.first - low, length - len(one) + low - self.first))
        total += self.zero * np.pad(two, (other.first - low, length - len(two) + low - other.first))
        rounded = 1 + (len(one) + len(two) + 8) * ROUNDING
        slack = self.slack + other.slack + 4 * (rounded - 1)
        zero = self.zero * other.zero
        return _Geometric(width, low, total * rounded, zero, slack)._short(largest)

    def _outer(
        self, other: _Geometric, place: Integers, share: Array, length: int, low: int
    ) -> Array:
        """The masses of all pairs at once; ``place`` and ``share`` by their distance."""
        i, j = np.arange(len(self.masses))[:, None], np.arange(len(other.masses))
        distance = j - i + len(self.masses) - 1
        at = (i + place[distance] + (self.first - low)).ravel()
        mass = self.masses[:, None] * other.masses
        right = mass * share[distance]
        total: Array = np.bincount(at, (mass * (1 - share)[distance]).ravel(), length).astype(float)
        total += np.bincount(at + 1, right.ravel(), length)[:length]
        return total

    def _by_distance(
        self, other: _Geometric, place: Integers, share: Array, length: int, low: int
    ) -> Array:
        """The same, one distance after the other."""
        one, two, total = self.masses, other.masses, np.zeros(length)
        begin = other.first - self.first - len(one) + 1
        for k, (moved, right) in enumerate(zip(place.tolist(), share.tolist(), strict=True)):
            apart = begin + k
            first = max(self.first, other.first - apart)
            last = min(self.first + len(one), other.first + len(two) - apart)
            mass = one[first - self.first : last - self.first]
            mass = mass * two[first + apart - other.first : last + apart - other.first]
            at = first + moved - low
            total[at : at + len(mass)] += (1 - right) * mass
            total[at + 1 : at + 1 + len(mass)] += right * mass
        return total

    def power(self, count: int, largest: float) -> _Geometric:
        """The sum of so many independent copies."""
        answer, law = None, self
        while count:
            if count & 1:
                answer = law if answer is None else answer.plus(law, largest)
            count >>= 1
            if count:
                law = law.plus(law, largest)
        assert answer is not None
        return answer

    def _short(self, largest: float) -> _Geometric:
        """Without what is above ``largest``, and without thin ends: they are moved down."""
        kept = self.values() <= largest
        masses = self.masses[: max(int(np.count_nonzero(kept)), 1)]
        sums = np.cumsum(masses[::-1])[::-1]
        end = max(int(np.searchsorted(-sums, -_TINY)), 1)
        begin = min(int(np.searchsorted(np.cumsum(masses), _TINY)), end - 1)
        inner = masses[begin:end].copy()
        inner[-1] += masses[end:].sum() * (1 + 2.0**-30)
        zero = self.zero + float(masses[:begin].sum()) * (1 + 2.0**-30)
        return _Geometric(self.width, self.first + begin, inner, zero, self.slack)

    def on_line(self, step: float, points: int) -> _Line:
        """The law on multiples of ``step``, without what is above the last of them."""
        law, slack = _on_line(self.values(), self.masses, self.zero, step, points)
        return _Line(law, self.slack + slack)


_DOWN = 1 - 1e-13  # of values: what their logarithms round


def _spread(index: Integers, share: Array, masses: Array, points: int) -> tuple[Array, float]:
    """Masses moved to two neighbours of a grid, rounded up, and their slack as those of a term."""
    slots = index * _LANES + np.arange(len(index)) % _LANES  # few roundings of a sum
    most = int(np.bincount(slots).max(initial=0)) + _LANES
    law: Array = np.bincount(slots, masses * (1 - share), points * _LANES).astype(float)
    law += np.bincount(slots + _LANES, masses * share, points * _LANES)
    law = law.reshape(points, _LANES).sum(1) * (1 + (most + 8) * ROUNDING)
    return law, (2 * most + 2048) * ROUNDING


def _on_line(values: Array, masses: Array, zero: float, step: float, points: int) -> _Line:
    """Masses moved to multiples of ``step``, without what is above the last of them."""
    place = values / step
    inside = place < points + 1
    place, index = place[inside], np.floor(place[inside]).astype(int)
    share = np.maximum(place - index - _LOWERED, 0.0)
    law, slack = _spread(index, share, masses[inside], points + 2)
    law[0] += zero
    return _Line(_trimmed(np.asarray(law[: points + 1])), slack)


def nodes(low: float, high: float, slope: float, fineness: float) -> tuple[Any, float, Any, Any]:
    """Edges of equal cells, their width, and phi times weights at nodes that lie so far inside.

    Five Legendre nodes in every cell: for what grows like exp(slope g) their relative error is
    below 1e-13.
    """
    most = _STRAIGHT / (max(abs(low), high) + slope + 2)
    count = math.ceil((high - low) / min(fineness / max(slope, 1.0), most))
    width = (high - low) / count
    edges = low + width * np.arange(count + 1)
    offset = (_NODES[0] + 1) * (width / 2)
    g = edges[:-1, None] + offset
    density = np.exp(-g * g / 2) * (_NODES[1] * (width / 2 / math.sqrt(2 * math.pi)))
    return edges, width, density, offset


class _Atoms(NamedTuple):
    """Increasing values, rounded down, and their masses; ``zero`` at 0."""

    values: Array
    masses: Array
    zero: float


@lru_cache(maxsize=64)
def _atoms(parts: tuple[Part, ...], fineness: float) -> _Atoms:
    """sum labels exp(a g - a^2/2): the mass of every cell of g at its ends, the mean not raised."""
    shifts = [max(a, 1e-9) for _, a in parts]
    low, high = -_USED + min(min(shifts), 1.0), _USED + max(shifts)
    edges, width, density, offset = nodes(low, high, max(shifts), fineness)
    mass = density.sum(1)
    values, rise, reach = np.zeros(len(edges)), np.zeros(len(mass)), np.zeros(len(mass))
    for (labels, _), a in zip(parts, shifts, strict=True):
        heights = labels * np.exp(a * edges - a * a / 2)
        values += heights
        rise += heights[:-1] * (density @ np.expm1(a * offset))
        reach += heights[:-1] * math.expm1(a * width)
    mass = mass * (1 + 1024 * ROUNDING)  # exp(-g^2/2), |g| <= 16, and sums of few terms
    right = np.maximum(rise / reach * (1 - 2048 * ROUNDING) - _LOWERED * mass, 0.0)
    right = np.minimum(right, mass)
    masses = np.append(mass - right, 0.0)
    masses[1:] += right
    # What is above the last edge is put there, what is below the first one at 0.
    masses[-1] += float(ndtr(-high)) * (1 + 256 * ROUNDING)
    return _Atoms(values * _DOWN, masses, float(ndtr(low)) * (1 + 256 * ROUNDING))


@lru_cache(maxsize=64)
def _geometric(parts: tuple[Part, ...], width: float) -> _Geometric:
    """A term on a geometric grid."""
    values, masses, zero = _atoms(parts, width)
    place = np.log(values) / width
    place -= 64 * ROUNDING * (1 + np.abs(place))
    index = np.floor(place).astype(int)
    share = np.maximum(np.expm1(width * (place - index)) / math.expm1(width) - _LOWERED, 0.0)
    first = int(index[0])
    law, slack = _spread(index - first, share, masses, int(index[-1]) - first + 2)
    return _Geometric(width, first, law, zero, slack)


def _fixed(labels: float, width: float) -> _Geometric:
    """A constant, spread over its two neighbours."""
    place = math.log(labels) / width
    first = math.floor(place - 64 * ROUNDING * (1 + abs(place)))
    share = math.expm1(width * (place - first)) / math.expm1(width) - _LOWERED
    share = min(max(share, 0.0), 1.0)
    masses = np.array([1 - share, share]) * (1 + 4 * ROUNDING)
    return _Geometric(width, first, masses, 0.0, 16 * ROUNDING)


def _convolved(one: Array, two: Array) -> Array:
    """Without transforms: relatively exact, rounded up."""
    return np.asarray(np.convolve(one, two) * (1 + (min(len(one), len(two)) + 4) * ROUNDING))


def _trimmed(law: Array) -> Array:
    """Without its thin top, which is moved down."""
    sums = np.cumsum(law[::-1])[::-1]
    end = max(int(np.searchsorted(-sums, -_TINY)), 1)
    if end >= len(law):
        return law
    kept = law[:end].copy()
    kept[-1] += float(law[end:].sum()) * (1 + 2.0**-30)
    return kept


class _Line(NamedTuple):
    """Masses at multiples of a step, and their slack."""

    masses: Array
    slack: float

    def times(self, other: _Line, points: int) -> _Line:
        """The sum with an independent law."""
        masses = _trimmed(_convolved(self.masses, other.masses)[: points + 1])
        rounded = 2 * (min(len(self.masses), len(other.masses)) + 8) * ROUNDING
        return _Line(masses, self.slack + other.slack + rounded)

    def power(self, count: int, points: int) -> _Line:
        """The sum of so many independent copies."""
        answer, law = _Line(np.ones(1), 0.0), self
        while count:
            if count & 1:
                answer = answer.times(law, points)
            count >>= 1
            if count:
                law = law.times(law, points)
        return answer


@lru_cache(maxsize=64)
def _tree(tail: Tail, width: float) -> _Geometric:
    """A tail on a geometric grid."""
    total: _Geometric | None = None
    for labels, private, common in tail.rows:
        own = (Part(float(labels), math.sqrt(private)),)
        one = _fixed(labels, width) if private <= 0 else _geometric(own, width)
        total = one if total is None else one.plus(total, math.inf)
        total = total.times(common, math.inf)
    assert total is not None
    return total


def _width(pair: AllocationPair) -> float:
    """Of the geometric grid: fine enough for the smallest spread that matters."""
    sums = [sum(common for _, _, common in tail.rows) for tail in pair.tails]
    own = [private + common for tail in pair.tails for _, private, common in tail.rows]
    largest = max([a * a for parts, _ in pair.groups for _, a in parts] + own + sums, default=0.0)
    width = max(0.01 if pair.points >= POINTS else 0.04, 8 * _FAR * math.sqrt(largest) / 6000)
    return min(width, max(math.sqrt(largest) / 20, 1e-4)) if largest else width


def _law(pair: AllocationPair, top: float) -> Law:
    """Likelihood ratios up to exp(top), and their masses under the world without the record."""
    width, largest, points = _width(pair), math.exp(top) * pair.batches, pair.points
    trees = [_tree(tail, width) for tail in pair.tails]
    step, count = largest / points, sum(n for _, n in pair.groups)
    if count <= 4 or math.exp(top) * math.sqrt(count) > _COARSE * width * points:
        laws = [_geometric(parts, width).power(n, largest) for parts, n in pair.groups] + trees
        laws += [_fixed(pair.idle, width)] if pair.idle else []
        laws.sort(key=lambda law: len(law.masses))
        total = laws[0]._short(largest)
        for law in laws[1:]:
            total = total.plus(law, largest)
        ratios = np.append(0.0, total.values() / pair.batches)
        return Law(ratios, np.append(total.zero, total.masses), total.slack)
    line = _Line(np.ones(1), 0.0)
    for tree in trees:
        line = line.times(tree.on_line(step, points), points)
    for parts, copies in pair.groups:
        fineness = (0.0002 if points >= POINTS else 0.04) * max(1.0, *(a for _, a in parts))
        one = _on_line(*_atoms(parts, fineness), step, points).power(copies, points)
        line = line.times(one, points)
    if pair.idle:
        one = _on_line(np.array([pair.idle * _DOWN]), np.ones(1), 0.0, step, points)
        line = line.times(one, points)
    return Law(step * np.arange(len(line.masses)) / pair.batches, *line)
