"""Random allocation: the law of the likelihood ratio of one epoch.

*Statement* (docs/theory/allocation.md).  Let the record pick label w with probability p_w in one
world, and be absent from the other.  The updates are f_k + m_k^w + nu_k N(0, I) against
f_k + nu_k N(0, I), f_k c_k-Lipschitz, |m_k^w| <= s_k^w.  For every label take a path z^w >= 0 that
is 0 at the start and at releases, and a_k^w = (c_k z_k^w + s_k^w - z_{k+1}^w)_+ / nu_k.  Then

    ( sum_w p_w N(a^w, I), N(0, I) )

dominates the two runs in both orders.  Its likelihood ratio under N(0, I) is
L = sum_w p_w exp(<a^w, y> - |a^w|^2 / 2); an entrywise larger positive semidefinite matrix of inner
products is a bound too.

Here c_k <= 1 and all s_k/nu_k are at most r.  Labels are deferred in groups that use disjoint
steps, so that L is a sum of independent terms: `Group(labels, square, copies)` is that many
independent terms labels/B * Lambda(square), Lambda(v) = exp(sqrt(v) N(0, 1) - v/2).  The labels of
the last U steps form a `Tail`.  Labels of different epochs use disjoint steps: epochs compose.

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
from scipy.special import ndtr

from lastiterate.curves.pairs import ROUNDING, Atoms
from lastiterate.theory.dynamics import Array

POINTS = 1 << 13  # of the grid of likelihood ratios
_FAR = 12.0  # a standard normal is farther out with probability 4e-33
_NODES = np.polynomial.legendre.leggauss(5)
_LOWERED = 1e-10  # of a cell: the rounding of its edges moves the mean by less
_TINY = 1e-26  # mass that is moved down to shorten a law


class Group(NamedTuple):
    """So many independent terms labels/B * Lambda(square)."""

    labels: int
    square: float
    copies: int


class Tail(NamedTuple):
    """The labels of the last steps: (labels, private square, common square) by steps left.

    With u = 1, 2, ... steps left, R_u = labels_u/B * Lambda(private_u) + Lambda(common_u) R_{u-1}.
    """

    rows: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class AllocationPair:
    """The dominating pair of an epoch, as atoms of its likelihood ratio.

    Args:
        batches: labels in all.
        groups: independent terms.
        tail: the labels of the last steps, or None.
        idle: labels whose batch is not used.
        top: log of the largest likelihood ratio that is not counted as infinite.
        usual: log of the largest one that the other order tells apart from larger ones.
        points: of the grid of likelihood ratios.
    """

    batches: int
    groups: tuple[Group, ...]
    tail: Tail | None
    idle: int
    top: float
    usual: float
    points: int = POINTS

    @cached_property
    def _law(self) -> tuple[Array, Array]:
        return _law(self, self.top)

    @cached_property
    def _low_law(self) -> tuple[Array, Array]:
        return self._law if self.usual >= self.top else _law(self, self.usual)

    @cached_property
    def missing(self) -> tuple[float, float]:
        """Mass above the largest likelihood ratio, with and without the record."""
        ratios, masses = self._law
        return max(1.0 - float(masses @ ratios), 0.0), max(1.0 - float(masses.sum()), 0.0)

    @property
    def reach(self) -> float:
        """No finite loss that is told apart lies farther from its mean."""
        return self.top + self.usual + 2 * math.sqrt(self.variance) * _FAR

    @cached_property
    def variance(self) -> float:
        """Variance of the finite losses, with the record."""
        losses, masses = _positive(*self._law)
        weights = masses * np.exp(losses)
        if not weights.sum() > 0:
            return 1.0
        weights = weights / weights.sum()
        return float(weights @ (losses - weights @ losses) ** 2) + 1e-20

    def atoms(self, grid: float) -> tuple[Atoms, Atoms]:
        """The losses of both orders on multiples of ``grid``, rounded up."""
        ratios, masses = self._law
        slack = max(float(masses.sum()) - 1.0, 0.0) + (len(masses) + 8) * ROUNDING
        beyond = self.missing[0] + math.exp(self.top) * slack
        losses, weights = _positive(ratios, masses)
        forward = _joined(losses, weights * np.exp(losses), grid, beyond)
        ratios, masses = self._low_law
        zero = float(masses[ratios <= 0].sum()) * (1 + 8 * ROUNDING)
        losses, weights = self._low_atoms()
        return forward, _joined(-losses, weights, grid, zero)

    def _low_atoms(self) -> tuple[Array, Array]:
        """Losses and masses of the other order, the mass of larger ratios at ``usual``."""
        ratios, masses = self._low_law
        losses, weights = _positive(ratios, masses)
        missing = max(1.0 - float(masses.sum()), 0.0) + (len(masses) + 8) * ROUNDING
        return np.append(losses, min(self.usual, self.top)), np.append(weights, missing)

    def log_moments(self, tilt: float) -> tuple[float, float]:
        """Of the finite atoms; infinite losses are counted apart."""
        losses, masses = _positive(*self._law)
        low, weights = self._low_atoms()
        ahead = _log_sum(np.log(masses) + (1 + tilt) * losses) if len(losses) else -1e3
        return ahead + 1e-9, _log_sum(np.log(weights) - tilt * low) + 1e-9

    def renyi_moments(self, tilt: float) -> tuple[float, float]:
        """Log of E exp(tilt * loss) in both orders, infinite losses included: L^p is convex."""
        squares = [(g.labels * g.copies, g.square) for g in self.groups] + [(self.idle, 0.0)]
        common = 0.0
        for labels, private, shared in reversed(() if self.tail is None else self.tail.rows):
            common += shared
            squares.append((labels, private + common))
        logs = [
            math.log(labels / self.batches) + tilt * (tilt + 1) * square / 2
            for labels, square in squares
            if labels
        ]
        bound = _log_sum(np.array(logs)) * (1 + 1e-12) + 1e-12
        return bound, bound


def _positive(ratios: Array, masses: Array) -> tuple[Array, Array]:
    """Logs of the likelihood ratios that have mass and are not 0, and their masses."""
    inside = (ratios > 0) & (masses > 0)
    return np.log(ratios[inside]), masses[inside]


def _log_sum(logs: Array) -> float:
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def _joined(losses: Any, masses: Any, grid: float, infinity: float) -> Atoms:
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

    def times(self, square: float) -> _Geometric:
        """The product with an independent Lambda(square)."""
        if square <= 0:
            return self
        other = _lognormal(1.0, square, self.width)
        masses = _convolved(self.masses, other.masses)
        return _Geometric(
            self.width, self.first + other.first, masses, self.zero + other.zero
        )._short()

    def plus(self, other: _Geometric) -> _Geometric:
        """The sum with an independent law: where a pair goes depends on its distance alone."""
        width, low = self.width, min(self.first, other.first)
        one, two = self.masses, other.masses
        length = max(self.first + len(one), other.first + len(two)) - low
        length += math.ceil(math.log(2) / width) + 2
        total = np.zeros(length)
        for apart in range(
            other.first - self.first - len(one) + 1, other.first - self.first + len(two)
        ):
            # pairs i (of self) and i + apart (of other), as indices of the grid
            begin = max(self.first, other.first - apart)
            end = min(self.first + len(one), other.first + len(two) - apart)
            mass = one[begin - self.first : end - self.first]
            mass = mass * two[begin + apart - other.first : end + apart - other.first]
            step = math.log1p(math.exp(width * apart)) / width if apart * width < 600 else apart
            step -= 64 * ROUNDING * (1 + abs(step))  # the mean may be lowered
            place = math.floor(step)
            share = max(math.expm1(width * (step - place)) / math.expm1(width) - _LOWERED, 0.0)
            at = begin + place - low
            total[at : at + len(mass)] += (1 - share) * mass
            total[at + 1 : at + 1 + len(mass)] += share * mass
        rounded = 1 + (len(one) + len(two) + 8) * ROUNDING
        return _Geometric(width, low, total * rounded, self.zero + other.zero)._short()

    def _short(self) -> _Geometric:
        """Without thin ends: the top is moved down, the bottom to 0."""
        sums = np.cumsum(self.masses[::-1])[::-1]
        end = max(int(np.searchsorted(-sums, -_TINY)), 1)
        begin = min(int(np.searchsorted(np.cumsum(self.masses), _TINY)), end - 1)
        kept = self.masses[begin:end].copy()
        kept[-1] += self.masses[end:].sum() * (1 + 2.0**-30)
        zero = self.zero + float(self.masses[:begin].sum()) * (1 + 2.0**-30)
        return _Geometric(self.width, self.first + begin, kept, zero)

    def on_line(self, step: float, points: int) -> Array:
        """The law on multiples of ``step``, without what is above the last of them."""
        values = np.exp(self.width * (self.first + np.arange(len(self.masses)))) * (1 - 1e-13)
        place = values / step
        kept = place < points + 1
        place, masses = place[kept], self.masses[kept]
        index = np.floor(place).astype(int)
        share = np.maximum(place - index - _LOWERED, 0.0)
        law: Array = np.bincount(index, masses * (1 - share), points + 2).astype(float)
        law += np.bincount(index + 1, masses * share, points + 2)
        law = np.asarray(law * (1 + (len(masses) + 8) * ROUNDING))
        law[0] += self.zero
        return np.asarray(law[: points + 1])


def _integrals(edges: Array, sigma: float) -> tuple[Array, Array]:
    """Of phi(g) and phi(g) expm1(sigma (g - left edge)) between edges.

    Five Legendre nodes on pieces of length at most 0.5/(|g| + sigma + 2): the relative error is
    below 1e-15.
    """
    start = edges[:-1]
    inside = np.clip(edges, -_FAR - 1, _FAR + 1)  # all that is beyond counts as lost
    left, right = inside[:-1], inside[1:]
    most = np.maximum(np.abs(left), np.abs(right)) + sigma + 2
    pieces = np.maximum(np.ceil((right - left) * most / 0.5), 1).astype(int)
    starts = np.concatenate([[0], np.cumsum(pieces)[:-1]])
    cell = np.repeat(np.arange(len(left)), pieces)
    inner = np.arange(len(cell)) - starts[cell]
    half = ((right - left) / pieces / 2)[cell]
    offset = (2 * inner + 1) * half
    apart = half[:, None] * _NODES[0]
    g = (left[cell] + offset)[:, None] + apart
    density = np.exp(-g * g / 2) / math.sqrt(2 * math.pi) * _NODES[1] * half[:, None]
    rise = np.expm1(sigma * (((left - start)[cell] + offset)[:, None] + apart))
    return np.add.reduceat(density.sum(1), starts), np.add.reduceat((density * rise).sum(1), starts)


def _cells(edges: Any, sigma: float, scale: Any) -> tuple[Array, Array]:
    """Masses that go to the left and to the right end of each cell, rounded towards the left."""
    mass, rise = _integrals(edges, sigma)
    mass = mass * (1 + 256 * ROUNDING)  # exp(-g^2/2), |g| <= 12, and sums of few terms
    right = np.maximum(scale * rise * (1 - 512 * ROUNDING) - _LOWERED * mass, 0.0)
    right = np.minimum(right, mass)
    return mass - right, right


@lru_cache(maxsize=64)
def _lognormal(labels: float, square: float, width: float) -> _Geometric:
    """labels * Lambda(square) on a geometric grid."""
    square = max(square, (width / (2 * _FAR)) ** 2)  # no narrower than its cells
    sigma, middle = math.sqrt(square), math.log(labels) - square / 2
    first = math.floor((middle - _FAR * sigma) / width)
    last = math.ceil((middle + _FAR * sigma) / width)
    edges = (width * np.arange(first, last + 1) - middle) / sigma
    left, right = _cells(edges, sigma, 1 / math.expm1(width))
    masses = np.append(left, 0.0)
    masses[1:] += right
    return _Geometric(width, first, masses, 3 * float(ndtr(-_FAR)))


def _convolved(one: Array, two: Array) -> Array:
    """Without transforms: relatively exact, rounded up."""
    return np.asarray(np.convolve(one, two) * (1 + (min(len(one), len(two)) + 4) * ROUNDING))


def _linear(labels: int, square: float, step: float, points: int) -> Array:
    """labels * Lambda(square) on multiples of ``step``, without what is above the last of them."""
    sigma, middle = math.sqrt(square), math.log(labels) - square / 2
    law = np.zeros(points + 2)
    g = (np.log(step * np.arange(1, points + 2)) - middle) / sigma
    low = float(ndtr(g[0])) * (1 + 256 * ROUNDING)
    share = (
        float(ndtr(g[0] - sigma)) * labels / step * (1 - 512 * ROUNDING) if g[0] > -_FAR else 0.0
    )
    right = min(max(share, 0.0), low)
    law[0], law[1] = low - right + 4 * float(ndtr(-_FAR)), right
    within = np.flatnonzero((g[1:] > -_FAR) & (g[:-1] < _FAR))
    if len(within):
        begin, end = int(within[0]), int(within[-1]) + 1
        left, right_ = _cells(g[begin : end + 1], sigma, np.arange(begin + 1, end + 1))
        law[begin + 1 : end + 1] += left
        law[begin + 2 : end + 2] += right_
    return _trimmed(law[: points + 1])


def _trimmed(law: Array) -> Array:
    """Without its thin top, which is moved down."""
    sums = np.cumsum(law[::-1])[::-1]
    end = max(int(np.searchsorted(-sums, -_TINY)), 1)
    if end >= len(law):
        return law
    kept = law[:end].copy()
    kept[-1] += float(law[end:].sum()) * (1 + 2.0**-30)
    return kept


def _product(one: Array, two: Array, points: int) -> Array:
    return _trimmed(_convolved(one, two)[: points + 1])


def _power(law: Array, count: int, points: int) -> Array:
    answer: Array | None = None
    while count:
        if count & 1:
            answer = law if answer is None else _product(answer, law, points)
        count >>= 1
        if count:
            law = _product(law, law, points)
    assert answer is not None
    return answer


@lru_cache(maxsize=32)
def _tree(
    singles: tuple[Group, ...], tail: Tail | None, idle: int, width: float
) -> _Geometric | None:
    """The tail, single terms and idle labels on a geometric grid."""
    total: _Geometric | None = None
    for labels, private, common in () if tail is None else tail.rows:
        one = _fixed(labels, width) if private <= 0 else _lognormal(labels, private, width)
        total = one if total is None else one.plus(total)
        total = total.times(common)
    for group in singles:
        for _ in range(group.copies):
            one = _lognormal(group.labels, group.square, width)
            total = one if total is None else one.plus(total)
    if idle:
        one = _fixed(idle, width)
        total = one if total is None else one.plus(total)
    return total


def _geometric_part(pair: AllocationPair) -> tuple[_Geometric | None, list[Group]]:
    """What is on a geometric grid, single terms where there are few, and the rest."""
    few = sum(g.copies for g in pair.groups) <= 4
    singles = pair.groups if few else ()
    rows = () if pair.tail is None else pair.tail.rows
    sizes = [g.square for g in singles] + [private + common for _, private, common in rows]
    largest = max([*sizes, sum(common for _, _, common in rows)])
    width = max(0.01 if pair.points >= POINTS else 0.04, 8 * _FAR * math.sqrt(largest) / 6000)
    width = min(width, max(math.sqrt(largest) / 20, 1e-4)) if largest else width
    tree = _tree(singles, pair.tail, pair.idle if few else 0, width)
    return tree, [] if few else list(pair.groups)


def _fixed(labels: int, width: float) -> _Geometric:
    """A constant, spread over its two neighbours."""
    place = math.log(labels) / width
    first = math.floor(place - 64 * ROUNDING * (1 + place))
    share = math.expm1(width * (place - first)) / math.expm1(width) - _LOWERED
    share = min(max(share, 0.0), 1.0)
    return _Geometric(width, first, np.array([1 - share, share]) * (1 + 4 * ROUNDING), 0.0)


def _law(pair: AllocationPair, top: float) -> tuple[Array, Array]:
    """Likelihood ratios up to exp(top), and their masses under the world without the record."""
    total, groups = _geometric_part(pair)
    largest = math.exp(top) * pair.batches
    if not groups:
        assert total is not None
        values = np.exp(total.width * (total.first + np.arange(len(total.masses)))) * (1 - 1e-13)
        kept = values <= largest
        ratios = np.append(0.0, values[kept] / pair.batches)
        return ratios, np.append(total.zero, total.masses[kept])
    points = pair.points
    step = largest / points
    law = np.ones(1) if total is None else _trimmed(total.on_line(step, points))
    for group in groups:
        one = _linear(group.labels, group.square, step, points)
        law = _product(law, _power(one, group.copies, points), points)
    if pair.idle:
        place = pair.idle / step * (1 - 1e-13)
        index = math.floor(place)
        shifted = np.zeros(index + len(law) + 1)
        shifted[index : index + len(law)] += law * (1 - (place - index)) * (1 + 4 * ROUNDING)
        shifted[index + 1 :] += law * (place - index) * (1 + 4 * ROUNDING)
        law = shifted[: points + 1]
    ratios = step * np.arange(len(law)) / pair.batches
    return ratios, law
