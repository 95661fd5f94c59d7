"""Batches of random size or content with a hidden state: forget first, absorb in the last steps.

Up to a horizon nothing is paid and two runs drift apart by a bounded distance; from there on every
step is paid for in full, and pays a little more so that the distance is gone at the end. What a
step costs is a pair that grows with both (`PairOf`). Any horizon and any payments are sound, so a
rough search may choose them. Whoever sees more iterates can forget some of them, so a run may be
cut anywhere, each segment forgetting its own beginning; in a short run all cuts and horizons are
compared: for one order of Renyi moments the best are a shortest path.

Without replacement: Chien & Li 2025, Theorem 3.12 takes a divergence in the wrong direction. In the
corrected statement one pair pays for the step's own batch, by subsampling, and for what earlier
steps left over, without splitting the noise. Proof: docs/theory/without-replacement.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from lastiterate.curves.bracket import crossing
from lastiterate.curves.loss_distribution import LossDistribution, chernoff_epsilon
from lastiterate.curves.pairs import ROUNDING, OpposedPair, Pair, ReplacedPair
from lastiterate.description import WithoutReplacement
from lastiterate.errors import DescriptionError
from lastiterate.theory import dynamics
from lastiterate.theory.dynamics import Array, Steps, alike, counted, once, weighted_sum
from lastiterate.theory.full_batch import modulus_limits
from lastiterate.theory.modulus import modulus_at
from lastiterate.theory.payment_paths import Prices, cheapest_payments
from lastiterate.theory.registry import ANY_UPDATE, PUBLIC, Proof, Theorem
from lastiterate.theory.run import Run

SCREEN_ORDERS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)
PATH_ORDERS = (2.0, 4.0, 8.0, 16.0)
SHIFTS = np.concatenate([[0.0], np.geomspace(1e-4, 4.0, 40)])  # payments that are priced
LONG = 10**5  # a horizon is not sought farther back, nor are constant runs replayed beyond
WIDER = 1 + 16 * ROUNDING  # `pow` of the C library is trusted to 4 units in the last place
LEVELS = 24  # different impulses that a schedule is rounded up to
PAYMENTS = 12  # different payments
SEARCHED = 2000  # last steps under concave moduli
FAR_SHIFTS = np.concatenate([[0.0], np.geomspace(1e-4, 40.0, 48)])  # payments under them
_LEAST = 1e-290  # shorter distances are paid for as if they had this length: none rounds to zero
LONGEST = 128  # longer runs are only cut at their releases
PLACES = 14  # cuts and horizons of a run with more steps lie on so many places
KNOTS = 6  # different impulses whose payments are priced; between them prices are interpolated
TILTS = np.array([0.1, 0.2, 0.35, 0.6, 1.0, 1.5, 2.2, 3.2, 4.5, 7.0, 11.0, 18.0, 30.0])
LIKELY = 3  # orders whose segments are composed, on a rough grid
_ROUNDS = 44
MOST_STEPS = 10**7  # of a run, which are accounted one by one

PairOf = Callable[[float, float], Pair]
"""(impulse, payment), both in units of the noise, to the pair that the step is charged as."""


@dataclass(frozen=True)
class Absorbed:
    """A curve, how many last steps it pays for, and what each of them absorbs."""

    curve: LossDistribution
    tail: int
    pays: Array | None  # None: nothing is left over, plain composition


def distance(steps: Steps, diameter: float = math.inf) -> float:
    """How far apart two runs can be after these steps.

    D_0 = 0, D_{t+1} = min(g(D_t) + gap, D_t + reach, diameter), g(z) <= c z the modulus of the
    step; for long constant runs the least of its closed-form bounds.

    >>> round(distance(Steps(0.5, 1.0, 1.0, 3)), 2)
    1.75
    """
    if steps.count > LONG and alike(steps.c, steps.gap, steps.reach):
        if math.isfinite(diameter) and not np.isfinite(steps.c[0]):
            return diameter
        factor, step_sensitivity, longest = (float(x[0]) for x in (steps.c, steps.gap, steps.reach))
        count = float(steps.count)
        sums = count if factor == 1.0 else math.inf if factor > 1.0 else 1.0 / (1.0 - factor)
        return min(step_sensitivity * sums * (1 + 1e-12), longest * count * (1 + 1e-12), diameter)
    *_, z = 0.0, *distances(steps, diameter)
    return z


def distances(steps: Steps, diameter: float = math.inf) -> Iterator[float]:
    """How far apart two runs can be after each of these steps; see `distance`."""
    z = 0.0
    rows = zip(steps.rows.T.tolist(), steps.gap.tolist(), steps.reach.tolist(), strict=True)
    for row, gap, longest in rows:
        z = min((modulus_at(row, z) + gap) * WIDER, (z + longest) * WIDER, diameter)
        yield z


def plain(pair_of: PairOf, steps: Steps) -> LossDistribution:
    """Plain composition: every step paid for, nothing left over, all iterates public."""
    repeated = steps.count > 0 and alike(steps.s, steps.nu)
    kept = steps[:1] if repeated else steps
    one = _composed(pair_of, _ratios(kept.s, kept.nu), np.zeros(kept.count))
    return one.self_compose(steps.count) if repeated else one


def absorbing(
    pair_of: PairOf, steps: Steps, pays: Array, diameter: float = math.inf
) -> LossDistribution:
    """Nothing paid but for the last ``len(pays)`` steps, each absorbing its payment.

    The payments must bring z_{t+1} = max(g_t(z_t) + drift_t - a_t, 0) to zero, from how far apart
    two runs can be at the first; payments that do not are no proof, and protect nothing here.
    """
    first = steps.count - len(pays)
    return absorbed(pair_of, steps[first:], distance(steps[:first], diameter), pays)


def absorbed(pair_of: PairOf, steps: Steps, left: float, pays: Array) -> LossDistribution:
    """What steps cost that absorb a distance; payments that do not protect nothing."""
    if path_from(steps, left, pays)[-1] != 0.0:  # nan too
        return LossDistribution({pair_of(math.inf, math.inf): 1})
    return _composed(pair_of, _ratios(steps.s, steps.nu), _ratios(pays, steps.nu))


def path(steps: Steps, pays: Array, diameter: float) -> list[float]:
    """z before each of the steps that absorb ``pays``, and after the last of them."""
    first = steps.count - len(pays)
    return path_from(steps[first:], distance(steps[:first], diameter), pays)


def path_from(steps: Steps, z: float, pays: Array) -> list[float]:
    """z, and what is left of it after each payment, rounded up."""
    found = [z]
    rows = zip(steps.rows.T.tolist(), steps.rounding_drift.tolist(), pays.tolist(), strict=True)
    for row, rounding, pay in rows:
        z = max((modulus_at(row, z) + rounding) * WIDER - pay, 0.0) * (1 + 2 * ROUNDING)
        found.append(z)
    return found


def best(pair_of: PairOf, steps: Steps, delta: float, diameter: float = math.inf) -> Absorbed:
    """Horizon and payments chosen for delta (sound at every delta), screened by Renyi moments.

    Never worse at delta than plain composition.
    """
    found = Absorbed(plain(pair_of, steps), steps.count, None)
    if steps.count < 2 or np.any(once(steps.nu) <= 0.0) or not np.any(once(steps.s) > 0.0):
        return found
    chosen = [_screened(pair_of, steps, delta, diameter)]
    if math.isfinite(diameter):
        begins = np.full(min(steps.count, SEARCHED), diameter)
        if len(begins) == steps.count:
            begins[:] = [0.0, *distances(steps, diameter)][:-1]
        chosen += _walked(pair_of, steps, begins, delta)
    for tail, pays in filter(None, chosen):
        curve = absorbing(pair_of, steps, pays, diameter)
        if curve.delta(found.curve.epsilon(delta)) < delta:
            found = Absorbed(curve, tail, pays)
    return found


def _screened(
    pair_of: PairOf, steps: Steps, delta: float, diameter: float
) -> tuple[int, Array] | None:
    """The most promising horizon with its payments, if it promises more than composition."""
    window = min(steps.count, LONG)
    last = steps[steps.count - window :]
    if not np.all(np.isfinite(last.c)):
        return None
    orders = np.array(SCREEN_ORDERS)
    ratios = last.s / last.nu
    knots = np.unique(np.linspace(float(ratios.min()), float(ratios.max()), 8))
    own = np.array([[log_moment(pair_of, q, r, 0.0) for r in knots] for q in orders])
    each = np.array([np.interp(ratios, knots, row) for row in own])
    summed = np.cumsum(each[:, ::-1], axis=1)
    typical = float(np.median(ratios))
    extra = np.array([[log_moment(pair_of, q, typical, a) for a in SHIFTS] for q in orders])
    extra = np.maximum.accumulate(np.minimum(extra, 1e6) - extra[:, :1], axis=1)
    if not np.all(np.isfinite(extra)):
        return None
    whole = summed[:, -1] * (steps.count / window)
    best = (chernoff_epsilon(orders, whole, delta), 0, np.zeros(0))
    tails = sorted({min(math.ceil(1.25**k), window - 1) for k in range(80)})
    for tail, left in zip(tails, _before(steps, tails, diameter), strict=True):
        if not math.isfinite(left):
            continue
        paying = last[-tail:]
        for order in PATH_ORDERS:
            pays = payments(paying, left, extra[SCREEN_ORDERS.index(order)])
            if pays is None:
                continue
            shifts = pays / paying.nu
            if shifts.max() > SHIFTS[-1]:
                continue
            paid = np.array([np.interp(shifts, SHIFTS, row).sum() for row in extra])
            epsilon = chernoff_epsilon(orders, summed[:, tail - 1] + paid, delta)
            if epsilon < best[0]:
                best = (epsilon, tail, pays)
    return (best[1], best[2]) if best[1] else None


def _before(steps: Steps, tails: list[int], diameter: float) -> list[float]:
    """The distance before each of these numbers of last steps, in one walk."""
    if steps.count > LONG and alike(steps.c, steps.gap, steps.reach):
        return [distance(steps[: steps.count - tail], diameter) for tail in tails]
    walked = [0.0, *distances(steps[: steps.count - tails[0]], diameter)]
    return [walked[steps.count - tail] for tail in tails]


@dataclass(frozen=True)
class _Tables:
    """Log-moments of steps at `SCREEN_ORDERS`, and of what payments add to a typical one."""

    own: Array  # (order, step)
    extra: Array  # (order, payment of FAR_SHIFTS)

    @classmethod
    def of(cls, pair_of: PairOf, steps: Steps) -> _Tables | None:
        """None where some of them leave the range of doubles."""
        ratios = steps.s / steps.nu
        knots = np.unique(np.linspace(float(ratios.min()), float(ratios.max()), 8))
        own = [[log_moment(pair_of, q, r, 0.0) for r in knots] for q in SCREEN_ORDERS]
        each = np.array([np.interp(ratios, knots, row) for row in own])
        typical = float(np.median(ratios))
        rises = [[log_moment(pair_of, q, typical, a) for a in FAR_SHIFTS] for q in SCREEN_ORDERS]
        extra = np.array(rises)
        extra = np.maximum.accumulate(extra - extra[:, :1], axis=1)
        return cls(each, extra) if np.all(np.isfinite(extra)) else None

    def epsilon(self, shifts: Array, delta: float) -> float:
        """About what the last steps cost with these payments."""
        paid = np.array([np.interp(shifts, FAR_SHIFTS, row).sum() for row in self.extra])
        total = self.own[:, self.own.shape[1] - len(shifts) :].sum(axis=1) + paid
        return chernoff_epsilon(np.array(SCREEN_ORDERS), total, delta)


def _walked(pair_of: PairOf, steps: Steps, begins: Array, delta: float) -> list[tuple[int, Array]]:
    """The most promising payments under each modulus of the steps."""
    window = len(begins)
    last = steps[steps.count - window :]
    if not window or np.any(last.nu <= 0.0):
        return []
    tables = _Tables.of(pair_of, last)
    if tables is None:
        return []
    found = []
    for moduli in [[modulus] for modulus in last.moduli] or [[]]:
        best, least = None, math.inf
        for order in PATH_ORDERS:
            index = SCREEN_ORDERS.index(order)
            prices = Prices(tables.own[index], FAR_SHIFTS, tables.extra[index])
            pays = cheapest_payments(last.under(*moduli), begins, prices)
            if pays is None:
                continue
            epsilon = tables.epsilon(pays / last.nu[window - len(pays) :], delta)
            if epsilon < least:
                best, least = (len(pays), pays), epsilon
        found += [best] if best is not None else []
    return found


def restarted(
    pair_of: PairOf, steps: Steps, delta: float, diameter: float, most: int = SEARCHED
) -> Absorbed:
    """The best payments for delta that begin at the diameter; plain composition if that is less.

    At most the last ``most`` steps pay; what those before them do to a distance plays no part.

    >>> run = Steps(1.0, 1.0, 1.0, 1000)
    >>> restarted(replaced_pair(0.1), run, 1e-5, diameter=2.0).tail < 1000
    True
    """
    found = Absorbed(plain(pair_of, steps), steps.count, None)
    if np.any(once(steps.nu) <= 0.0) or not np.any(once(steps.s) > 0.0):
        return found
    begins = np.full(min(steps.count, most), diameter)
    for tail, pays in _walked(pair_of, steps, begins, delta):
        curve = absorbed(pair_of, steps[steps.count - tail :], diameter, pays)
        if curve.delta(found.curve.epsilon(delta)) < delta:
            found = Absorbed(curve, tail, pays)
    return found


def log_moment(pair_of: PairOf, order: float, ratio: float, shift: float) -> float:
    """Log of E exp((order - 1) loss) of a step, the worse of both orders of its pair."""
    if ratio == 0.0 and shift == 0.0:
        return 0.0
    return _worse_moment(pair_of(ratio, shift), order - 1.0)


@lru_cache(maxsize=1 << 14)
def _worse_moment(pair: Pair, tilt: float) -> float:
    """Kept: it depends on no delta, and every delta of a run asks for the same ones."""
    return max(pair.log_moments(tilt))


def payments(steps: Steps, left: float, prices: Array) -> Array | None:
    """a_t >= 0 that absorb ``left`` over these steps at least total price, on few levels.

    Minimise the sum of price(a_t / nu_t) with sum a_t w_t = left * prod c, w_t the product of the
    later c: the slope of the price at a_t / nu_t is proportional to nu_t w_t. One root. What
    rounding adds is paid at once, on top.
    """
    nu, roundings = steps.nu, steps.rounding_drift * (1 + 16 * ROUNDING)
    if left == 0.0:
        return roundings
    with np.errstate(divide="ignore"):
        later = np.concatenate([np.cumsum(np.log(steps.c[::-1]))[::-1], [0.0]])
    scale = float(later.max())
    top = float(nu.max(initial=0.0)) or 1.0  # all in its units: doubles end at 1e308
    weight = nu / top * np.exp(later[1:] - scale)
    owed = left * math.exp(later[0] - scale)
    if owed == 0.0:
        return roundings
    owed = max(max(owed, _LEAST) / top, _LEAST)
    slopes = np.maximum.accumulate(np.diff(prices) / np.diff(SHIFTS))
    middles = np.concatenate([[0.0], (SHIFTS[2:] + SHIFTS[1:-1]) / 2])

    def shifts(log_price: float) -> Array:
        asked = math.exp(log_price) * weight
        return cast(Array, np.where(asked < slopes[0], 0.0, np.interp(asked, slopes, middles)))

    def excess(log_price: float) -> float:  # on logarithms: close to linear
        return math.log(max(weighted_sum(weight, shifts(log_price)), 1e-300)) - math.log(owed)

    chosen = shifts(crossing(excess, -60.0, 90.0))
    if not weighted_sum(weight, chosen) > 0.0:
        return None
    levelled = _levelled(chosen, weight)
    paid = weighted_sum(weight, levelled)
    return nu * (levelled * (owed / paid * (1 + 1e-9))) + roundings


def _levelled(shifts: Array, weight: Array) -> Array:
    """Few different payments: weighted means, which keep the sum, over alike ones."""
    top = float(shifts.max())
    block = np.where(shifts > 0.0, np.ceil(np.sqrt(shifts / top) * (PAYMENTS - 1)), 0.0).astype(int)
    mass = np.bincount(block, weight, minlength=PAYMENTS)
    mean = np.bincount(block, weight * shifts, minlength=PAYMENTS) / np.maximum(mass, 1e-300)
    mean[0] = 0.0
    return cast(Array, mean[block])


def _ratios(shift: Array, nu: Array) -> Array:
    """shift / nu rounded up to 40 bits, so that alike steps are equal; 0 / 0 = 0.

    A shift that is no number (beyond doubles) costs everything.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(shift <= 0.0, 0.0, shift / nu) * (1 + 8 * ROUNDING)
        ratio = np.where(np.isnan(ratio), math.inf, ratio)
        digits, exponent = np.frexp(ratio)
        rounded: Array = np.ldexp(np.ceil(digits * 2.0**40), exponent - 40)
    return rounded


def _composed(pair_of: PairOf, ratios: Array, pays: Array) -> LossDistribution:
    """The pairs of the steps, impulses and payments rounded up to few values."""
    kinds, counts = counted(np.stack([levelled_up(ratios), levelled_up(pays)]))
    composed: dict[Pair, int] = {}
    for ratio, pay, count in zip(*kinds.tolist(), counts.tolist(), strict=True):
        if ratio > 0.0 or pay > 0.0:
            composed[pair_of(ratio, pay)] = count
    return LossDistribution(composed)


def levelled_up(values: Array) -> Array:
    """Values rounded up to few, if they are many; zero stays zero.

    >>> levelled_up(np.array([0.0, 1.0, 2.0])).tolist()
    [0.0, 1.0, 2.0]
    """
    snapped = np.unique(values)
    if len(snapped) <= LEVELS + 2 or not np.isfinite(snapped[-1]):
        return values
    least = float(snapped[snapped > 0.0][0])
    levels = np.append(np.linspace(least, float(snapped[-1]), LEVELS)[:-1], snapped[-1])
    return np.where(values > 0.0, levels[np.searchsorted(levels, values)], 0.0)


# --- segments finer than the releases ------------------------------------------------------------


@dataclass(frozen=True)
class Segment:
    """Steps between two points that count as known, and what is charged for them."""

    first: int
    last: int
    found: Absorbed


def best_segments(
    pair_of: PairOf,
    steps: Steps,
    spans: Sequence[tuple[int, int]],
    delta: float,
    diameter: float = math.inf,
    beside: LossDistribution | None = None,
    published: Callable[[int, int], LossDistribution] | None = None,
) -> list[Segment]:
    """The spans between releases, or finer segments if these have a smaller epsilon at delta.

    ``beside``: what else is composed with them. ``published``: another bound for all iterates of a
    segment, for those that it suits better. Sound at every delta.

    >>> from lastiterate.theory.without_replacement import replaced_pair
    >>> run = Steps(0.95, [0.2, 3.0, 0.2, 0.2], [1.0, 1.0, 3.0, 3.0], 4)
    >>> [(part.first, part.last) for part in best_segments(replaced_pair(0.3), run, [(0, 4)], 1e-5)]
    [(0, 1), (1, 4)]
    """
    rest = LossDistribution.nothing() if beside is None else beside

    def composed(parts: list[Segment]) -> LossDistribution:
        return rest.compose(*(part.found.curve for part in parts))

    def better(part: Segment) -> Segment:
        other = None if published is None else published(part.first, part.last)
        if other is None or other.epsilon(delta) > part.found.curve.epsilon(delta):
            return part
        return Segment(part.first, part.last, Absorbed(other, part.last - part.first, None))

    chosen = [
        better(Segment(first, last, best(pair_of, steps[first:last], delta, diameter)))
        for first, last in spans
    ]
    search = _Search.over(pair_of, steps, spans, diameter)
    if search is None:
        return chosen
    finer = sorted(
        search.policies(), key=lambda found: chernoff_epsilon(1 + TILTS, found[0], delta)
    )
    rivals = [
        [better(_replayed(pair_of, steps, block, diameter)) for block in policy]
        for _, policy in finer[:LIKELY]
    ]
    for _ in range(2):  # a smaller epsilon can prefer another order
        epsilon = composed(chosen).epsilon(delta)
        rival = min(rivals, key=lambda parts: composed(parts).rough_delta(epsilon))
        if not composed(rival).delta(epsilon) < delta:
            break
        chosen = rival
    return chosen


class _Block(NamedTuple):
    """Steps from ``first`` that are not paid up to ``horizon``, then paid up to ``last``."""

    first: int
    horizon: int
    last: int
    pays: Array | None


@dataclass(frozen=True, eq=False)
class _Search:
    """All segments of a short run: what they would pay at each order, and what that costs."""

    steps: Steps
    places: list[int]
    known: set[int]  # places that are released
    horizons: list[tuple[int, int, int]]  # (first, horizon, last)
    owed: Array
    weight: Array  # one row for each of them, one column for each step; 0 where it does not pay
    prices: Array  # of the payments SHIFTS: (order, step, payment)

    @classmethod
    def over(
        cls, pair_of: PairOf, steps: Steps, spans: Sequence[tuple[int, int]], diameter: float
    ) -> _Search | None:
        """None where there is nothing to be found, or too much to look at."""
        count = spans[-1][1] if spans else 0
        if not 2 <= count <= LONGEST:
            return None
        kept = steps[:count]
        if np.any(kept.nu <= 0.0) or not np.all(np.isfinite(kept.c)) or not np.any(kept.s > 0.0):
            return None
        even = np.linspace(0, count, min(PLACES, count) + 1).astype(int).tolist()
        places = sorted({*even, *(place for span in spans for place in span)})
        inside = [[p for p in places if first <= p <= last] for first, last in spans]
        horizons = [
            (row[i], row[k], row[j])
            for row in inside
            for j in range(2, len(row))
            for i in range(j - 1)
            for k in range(i + 1, j)
        ]
        left = {(i, k): distance(kept[i:k], diameter) for i, k in {(i, k) for i, k, _ in horizons}}
        horizons = [each for each in horizons if math.isfinite(left[each[:2]])]
        prices = _prices(pair_of, kept.s / kept.nu)
        if not horizons or not np.all(np.isfinite(prices)):
            return None
        later = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(kept.c, 1e-300)))])
        _, begin, end = (np.array(column) for column in zip(*horizons, strict=True))
        with np.errstate(over="ignore"):
            step = np.arange(count)
            weight = np.exp(later[end][:, None] - later[None, 1:]) * kept.nu
            weight *= (begin[:, None] <= step) & (step < end[:, None])
            owed = np.array([left[each[:2]] for each in horizons]) * np.exp(
                later[end] - later[begin]
            )
        scale = np.maximum(weight.max(axis=1), 1e-300)
        known = {last for _, last in spans}
        return cls(kept, places, known, horizons, owed / scale, weight / scale[:, None], prices)

    def policies(self) -> list[tuple[Array, list[_Block]]]:
        """For each order the segments of least moment, with their moments of all orders."""
        return [self._policy(index) for index in range(len(TILTS))]

    def _policy(self, index: int) -> tuple[Array, list[_Block]]:
        """A shortest path from the first place to the last."""
        shifts = self._shifts(index)
        own = self.prices[index][:, 0]
        rows = np.array(
            [np.interp(s, SHIFTS, p) for s, p in zip(shifts.T, self.prices[index], strict=True)]
        )
        paid = np.where(self.weight.T > 0.0, rows, 0.0).sum(axis=0)
        paid[~np.isfinite(paid) | (shifts.max(axis=1) > SHIFTS[-1])] = math.inf
        edges: dict[int, list[tuple[int, float, int]]] = {place: [] for place in self.places}
        for first, last in zip(self.places[:-1], self.places[1:], strict=True):
            edges[last].append((first, float(own[first:last].sum()), -1))
        for row, (first, _, last) in enumerate(self.horizons):
            edges[last].append((first, float(paid[row]), row))
        value, came = {0: 0.0}, dict[int, tuple[int, int]]()
        for place in self.places[1:]:
            value[place], *how = min((value[i] + cost, i, row) for i, cost, row in edges[place])
            came[place] = (how[0], how[1])
        blocks, place = list[_Block](), self.places[-1]
        charged = np.zeros(self.steps.count)
        free = np.zeros(self.steps.count, dtype=bool)
        while place:
            first, row = came[place]
            if row < 0:
                last = place
                if blocks and blocks[-1].pays is None and place not in self.known:
                    last = blocks.pop().last
                blocks.append(_Block(first, first, last, None))
            else:
                horizon = self.horizons[row][1]
                charged[horizon:place] = shifts[row, horizon:place]
                free[first:horizon] = True
                blocks.append(_Block(first, horizon, place, charged[horizon:place]))
            place = first
        each = np.array(
            [
                [np.interp(charged[k], SHIFTS, table[k]) for k in np.flatnonzero(~free)]
                for table in self.prices
            ]
        )
        return each.sum(axis=1), blocks[::-1]

    def _shifts(self, index: int) -> Array:
        """What each segment pays, in units of noise, where slopes of the price go with weight."""
        slopes = np.diff(self.prices[index], axis=1) / np.diff(SHIFTS)
        slopes = np.maximum.accumulate(slopes, axis=1)
        middles = np.concatenate([[0.0], (SHIFTS[2:] + SHIFTS[1:-1]) / 2])

        def at(log_price: Array) -> Array:
            asked = np.exp(log_price)[:, None] * self.weight
            columns = zip(asked.T, slopes, strict=True)
            paid = [np.where(a < s[0], 0.0, np.interp(a, s, middles)) for a, s in columns]
            return cast(Array, np.array(paid).T)

        low, high = np.full(len(self.owed), -60.0), np.full(len(self.owed), 90.0)
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            enough = (self.weight * at(middle)).sum(axis=1) >= self.owed
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        found = at(high)
        paid = (self.weight * found).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = np.where(self.owed > 0.0, self.owed / paid * (1 + 1e-9), 0.0)
            return cast(Array, np.where(self.weight > 0.0, found * exact[:, None], 0.0))


def _replayed(pair_of: PairOf, steps: Steps, block: _Block, diameter: float) -> Segment:
    """What a segment is charged for."""
    part = steps[block.first : block.last]
    if block.pays is None:
        return Segment(block.first, block.last, Absorbed(plain(pair_of, part), part.count, None))
    paying = steps[block.horizon : block.last]
    pays = block.pays * paying.nu * (1 + 64 * ROUNDING) + paying.rounding_drift * (
        1 + 16 * ROUNDING
    )
    curve = absorbing(pair_of, part, pays, diameter)
    return Segment(block.first, block.last, Absorbed(curve, len(pays), pays))


def _prices(pair_of: PairOf, ratios: Array) -> Array:
    """Log-moments of every order (its tilt in TILTS), step and payment (in SHIFTS)."""
    kinds = np.unique(ratios)
    if len(kinds) > KNOTS:
        kinds = np.unique(np.quantile(ratios, np.linspace(0, 1, KNOTS)))
    some = np.append(np.arange(1, len(SHIFTS), 2), len(SHIFTS) - 1)
    mix = np.array([np.interp(ratios, kinds, row) for row in np.eye(len(kinds))])
    tables = []
    for tilt in TILTS.tolist():
        rows = []
        for ratio in kinds.tolist():
            own = log_moment(pair_of, 1.0 + tilt, ratio, 0.0)
            rises = [log_moment(pair_of, 1.0 + tilt, ratio, SHIFTS[k]) - own for k in some]
            logs = np.log(np.maximum.accumulate(np.clip(rises, 1e-290, 1e6)))
            between = np.exp(np.interp(np.log(SHIFTS[1:]), np.log(SHIFTS[some]), logs))
            rows.append(own + np.concatenate([[0.0], between]))
        tables.append(mix.T @ np.array(rows))
    return np.array(tables)


# --- without replacement -------------------------------------------------------------------------


def replaced_pair(rate: float) -> PairOf:
    """The pair of a step with a given impulse that also absorbs a payment.

    *Statement.* Batches of b of n records, drawn afresh at every step; q = b/n, s = 2 eta K / b,
    every mini-batch map c-Lipschitz. For any horizon tau, z_tau >= min(D_tau, diameter), payments
    a_t >= 0 with z_{t+1} = c z_t - a_t >= 0 and z_T = 0: the run is dominated in both orders by
    the composition over t >= tau of the pairs with profile, for gamma >= 1,
    min over t <= gamma of (1-q) delta_a(log t) + q delta_{a+s}(log((gamma - (1-q) t)/q)), the
    lengths a and s in units of the noise. With a = 0 that is q delta_s(log(1 + (gamma - 1)/q)).

    *Reference.* Corrects Chien & Li 2025, Theorem 3.12, whose divergence has the wrong
    direction and whose proof conditions in the wrong order; the noise is not split any more.
    Status: corrected. Proof: docs/theory/without-replacement.md.

    >>> found = best(replaced_pair(0.1), Steps(0.9, 1.0, 1.0, 200), delta=1e-5)
    >>> found.tail < 200 and found.curve.epsilon(1e-5) < 5.0
    True
    """
    if not 0.0 < rate <= 1.0:
        raise DescriptionError("rate", rate, "above 0 and at most 1", "it is a share of the data")

    def pair(step_sensitivity: float, pay: float) -> ReplacedPair:
        return ReplacedPair(rate, (step_sensitivity + pay) * (1 + ROUNDING), pay)

    return pair


def plain_curve(steps: Steps, rate: float) -> LossDistribution:
    """Plain composition, all iterates published."""
    return plain(replaced_pair(rate), steps)


# --- the theorems -------------------------------------------------------------------------------


def offers(curve: LossDistribution) -> list[list[float]]:
    """The shifts that steps are charged as: part of a witness; a step takes the first that fits.

    (without the record, with it), and the length of one gradient where it is replaced.
    """
    opposed = [pair for pair in curve.counts if isinstance(pair, OpposedPair)]
    replaced = [pair for pair in curve.counts if isinstance(pair, ReplacedPair)]
    found = [[pair.low, pair.high, pair.back] for pair in opposed]
    found += [[pair.low, pair.mu] for pair in replaced]
    return sorted(found)


def witnessed(steps: Steps, parts: Sequence[Segment], diameter: float) -> list[dict[str, Any]]:
    """The segments of a witness, with their paths."""
    spans = [(part.first, part.last, part.found.pays) for part in parts]
    return [
        {"first": first, "last": last}
        | ({} if pays is None else {"z": path(steps[first:last], pays, diameter)})
        for first, last, pays in spans
    ]


def batch_share(run: Run) -> float:
    """q = b/n, rounded up."""
    share = run.training.batches.share(run.training.records)
    return min(share * dynamics.ROUNDING, 1.0)


def batch_displacement(run: Run) -> Array:
    """How far one record moves a batch drawn without replacement, against any other batch of it.

    A record that is replaced moves it by the sensitivity. One that is zeroed out still displaces
    another record, whose gradient is as long as its own: twice the sensitivity. Either way there
    are two sums, and each is rounded once.
    """
    training = run.training
    if training.adjacency == "replace":
        return run.step_sensitivities
    return dynamics.step_sensitivities(run.etas, training, 2 * training.sensitivity)


def farthest(run: Run) -> Array:
    """How much one step can add to a distance at most: 2 eta K, if the L2 term does not overshoot.

    Every record may pull the two runs apart, and rounding may.
    """
    far = dynamics.reach(run.etas, run.training) + run.rounding_drifts
    return np.where(run.etas * run.loss.regularization <= 1, far * dynamics.ROUNDING, math.inf)


def long_limits(run: Run) -> str | None:
    """What is special about fresh batches: steps are accounted one by one."""
    if run.training.steps > MOST_STEPS:
        return f"more than {MOST_STEPS:,} steps are not accounted one by one"
    return None


def without_replacement_limits(run: Run) -> str | None:
    """What is special about it: something must be forgotten."""
    return long_limits(run) or modulus_limits(run)


def without_replacement_composition_bound(run: Run) -> Proof:
    """The composition of the subsampled profiles, all iterates public."""
    curve = plain_curve(run.having(s=batch_displacement(run)), batch_share(run))
    return Proof(curve, {"menu": offers(curve)})


def without_replacement_bound(run: Run) -> Proof:
    """Segments, horizons and payments chosen for each delta."""
    return Proof.searched(lambda delta: _segments_at(run, delta))


def _segments_at(run: Run, delta: float) -> Proof:
    rate = batch_share(run)
    steps = run.having(s=batch_displacement(run), reach=farthest(run)).under(*run.moduli())
    window = plain_curve(steps[run.hidden_steps :], rate)
    parts = best_segments(
        replaced_pair(rate), steps, run.hidden_segments, delta, run.training.diameter, window
    )
    segments = witnessed(steps, parts, run.training.diameter)
    curve = window.compose(*(part.found.curve for part in parts))
    return Proof(curve, {"menu": offers(curve), "segments": segments})


WITHOUT_REPLACEMENT_COMPOSITION = Theorem(
    key="without-replacement-composition",
    name="Without-replacement composition (Balle, Barthe & Gaboardi 2018)",
    reference="advanced joint convexity, Balle, Barthe & Gaboardi 2018; attained at one step",
    statement=(
        "One step has the profile delta(eps) = q G_mu(log(1 + (e^eps - 1)/q)), mu = s/nu, q = b/n, "
        "in both orders; the run is the composition of its steps. A record that is zeroed out "
        "displaces another one, so that s is twice as long as its own sensitivity."
    ),
    schemes=(WithoutReplacement,),
    bound=without_replacement_composition_bound,
    limits=long_limits,
    supports=PUBLIC,
    assumptions=("a fresh secret subset at every step",),
    hidden_state=False,
)

WITHOUT_REPLACEMENT = Theorem(
    key="chien-li-2025-3.12",
    name="Chien & Li 2025, Theorem 3.12, corrected",
    reference="corrects Chien & Li 2025, Theorem 3.12; docs/theory/without-replacement.md",
    status="corrected",
    statement=(
        "For a horizon tau, z_tau >= min(D_tau, diameter), a_t >= 0 with z_{t+1} = g(z_t) - a_t >= "
        "0, z_T = 0, g the modulus of the updates: the run is dominated in both orders by the "
        "composition over t >= tau of the pairs with profile min over r <= x of (1-q) G_a(log r) + "
        "q G_{a+s}(log((x - (1-q) r)/q)) at x = e^eps >= 1, a and s in units of the noise. (G_mu: "
        "the profile of one Gaussian.)"
    ),
    correction=(
        "The printed divergence has the wrong direction, prints beta for sqrt(beta), and its proof "
        "conditions in the wrong order. The noise of a step need not be split."
    ),
    schemes=(WithoutReplacement,),
    bound=without_replacement_bound,
    limits=without_replacement_limits,
    supports=ANY_UPDATE | {"releases"},
    assumptions=(
        "a fresh secret subset at every step",
        "updates have a known modulus of continuity",
    ),
)
