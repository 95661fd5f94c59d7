"""Privacy-loss distributions: exact composition of many different subsampled steps.

A ``LossDistribution`` is a multiset of elementary pairs; composing only adds counts. The sum of
the losses is taken when a question is asked, by one product of Fourier transforms, on a grid and
with an exponential tilt chosen for that question: the tilt puts the weight where the answer lies,
so that the rounding noise of the transform, which is bounded and added, stays negligible at any
delta. (dp-accounting's distributions compose pairwise without such a bound; the tests compare.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import NamedTuple, Self

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from lastiterate.curves.base import Curve
from lastiterate.curves.bracket import safe_end
from lastiterate.curves.pairs import (
    CELLS,
    ROUNDING,
    Array,
    Atoms,
    Pair,
    ReplacedPair,
    SampledPair,
)
from lastiterate.errors import DescriptionError

# The grid may add this share to the variance of the total loss.
GRID_SHARE = 1e-5
# Losses closer than this are not told apart, however little a step loses.
FINEST = 1e-14
# Log of the probability, under the tilted law, of falling out of the window of the transform.
LOG_OUTSIDE = -32.0
# Losses so many units of 1 / tilt above epsilon weigh less than e^-FORGOTTEN.
FORGOTTEN = 60.0
# Pairs from which a question is first answered on the wide grid.
MANY_PAIRS = 4
# With more steps than this the transform gets too long; the moments answer alone.
MOST_STEPS = 10**7
# Windows longer than this are compared with that of a weaker tilt.
LONGEST = 1 << 18
# Windows longer than this are not transformed; the moments answer alone.
TOO_LONG = 1 << 23
# Orders of the Renyi bound that starts the search and answers where the transform cannot.
SCREENED = tuple(1.0 + 2.0 ** (k / 2) for k in range(-24, 17))


class _Tilted(NamedTuple):
    """The tilted law of the total loss: true mass = masses * exp(log_moment - tilt * losses)."""

    tilt: float
    log_moment: float
    losses: Array
    masses: Array
    noise: float  # Euclidean norm of the rounding error of `masses`


class _Order:
    """The sum of the losses in one order of the pair."""

    def __init__(self, parts: list[tuple[Pair, Atoms, int]], side: int, grid: float) -> None:
        self._parts = parts
        self._side = side
        self._grid = grid
        self._infinity = math.fsum(count * atoms.infinity for _, atoms, count in parts)
        self._count = sum(count for _, _, count in parts)
        self._moments: dict[float, float] = {}
        self._laws: dict[int, _Tilted] = {}

    def _moment(self, tilt: float) -> float:
        """An upper bound on the log of E exp(tilt * total loss) on the grid.

        As a function of v = e^-loss the exponential e^(tilt loss) = v^-tilt is convex or (for
        -1 < tilt < 0) concave, and connecting the dots replaces it by its chord: relatively at
        most tilt (tilt + 1) grid^2 / 8 higher, up to the change of v inside a cell.
        """
        if tilt not in self._moments:
            exact = math.fsum(n * pair.log_moments(tilt)[self._side] for pair, _, n in self._parts)
            stretch = math.exp(min((abs(tilt) + 2.0) * self._grid, 50.0))
            chord = max(tilt * (tilt + 1.0), 0.0) * self._grid**2 / 8 * stretch
            self._moments[tilt] = exact + self._count * (chord + 1e-9)
        return self._moments[tilt]

    def _chernoff(self, exponent: int, epsilon: float) -> float:
        """Log of the bound E exp(tilt (L - eps)) max_x e^(-tilt x) (1 - e^-x), tilt 2^exponent."""
        tilt = 2.0**exponent
        return self._moment(tilt) - tilt * epsilon + _log_peak(tilt)

    def _exponent(self, epsilon: float) -> int:
        """The best exponent for a question at epsilon; the bound is unimodal in it."""
        best = 0
        for direction in (1, -1):
            while abs(best) < 20 and self._chernoff(best + direction, epsilon) < self._chernoff(
                best, epsilon
            ):
                best += direction
        return best

    def bound(self, epsilon: float) -> float:
        """An upper bound on delta that takes no transform."""
        log = self._chernoff(self._exponent(epsilon), epsilon)
        return math.exp(min(log, 0.0)) * (1.0 + 1e-10) + self._infinity

    def _window(self, tilt: float, here: float) -> tuple[int, int]:
        """Grid indices outside which the tilted law has mass at most 2 exp(LOG_OUTSIDE)."""
        lowest = sum(n * atoms.first for _, atoms, n in self._parts)
        highest = lowest + sum(n * (len(atoms.weights) - 1) for _, atoms, n in self._parts)
        for factor in (1.1, 1.25, 1.5, 2.0, 3.0, 6.0):
            other = tilt * factor
            bound = (self._moment(other) - here - LOG_OUTSIDE) / (other - tilt)
            highest = min(highest, math.ceil(bound / self._grid))
        for factor in (0.75, 0.5, 0.0, -1.0, -2.0, -5.0):
            other = tilt * factor
            bound = (self._moment(other) - here - LOG_OUTSIDE) / (other - tilt)
            lowest = max(lowest, math.floor(bound / self._grid))
        return lowest, max(highest, lowest)

    def _law(self, exponent: int) -> _Tilted | None:
        """The law under the tilt 2^exponent or, where its window is long, under a weaker one.

        A strong tilt can wake up rare huge losses, which make the window long. A weaker tilt is
        as sound, only a little noisier. None if every window is too long.
        """
        while self._length(exponent) > LONGEST:
            weaker = range(exponent - 1, max(exponent - 7, -21), -1)
            shorter = (e for e in weaker if self._length(e) < self._length(exponent) / 2)
            found = next(shorter, None)
            if found is None:
                break
            exponent = found
        if self._length(exponent) > TOO_LONG:
            return None
        if exponent not in self._laws:
            self._laws[exponent] = self._transform(2.0**exponent)
        return self._laws[exponent]

    def _length(self, exponent: int) -> int:
        lowest, highest = self._window(2.0**exponent, self._moment(2.0**exponent))
        return highest - lowest

    def _transform(self, tilt: float) -> _Tilted:
        """Compose by one product of Fourier transforms.

        Rounding: a transform of length N has relative Euclidean error at most a small multiple of
        log2(N) units (Higham 2002, Theorem 24.2; 16 is generous), no transform of a probability
        exceeds 1, so the errors of the factors add; products taken through complex logarithms
        lose a few units for each unit of phase or depth.
        """
        tilted, moments = [], []
        for _, atoms, _ in self._parts:
            losses = self._grid * (atoms.first + np.arange(len(atoms.weights), dtype=np.float64))
            with np.errstate(divide="ignore"):
                logs = np.log(atoms.weights) + tilt * losses
            top = float(logs.max())
            raw = np.exp(logs - top)
            total = float(raw.sum())
            tilted.append(raw / total)
            moments.append(math.log(total) + top)
        counts = [count for _, _, count in self._parts]
        moment = math.fsum(n * k for n, k in zip(counts, moments, strict=True))
        lowest, highest = self._window(tilt, moment)
        longest = max(map(len, tilted))
        size = next_fast_len(max(highest - lowest + 1, longest), real=True)
        depth, phase = np.zeros(size // 2 + 1), np.zeros(size // 2 + 1)
        spread = relative = 0.0
        for (_, atoms, count), part, own in zip(self._parts, tilted, moments, strict=True):
            spread += count * _norm(part)
            reach = (abs(atoms.first) + len(part)) * self._grid
            relative += count * (math.log2(len(part)) + 16.0 + 4.0 * tilt * reach + 4.0 * abs(own))
            factor = rfft(part, size)
            with np.errstate(divide="ignore"):
                depth += count * np.log(np.abs(factor))
            phase += count * np.angle(factor)
        with np.errstate(under="ignore", invalid="ignore"):
            product = np.exp(depth) * (np.cos(phase) + 1j * np.sin(phase))
        product[~np.isfinite(product)] = 0.0  # a factor was exactly zero there
        base = sum(count * atoms.first for _, atoms, count in self._parts)
        masses = np.roll(irfft(product, size), (base - lowest) % size)
        norm = _norm(masses)
        noise = 16.0 * ROUNDING * (math.log2(size) * (spread + norm))
        noise += 16.0 * ROUNDING * (800.0 + 4.0 * self._count) * norm
        masses = np.maximum(masses, 0.0) * (1.0 + ROUNDING * relative)
        losses = self._grid * (lowest + np.arange(size, dtype=np.float64))
        return _Tilted(tilt, moment, losses, masses, noise)

    def delta(self, epsilon: float) -> float:
        law = self._law(self._exponent(epsilon))
        if law is None:
            return self.bound(epsilon)
        begin = int(np.searchsorted(law.losses, epsilon, side="right"))
        end = int(np.searchsorted(law.losses, epsilon + FORGOTTEN / law.tilt))
        gap = law.losses[begin:end] - epsilon
        shape = np.exp(-law.tilt * gap) * -np.expm1(-gap)
        amount = float(np.sum(law.masses[begin:end] * shape)) + law.noise * _norm(shape)
        # Outside the window on either side, and farther above epsilon than FORGOTTEN / tilt.
        amount += 2.0 * math.exp(LOG_OUTSIDE) + 2.0 * math.exp(-FORGOTTEN)
        log = law.log_moment - law.tilt * epsilon + math.log(amount)
        if log >= 0.0:
            return 1.0
        return min(math.exp(log) * (1.0 + 1e-10) + self._infinity, 1.0)


def _worse(orders: tuple[_Order, ...], epsilon: float) -> float:
    """The larger delta of both orders: the one with the larger bound often settles it alone."""
    likely, *rest = sorted(orders, key=lambda order: -order.bound(epsilon))
    value = likely.delta(epsilon)
    for other in rest:
        if other.bound(epsilon) > value:
            value = max(value, other.delta(epsilon))
    return value


def chernoff_epsilon(orders: Array, log_moments: Array, delta: float) -> float:
    """Epsilon from log E exp((order - 1) loss): the best known conversion of Renyi moments.

    (Canonne, Kamath, Steinke 2020.) Used to rank candidates before they are composed exactly.

    >>> round(chernoff_epsilon(np.array([10.0]), np.array([45.0]), 1e-5), 3)
    5.918
    """
    tilt = orders - 1.0
    peak = tilt * np.log(tilt) - orders * np.log(orders)
    return float(np.min((log_moments + peak - math.log(delta)) / tilt))


def _norm(values: Array) -> float:
    """The Euclidean norm (without BLAS, whose threads cost more than they give here)."""
    return math.sqrt(float(np.sum(values * values)))


def _log_peak(tilt: float) -> float:
    """Log of the maximum over x > 0 of e^{-tilt x} (1 - e^{-x})."""
    return tilt * math.log(tilt) - (1.0 + tilt) * math.log1p(tilt)


class LossDistribution(Curve):
    """The composition of elementary pairs, answered pessimistically in both orders.

    >>> one = LossDistribution.gaussian(1.0)
    >>> round(one.self_compose(4).epsilon(1e-5), 2)  # the same as mu = 2
    10.0
    """

    def __init__(self, counts: Mapping[Pair, int]) -> None:
        self.counts: dict[Pair, int] = {pair: n for pair, n in counts.items() if n > 0}

    @classmethod
    def nothing(cls) -> Self:
        """The identity of composition: no privacy loss at all."""
        return cls({})

    @classmethod
    def gaussian(cls, mu: float) -> Self:
        """N(mu, 1) against N(0, 1)."""
        return cls.sampled_pair(1.0, 0.0, mu)

    @classmethod
    def sampled_gaussian(cls, rate: float, mu: float) -> Self:
        """(1 - rate) N(0, 1) + rate N(mu, 1) against N(0, 1): a Poisson batch, zero-out."""
        return cls.sampled_pair(rate, 0.0, mu)

    @classmethod
    def sampled_pair(cls, rate: float, low: float, high: float) -> Self:
        """(1 - rate) N(low, 1) + rate N(high, 1) against N(0, 1), 0 <= low <= high."""
        _check_rate(rate)
        if not 0.0 <= low <= high:
            raise DescriptionError(
                "low, high", (low, high), "ordered, 0 <= low <= high", "shifts are lengths"
            )
        return cls({}) if high == 0.0 else cls({SampledPair(rate, low, high): 1})

    @classmethod
    def replaced(cls, rate: float, mu: float) -> Self:
        """Profile rate * delta_mu(log(1 + (e^eps - 1) / rate)): without replacement, replace."""
        _check_rate(rate)
        if not mu >= 0.0:
            raise DescriptionError("mu", mu, "at least 0", "a shift is a length")
        return cls({}) if mu == 0.0 else cls({ReplacedPair(rate, mu): 1})

    def compose(self, *others: LossDistribution) -> Self:
        """This and the others, on the same data."""
        counts = dict(self.counts)
        for other in others:
            for pair, count in other.counts.items():
                counts[pair] = counts.get(pair, 0) + count
        return type(self)(counts)

    def self_compose(self, times: int) -> Self:
        """This, ``times`` times."""
        if times < 0:
            raise DescriptionError("times", times, "at least 0", "a run cannot be undone")
        return type(self)({pair: n * times for pair, n in self.counts.items()})

    @property
    def grid(self) -> float:
        """Distance between the losses that are told apart."""
        total = sum(self.counts.values())
        variance = math.fsum(n * pair.variance for pair, n in self.counts.items())
        finest = max(pair.reach for pair in self.counts) / CELLS
        # Spreading a cell's mass over its ends adds about grid^2 / 6 to the variance of a step.
        return max(math.sqrt(6.0 * GRID_SHARE * variance / total), finest, FINEST)

    @cached_property
    def _orders(self) -> tuple[_Order, ...]:
        return _both_orders(tuple(self.counts.items()), self.grid)

    def _unbounded(self) -> bool:
        return any(not math.isfinite(pair.reach) for pair in self.counts)

    def delta(self, epsilon: float) -> float:
        if math.isnan(epsilon):
            raise DescriptionError("epsilon", epsilon, "a number", "nothing holds at nan")
        if epsilon < 0.0:  # H at e^eps in one order is 1 - e^eps + e^eps H at e^-eps in the other
            return min(-math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon), 1.0)
        if not self.counts:
            return 0.0
        if self._unbounded():
            return 1.0
        if math.isinf(epsilon):
            return 0.0
        if sum(self.counts.values()) > MOST_STEPS:
            return self._renyi_delta(epsilon)
        return min(_worse(self._orders, epsilon), self._renyi_delta(epsilon))

    def rough_delta(self, epsilon: float) -> float:
        """Delta on a grid eight times as wide: as sound, sooner answered, a little larger.

        >>> one = LossDistribution.sampled_gaussian(0.1, 1.0).self_compose(9)
        >>> 1.0 < one.rough_delta(1.0) / one.delta(1.0) < 1.01
        True
        """
        if not self.counts or self._unbounded() or sum(self.counts.values()) > MOST_STEPS:
            return self.delta(epsilon)
        return _worse(_both_orders(tuple(self.counts.items()), 8.0 * self.grid), epsilon)

    @cached_property
    def _divergences(self) -> list[tuple[float, float]]:
        """(order - 1, Renyi divergence): exact moments, which see neither grid nor cut tails."""
        return _screening(tuple(self.counts.items()))

    def _renyi_delta(self, epsilon: float) -> float:
        logs = (tilt * (rdp - epsilon) + _log_peak(tilt) for tilt, rdp in self._divergences)
        return math.exp(min(min(logs) + 1e-12, 0.0))

    def epsilon(self, delta: float) -> float:
        return self._inverse(self.delta, delta, rough_first=len(self.counts) > MANY_PAIRS)

    def rough_epsilon(self, delta: float) -> float:
        """Epsilon on the grid of `rough_delta`."""
        return self._inverse(self.rough_delta, delta)

    def _inverse(
        self, curve: Callable[[float], float], delta: float, rough_first: bool = False
    ) -> float:
        """The smallest epsilon at which a curve is at most delta."""
        if not 0.0 <= delta <= 1.0:
            raise DescriptionError("delta", delta, "between 0 and 1", "it is a probability")
        if not self.counts or delta == 1.0:
            return 0.0
        if self._unbounded() or delta == 0.0:
            return math.inf
        high = self.rough_epsilon(delta) if rough_first else self._renyi_epsilon(delta)
        if math.isinf(high):
            return high
        for _ in range(40):
            if curve(high) <= delta:
                break
            high *= 1.1
        else:
            return math.inf
        low, step = high, (0.002 if rough_first else 0.02) * high
        while curve(low) <= delta:
            if low == 0.0:
                return 0.0
            high, low, step = low, max(low - step, 0.0), 2.0 * step

        def excess(epsilon: float) -> float:
            value = curve(epsilon)
            ratio = math.log(max(value, 1e-320)) - math.log(delta)
            return ratio if (ratio > 0.0) == (value > delta) else value - delta

        return safe_end(excess, safe=high, unsafe=low, tolerance=1e-10)

    def _renyi_epsilon(self, delta: float) -> float:
        room = math.log(delta)
        found = (rdp + (_log_peak(tilt) - room) / tilt for tilt, rdp in self._divergences)
        return max(min(found), 0.0) * (1.0 + 1e-9) + 1e-9

    def rdp(self, order: float) -> float:
        if not order > 1.0:
            raise DescriptionError("order", order, "above 1", "Renyi divergence is asked there")
        if self._unbounded():
            return math.inf
        if math.isinf(order):
            return math.inf if self.counts else 0.0
        return _divergence(tuple(self.counts.items()), order)


Counted = tuple[tuple[Pair, int], ...]


# Two theorems often charge the same steps (plain composition is a candidate of every search): what
# the last few multisets of pairs cost to prepare is kept. The values are those of a fresh one.


@lru_cache(maxsize=4)
def _both_orders(counts: Counted, grid: float) -> tuple[_Order, ...]:
    """The sum of the losses in both orders of the pair, or once if they are alike."""
    cut = [(pair, pair.atoms(grid), n) for pair, n in counts]
    forward = _Order([(pair, both[0], n) for pair, both, n in cut], 0, grid)
    backward = _Order([(pair, both[1], n) for pair, both, n in cut], 1, grid)
    symmetric = all(both[0] is both[1] for _, both, _ in cut)
    return (forward,) if symmetric else (forward, backward)


@lru_cache(maxsize=16)
def _screening(counts: Counted) -> list[tuple[float, float]]:
    """(order - 1, Renyi divergence) at the orders of the first screening."""
    return [(order - 1.0, _divergence(counts, order)) for order in SCREENED]


def _divergence(counts: Counted, order: float) -> float:
    """The Renyi divergence of the composition, the worse of both orders of the pair."""
    both = [(n, _all_moments(pair, order - 1.0)) for pair, n in counts]
    logs = [math.fsum(n * moments[side] for n, moments in both) for side in (0, 1)]
    worst: float = max(*logs, 0.0)
    return worst / (order - 1.0)


def _all_moments(pair: Pair, tilt: float) -> tuple[float, float]:
    """`Pair.log_moments`; a pair whose losses may be infinite has bounds of its own for Renyi."""
    bounds: Callable[[float], tuple[float, float]]
    bounds = getattr(pair, "renyi_moments", pair.log_moments)
    return bounds(tilt)


def _check_rate(rate: float) -> None:
    if not 0.0 < rate <= 1.0:
        raise DescriptionError(
            "rate", rate, "above 0 and at most 1", "it is the probability that a record is used"
        )
