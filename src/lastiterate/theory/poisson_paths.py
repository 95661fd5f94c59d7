"""Poisson batches with a hidden state: Theorem M2, its best path, and several records of a person.

A record enters each batch by its own coin, so a step is a mixture of two Gaussians. The theorem
lets the mixture carry the price of what earlier steps left over, without splitting the noise.
The proof is in docs/theory/poisson.md. This file works on numbers: Lipschitz constants c,
sensitivities s and noises nu of the steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import bdtrc

from lastiterate.curves.bracket import crossing, last_good
from lastiterate.curves.group_pair import GroupPair
from lastiterate.curves.loss_distribution import LossDistribution, chernoff_epsilon
from lastiterate.curves.pairs import FARTHEST, ROUNDING, Pair, SampledPair
from lastiterate.errors import DescriptionError
from lastiterate.theory.dynamics import Array, Steps, alike, counted, once, weighted_sum

PATH_ORDERS = (2.0, 4.0, 6.0, 8.0, 10.0, 14.0)  # that paths are sought for
SHORT = 64  # runs of no more steps can have other orders too, and are tuned
_FARTHEST = 1e200  # that may be left over, or is looked for: no product may leave the doubles
SHORT_ORDERS = (1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0, 14.0, 27.0)
TRIED = 3  # cuts that are tried in a block of a short run
LIKELY, TUNED = 4, 6  # how many of them are composed, and how many more around the best
SCREEN_ORDERS = np.array([1.1, 1.2, 1.5, 2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 48, 64, 128])
_SEVERAL_SCREEN_ORDERS = (2.0, 3.0, 5.0, 8.0, 16.0, 32.0)
RISING, FALLING = 200, 100  # payments and deferrals that are tabulated
_NODES = np.polynomial.legendre.leggauss(12)
_AROUND = np.array([-8.0, -2.7, 2.7, 8.0])  # of a normal density
LEVELS = 32  # different payments that a path makes
RATIOS = 16  # different values of s / nu that a path tells apart
GROUPS = 64  # different pairs that a whole run is charged as
RISEN = 1.2  # from so many times the least moment on, longer paths are not tried
REMEMBERED = 1 << 14  # steps of a path that is kept for runs of other lengths
LONG = 10**6  # of a longer run only the last steps get a path of their own


def batch_cap(records: int, rate: float, steps: int, failure: float) -> int:
    """The smallest M with steps * P(batch has more than M records) <= failure.

    ``failure`` must be added to delta; ``failure = 0`` gives all records.

    >>> batch_cap(10_000, 0.01, 1000, 1e-9)
    177
    >>> batch_cap(10_000, 0.01, 1000, 0.0)
    10000
    """

    def holds(cap: int) -> bool:
        return steps * float(bdtrc(cap, records, rate)) * (1.0 + 1e-9) <= failure

    return last_good(holds, good=records, bad=-1) if failure > 0.0 else records


# Theorem M2


@dataclass(frozen=True)
class DeferralPath:
    """What is left over after each step, and the pair each step then pays.

    ``left[k]`` is z_k; ``low`` and ``high`` are a_k / nu_k and b_k / nu_k, rounded up.
    """

    rate: float
    left: Array
    low: Array
    high: Array


def follow(
    steps: Steps, rate: float, left: Sequence[float] | Array, diameter: float = math.inf
) -> DeferralPath:
    """Theorem M2: the price of a path z_0, ..., z_T of left-over distances.

    *Statement.* X_{k+1} = f_k(X_k) + xi_k h_k(X_k) + N(0, nu_k^2 I) with xi_k ~ Bernoulli(rate)
    independent, f_k c_k-Lipschitz, |h_k| <= s_k; X' the same with h = 0. Let z_0 be 0, or the
    diameter of a convex set that every iterate is projected on; z_k >= 0; z_T = 0;
    u_k = c_k z_k - z_{k+1} >= -s_k. Then (X_T, X'_T) is dominated, in both orders, by the
    composition of (1 - rate) N(max(u_k, 0), nu_k^2) + rate N(s_k + u_k, nu_k^2) against
    N(0, nu_k^2), in the respective order.

    *Assumptions.* Poisson batches, zero-out adjacency, c_k valid for every realised batch of the
    other records (`poisson.batch_contraction`). h may be anything bounded: clipping
    does not hurt.

    *Proof idea.* Move a helper process by just so much that at most z_{k+1} remains. Seen from
    the helper, a step is a mixture of shifts no longer than a_k (record out) and b_k (record in);
    the likelihood ratio is a sum of two lognormals, largest in convex order when they are
    comonotone and longest. Full proof: docs/theory/poisson.md. Status: sound.

    Computed updates bring two runs that are apart to c_k z_k + drift_k, not c_k z_k.
    """
    z, s = np.asarray(left, dtype=float), steps.s
    if len(z) != steps.count + 1:
        why = "something is left over after every step, and before the first"
        raise DescriptionError("left", len(z), f"{steps.count + 1} numbers", why)
    sound = np.all((z >= 0.0) & (z < math.inf)) and (z[0] == 0.0 or z[0] >= diameter)
    if z[-1] != 0.0 or not sound:
        allowed = "0 (or the diameter) first, never negative, 0 at last"
        why = "otherwise the helper process does not start or end where the runs do"
        raise DescriptionError("left", (z[0], z.min(), z[-1]), allowed, why)
    before = np.where(z[:-1] > 0.0, steps.c * z[:-1] + steps.rounding_drift, 0.0)
    u = before - z[1:] + 4 * ROUNDING * (before + z[1:])
    if np.any(u < -s):
        allowed = "at most c z_k + s_k after step k"
        why = "a step cannot leave over more than there is"
        raise DescriptionError("left", float((u + s).min()), allowed, why)
    low, high = np.maximum(u, 0.0), np.maximum(s + u, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = (
            np.where(shift > 0.0, shift / steps.nu, 0.0) * (1.0 + 4 * ROUNDING)
            for shift in (low, high)
        )
    return DeferralPath(rate, z, low, np.maximum(low, high))


def deferral_path(
    steps: Steps, rate: float, order: float, start: float = 0.0, diameter: float = math.inf
) -> DeferralPath:
    """The path whose log-moment of this order is least (any path is sound).

    Minimise sum kappa(u_k) with sum u_k prod_{l>k} c_l = start * prod c: kappa'(u_k) is
    proportional to the weight prod_{l>k} c_l, one root. kappa has a kink at 0, so the optimum
    defers first (u < 0), then composes plainly (u = 0), then absorbs what is left (u > 0).

    >>> path = deferral_path(Steps(0.99, 1.0, 1.0, 1000), rate=0.01, order=8)
    >>> bool(path.high[0] < 1.0 < path.high[-1])
    True
    """
    return _Start.of(steps, 0, start, diameter).path(rate, order)


@dataclass(frozen=True, eq=False)
class _Start:
    """Where a path begins, with what paths of all orders have in common."""

    first: int
    steps: Steps  # from there on
    rounded: Steps  # the same, with s rounded up so that s / nu has few values
    distance: float
    diameter: float
    most: float  # that can build up when nothing is ever paid

    @classmethod
    def of(cls, steps: Steps, first: int, distance: float, diameter: float) -> _Start:
        """A start at step ``first`` from this distance."""
        steps = rounded = steps[first:]
        if not alike(steps.s, steps.nu):
            ratio = steps.s / steps.nu
            rounded = steps.replace(s=np.maximum(steps.s, steps.nu * _few_ratios(ratio)))
        most = _free_distance(rounded, distance, diameter)
        return cls(first, steps, rounded, distance, diameter, most)

    def bound(self, rate: float, order: float) -> tuple[PoissonBound, float]:
        """The bound of the path of this order, and its log-moment."""
        if self.steps.constant and self.steps.count <= REMEMBERED:
            step = (*self.steps.one, float(self.steps.rounding_drift[0]))
            place = self.distance, self.diameter
            bound, moment = _equal_bound(step, self.steps.count, place, rate, order)
            return dataclasses.replace(bound, first=self.first), moment
        path = self.path(rate, order)
        bound = PoissonBound(poisson_curve(path), path, order, self.first)
        return bound, _moment(bound.curve, order)

    def path(self, rate: float, order: float) -> DeferralPath:
        """The path whose log-moment of this order is least."""
        steps, top = self.steps, min(self.diameter, _FARTHEST)
        with np.errstate(all="ignore"):  # whatever the search finds is priced by `follow`
            slopes = _Slopes(order, rate, self.rounded, self.most)
            blocks = _blocks(slopes, self.rounded, self.distance)
        z, left = self.distance, [self.distance]
        for where, pays in blocks:
            part = steps[where]
            pays = np.where(np.isnan(pays), 0.0, pays)  # prices beyond doubles: compose plainly
            rows = (x.tolist() for x in (part.c, part.s, part.rounding_drift, pays))
            for factor, step_sensitivity, rounding, pay in zip(*rows, strict=True):
                before = factor * z + rounding if z > 0.0 else 0.0
                # c and s are rounded up; what is left over must be there in exact numbers, too.
                most = (before + step_sensitivity) * (1 - 64 * ROUNDING)
                z = before - pay
                if z > most or z > top:
                    z = most if most < top else top
                elif z < 0.0:
                    z = 0.0
                left.append(z)
            left[-1] = z = 0.0
        return follow(self.rounded, rate, left, self.distance if self.distance > 0.0 else math.inf)


class _Block(NamedTuple):
    """Steps between two places with nothing left over, all paying by one price."""

    where: slice
    u: Array
    price: Array
    weight: Array
    cost: float
    cuts: list[int]  # where a cut is called for or, if not ``torn``, worth a try
    torn: bool


def _blocks(slopes: _Slopes, steps: Steps, start: float) -> list[tuple[slice, Array]]:
    """The payments u of the cheapest path, in blocks at whose ends nothing is left over.

    z_k >= 0 nests: no first few steps may pay more than there is. Where a single price would make
    them, the place where it does so most is one where the optimum has z = 0 (as with the vertices
    of a convex minorant), and the two sides are problems of their own. Rounding adds a drift only
    where something is left over, so that in short runs a cut is also tried where little is.
    """
    found: list[_Block] = []
    todo = [_block(slopes, steps, slice(0, steps.count), start)]
    while todo:
        block = todo.pop()
        first, last = block.where.start, block.where.stop
        apart = start if first == 0 else 0.0
        for cut in block.cuts:
            before = _block(slopes, steps, slice(first, first + cut), apart)
            after = _block(slopes, steps, slice(first + cut, last), 0.0)
            if block.torn or before.cost + after.cost < block.cost * (1 - 1e-9):
                todo += [after, before]
                break
        else:
            found.append(block)
    blocks = len(found)
    return [(x.where, _levelled(x, steps[x.where], blocks)) for x in found]


def _block(slopes: _Slopes, steps: Steps, where: slice, apart: float) -> _Block:
    part = steps[where]
    with np.errstate(divide="ignore"):
        behind = np.concatenate([np.cumsum(np.log(part.c[::-1]))[::-1], [0.0]])
    scale = float(behind.max())
    weight = np.exp(behind[1:] - scale)
    roundings = weight * part.rounding_drift
    if apart == 0.0:
        roundings[:1] = 0.0
    there = apart * math.exp(behind[0] - scale) + np.cumsum(roundings)

    def excess(log_price: float) -> float:
        paid = weighted_sum(weight, slopes.shift(math.exp(log_price) * weight, where))
        return paid - float(there[-1])

    price = math.exp(crossing(excess, -80.0, 80.0)) * weight
    u = slopes.shift(price, where)
    left = (there - np.cumsum(weight * u))[:-1]
    torn = bool(np.any(left < -1e-9 * weighted_sum(weight, np.abs(u))))
    cuts = list[int]()
    if torn or (np.any(roundings > 0.0) and steps.count <= SHORT):
        cuts = [int(k) + 1 for k in np.argsort(left)[: 1 if torn else TRIED]]
    cost = slopes.cost(u, part) if steps.count <= SHORT else 0.0
    return _Block(where, u, price, weight, cost, cuts, torn)


def _levelled(block: _Block, steps: Steps, blocks: int) -> Array:
    """The path with few different pairs: u / nu replaced by weighted means over alike steps.

    The means keep sum u_k weight_k, and the optimum is flat, so this costs only to second order;
    rounding pairs up afterwards would cost to first order.
    """
    price, weight, nu = block.price, block.weight, steps.nu
    shift = block.u / nu
    answer = shift.copy()
    kinds, kind = _kinds(steps)
    for index in range(len(kinds)):
        for sign in (-1.0, 1.0):
            chosen = np.flatnonzero((kind == index) & (sign * shift > 0.0))
            if len(chosen) < 2:
                continue
            chosen = chosen[np.argsort(shift[chosen], kind="stable")]
            rises = np.diff(shift[chosen]) * np.maximum(np.diff((price * nu)[chosen]), 0.0)
            place = np.concatenate([[0.0], np.cumsum(np.cbrt(rises))])
            if not math.isfinite(place[-1]):
                place = np.arange(len(chosen), dtype=float)
            levels = max(LEVELS // (2 * len(kinds) * blocks), 2)
            group = np.minimum(place / max(place[-1], 1e-300) * levels, levels - 1).astype(int)
            mass = (weight * nu)[chosen] + 1e-300
            mean = np.bincount(group, mass * shift[chosen]) / np.maximum(
                np.bincount(group, mass), 1e-300
            )
            answer[chosen] = mean[group]
    return answer * nu


def _kinds(steps: Steps) -> tuple[Array, npt.NDArray[np.int64]]:
    """The different values of s / nu, and which one each step has."""
    if alike(steps.s, steps.nu):
        one = steps.s[:1] / steps.nu[:1]
        return one, np.broadcast_to(np.int64(0), (steps.count,))
    kinds, kind = np.unique(steps.s / steps.nu, return_inverse=True)
    return kinds, kind


def _few_ratios(ratio: Array) -> Array:
    """Round s / nu up to few values, so that few different pairs have to be composed."""
    ordered = np.sort(ratio)
    rises = np.flatnonzero(np.diff(ordered) > 0.0)
    if len(rises) < RATIOS:
        return ratio
    place = np.cumsum(np.sqrt(np.diff(np.expm1(np.minimum(ordered**2, 50.0)))))
    cuts = np.searchsorted(place, place[-1] * np.arange(1, RATIOS) / RATIOS)
    levels = np.unique(np.append(ordered[cuts], ordered[-1]))
    return levels[np.searchsorted(levels, ratio)] * (1.0 + 4 * ROUNDING)


class _Slopes:
    """Inverse of the derivative of kappa, tabulated for a few values of s / nu."""

    def __init__(self, order: float, rate: float, steps: Steps, most: float) -> None:
        self._order, self._rate = order, rate
        levels, self._level = _kinds(steps)
        self._nu = steps.nu
        top = min(max(most / float(once(steps.nu).min()), 1e-9), _FARTHEST)
        rising = np.concatenate([[0.0], np.geomspace(1e-7 * top, top, RISING)])
        self._tables = []
        for ratio in levels:
            falling = np.linspace(-ratio, 0.0, FALLING)
            slope = np.concatenate(
                [
                    _moments(order, rate, 0.0 * falling, ratio + falling)[2],
                    _moments(order, rate, rising, ratio + rising)[1],
                ]
            )
            shifts = np.concatenate([falling, rising])
            self._tables.append((np.maximum.accumulate(slope), shifts))

    def shift(self, price: Array, where: slice) -> Array:
        """u_k with kappa'(u_k) = price_k, for some of the steps."""
        nu, level = self._nu[where], self._level[where]
        scaled = price * nu
        if len(self._tables) == 1:
            return cast(Array, np.interp(scaled, *self._tables[0]) * nu)
        answer = np.zeros(len(price))
        for index in np.unique(level).tolist():
            chosen = level == index
            answer[chosen] = np.interp(scaled[chosen], *self._tables[index])
        return answer * nu

    def cost(self, u: Array, part: Steps) -> float:
        """The sum of kappa."""
        shifts = np.maximum(u, 0.0) / part.nu, np.maximum(part.s + u, 0.0) / part.nu
        return float(_moments(self._order, self._rate, *shifts)[0].sum())


def _moments(
    order: Array | float, rate: float, low: Array, high: Array
) -> tuple[Array, Array, Array]:
    """log E (likelihood ratio)^order, and how it grows with both shifts, and with ``high`` alone.

    Good to about ten digits, for the search only. The integrand has its mass around order * low
    and order * high, and bends where the two Gaussians meet: Gauss-Legendre between such places.
    """
    low, high = np.minimum(low, FARTHEST), np.minimum(high, FARTHEST)
    order, low, high = (x[..., None] for x in np.broadcast_arrays(order, low, high))
    apart = np.maximum(high - low, 1e-9)
    odds = math.log1p(-rate) - math.log(rate) if rate < 1.0 else -math.inf
    meet = np.clip((low + high) / 2 + odds / apart, order * low - 9, order * high + 9)
    bend = np.array([-2.0, -0.5, 0.5, 2.0]) * np.minimum(3.0, 10.0 / apart)
    cuts = [order * low + _AROUND, order * high + _AROUND, meet + bend]
    places = np.sort(np.concatenate(cuts, axis=-1), axis=-1)
    half = np.diff(places, axis=-1)[..., None] / 2
    x = (places[..., :-1, None] + half) + half * _NODES[0]
    low, high, order = low[..., None], high[..., None], order[..., None]
    out = (math.log1p(-rate) if rate < 1.0 else -math.inf) + low * (x - low / 2)
    joined = math.log(rate) + high * (x - high / 2)
    loss = np.logaddexp(out, joined)
    log = order * loss - x * x / 2
    top = log.max(axis=(-2, -1), keepdims=True)
    mass = np.exp(log - top) * half * _NODES[1]
    total = mass.sum(axis=(-2, -1))
    share = np.exp(joined - loss)
    by_high = share * (x - high)
    by_both = by_high + (1.0 - share) * (x - low)
    slopes = (
        order[..., 0, 0] * (mass * by).sum(axis=(-2, -1)) / total for by in (by_both, by_high)
    )
    value = np.log(total) + top[..., 0, 0] - math.log(2 * math.pi) / 2
    return (value, *slopes)


def poisson_curve(path: DeferralPath) -> LossDistribution:
    """The composition of a path's pairs, at most GROUPS different ones, each rounded up."""
    if not np.all(np.isfinite(path.high)):
        return LossDistribution({SampledPair(path.rate, 0.0, math.inf): 1})
    used = path.high > 0.0
    kinds, counts = counted(np.stack([_snap(path.low), _snap(path.high)])[:, used])
    if kinds.shape[1] > GROUPS:
        kinds, counts = _grouped(path.rate, kinds, counts)
    low, high = kinds
    rows = zip(low.tolist(), np.maximum(low, high).tolist(), counts.tolist(), strict=True)
    composed: dict[Pair, int] = {}
    for a, b, count in rows:
        pair = SampledPair(path.rate, a, b)
        composed[pair] = composed.get(pair, 0) + count
    return LossDistribution(composed)


def _snap(shift: Array) -> Array:
    """Round up a little, so that payments which differ by rounding errors are one."""
    unit = max(float(shift.max(initial=0.0)), 1e-300) * 2.0**-36
    return np.ceil(shift / unit) * unit * (1.0 + 4 * ROUNDING)


def _grouped(
    rate: float, kinds: Array, counts: npt.NDArray[np.int64]
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Charge steps of similar shape and price to one longer pair.

    Within a shape (low / high) steps are sorted by price and cut where the sum of the roots of
    the price differences is equally spaced: every group then costs about the same.
    """
    low, high = kinds
    shape = np.ceil(4.0 * low / high).astype(int)
    price = second_moment(rate, low, high)
    sort = np.lexsort((price, shape))
    low, high, price, shape, counts = low[sort], high[sort], price[sort], shape[sort], counts[sort]
    rise = np.sqrt(np.maximum(np.diff(price), 0.0) * np.sqrt(counts[:-1] * counts[1:]))
    new = np.diff(shape) > 0
    rise[new] = 0.0
    place = np.concatenate([[0.0], np.cumsum(rise)])
    cut = np.ceil(place / max(float(place[-1]), 1e-300) * (GROUPS - 6)).astype(int)
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(cut) > 0) | new]))
    lows, highs = np.maximum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    return np.stack([lows, highs]), np.add.reduceat(counts, starts)


def second_moment(rate: float, low: Array, high: Array) -> Array:
    """Log of the second moment of the likelihood ratio, the price that sorts steps."""
    low, high = np.minimum(low, 1e150), np.minimum(high, 1e150)  # products stay in doubles
    rise = (1 - rate) ** 2 * np.expm1(np.minimum(low**2, 700.0))
    rise += 2 * rate * (1 - rate) * np.expm1(np.minimum(low * high, 700.0))
    rise += rate**2 * np.expm1(np.minimum(high**2, 700.0))
    return cast(Array, np.log1p(rise))


def plain_curve(steps: Steps, rate: float) -> LossDistribution:
    """Plain composition of sampled Gaussians, all iterates published.

    >>> round(plain_curve(Steps(1.0, 1.0, 1.0, 1000), rate=0.01).epsilon(1e-6), 3)
    2.125
    """
    repeated = alike(steps.s, steps.nu)
    kept = (steps[:1] if repeated else steps).replace(c=0.0)  # nothing is left over to expand
    one = poisson_curve(follow(kept, rate, np.zeros(kept.count + 1)))
    return one.self_compose(steps.count) if repeated else one


# The best of all


@dataclass(frozen=True)
class PoissonBound:
    """A curve, the path that proves it (None for plain composition), and where it starts."""

    curve: LossDistribution
    path: DeferralPath | None
    order: float | None
    first: int

    @property
    def start(self) -> float:
        """The distance that the path begins with."""
        return 0.0 if self.path is None else float(self.path.left[0])


def best(steps: Steps, rate: float, delta: float, diameter: float = math.inf) -> PoissonBound:
    """The tightest curve at delta among plain composition and deferral paths of all orders.

    On a bounded convex domain a path may also start from the diameter at any step. Whichever is
    chosen, the answer is sound at every epsilon and delta.

    >>> bound = best(Steps(0.99, 1.0, 1.0, 1000), rate=0.01, delta=1e-6)
    >>> bound.curve.epsilon(1e-6) < 1.676
    True
    """
    return best_segments_of_one([steps], rate, delta, diameter)[0]


def best_segments_of_one(
    segments: Sequence[Steps],
    rate: float,
    delta: float,
    diameter: float = math.inf,
    beside: LossDistribution | None = None,
) -> list[PoissonBound]:
    """A bound for each segment between releases, so that all together have the least epsilon.

    For one order the best paths are those with the least moments, and moments add: the only
    question left is the order. A few are screened by their moments; in short runs the likely ones,
    and some more around the best, are composed on a rough grid. ``beside``: composed with them.
    """
    if not 0.0 < rate <= 1.0:
        raise DescriptionError("rate", rate, "above 0 and at most 1", "it is a probability")
    plain = [PoissonBound(plain_curve(steps, rate), None, None, 0) for steps in segments]
    idle = [
        np.any(once(steps.nu) <= 0.0) or np.all(once(steps.s) == 0.0) or not steps.count
        for steps in segments
    ]
    starts = [
        [] if rests else [_Start.of(steps, *start, diameter) for start in _starts(steps, diameter)]
        for steps, rests in zip(segments, idle, strict=True)
    ]
    if not any(starts):
        return plain
    rest = LossDistribution.nothing() if beside is None else beside
    found: dict[float, list[PoissonBound]] = {math.inf: plain}
    values: dict[float, float] = {}

    def composed(place: float) -> LossDistribution:
        if place not in found:
            order = 1.0 + math.exp(place)
            rows = zip(starts, plain, strict=True)
            found[place] = [_least(some, rate, order, other) for some, other in rows]
        return rest.compose(*(bound.curve for bound in found[place]))

    short = sum(steps.count for steps in segments) <= SHORT
    places = [math.log(order - 1.0) for order in (SHORT_ORDERS if short else PATH_ORDERS)]
    ranked = sorted([*places, math.inf], key=lambda place: _screened(composed(place), delta))
    first, *likely = ranked[: LIKELY if short else 2]
    if not short:
        return found[_better(composed, first, likely[0], delta)]
    epsilon = composed(first).epsilon(delta)

    def value(place: float) -> float:
        values[place] = composed(place).rough_delta(epsilon)
        return values[place]

    for _ in range(2):  # a smaller epsilon can prefer another order
        best, first = first, min([first, *likely], key=value)
        if first == best:
            break
        epsilon = composed(first).epsilon(delta)
    values = {first: value(first)}  # at this epsilon
    index = places.index(first) if first in places else 0
    around = places[max(index - 1, 0)], places[min(index + 1, len(places) - 1)]
    scipy.optimize.minimize_scalar(
        value, bounds=around, method="bounded", options={"maxiter": TUNED}
    )
    other = min(values, key=lambda place: values[place])
    return found[other if composed(other).delta(epsilon) < delta else first]


def _better(
    composed: Callable[[float], LossDistribution], first: float, other: float, delta: float
) -> float:
    """Which of two orders has the smaller delta, on a rough grid."""
    epsilon = composed(first).rough_epsilon(delta)
    return min((first, other), key=lambda place: composed(place).rough_delta(epsilon))


def _least(starts: list[_Start], rate: float, order: float, plain: PoissonBound) -> PoissonBound:
    """The start whose path has the least moment of an order; plain composition if that has.

    From the diameter, the longer equal steps are, the less each absorbs and the more of them pay:
    once the moment rises, still longer paths are not tried.
    """
    best, least, before = plain, _moment(plain.curve, order), math.inf
    for start in starts:
        bound, moment = start.bound(rate, order)
        if moment < least:
            best, least = bound, moment
        restarted = start.steps.constant and start.distance == start.diameter
        if restarted and moment > max(before, RISEN * least):
            break
        before = moment if restarted else before
    return best


@lru_cache(maxsize=256)
def _equal_bound(
    step: tuple[float, ...], count: int, place: tuple[float, float], rate: float, order: float
) -> tuple[PoissonBound, float]:
    """`_Start.bound` of equal steps: runs that differ in length alone end in the same ones."""
    c, s, nu, drift = step
    start = _Start.of(Steps(c, s, nu, count, rounding_drift=drift), 0, *place)
    path = start.path(rate, order)
    bound = PoissonBound(poisson_curve(path), path, order, 0)
    return bound, _moment(bound.curve, order)


def _starts(steps: Steps, diameter: float) -> Iterator[tuple[int, float]]:
    """(first step, distance there) from which a path may begin."""
    count, factor = steps.count, float(np.max(once(steps.c)))
    # Steps that contraction forgets to e^-18 defer everything, which costs nothing: the path then
    # begins at the distance that builds up without payments.
    forgets = alike(steps.c, steps.s) and factor < 1.0
    alive = math.ceil(18.0 / (1.0 - factor)) if forgets else count
    gains = not (steps.constant and factor >= 1.0)  # alike and expanding: nothing is forgotten
    if min(alive, count) <= LONG and gains:
        far = min(float(steps.s[0]) / (1.0 - factor), diameter) if alive < count else 0.0
        yield max(count - alive, 0), far * (1 + 1e-12)
    if math.isfinite(diameter):
        kept = 1
        while kept < min(count, LONG):
            yield count - kept, diameter
            kept = max(kept + 1, math.ceil(kept * 1.5))


def _pairs(curve: LossDistribution) -> tuple[float, Array, Array, Array]:
    """rate, low, high and counts of the pairs of a curve."""
    pairs = [pair for pair in curve.counts if isinstance(pair, SampledPair)]
    assert len(pairs) == len(curve.counts)
    counts = np.array([float(curve.counts[pair]) for pair in pairs])
    low, high = (np.array([getattr(pair, side) for pair in pairs]) for side in ("low", "high"))
    return (pairs[0].rate if pairs else 1.0), low, high, counts


def _moment(curve: LossDistribution, order: float) -> float:
    """The log-moment of an order, of the first law against the second alone: for the search."""
    rate, low, high, counts = _pairs(curve)
    if not np.all(np.isfinite(high)):
        return math.inf
    return float(counts @ _moments(order, rate, low, high)[0]) if len(counts) else 0.0


def _screened(curve: LossDistribution, delta: float) -> float:
    """Epsilon by Renyi moments of the first law against the second: good enough to rank."""
    rate, low, high, counts = _pairs(curve)
    if not len(counts) or not np.all(np.isfinite(high)):
        return math.inf if len(counts) else 0.0
    moments = _moments(SCREEN_ORDERS[:, None], rate, low, high)[0] @ counts
    return chernoff_epsilon(SCREEN_ORDERS, moments, delta)


def _free_distance(steps: Steps, start: float, diameter: float) -> float:
    """The largest distance that can build up when nothing is ever paid."""
    z = most = start
    equal = alike(steps.c, steps.s)
    for factor, step_sensitivity in zip(steps.c.tolist(), steps.s.tolist(), strict=True):
        before, z = z, factor * z + step_sensitivity
        if z > diameter:
            z = diameter
        if z > most:
            most = z
        if equal and z == before:
            break
    return most


# --- several records of one person ---------------------------------------------------------------


def group_curve(path: DeferralPath, gaps: Array, records: int) -> LossDistribution:
    """Theorem G5: the price of a path when each of k records has its own coin.

    *Statement.* As `follow`, with X_{k+1} = f_k(X_k) + sum over i of xi_{k,i} h_{k,i}(X_k)
    + N(0, nu_k^2 I), i = 1, ..., ``records``, all coins independent. The run is dominated, in both
    orders, by the composition of sum over i of Bin(records, rate)(i) N((i s_k + u_k)_+, nu_k^2)
    against N(0, nu_k^2). ``gaps`` are s_k / nu_k, rounded up.

    *Proof.* Given that i records are in, the gap to be closed is at most c_k z_k + i s_k - z_{k+1}.
    The likelihood ratio is a sum of lognormals, largest in convex order when they are comonotone
    and longest, whatever their number. So longer shifts may stand for shorter ones.
    """
    if not (np.all(np.isfinite(path.high)) and np.all(np.isfinite(gaps))):
        return LossDistribution({SampledPair(path.rate, 0.0, math.inf): 1})
    used = (path.high > 0.0) | (gaps > 0.0)
    columns = np.stack([_snap(path.low), _snap(path.high), _snap(gaps)])[:, used]
    kinds, counts = counted(columns)
    if kinds.shape[1] > GROUPS:
        sort = np.lexsort((kinds[1], kinds[2]))
        kinds, counts = kinds[:, sort], counts[sort]
        starts = np.unique(np.linspace(0, len(counts) - 1, GROUPS).astype(int))
        kinds = np.maximum.reduceat(kinds, starts, axis=1)
        counts = np.add.reduceat(counts, starts)
    composed: dict[Pair, int] = {}
    for low, high, gap, count in zip(*kinds.tolist(), counts.tolist(), strict=True):
        pair = GroupPair(path.rate, records, low, max(low, high), gap)
        composed[pair] = composed.get(pair, 0) + count
    return LossDistribution(composed)


def _gaps(steps: Steps) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(steps.s > 0.0, steps.s / steps.nu, 0.0)
    return np.asarray(ratio * (1.0 + 4 * ROUNDING))


def plain_group_curve(steps: Steps, rate: float, records: int) -> LossDistribution:
    """Plain composition, all iterates published.

    >>> steps = Steps(1.0, 1.0, 1.0, 100)
    >>> one, two = plain_curve(steps, 0.01), plain_group_curve(steps, 0.01, 2)
    >>> one.epsilon(1e-6) < two.epsilon(1e-6)
    True
    """
    if records == 1:
        return plain_curve(steps, rate)
    repeated = alike(steps.s, steps.nu)
    kept = (steps[:1] if repeated else steps).replace(c=0.0)  # nothing is left over to expand
    one = group_curve(follow(kept, rate, np.zeros(kept.count + 1)), _gaps(kept), records)
    return one.self_compose(steps.count) if repeated else one


def best_segments(
    segments: Sequence[Steps],
    rate: float,
    records: int,
    delta: float,
    diameter: float = math.inf,
    beside: LossDistribution | None = None,
) -> list[PoissonBound]:
    """A bound for each segment between releases; those of several records are found one by one."""
    if records == 1:
        return best_segments_of_one(segments, rate, delta, diameter, beside)
    return [best_of_several(steps, rate, records, delta, diameter) for steps in segments]


def best_of_several(
    steps: Steps, rate: float, records: int, delta: float, diameter: float = math.inf
) -> PoissonBound:
    """The tightest curve at delta among plain composition and deferral paths.

    The paths are the best ones of a single record whose coin shows the chance that any of the k
    is in: any path is sound.

    >>> bound = best_of_several(Steps(0.9, 1.0, 1.0, 30), rate=0.01, records=3, delta=1e-6)
    >>> bound.curve.epsilon(1e-6) < plain_group_curve(Steps(0.9, 1.0, 1.0, 30), 0.01, 3).epsilon(
    ...     1e-6
    ... )
    True
    """
    if records == 1:
        return best(steps, rate, delta, diameter)
    if not 0.0 < rate <= 1.0:
        raise DescriptionError("rate", rate, "above 0 and at most 1", "it is a probability")
    plain = PoissonBound(plain_group_curve(steps, rate, records), None, None, 0)
    if np.any(once(steps.nu) <= 0.0) or np.all(once(steps.s) == 0.0):
        return plain
    bounds = [plain]
    any_of_them = -math.expm1(records * math.log1p(-rate)) if rate < 1.0 else 1.0
    all_in = once(steps.s) * records
    together = steps.replace(s=float(all_in[0]) if alike(steps.s) else all_in)
    for first, start in _starts(together, diameter):
        last = steps[first:]
        if start == 0.0 and np.all(once(last.c) >= 1.0):
            continue  # without contraction and without a restart nothing is gained by deferring
        for order in PATH_ORDERS:
            found = deferral_path(last, any_of_them, order, start, diameter)
            path = DeferralPath(rate, found.left, found.low, found.high)
            curve = group_curve(path, _gaps(last), records)
            bounds.append(PoissonBound(curve, path, order, first))
    ranked = sorted(bounds, key=lambda bound: _screened_several(bound.curve, delta))
    chosen = ranked[0]
    if ranked[1:] and ranked[1].curve.delta(chosen.curve.epsilon(delta)) < delta:
        chosen = ranked[1]
    return chosen


def _screened_several(curve: LossDistribution, delta: float) -> float:
    """Epsilon by a few Renyi moments of the first order only: good enough to rank."""
    orders = np.array(_SEVERAL_SCREEN_ORDERS)
    moments = [
        sum(count * pair.log_moments(order - 1.0)[0] for pair, count in curve.counts.items())
        for order in _SEVERAL_SCREEN_ORDERS
    ]
    return chernoff_epsilon(orders, np.array(moments), delta)
